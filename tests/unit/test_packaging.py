"""The wheel of this checkout, installed into an empty environment: it is complete, and works as the checkout does."""

import io
import re
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurm_plugin.site import archive
from tests import wheels
from tests.wheels import CHECKOUT, run

PACKAGES = ("hostfiles", "prechecks", "slurm_plugin")
SPEC = CHECKOUT / "examples/openmpi-hello.yaml"


@dataclass(frozen=True, slots=True)
class Installed:
    """A wheel, and the virtual environment with it."""

    wheel: Path
    venv: Path

    @property
    def command(self) -> str:
        """Run the installed `slurm-plugin`."""
        return str(self.venv / "bin/slurm-plugin")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Return the wheel, installed with its dependencies in an environment that has nothing else."""
    directory = tmp_path_factory.mktemp("packaging")
    wheel = wheels.built(directory)
    venv = directory / "venv"
    wheels.install(wheel, "/usr/bin/python3", venv)
    return Installed(wheel, venv)


def tree(directory: Path) -> dict[str, bytes]:
    """Return every file below a directory."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_the_wheel_holds_the_packages_and_nothing_else(installed: Installed) -> None:
    """All code, signatures, the page of a search, templates, examples and the py.typed marks, but no tests or docs."""
    with zipfile.ZipFile(installed.wheel) as archive:
        names = {name for name in archive.namelist() if not name.partition("/")[0].endswith(".dist-info")}
    expected = {
        str(path.relative_to(CHECKOUT))
        for package in PACKAGES
        for path in (CHECKOUT / package).rglob("*")
        if path.name == "py.typed" or path.suffix in (".py", ".yaml", ".css", ".js")
    }
    expected |= {f"slurm_plugin/templates/{name}" for name in tree(CHECKOUT / "templates")}
    expected |= {f"slurm_plugin/examples/{path.name}" for path in (CHECKOUT / "examples").glob("*.[yp]*")}
    expected |= {f"slurm_plugin/examples/notify/{name}" for name in tree(CHECKOUT / "examples/notify")}
    assert names == expected
    assert {f"{package}/py.typed" for package in PACKAGES} <= names


def test_installed_it_renders_the_same_script(installed: Installed, tmp_path: Path) -> None:
    """From an empty environment `render` prints what the checkout prints, except paths."""
    theirs = run([installed.command, "render", str(SPEC)], tmp_path)
    ours = run([sys.executable, "-m", "slurm_plugin", "render", str(SPEC)], tmp_path, {"PYTHONPATH": str(CHECKOUT)})
    here = str(Path(sys.executable).with_name("slurm-plugin"))
    shown = [re.sub(r"(?m)(^|(?<=^exec ))\S+ -E?P(?=c? )", "PYTHON", text) for text in (theirs, ours)]
    assert shown[0].replace(installed.command, "HERE") == shown[1].replace(here, "HERE")
    assert theirs.startswith("#!/bin/bash\n#SBATCH ")


def test_installed_it_renders_the_same_site(installed: Installed, tmp_path: Path) -> None:
    """`site render` works without a checkout, and writes the same files."""
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
    """Return the sources in a zip, without a library that only one of the two environments has."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name.endswith(".py") and name != "pynvml.py"}


def test_a_rendered_site_runs_without_any_package(installed: Installed, tmp_path: Path) -> None:
    """The deployed site needs only the system's Python: `slurm-plugin hosts` runs from the rendered directory."""
    site = tmp_path / "site"
    run([installed.command, "site", "render", str(site), "--root", str(site)], tmp_path)
    printed = run(
        [str(site / "bin/slurm-plugin"), "hosts", "openmpi", "--nodelist", "n[1-2]", "--slots", "4"], tmp_path
    )
    assert printed == "n1 slots=4\nn2 slots=4\n"


def test_a_node_compiles_the_code_as_a_controller_does(tmp_path: Path) -> None:
    """After the installation of slurm-plugin-node the archive is that of `site install`, byte for byte."""
    sources, compiled = tmp_path / "slurm_plugin.pyz", tmp_path / "new"
    sources.write_bytes(archive.build(("/bin/false",)))
    program = CHECKOUT / "slurm_plugin/site/compile_archive.py"
    run(["/usr/bin/python3", "-I", "-S", str(program), str(sources), str(compiled)], tmp_path)
    assert compiled.read_bytes() == archive.build(("/usr/bin/python3",))
