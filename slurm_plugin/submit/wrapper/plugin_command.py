"""Find the `slurm-plugin` that batch scripts call. Standard library only."""

import os
import sys

from slurm_plugin.errors import MissingError


def for_scripts(wanted: str) -> str:
    """Return the `slurm-plugin` that batch scripts call: `wanted` (the deployed one), else the one that runs now.

    If neither exists, return one beside Python or on the PATH. Raise MissingError if there is none.
    """
    import shutil  # noqa: PLC0415 - slow to import, and needed only here

    beside = os.path.join(os.path.dirname(sys.executable), "slurm-plugin")  # noqa: PTH118, PTH120
    running = os.path.abspath(sys.argv[0])  # noqa: PTH100
    if wanted and os.path.exists(wanted):  # noqa: PTH110
        return wanted
    if os.path.basename(running) == "slurm-plugin" and os.path.exists(running):  # noqa: PTH110, PTH119
        return running
    found = beside if os.path.exists(beside) else shutil.which("slurm-plugin")  # noqa: PTH110
    if not found:
        raise MissingError(
            f"{wanted} does not exist, and batch scripts need a slurm-plugin command\n"
            "  deploy it with: slurm-plugin site install --apply; or install the package: pip install slurm_plugin"
        )
    return found
