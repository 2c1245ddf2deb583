"""The wheel, built from this checkout and installed into an empty environment: complete, and the same program."""

import io
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
PACKAGES = ("hostfiles", "prechecks", "slurm_plugin")
SPEC = CHECKOUT / "examples/openmpi-hello.yaml"
DEADLINE_S = 600.0  # an index may be slow


@dataclass(frozen=True, slots=True)
class Installed:
    """A wheel, and the virtual environment it was installed into."""

    wheel: Path
    venv: Path

    @property
    def command(self) -> str:
        """The installed `slurm-plugin`."""
        return str(self.venv / "bin/slurm-plugin")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel with its dependencies in an environment that holds nothing else."""
    directory = tmp_path_factory.mktemp("packaging")
    if find_spec("hatchling"):
        build = ["build", "--wheel", "--no-isolation", "--outdir", str(directory), str(CHECKOUT)]
    else:
        build = ["pip", "wheel", "--no-deps", "--wheel-dir", str(directory), str(CHECKOUT)]
    run([sys.executable, "-m", *build], directory)
    (wheel,) = directory.glob("*.whl")
    venv = directory / "venv"
    run(["/usr/bin/python3", "-m", "venv", str(venv)], directory)
    run([str(venv / "bin/pip"), "install", str(wheel)], directory)
    return Installed(wheel, venv)


def run(argv: list[str], directory: Path, environ: Mapping[str, str] | None = None) -> str:
    """What a command prints; the test fails with all it said where it fails."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        argv, cwd=directory, env={**clean, **(environ or {})}, capture_output=True, text=True, check=False,
        timeout=DEADLINE_S,
    )  # fmt: skip
    assert done.returncode == 0, f"{argv}\n{done.stdout}{done.stderr}"
    return done.stdout


def tree(directory: Path) -> dict[str, bytes]:
    """Every file below a directory."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_the_wheel_holds_the_packages_and_nothing_else(installed: Installed) -> None:
    """All code, all templates, the examples and the py.typed marks; no tests or docs."""
    with zipfile.ZipFile(installed.wheel) as archive:
        names = {name for name in archive.namelist() if not name.partition("/")[0].endswith(".dist-info")}
    expected = {
        str(path.relative_to(CHECKOUT))
        for package in PACKAGES
        for path in (CHECKOUT / package).rglob("*")
        if path.name == "py.typed" or path.suffix == ".py"
    }
    expected |= {f"slurm_plugin/templates/{name}" for name in tree(CHECKOUT / "templates")}
    expected |= {f"slurm_plugin/examples/{path.name}" for path in (CHECKOUT / "examples").glob("*.[yp]*")}
    assert names == expected
    assert {f"{package}/py.typed" for package in PACKAGES} <= names


def test_installed_it_renders_the_same_script(installed: Installed, tmp_path: Path) -> None:
    """From an empty environment `render` prints what the checkout prints, but for where each finds itself."""
    theirs = run([installed.command, "render", str(SPEC)], tmp_path)
    ours = run([sys.executable, "-m", "slurm_plugin", "render", str(SPEC)], tmp_path, {"PYTHONPATH": str(CHECKOUT)})
    here = str(Path(sys.executable).with_name("slurm-plugin"))
    assert theirs.replace(installed.command, "HERE") == ours.replace(here, "HERE")
    assert theirs.startswith("#!/bin/bash\n#SBATCH ")


def test_installed_it_renders_the_same_site(installed: Installed, tmp_path: Path) -> None:
    """`site render` works without a checkout, and its every file is that of the checkout."""
    run([installed.command, "site", "render", str(tmp_path / "theirs")], tmp_path)
    run(
        [sys.executable, "-m", "slurm_plugin", "site", "render", str(tmp_path / "ours")], tmp_path,
        {"PYTHONPATH": str(CHECKOUT)},
    )  # fmt: skip
    theirs, ours = tree(tmp_path / "theirs"), tree(tmp_path / "ours")
    assert zipped(theirs.pop("slurm_plugin.pyz")) == zipped(ours.pop("slurm_plugin.pyz"))
    assert theirs == ours
    assert "hooks/prolog" in theirs


def zipped(data: bytes) -> dict[str, bytes]:
    """The sources in a zip, without a library that only one of two environments has."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name.endswith(".py") and name != "pynvml.py"}


def test_a_rendered_site_runs_without_any_package(installed: Installed, tmp_path: Path) -> None:
    """What an admin deploys needs the system's Python alone: `slurm-plugin hosts` from the rendered directory."""
    site = tmp_path / "site"
    run([installed.command, "site", "render", str(site), "--root", str(site)], tmp_path)
    printed = run(
        [str(site / "bin/slurm-plugin"), "hosts", "openmpi", "--nodelist", "n[1-2]", "--slots", "4"], tmp_path
    )
    assert printed == "n1 slots=4\nn2 slots=4\n"
