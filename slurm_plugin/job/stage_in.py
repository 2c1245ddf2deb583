"""`stage_in:` of a spec, as the supervisor has it: what every node is to fetch, and what nodes say that cannot."""

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from slurm_plugin.errors import printable

KEYWORD: Final = "stage-in"
NO_PLACE: Final = (
    "stage_in: this site has no place for copies; its admin gives one, `stage_in: {directory: ...}`: docs/install.md"
)
_LONGEST: Final = 500


class Request(NamedTuple):
    """What every node is to have."""

    directory: str  # the site's
    run: str  # this run's own name
    notes: str  # where a node says that it cannot have it: the job's own directory
    wanted: tuple[str, ...]  # TO:SOURCE, an absolute path

    def words(self) -> tuple[str, ...]:
        """The arguments of `slurm-plugin` that fetch it on a node."""
        where = (f"--directory={self.directory}", f"--run={self.run}", f"--notes={self.notes}")
        return ("job", "stage-in", *where, "--", *self.wanted)


def variable(directory: str, run: str) -> str:
    """SLURM_PLUGIN_DATA: the same path on every node."""
    return f"{directory}/{os.geteuid()}/{run}"


def note(notes: str, node: str) -> str:
    """Where a node says why it cannot have the data."""
    return f"{notes}/{KEYWORD}.{node}"


def tell(notes: str, node: str, why: str) -> None:
    """Say it, in the file that `forget` has put there: a new one in its place could be seen late. Raises OSError."""
    with open(note(notes, node), "w", encoding="utf-8") as file:  # noqa: PTH123
        file.write(why)


def told(notes: str, nodes: Sequence[str]) -> dict[str, str]:
    """What these nodes have said, by name."""
    found = {}
    for node in nodes:
        with suppress(OSError), open(note(notes, node), encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            if why := printable(file.read(_LONGEST)):
                found[node] = why
    return found


def forget(notes: str, nodes: Sequence[str]) -> None:
    """Have an empty note of each, whatever they said of an attempt before.

    A file server is asked anew about a file that is opened; that one is not there may be remembered for a minute.
    """
    with suppress(OSError):
        os.makedirs(notes, mode=0o755, exist_ok=True)  # noqa: PTH103
    for node in nodes:
        with suppress(OSError):
            tell(notes, node, "")


def clear(notes: str, nodes: Sequence[str]) -> None:
    """Leave none behind, once all have the data."""
    for node in nodes:
        with suppress(OSError):
            os.unlink(note(notes, node))  # noqa: PTH108
