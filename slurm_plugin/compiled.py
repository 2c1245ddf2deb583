"""The compiled site file: what hooks and jobs read in place of the YAML. Standard library only."""

import json
import sys
from pathlib import Path
from typing import Any, Final

VERSION: Final = 1
FILE: Final = "compiled.json"
KILL_SWITCH: Final = "DISABLED"  # while this file stands beside it, nothing of ours acts


def site_root() -> Path:
    """The site directory this code was deployed in: the parent of the `lib` that Python runs."""
    return Path(sys.path[0]).resolve().parent


def read(root: Path) -> dict[str, Any]:
    """The settings compiled into `root`.

    Raises OSError where the file is missing, ValueError where it is not ours or of another version.
    """
    settings = json.loads((root / FILE).read_text(encoding="utf-8"))
    if not isinstance(settings, dict) or settings.get("v") != VERSION:
        raise ValueError(f"{root / FILE}: not a version {VERSION} file; run `slurm-plugin site render` again")
    return settings
