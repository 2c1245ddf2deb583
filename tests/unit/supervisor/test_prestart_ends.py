"""How hooks end: each kind of failure and success, with its message."""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.supervisor import prestart
from slurm_plugin.supervisor.prestart import NONE, Request
from tests.unit.supervisor.hooked_node import PY, SH, STARTED, Node, run_all


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """Make a node."""
    return Node(tmp_path)


def ended(
    directory: Path, hooks: Mapping[str, tuple[tuple[str, str], ...]], **environ: str
) -> Iterator[tuple[str, Node, int, list[str]]]:
    """Return each case by its name, with a separate node, its hooks' exit code and output."""
    nodes = []
    for number, files in enumerate(hooks.values()):
        (directory / str(number)).mkdir()
        nodes.append(Node(directory / str(number)))
        (nodes[-1].workdir / "beside_it.py").write_text("import os; os.environ['A'] = '1'\n")
        for name, text in files:
            nodes[-1].hook(name, text)
    for name, node, (code, lines) in zip(hooks, nodes, run_all(nodes, **environ), strict=True):
        yield name, node, code, lines


FAILURES = {
    "exit": ("exit 3\n", 3, "exit code 3"),
    "return": ("return 4\n", 4, "exit code 4"),
    "the last line": ("false\n", 1, "exit code 1"),
    "set -e": ("set -e\nfalse\necho unreached\n", 1, "exit code 1"),
    "set -u": ("set -u\necho $NOTHING\necho unreached\n", None, None),
    "killed": ("kill -9 $$\n", 137, "signal 9 (Killed)"),
    "terminated": ("kill -TERM $$; sleep 5\n", 143, "signal 15 (Terminated)"),
    "not found": ("no-such-program\n", 127, "exit code 127"),
    "syntax": ("if then\n", None, None),
    "its own trap": ("trap 'echo bye' EXIT\nexit 3\n", 3, "exit code 3"),
}


def test_a_failing_hook(tmp_path: Path) -> None:
    """It stops the others. Its exit code is ours, the last line is clear, and nothing is passed on."""
    hooks = {name: ((SH, f"export A=1\n{text}"), (PY, "print('unreached')")) for name, (text, _, _) in FAILURES.items()}
    for name, node, found, lines in ended(tmp_path, hooks):
        _, code, why = FAILURES[name]
        assert found == code if code is not None else found > 0, (name, found)
        assert (lines[0], "unreached" in lines) == (STARTED, False), name
        assert lines[-1].startswith(f"[slurm_plugin] n2 {SH}: failed: {why or ''}"), name
        assert not list(node.place.iterdir()), name


PYTHON_FAILURES = {
    "sys.exit": ("import sys; sys.exit(5)", 5, "exit code 5"),
    "sys.exit with words": ("import sys; sys.exit('no data')", 1, "exit code 1"),
    "exception": ("raise ValueError('x')", 1, "exit code 1"),
    "syntax": ("x = = 1", 1, "exit code 1"),
    "os._exit": ("import os; os._exit(6)", 6, "exit code 6"),
    "killed": ("import os; os.kill(os.getpid(), 9)", 137, "signal 9 (Killed)"),
}


@pytest.mark.full  # 4 s
def test_a_failing_python_hook(tmp_path: Path) -> None:
    """Like a shell's."""
    before = "import os; os.environ['A'] = '1'\n"
    hooks = {name: ((PY, f"{before}{text}\n"),) for name, (text, _, _) in PYTHON_FAILURES.items()}
    for name, node, found, lines in ended(tmp_path, hooks):
        _, code, why = PYTHON_FAILURES[name]
        assert (found, lines[-1]) == (code, f"[slurm_plugin] n2 {PY}: failed: {why}"), name
        assert not list(node.place.iterdir()), name


FINE = {
    "exit 0": (SH, "export A=1; exit 0; echo unreached\n"),
    "return 0": (SH, "export A=1; return 0; echo unreached\n"),
    "noclobber": (SH, "set -o noclobber -u -e -f; export A=1\n"),
    "no PATH": (SH, "export A=1 PATH=\n"),
    "its own trap": (SH, "trap : EXIT; export A=1\n"),
    "its own descriptors": (SH, "exec 3>three 9>nine 200>last; export A=1\n"),
    "closed streams": (SH, "exec 0<&- 1>&- 2>&-; export A=1\n"),
    "an exported function": (SH, "f() { :\n}; export -f f; export A=1\n"),
    "posix mode": (SH, "set -o posix; export A=1\n"),
    "arguments": (SH, '[ $# = 0 ] && [ "$(basename "$0")" = ma-pre-start.sh ] && export A=1\n'),
    "its own name": (SH, '[ "${BASH_SOURCE[0]}" = "$PWD/ma-pre-start.sh" ] && export A=1\n'),
    "stdin": (SH, "read line; cat; export A=1\n"),
    "sys.exit()": (PY, "import os, sys; os.environ['A'] = '1'; sys.exit()"),
    "sys.exit(0)": (PY, "import os, sys; os.environ['A'] = '1'; sys.exit(0)"),
    "putenv of a child": (PY, "import os; os.system('export B=2'); os.environ['A'] = '1'"),
    "a module beside it": (PY, "import beside_it"),
    "python's stdin": (PY, "import os, sys; assert sys.stdin.read() == ''; os.environ['A'] = '1'"),
}


def test_whatever_way_a_hook_ends_well(tmp_path: Path) -> None:
    """Its exported variables are there."""
    for name, node, code, lines in ended(tmp_path, {name: (hook,) for name, hook in FINE.items()}):
        assert (code, "unreached" in lines) == (0, False), (name, lines)
        assert node.changes.set["A"] == "1", name
        assert node.changes.set.keys() <= {"A", "PATH"}, name


UNREADABLE = {
    "exec": (SH, "export A=1; exec true\n"),
    "its own trap": (SH, "trap : EXIT; export A=1; exit 0\n"),
    "os._exit": (PY, "import os; os.environ['A'] = '1'; os._exit(0)"),
    "a full disk": (SH, "export A=1; ulimit -f 0; trap '' XFSZ\n"),
}


def test_a_hook_whose_environment_cannot_be_read(tmp_path: Path) -> None:
    """It is no failure, and no change, above all no unset variable."""
    for name, node, code, lines in ended(tmp_path, {name: (hook,) for name, hook in UNREADABLE.items()}, KEPT="1"):
        assert (code, node.changes) == (0, NONE), name
        said = f"[slurm_plugin] n2 {UNREADABLE[name][0]}: ok: it ended in a way that leaves no environment to read"
        assert lines[-1].startswith(said), name


def test_a_hook_that_this_node_cannot_read(node: Node) -> None:
    """The message says that the nodes do not share the directory."""
    node.hook(SH, ":\n")
    (node.workdir / SH).unlink()
    code, lines = node()
    assert (code, lines[-1]) == (
        126,
        f"[slurm_plugin] n2 {SH}: failed: this node cannot read it; is its directory shared with all nodes of the job?",
    )


def test_a_hook_with_a_child_in_the_background(node: Node) -> None:
    """The child is ended with the hook: srun would wait while it has the log open."""
    node.hook(SH, "sleep 3000 &\n")
    assert node()[0] == 0  # returns after the end of its output, which the child also had open


def test_a_signal_reaches_the_hook(node: Node) -> None:
    """Slurm's SIGTERM ends the hook, or the hook handles it."""
    node.hook(SH, "trap 'echo told; exit 7' TERM; kill -TERM $PPID; sleep 3000 & wait\n")
    assert node() == (7, [STARTED, "told", f"[slurm_plugin] n2 {SH}: failed: exit code 7"])


def test_a_signal_that_comes_while_the_hook_is_started(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reaches the hook, whose pid is not known yet, and does not end the runner."""
    start = subprocess.Popen

    def signalled(*words: Any, **options: Any) -> "subprocess.Popen[bytes]":
        process = start(*words, **options)
        os.kill(os.getpid(), signal.SIGTERM)
        return process

    monkeypatch.setattr(subprocess, "Popen", signalled)
    node.hook(SH, "sleep 3000\n")
    request = Request(node.run_directory, "7.0.0", node.python, tuple(node.files))
    assert prestart.run(request, {"PATH": "/usr/bin:/bin"}) == 128 + signal.SIGTERM


def test_no_place_on_the_node(node: Node) -> None:
    """A directory of another user is an error that names it."""
    directory = f"{os.getpid()}.0.96"
    spare = Path(f"/tmp/slurm_plugin.{directory}")
    spare.mkdir(mode=0o755)
    try:
        with pytest.raises(FileExistsError, match=str(spare)):
            prestart.run(Request(node.run_directory, directory, "python3", ()), {})
    finally:
        spare.rmdir()


def test_hooks_after_the_program(node: Node) -> None:
    """Each runs, with the changes of earlier hooks. None changes the result of the job."""
    node.hook(SH, "export A=of-before\n")
    assert node()[0] == 0
    node.files.clear()
    node.hook("one.sh", 'echo "$A $SLURM_PLUGIN_EXIT_CODE"; exit 3\n')
    node.hook("two.py", "import os; print(os.environ.get('A'), os.environ['SLURM_PLUGIN_EXIT_CODE'])\n")
    said = [
        *("[slurm_plugin] n2 one.sh: started", "of-before 5", "[slurm_plugin] n2 one.sh: failed: exit code 3"),
        *("[slurm_plugin] n2 two.py: started", "of-before 5", "[slurm_plugin] n2 two.py: ok"),
    ]
    assert node(after=True, changed=True, SLURM_PLUGIN_EXIT_CODE="5") == (0, said)
    kept = sorted(path.name for path in node.place.iterdir())
    assert node(after=True, A="own", SLURM_PLUGIN_EXIT_CODE="0")[1][1] == "own 0"  # without an earlier hook
    assert sorted(path.name for path in node.place.iterdir()) == kept


def test_a_hook_that_leaves_a_process_of_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `sudo monitor &` does. The hook has ended well all the same: the user may not end that process."""

    def not_permitted(_group: int, _number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "killpg", not_permitted)
    (tmp_path / "hook.sh").touch()
    assert prestart._run_to_end(str(tmp_path / "hook.sh"), ["true"], os.environ) == (0, "exit code 0")
