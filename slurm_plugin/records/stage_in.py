"""The key `stage_in` of a job spec: the data that every node copies, and the nodes' notes about failures."""

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from slurm_plugin.errors import printable

KEYWORD: Final = "stage-in"
NO_PLACE: Final = (
    "stage_in: found no directory for copies; an admin sets one in the site file, and on a cluster without an"
    " installation you in ~/.config/slurm_plugin.yaml: `stage_in: {directory: /tmp}`"
)
_LONGEST: Final = 500


class Request(NamedTuple):
    """The data that every node copies."""

    directory: str  # the site's directory for copies
    run: str  # the name of this run
    notes: str  # the directory of the nodes' notes: the job's directory
    wanted: tuple[str, ...]  # TO:SOURCE; SOURCE is an absolute path
    keep_s: float = 0.0  # remove the user's copies that no job has used for this time; 0: root does

    def words(self) -> tuple[str, ...]:
        """Return the arguments of `slurm-plugin` that copy the data on a node."""
        where: tuple[str, ...] = (f"--directory={self.directory}", f"--run={self.run}", f"--notes={self.notes}")
        where += (f"--keep={self.keep_s:g}",) if self.keep_s else ()
        return ("job", "stage-in", *where, "--", *self.wanted)


def variable(directory: str, run: str) -> str:
    """Return the value of SLURM_PLUGIN_DATA, a path that is the same on every node."""
    return f"{directory}/{os.geteuid()}/{run}"


def note_path(notes: str, node: str) -> str:
    """Return the path of the file in which a node says why it cannot copy the data."""
    return f"{notes}/{KEYWORD}.{node}"


def write_note(notes: str, node: str, why: str) -> None:
    """Write a note into the file that `reset_notes` made: a new file may be visible late. Raises OSError."""
    with open(note_path(notes, node), "w", encoding="utf-8") as file:  # noqa: PTH123
        file.write(why)


def read_notes(notes: str, nodes: Sequence[str]) -> dict[str, str]:
    """Return the notes of these nodes by node name, without empty notes."""
    found = {}
    for node in nodes:
        with suppress(OSError), open(note_path(notes, node), encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            if why := printable(file.read(_LONGEST)):
                found[node] = why
    return found


def reset_notes(notes: str, nodes: Sequence[str]) -> None:
    """Write an empty note for each node, in place of the notes of an earlier attempt.

    A client of a file server may cache for a minute that a file is missing. It checks an existing file at each open.
    """
    with suppress(OSError):
        os.makedirs(notes, mode=0o755, exist_ok=True)  # noqa: PTH103
    for node in nodes:
        with suppress(OSError):
            write_note(notes, node, "")


def remove_notes(notes: str, nodes: Sequence[str]) -> None:
    """Remove the notes of these nodes."""
    for node in nodes:
        with suppress(OSError):
            os.unlink(note_path(notes, node))  # noqa: PTH108
