"""Running a rendered hook."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

USER = 20001


def run(hook: Path, environ: Mapping[str, str], directory: Path, **options: int) -> subprocess.CompletedProcess[str]:
    """A hook's end, with exactly this environment."""
    return subprocess.run(
        [hook], env=environ, cwd=directory, capture_output=True, text=True, timeout=30, check=False, **options
    )
