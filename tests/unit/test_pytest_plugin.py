"""The pytest plug-in: what it costs others, how settings and markers combine, which directories the machines see."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.errors import UsageError
from slurm_plugin.sandbox import Bind, pool
from slurm_plugin.sandbox.roots import Built, write
from slurm_plugin.testing import plugin
from tests.refusals import refusal_of


class Item:
    """A test with markers, the closest first, under default settings."""

    nodeid = "test_x.py::test_x"

    def __init__(self, *markers: pytest.MarkDecorator, **settings: Any) -> None:
        """Take the markers' and the project's values."""
        self.markers, self.settings = markers, settings
        self.config = self

    def iter_markers(self, name: str) -> list[pytest.Mark]:
        """Return the markers."""
        return [each.mark for each in self.markers]

    def getini(self, name: str) -> Any:
        """Return a setting, by default the plug-in's."""
        short = name.removeprefix("slurm_sandbox_")
        return self.settings.get(short, plugin.SETTINGS[short][1])


def test_others_pay_nothing() -> None:
    """The entry point of every pytest beside us loads only itself, and pytest finds it."""
    code = "import pytest, sys; old = {*sys.modules}; import slurm_plugin.testing.plugin; print(*{*sys.modules} - old)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert {*said.split()} <= {"slurm_plugin", "slurm_plugin.testing", "slurm_plugin.testing.plugin"}


def test_the_closest_marker_wins() -> None:
    """Settings, then a module's marker, then a test's."""
    mark = pytest.mark.slurm_sandbox
    item: Any = Item(mark(gpus=2, faults={"n1": "dns"}), mark(nodes=3, gpus=1), nodes="9", release="26.05")
    expected = {"nodes": 3, "gpus": 2, "release": "26.05", "accounting": False, "hooks": False, "faults": {"n1": "dns"}}
    assert plugin.options(item) == expected


@pytest.mark.parametrize(
    ("marker", "settings"),
    [
        (pytest.mark.slurm_sandbox(node=1), {}),
        (pytest.mark.slurm_sandbox(4), {}),
        (pytest.mark.slurm_sandbox, {"nodes": "many"}),
    ],
)
def test_a_wrong_marker_is_said(marker: pytest.MarkDecorator, settings: dict[str, str]) -> None:
    """An unknown name, or a setting that is no number, ends the test with the accepted form."""
    item: Any = Item(marker, **settings)
    with pytest.raises(pytest.UsageError, match=r"(?s)(test_x.py::test_x.*accepted|_nodes is 'many', not a number)"):
        plugin.options(item)


def test_the_machines_see_the_project_once() -> None:
    """A directory below another one, the machines' own, and a system's Python are left out."""
    own = (Path("/work/project"), Path("/work/project/tests"), Path("/tmp"), Path("/var/tmp/pytest-0"))
    shown = pool.visible(own, Path("/usr"), ["~:rw"])
    home = str(Path.home())
    assert [each.source for each in shown] == ["/work/project", "/var/tmp/pytest-0", home]
    assert all(each.writable for each in shown)
    assert pool.visible((), Path("/venv"), ["/a:/b"]) == (Bind("/venv", "/venv"), Bind("/a", "/b"))


def test_a_release_is_found_among_the_roots(tmp_path: Path) -> None:
    """By its number; a path is taken as it is; a release that is missing names the command that builds it."""
    (tmp_path / "forky").mkdir()
    write(tmp_path / "forky", Built("forky", "26.05.5"))
    assert pool.find_root("26.05", tmp_path) == tmp_path / "forky"
    assert pool.find_root("/srv/root", tmp_path) == Path("/srv/root")
    assert pool.find_root("", tmp_path) is None
    said = refusal_of(UsageError, lambda release: pool.find_root(release, tmp_path), "99.11")
    assert f"26.05.5\n  run: slurm-plugin sandbox root trixie|forky {tmp_path}/NAME" in said
