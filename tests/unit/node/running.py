"""Run a rendered hook."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

USER = 20001


def run(hook: Path, environ: Mapping[str, str], directory: Path, **options: int) -> subprocess.CompletedProcess[str]:
    """Run a hook with exactly this environment, and return its result."""
    return subprocess.run([hook], env=environ, cwd=directory, capture_output=True, text=True, check=False, **options)
