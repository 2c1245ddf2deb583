"""The command line that runs this very code on another node."""

import sys

from slurm_plugin import compiled


def command() -> list[str]:
    """The deployed copy where this is one, else the installed package."""
    root = compiled.site_root()
    if (root / "lib" / "__main__.py").exists():
        return [str(root / "bin" / "slurm-plugin")]
    return [sys.executable, "-m", "slurm_plugin"]
