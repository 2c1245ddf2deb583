"""How hooks end: each way to fail and each to end well, with what is said of it."""

import os
import time
from pathlib import Path

import pytest

from slurm_plugin.job import prestart
from slurm_plugin.job.changes import NONE
from slurm_plugin.job.prestart import Request
from tests.unit.job.hooked_node import PY, SH, STARTED, Node


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node."""
    return Node(tmp_path)


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


@pytest.mark.parametrize(("text", "code", "why"), FAILURES.values(), ids=FAILURES.keys())
def test_a_failing_hook(node: Node, text: str, code: int | None, why: str | None) -> None:
    """It stops the rest; its exit code is ours, a clear line is the last, and nothing is handed on."""
    node.hook(SH, "export A=1\n" + text)
    node.hook(PY, "print('unreached')")
    found, lines = node()
    assert found == code if code is not None else found > 0
    assert (lines[0], "unreached" in lines) == (STARTED, False)
    assert lines[-1].startswith(f"[slurm_plugin] n2 {SH}: failed: {why or ''}")
    assert not list(node.place.iterdir())


PYTHON_FAILURES = {
    "sys.exit": ("import sys; sys.exit(5)", 5, "exit code 5"),
    "sys.exit with words": ("import sys; sys.exit('no data')", 1, "exit code 1"),
    "exception": ("raise ValueError('x')", 1, "exit code 1"),
    "syntax": ("x = = 1", 1, "exit code 1"),
    "os._exit": ("import os; os._exit(6)", 6, "exit code 6"),
    "killed": ("import os; os.kill(os.getpid(), 9)", 137, "signal 9 (Killed)"),
}


@pytest.mark.parametrize(("text", "code", "why"), PYTHON_FAILURES.values(), ids=PYTHON_FAILURES.keys())
def test_a_failing_python_hook(node: Node, text: str, code: int, why: str) -> None:
    """As the shell's."""
    node.hook(PY, "import os; os.environ['A'] = '1'\n" + text + "\n")
    found, lines = node()
    assert (found, lines[-1]) == (code, f"[slurm_plugin] n2 {PY}: failed: {why}")
    assert not list(node.place.iterdir())


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


@pytest.mark.parametrize(("name", "text"), FINE.values(), ids=FINE.keys())
def test_whatever_way_a_hook_ends_well(node: Node, name: str, text: str) -> None:
    """What it exported is there."""
    (node.workdir / "beside_it.py").write_text("import os; os.environ['A'] = '1'\n")
    node.hook(name, text)
    code, lines = node()
    assert (code, "unreached" in lines) == (0, False), lines
    assert node.changes.set["A"] == "1"
    assert node.changes.set.keys() <= {"A", "PATH"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (SH, "export A=1; exec true\n"),
        (SH, "trap : EXIT; export A=1; exit 0\n"),
        (PY, "import os; os.environ['A'] = '1'; os._exit(0)"),
        (SH, "export A=1; ulimit -f 0; trap '' XFSZ\n"),  # a full disk
    ],
)
def test_a_hook_whose_environment_cannot_be_read(node: Node, name: str, text: str) -> None:
    """It is no failure, and nothing is taken for changed: above all not unset."""
    node.hook(name, text)
    code, lines = node(KEPT="1")
    assert (code, node.changes) == (0, NONE)
    assert lines[-1].startswith(f"[slurm_plugin] n2 {name}: ok: it ended in a way that leaves no environment to read")


def test_a_hook_that_this_node_cannot_read(node: Node) -> None:
    """A directory that the nodes do not share is told as such."""
    node.hook(SH, ":\n")
    (node.workdir / SH).unlink()
    code, lines = node()
    assert (code, lines[-1]) == (
        126,
        f"[slurm_plugin] n2 {SH}: failed: this node cannot read it; is its directory shared with all nodes of the job?",
    )


def test_a_hook_with_a_child_in_the_background(node: Node) -> None:
    """It is ended with the hook: srun would wait for as long as it has the log open."""
    node.hook(SH, "sleep 25 &\n")
    start = time.monotonic()
    assert node()[0] == 0
    assert time.monotonic() - start < 20  # the end of its output, which the child had open too


def test_a_signal_reaches_the_hook(node: Node) -> None:
    """Slurm's SIGTERM ends the hook, or is the hook's to handle."""
    node.hook(SH, "trap 'echo told; exit 7' TERM; kill -TERM $PPID; sleep 25 & wait\n")
    assert node() == (7, [STARTED, "told", f"[slurm_plugin] n2 {SH}: failed: exit code 7"])


def test_no_place_on_the_node(node: Node) -> None:
    """A directory that somebody else made first ends it, with its name."""
    directory = f"{os.getpid()}.0.96"
    spare = Path(f"/tmp/slurm_plugin.{directory}")
    spare.mkdir(mode=0o755)
    try:
        with pytest.raises(FileExistsError, match=str(spare)):
            prestart.run(Request(node.run_directory, directory, "python3", ()), {})
    finally:
        spare.rmdir()


def test_hooks_after_the_program(node: Node) -> None:
    """Each is run, with what the hooks before it have changed; none of them changes how the job has ended."""
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
    assert node(after=True, A="own", SLURM_PLUGIN_EXIT_CODE="0")[1][1] == "own 0"  # without a hook before it
    assert sorted(path.name for path in node.place.iterdir()) == kept
