"""The register of a user's experiments: one line a submission, so that an experiment is found by its name or array.

It is only a way to find directories. Each directory has the experiment itself, and works without the register.
Standard library only.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from slurm_plugin.errors import SlurmPluginError, printable
from slurm_plugin.records import directories
from slurm_plugin.records.experiments import FILE

_ARRAY = re.compile(r"([0-9]{1,10})(?:_[0-9]+)?", re.ASCII)  # an array job's id, or the name of one of its tasks
MOST_BYTES: Final = 4 << 20  # the end of the register that is read: tens of thousands of submissions


class Entry(NamedTuple):
    """A submission."""

    directory: Path
    array: int


def path() -> Path:
    """Return the path of this user's register."""
    return directories.state_directory() / "experiments.jsonl"


def add(directory: Path, array: int) -> None:
    """Append a submission. Ignore a home that cannot be written: the experiment works without the register."""
    line = json.dumps({"directory": str(directory), "array": array})
    with suppress(OSError, RuntimeError):  # RuntimeError: no home
        path().parent.mkdir(parents=True, exist_ok=True)
        with path().open("ab") as file:  # one write of one line: appends of two shells do not mix
            file.write(f"{line}\n".encode())


def entries() -> Iterator[Entry]:
    """Yield the submissions, the newest first. Leave out malformed lines and directories without an experiment."""
    try:
        with path().open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - MOST_BYTES))
            lines = file.read(MOST_BYTES).splitlines()
    except (OSError, RuntimeError):
        return
    for line in reversed(lines):
        try:
            found = json.loads(line)
            entry = Entry(Path(found["directory"]), int(found["array"]))
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
        with suppress(OSError, ValueError):
            if (entry.directory / FILE).is_file():
                yield entry


def find(word: str) -> Path:
    """Return the directory of an experiment: `word` is a directory, a directory's name, or the id of an array job.

    Raise SlurmPluginError if no directory has the name, or if several directories have the name.
    """
    given = Path(word)
    with suppress(OSError, ValueError):
        if (given / FILE).is_file():
            return given.absolute()
    found = {each.directory for each in entries() if each.directory.name == word}
    if array := _ARRAY.fullmatch(word):
        found |= {each.directory for each in entries() if each.array == int(array[1])}
    if len(found) == 1:
        return found.pop()
    shown = printable(word)
    if found:
        listed = "".join(f"\n    {printable(str(each))}" for each in sorted(found))
        raise SlurmPluginError(f"{shown}: found {len(found)} experiments; give the directory:{listed}")
    raise SlurmPluginError(
        f"{shown}: found no such experiment; accepted: its directory, the directory's name, or its array's job id\n"
        "  yours are: slurm-plugin experiment list"
    )
