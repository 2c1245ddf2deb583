"""The compiled site file: what hooks and jobs read in place of the YAML. Standard library only."""

from __future__ import annotations

import json
import os
import sys

TYPE_CHECKING = False  # as in `typing`; it and `pathlib` would cost a prolog 7 ms
if TYPE_CHECKING:
    from typing import Any, Final

VERSION: Final = 1
FILE: Final = "compiled.json"
DEFAULT_ROOT: Final = "/etc/slurm/slurm_plugin"
KILL_SWITCH: Final = "DISABLED"  # while this file stands beside it, nothing of ours acts


def site_root() -> str:
    """The site directory this code was deployed in: the parent of the `lib` that Python runs."""
    return os.path.dirname(os.path.realpath(sys.path[0]))  # noqa: PTH120


def read(root: str) -> dict[str, Any]:
    """The settings compiled into `root`.

    Raises OSError where the file is missing, ValueError where it is not ours or of another version.
    """
    path = f"{root}/{FILE}"
    with open(path, encoding="utf-8") as file:  # noqa: PTH123
        settings = json.load(file)
    if not isinstance(settings, dict) or settings.get("v") != VERSION:
        raise ValueError(f"{path}: not a version {VERSION} file; run `slurm-plugin site render` again")
    return settings
