"""The data of a PyTorchTrial: its DataLoader, and how batches are divided among the ranks and found again.

Rank r of n takes every n-th batch, from the r-th on. In an epoch each rank has as many batches: the rest, which is
less than a batch for all ranks, is dropped. Validation drops nothing.
"""

import collections
import importlib.util
import itertools
import sys
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import torch
import torch.utils.data as torch_data

from slurm_plugin.errors import UsageError
from slurm_plugin.experiment.runner import torch_rank

TorchData: TypeAlias = dict[str, torch.Tensor] | list[torch.Tensor] | tuple[torch.Tensor, ...] | torch.Tensor
ENDLESS: Final = sys.maxsize  # batches in an epoch of a loader without a length
KEPT: Final = 1000  # epochs whose begin is kept: more than loader processes are ahead
_PLAIN: Final = (torch_data.SequentialSampler, torch_data.RandomSampler)
_NUMERIC: Final = "fciub"  # the kinds of NumPy's types that a tensor can have


class DataLoader:
    """Like torch.utils.data.DataLoader, with its arguments. The runner makes the loader of each rank from it."""

    def __init__(  # noqa: PLR0917 - PyTorch's signature
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool = False,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Any = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Any = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
    ) -> None:
        if isinstance(dataset, torch_data.IterableDataset):
            raise ValueError("an IterableDataset cannot be divided: return a torch.utils.data.DataLoader of your own")
        if batch_sampler is None and batch_size is None:
            raise ValueError("batch_size=None needs a batch_sampler")
        # PyTorch checks the arguments, and fills in the samplers and the collate function.
        made = torch_data.DataLoader(
            dataset, batch_size, shuffle, sampler, batch_sampler, num_workers, collate_fn, pin_memory, drop_last,
            timeout, worker_init_fn, multiprocessing_context, generator,
            prefetch_factor=prefetch_factor, persistent_workers=persistent_workers,
        )  # fmt: skip
        for name in (*_COPIED, "dataset", "batch_size", "drop_last", "sampler", "batch_sampler"):
            setattr(self, name, getattr(made, name))

    dataset: Any
    batch_sampler: Any

    def get_data_loader(
        self,
        repeat: bool = False,
        skip: int = 0,
        num_replicas: int = 1,
        rank: int = 0,
    ) -> Any:
        """Return PyTorch's loader of one rank. `repeat`: endless, for training. `skip`: batches trained before."""
        if repeat:
            return training_loader(self, EpochSampler(self.batch_sampler, num_replicas, rank, skip))
        return validation_loader(self, num_replicas, rank)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get_data_loader())

    def __len__(self) -> int:
        return len(self.batch_sampler)


_COPIED: Final = (
    "num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context", "generator",
    "prefetch_factor", "persistent_workers",
)  # fmt: skip


class EpochSampler:
    """The batches of one rank, epoch after epoch, from any batch on, in the order of an undisturbed run.

    The state of the generators at the begin of an epoch decides its order. `states` keeps them: a checkpoint saves
    those of the current epoch and of a next one that loader processes have begun.
    """

    def __init__(
        self, batches: Any, size: int = 1, rank: int = 0, start: int = 0, states: dict[int, Any] | None = None
    ) -> None:
        """Divide `batches`, a batch sampler. `start`: batches that each rank had before. `states`: of a checkpoint."""
        self.batches, self.size, self.rank, self.start = _without_partial(batches), size, rank, start
        self.states = {} if states is None else states
        self.length = max(len(self.batches) // size, 1)

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        epoch, inside = divmod(self.start, self.length)
        if epoch and not _is_plain(self.batches):
            with torch_rank.forked_rng():
                for _ in range(epoch):  # a sampler with a generator of its own reaches the state that it had
                    collections.deque(self.batches, maxlen=0)
        while True:
            yield from itertools.islice(self._epoch(epoch), inside, None)
            epoch, inside = epoch + 1, 0

    def saved(self, batches: int) -> dict[int, Any]:
        """Return the states that a checkpoint after so many batches needs."""
        return {epoch: state for epoch, state in self.states.items() if epoch >= batches // self.length}

    def _epoch(self, epoch: int) -> Iterator[Any]:
        """Return the batches of an epoch of this rank."""
        if epoch in self.states:
            with torch_rank.forked_rng(self.states[epoch]):
                return self._drawn()
        self.states[epoch] = torch_rank.rng_state()
        self.states.pop(epoch - KEPT, None)
        return self._drawn()

    def _drawn(self) -> Iterator[Any]:
        found = enumerate(itertools.cycle(self.batches) if len(self.batches) < self.size else self.batches)
        wanted = self.length * self.size
        mine = (batch for at, batch in itertools.islice(found, wanted) if at % self.size == self.rank)
        is_in_order = isinstance(getattr(self.batches, "sampler", None), torch_data.SequentialSampler)
        return mine if is_in_order else iter(list(mine))


class ShardSampler:
    """Every n-th batch, for validation."""

    def __init__(self, batches: Any, size: int, rank: int) -> None:
        self.batches, self.size, self.rank = batches, size, rank

    def __len__(self) -> int:
        return len(range(self.rank, len(self.batches), self.size))

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(iter(self.batches), self.rank, None, self.size)


def _without_partial(batches: Any) -> Any:
    """Return a batch sampler without its last, smaller batch; unchanged if it has no other."""
    if type(batches) is not torch_data.BatchSampler or len(batches.sampler) < batches.batch_size:
        return batches
    return torch_data.BatchSampler(batches.sampler, batches.batch_size, drop_last=True)


def _is_plain(batches: Any) -> bool:
    """Return whether each epoch depends on nothing but the global generators."""
    sampler = getattr(batches, "sampler", None)
    is_known = type(batches) is torch_data.BatchSampler and type(sampler) in _PLAIN
    return is_known and getattr(sampler, "generator", None) is None


def training_loader(loader: Any, sampler: Any) -> Any:
    """Return PyTorch's loader with this batch sampler and everything else of `loader`."""
    options = {name: getattr(loader, name) for name in _COPIED}
    return torch_data.DataLoader(loader.dataset, batch_sampler=sampler, **options)


def validation_loader(loader: Any, size: int, rank: int) -> Any:
    """Return PyTorch's loader with this rank's batches."""
    return training_loader(loader, ShardSampler(loader.batch_sampler, size, rank))


def check(loader: Any, where: str) -> None:
    """Raise UsageError if the runner cannot divide this loader."""
    dataset, batches = getattr(loader, "dataset", None), getattr(loader, "batch_sampler", None)
    if dataset is None or batches is None or isinstance(dataset, torch_data.IterableDataset):
        raise UsageError(
            f"{where}: found {type(loader).__name__}, which the runner cannot divide among the ranks\n"
            "  accepted are determined.pytorch.DataLoader and torch.utils.data.DataLoader with a map-style dataset\n"
            "  or divide and repeat the data yourself, and call in __init__:"
            " context.experimental.disable_dataset_reproducibility_checks()"
        )


def data_length(batch: Any) -> int:
    """Return the number of records in a batch: the length of its first array or tensor. Raise TypeError."""
    if isinstance(batch, dict):
        batch = list(batch.values())
    if isinstance(batch, list | tuple):
        if not batch:
            raise ValueError("the batch is empty: override get_batch_length")
        return data_length(batch[0])
    if hasattr(batch, "__len__"):
        return len(batch)
    raise TypeError(f"a batch of {type(batch).__name__}: override get_batch_length")


def to_device(batch: Any, device: torch.device) -> Any:
    """Return the batch on the device, with its structure; arrays become tensors. Leave what has no tensor as it is."""
    if isinstance(batch, dict):
        return {key: to_device(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(to_device(each, device) for each in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(to_device(each, device) for each in batch)
    if hasattr(batch, "to"):
        return batch.to(device)
    if importlib.util.find_spec("numpy"):
        import numpy as np  # noqa: PLC0415 - PyTorch works without it

        if isinstance(batch, np.ndarray) and batch.dtype.kind in _NUMERIC:
            return torch.from_numpy(batch).to(device)
    return batch
