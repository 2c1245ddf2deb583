"""Write the output of a command to a file, whole or not at all, or to stdout."""

import sys
from pathlib import Path

from prechecks import files
from slurm_plugin.errors import SlurmPluginError, printable
from slurm_plugin.views import log

STDOUT = Path("-")


def write(path: Path | None, content: str) -> None:
    """Write a file atomically; None and `-`: stdout. Raise SlurmPluginError if it cannot be written."""
    if path in (None, STDOUT):
        sys.stdout.write(content)
        return
    try:
        files.replace(path, content, mode=None)
    except OSError as error:
        raise SlurmPluginError(
            f"{printable(str(path))}: {error.strerror}\n  name a place where you may write: --output FILE"
        ) from error


def page(path: Path, content: str, *, opens: str = "a browser") -> None:
    """Write a page, and print its path unless it goes to stdout. `opens`: the program that opens the file."""
    write(path, content)
    if path != STDOUT:
        shown = printable(str(path.absolute()))
        print(f"written: {shown} ({log.size(len(content.encode()))})\n  open it in {opens}; it is one file")
