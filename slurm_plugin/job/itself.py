"""Where this very code runs from, and the command line that runs it on another node."""

import os
import sys

from slurm_plugin import compiled


def deployed() -> bool:
    """Whether it runs from a site directory, whatever state that is in."""
    return os.path.exists(f"{compiled.site_root()}/{compiled.ARCHIVE}")  # noqa: PTH110


def command() -> list[str]:
    """The deployed copy where this is one, else the installed package."""
    if deployed():
        return [f"{compiled.site_root()}/bin/slurm-plugin"]
    return [sys.executable, "-m", "slurm_plugin"]
