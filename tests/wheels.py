"""Build the wheel of this checkout, and install it."""

import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
DEADLINE_S = 600.0  # an index may be slow
_PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]


def built(directory: Path) -> Path:
    """Build the wheel in this directory, and return its path."""
    if find_spec("hatchling"):
        build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(directory), str(CHECKOUT)]
    else:
        build = [*_PIP, "wheel", "--no-deps", "--wheel-dir", str(directory), str(CHECKOUT)]
    run(build, directory)
    (wheel,) = directory.glob("*.whl")
    return wheel


def install(wheel: Path, python: str, venv: Path) -> None:
    """Install the wheel and its dependencies into a new virtual environment of this interpreter."""
    run([python, "-m", "venv", "--without-pip", str(venv)], venv.parent)
    add(str(venv / "bin/python"), str(wheel), venv.parent)


def add(python: str, package: str, directory: Path) -> None:
    """Install a package and its dependencies into the environment of this interpreter."""
    run([*_PIP, "--python", python, "install", "--no-compile", package], directory)


def fetch(package: str, directory: Path) -> None:
    """Fetch the wheels of a package and its dependencies for this interpreter."""
    run([*_PIP, "download", "--only-binary=:all:", "--dest", str(directory), package], directory.parent)


def run(argv: list[str], directory: Path, environ: Mapping[str, str] | None = None) -> str:
    """Return the output of a command. If it fails, fail the test with its whole output."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        argv, cwd=directory, env={**clean, **(environ or {})}, capture_output=True, text=True, check=False,
        timeout=DEADLINE_S,
    )  # fmt: skip
    assert done.returncode == 0, f"{argv}\n{done.stdout}{done.stderr}"
    return done.stdout
