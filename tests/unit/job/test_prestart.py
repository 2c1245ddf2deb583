"""Mirrors slurm_plugin/job/prestart.py: which hooks a command has, and what they do, run by a real bash and Python."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurm_plugin.hooks import node_directory
from slurm_plugin.job import prestart
from slurm_plugin.job.changes import NONE, Changes
from slurm_plugin.job.prestart import NAMES, Request, beside, python_of

ROOT = Path(__file__).parents[3]


def put(folder: Path, *names: str) -> tuple[Path, ...]:
    """Empty files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()
    return tuple(folder / name for name in names)


def test_a_hook_that_somebody_may_have_planted_is_not_run(tmp_path: Path) -> None:
    """A directory that all write to is no trap: the hook has to be the user's, root's or the program owner's."""
    (program,) = put(tmp_path, "train.py")
    (hook,) = put(tmp_path, "ma-pre-start.sh")
    said: list[str] = []
    for owner, mode, runs in ((0, 0o644, True), (0, 0o646, False), (20001, 0o644, False)):
        os.chown(hook, owner, 0)
        hook.chmod(mode)
        assert beside(("python", str(program)), tmp_path, said.append) == ((hook,) if runs else ())
    assert said == [f"'{hook}' is not run: it is not the user's own, or all may write to it; see: ls -l"] * 2
    os.chown(program, 20001, 0)  # whoever runs somebody's program trusts what stands beside it
    assert beside(("python", str(program)), tmp_path, said.append) == (hook,)


def test_beside_the_program(tmp_path: Path) -> None:
    """In the directory of the first word that is a file ending in .py or .sh, in a fixed order."""
    put(tmp_path, *NAMES)
    hooks = put(tmp_path / "src", *NAMES)
    put(tmp_path / "src", "train.py", "run.sh", "train")
    put(tmp_path / "src" / "other", "late.py")
    for words in (
        ("python", "src/train.py", "--config", "src/other/late.py"),
        ("bash", "src/run.sh"),
        ("src/run.sh",),
        ("python", "-u", str(tmp_path / "src/train.py")),
        ("torchrun", "--nnodes=2", "src/train.py"),
        ("python", "missing.py", "src/train.py"),
    ):
        assert beside(words, tmp_path) == hooks


@pytest.mark.parametrize(
    "words", [("python", "-m", "pkg"), ("bash", "-c", "python src/train.py"), ("./binary",), ("x" * 5000 + ".py",), ()]
)
def test_without_a_program_file(tmp_path: Path, words: tuple[str, ...]) -> None:
    """In the working directory."""
    put(tmp_path / "src", *NAMES, "train.py")
    hooks = put(tmp_path, "startup-hook.sh", "ma-pre-start.py")
    assert beside(words, tmp_path) == hooks


def test_what_is_no_hook(tmp_path: Path) -> None:
    """A directory, a dangling link, a named pipe, a name of another case; a link to a file is one."""
    (tmp_path / "startup-hook.sh").mkdir()
    (tmp_path / "ma-pre-start.sh").symlink_to("nowhere")
    os.mkfifo(tmp_path / "ma-pre-start.py")
    put(tmp_path, "MA-PRE-START.SH", "ma-pre-start.sh.bak", "real.sh")
    assert beside(("x",), tmp_path) == ()
    (tmp_path / "ma-pre-start.sh").unlink()
    (tmp_path / "ma-pre-start.sh").symlink_to("real.sh")
    assert beside(("x",), tmp_path) == (tmp_path / "ma-pre-start.sh",)


def test_beside_a_program_behind_a_link(tmp_path: Path) -> None:
    """`..` is the kernel's: of where a link leads to."""
    put(tmp_path / "a" / "b")
    (tmp_path / "a" / "train.py").touch()
    (tmp_path / "link").symlink_to("a/b")
    put(tmp_path / "a", "startup-hook.sh")
    assert beside(("link/../train.py",), tmp_path) == (tmp_path / "link/../startup-hook.sh",)


@pytest.mark.parametrize(
    ("words", "python"),
    [
        ("python train.py", "python"),
        ("/opt/env/bin/python3.11 -m x", "/opt/env/bin/python3.11"),
        ("srun python3 x.py", "python3"),
        ("torchrun x.py", "python3"),
        ("python2 x.py", "python3"),
        ("pythonic x.py", "python3"),
    ],
)
def test_python_of(words: str, python: str) -> None:
    """The one that the command names, else python3."""
    assert python_of(words.split()) == python


@pytest.mark.parametrize("word", ["--prefix=/opt/python3", "-I/opt/python", "PYTHON=/opt/python", "./python"])
def test_what_only_looks_like_an_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    """An option, a variable, a directory (`apptainer --bind /opt/python`): they run no hook."""
    (tmp_path / "python").mkdir()
    monkeypatch.chdir(tmp_path)
    assert python_of(["env", word, "./train"]) == "python3"
    assert python_of(["env", word, "/opt/bin/python3.11", "x.py"]) == "/opt/bin/python3.11"
    assert python_of(["python", "x.py"]) == "python"  # found on PATH, whatever has the name here


class Node:
    """A node with a place for the run, and hooks in a working directory with a blank in its name."""

    def __init__(self, directory: Path) -> None:
        self.run_directory, self.workdir = str(directory / "run"), directory / "my work"
        self.workdir.mkdir()
        node_directory.create(self.run_directory, "7.0.0", uid=os.getuid(), gid=os.getgid())
        self.place = directory / "run/jobs/7.0.0/user"
        self.files: list[str] = []
        self.python = sys.executable

    def hook(self, name: str, text: str) -> None:
        """One more hook."""
        (self.workdir / name).write_text(text)
        self.files.append(str(self.workdir / name))

    def __call__(self, **environ: str) -> tuple[int, list[str]]:
        """Run them as a step's task does; the exit code, and what came out, times left out."""
        request = Request(self.run_directory, "7.0.0", self.python, tuple(self.files))
        given = {"PATH": "/usr/bin:/bin", "SLURMD_NODENAME": "n2", **environ}
        starter = (
            f"import sys; sys.path.insert(0, {str(ROOT)!r}); from slurm_plugin.__main__ import main; sys.exit(main())"
        )
        done = subprocess.run(
            [sys.executable, "-I", "-c", starter, *request.words()],
            cwd=self.workdir,
            env=given,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=30,
            check=False,
        )
        return done.returncode, [line.partition(" (0.")[0] for line in done.stdout.splitlines()]

    @property
    def changes(self) -> Changes:
        """What a launcher on this node is told."""
        return prestart.read(self.run_directory, "7.0.0")

    def task(self) -> str:
        """What TaskProlog would print."""
        said = subprocess.run(
            ["/bin/sh", self.place / "task.sh"], env={"PATH": ""}, capture_output=True, text=True, check=True
        )
        assert said.stderr == ""
        return said.stdout


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node."""
    return Node(tmp_path)


SH, PY = "ma-pre-start.sh", "ma-pre-start.py"
STARTED = f"[slurm_plugin] n2 {SH}: started"


def test_hooks_change_the_environment(node: Node) -> None:
    """Each sees what those before it did; what comes of it all is on the node for TaskProlog and for a launcher."""
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
    """The lines that the barrier wrote stay behind the hooks', also when the hooks run a second time."""
    (node.place / "task.sh").write_text("printf 'export RANK=%s\\n' 3\n")
    node.hook(SH, "export RANK=99 A=1\n")
    for _ in range(2):
        assert node()[0] == 0
        assert node.task() == "export A=1\nexport RANK=99\nexport RANK=3\n"


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


def test_what_cannot_travel(node: Node) -> None:
    """It is told in one line before the hook's own; the rest is handed on."""
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
    """BASH_ENV is read as ever, and Python may coerce its locale: neither is the hook's doing."""
    (node.workdir / "bashrc").write_text("export FROM_BASH_ENV=1\n")
    node.hook(SH, "[ $FROM_BASH_ENV = 1 ]\n")
    node.hook(PY, "")
    code, lines = node(BASH_ENV=str(node.workdir / "bashrc"), LC_CTYPE="C")
    assert (code, node.changes) == (0, NONE), lines


def test_without_changes(node: Node) -> None:
    """The TaskProlog's file stays as it was."""
    (node.place / "task.sh").write_text("echo own\n")
    node.hook(SH, ":\n")
    assert node()[1] == [STARTED, f"[slurm_plugin] n2 {SH}: ok: no variable changed"]
    assert (node.place / "task.sh").read_text() == "echo own\n"


def test_a_value_that_is_no_text(node: Node) -> None:
    """Bytes that are no UTF-8 arrive as they are."""
    node.hook(SH, "export RAW=$'\\xff\\x81 \\xc3'\n")
    assert node()[0] == 0
    printed = subprocess.run(["/bin/sh", node.place / "task.sh"], capture_output=True, check=True).stdout
    assert printed == b"export RAW=\xff\x81 \xc3\n"
    assert os.fsencode(node.changes.set["RAW"]) == b"\xff\x81 \xc3"


def test_python_of_an_earlier_hook(node: Node) -> None:
    """A name is looked up on the PATH that the hooks before it made."""
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


def test_read(node: Node) -> None:
    """None where no hook ran; ValueError for a file that is none of ours."""
    assert node.changes == NONE
    (node.place / "hooks.json").write_text(json.dumps({"set": 1}))
    with pytest.raises(ValueError, match="not the changes of a hook"):
        _ = node.changes
