"""Mirrors slurm_plugin/supervisor/prestart.py: hooks and the environment, with a real bash and Python."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from slurm_plugin.supervisor.prestart import NONE, Changes
from tests.unit.supervisor.hooked_node import PY, SH, STARTED, Node


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """Make a node."""
    return Node(tmp_path)


def test_hooks_change_the_environment(node: Node) -> None:
    """Each hook sees the changes of earlier ones. The result is on the node for TaskProlog and for a launcher."""
    node.hook("startup-hook.sh", "export FOO=' a \"b\" $HOME \\'; PATH=/opt/x/bin:$PATH; unset OLD; plain=1\n")
    node.hook(SH, 'echo "sees $FOO"; echo warned >&2; export BAR=é; cd /\n')
    node.hook(
        PY,
        "import os, sys\nassert __name__ == '__main__', __name__\nprint(sys.argv, os.environ['BAR'], os.getcwd())\n"
        "os.environ['FOO'] += '!'\nos.environ['BAZ'] = ''\ndel os.environ['BAR']\n",
    )
    code, lines = node(OLD="1", KEPT="1", SLURM_JOB_ID="7")
    assert lines == [
        "[slurm_plugin] n2 startup-hook.sh: started",
        "[slurm_plugin] n2 startup-hook.sh: ok: 3 variables changed: FOO, PATH, OLD",
        STARTED,
        'sees  a "b" $HOME \\',
        "warned",
        f"[slurm_plugin] n2 {SH}: ok: 1 variable changed: BAR",
        f"[slurm_plugin] n2 {PY}: started",
        f"{[str(node.workdir / PY)]} é {node.workdir}",
        f"[slurm_plugin] n2 {PY}: ok: 3 variables changed: BAZ, FOO, BAR",
    ]
    assert code == 0
    expected = {"BAZ": "", "FOO": ' a "b" $HOME \\!', "PATH": "/opt/x/bin:/usr/bin:/bin"}
    assert node.changes == Changes(expected, ("OLD",), {})
    assert node.task() == "".join(f"export {name}={value}\n" for name, value in expected.items()) + "unset OLD\n"
    assert sorted(path.name for path in node.place.iterdir()) == ["hooks.json", "task.sh"]
    assert {path.stat().st_mode & 0o777 for path in node.place.iterdir()} == {0o600}


def test_the_modes_own_variables_win(node: Node) -> None:
    """The barrier's lines come after the hooks', also if the hooks run a second time."""
    (node.place / "task.sh").write_text("printf 'export RANK=%s\\n' 3\n")
    node.hook(SH, "export RANK=99 A=1\n")
    for _ in range(2):
        assert node()[0] == 0
        assert node.task() == "export A=1\nexport RANK=99\nexport RANK=3\n"


def test_what_cannot_travel(node: Node) -> None:
    """One line reports it before the hook's own. The rest is passed on."""
    node.hook(SH, "export NOTE=$'a\\nb' SLURM_JOB_ID=8 SLURM_PLUGIN_LAUNCH=.. A=1\n")
    code, lines = node(SLURM_JOB_ID="7")
    ours = "Slurm's and ours to set"
    assert lines == [
        STARTED,
        f"[slurm_plugin] n2 {SH}: not handed on: NOTE (its value has several lines), SLURM_JOB_ID ({ours}),"
        f" SLURM_PLUGIN_LAUNCH ({ours})",
        f"[slurm_plugin] n2 {SH}: ok: 1 variable changed: A",
    ]
    assert (code, node.changes) == (0, Changes({"A": "1"}, (), {}))


def test_what_a_shell_or_python_sets_when_it_starts_is_no_change(node: Node) -> None:
    """BASH_ENV is read as usual, and Python may coerce its locale. Neither is the hook's change."""
    (node.workdir / "bashrc").write_text("export FROM_BASH_ENV=1\n")
    node.hook(SH, "[ $FROM_BASH_ENV = 1 ]\n")
    node.hook(PY, "")
    code, lines = node(BASH_ENV=str(node.workdir / "bashrc"), LC_CTYPE="C")
    assert (code, node.changes) == (0, NONE), lines


def test_without_changes(node: Node) -> None:
    """TaskProlog's file does not change."""
    (node.place / "task.sh").write_text("echo own\n")
    node.hook(SH, ":\n")
    assert node()[1] == [STARTED, f"[slurm_plugin] n2 {SH}: ok: no variable changed"]
    assert (node.place / "task.sh").read_text() == "echo own\n"


def test_a_value_that_is_no_text(node: Node) -> None:
    """Bytes that are not UTF-8 arrive unchanged."""
    node.hook(SH, "export RAW=$'\\xff\\x81 \\xc3'\n")
    assert node()[0] == 0
    printed = subprocess.run(["/bin/sh", node.place / "task.sh"], capture_output=True, check=True).stdout
    assert printed == b"export RAW=\xff\x81 \xc3\n"
    assert os.fsencode(node.changes.set["RAW"]) == b"\xff\x81 \xc3"


def test_python_of_an_earlier_hook(node: Node) -> None:
    """A name is looked up on the PATH that earlier hooks made."""
    (node.workdir / "bin").mkdir()
    (node.workdir / "bin/python9").write_text("#!/bin/sh\necho found\nexit 9\n")
    (node.workdir / "bin/python9").chmod(0o755)
    node.python = "python9"
    node.hook(PY, "")
    assert node() == (
        127,
        [f"[slurm_plugin] n2 {PY}: started", f"[slurm_plugin] n2 {PY}: failed: 'python9' was not found on this node"],
    )
    node.files.clear()
    node.hook(SH, "PATH=$PWD/bin:$PATH\n")
    node.hook(PY, "")
    assert node()[0] == 9


def test_read(node: Node) -> None:
    """None if no hook ran. ValueError for other content."""
    assert node.changes == NONE
    (node.place / "hooks.json").write_text(json.dumps({"set": 1}))
    with pytest.raises(ValueError, match="not the changes of a hook"):
        _ = node.changes
