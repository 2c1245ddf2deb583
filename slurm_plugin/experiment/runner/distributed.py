"""The ranks of a trial, with the names that a Trial class knows: `context.distributed`. Standard library only."""

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Self


class DistributedContext(AbstractContextManager["DistributedContext"]):
    """One rank among those of the trial. `stuff` may be any object that pickle takes."""

    def __init__(
        self,
        *,
        rank: int = 0,
        size: int = 1,
        local_rank: int = 0,
        local_size: int = 1,
        cross_rank: int = 0,
        cross_size: int = 1,
        allgather: Callable[[Any], list[Any]] | None = None,
        close: Callable[[], None] = lambda: None,
        **_: Any,  # addresses and ports of Determined's own connections
    ) -> None:
        """Describe a rank. `cross_rank` and `cross_size`: its node among the nodes. `allgather`: None for one rank."""
        self.rank, self.size = rank, size
        self.local_rank, self.local_size = local_rank, local_size
        self.cross_rank, self.cross_size = cross_rank, cross_size
        if size > 1 and allgather is None:
            raise ValueError("several ranks: found no `allgather`; use DistributedContext.from_torch_distributed()")
        self._allgather = allgather or (lambda stuff: [stuff])
        self._close = close

    @classmethod
    def from_torch_distributed(cls, chief_ip: str | None = None) -> Self:  # noqa: ARG003 - Determined's
        """Return the rank of this process in the group of torch.distributed. Make the group if it does not exist."""
        from slurm_plugin.experiment.runner import torch_rank  # noqa: PLC0415 - only PyTorch's ranks have torch

        allgather, leave = torch_rank.start()
        return cls(**places(os.environ), allgather=allgather, close=leave)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:  # after an error of one rank, leaving could wait for the others
            self.close()

    def close(self) -> None:
        """Leave the group of the ranks."""
        self._close()

    def get_rank(self) -> int:
        """Return the rank among all ranks."""
        return self.rank

    def get_local_rank(self) -> int:
        """Return the rank among those of this node."""
        return self.local_rank

    def get_size(self) -> int:
        """Return the number of ranks."""
        return self.size

    def get_num_agents(self) -> int:
        """Return the number of nodes."""
        return self.cross_size

    def allgather(self, stuff: Any) -> list[Any]:
        """Return the objects of all ranks, in their order, on every rank."""
        return self._allgather(stuff)

    def barrier(self) -> None:
        """Return when all ranks have called this."""
        self.allgather(None)

    def gather(self, stuff: Any) -> list[Any] | None:
        """Return the objects of all ranks on rank 0, None elsewhere."""
        found = self.allgather(stuff)
        return None if self.rank else found

    def broadcast(self, stuff: Any) -> Any:
        """Return the object of rank 0 on every rank."""
        return self.allgather(None if self.rank else stuff)[0]

    def allgather_local(self, stuff: Any) -> list[Any]:
        """Return the objects of this node's ranks on each of them."""
        return [each for node, each in self.allgather((self.cross_rank, stuff)) if node == self.cross_rank]

    def gather_local(self, stuff: Any) -> list[Any] | None:
        """Return the objects of this node's ranks on its first rank, None elsewhere."""
        found = self.allgather_local(stuff)
        return None if self.local_rank else found

    def broadcast_local(self, stuff: Any = None) -> Any:
        """Return the object of this node's first rank on each of its ranks."""
        return self.allgather_local(None if self.local_rank else stuff)[0]


def places(environ: Mapping[str, str]) -> dict[str, int]:
    """Return the ranks and sizes from the variables that torch.distributed.run sets; those of one rank without them."""

    def number(name: str, default: int) -> int:
        value = environ.get(name, "")
        return int(value) if value.isdecimal() else default

    size, local = number("WORLD_SIZE", 1), number("LOCAL_WORLD_SIZE", 1)
    return {
        "rank": number("RANK", 0),
        "size": size,
        "local_rank": number("LOCAL_RANK", 0),
        "local_size": local,
        "cross_rank": number("GROUP_RANK", number("RANK", 0) // local),
        "cross_size": number("GROUP_WORLD_SIZE", -(-size // local)),
    }
