"""Which hooks a command has, and the Python that runs them."""

import os
from pathlib import Path

import pytest

from slurm_plugin.launch.hooks import NAMES, program_hooks, python_of, refused


def put(folder: Path, *names: str) -> tuple[Path, ...]:
    """Write empty files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch()
    return tuple(folder / name for name in names)


def test_a_hook_that_somebody_may_have_planted_is_not_run(tmp_path: Path) -> None:
    """In a directory that all can write, a hook must belong to the user, root or the program's owner."""
    (program,) = put(tmp_path, "train.py")
    (hook,) = put(tmp_path, "ma-pre-start.sh")
    said: list[str] = []
    for owner, mode, runs in ((0, 0o644, True), (0, 0o646, False), (20001, 0o644, False)):
        os.chown(hook, owner, 0)
        hook.chmod(mode)
        assert program_hooks(("python", str(program)), tmp_path, said.append) == ((hook,) if runs else ())
    assert said == [f"'{hook}' is not run: it is not the user's own, or all may write to it; see: ls -l"] * 2
    os.chown(program, 20001, 0)  # who runs another user's program trusts the files beside it
    assert program_hooks(("python", str(program)), tmp_path, said.append) == (hook,)


def test_beside_the_program(tmp_path: Path) -> None:
    """In the directory of the first word that is a .py or .sh file, in a fixed order."""
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
        assert program_hooks(words, tmp_path, print) == hooks


def test_without_a_program_file(tmp_path: Path) -> None:
    """In the working directory."""
    for words in [
        ("python", "-m", "pkg"),
        ("bash", "-c", "python src/train.py"),
        ("./binary",),
        ("x" * 5000 + ".py",),
        (),
    ]:
        put(tmp_path / "src", *NAMES, "train.py")
        hooks = put(tmp_path, "startup-hook.sh", "ma-pre-start.py")
        assert program_hooks(words, tmp_path, print) == hooks, words


def test_what_is_no_hook(tmp_path: Path) -> None:
    """A directory, a dangling link, a named pipe, a name in another case. A link to a file is one."""
    (tmp_path / "startup-hook.sh").mkdir()
    (tmp_path / "ma-pre-start.sh").symlink_to("nowhere")
    os.mkfifo(tmp_path / "ma-pre-start.py")
    put(tmp_path, "MA-PRE-START.SH", "ma-pre-start.sh.bak", "real.sh")
    assert program_hooks(("x",), tmp_path, print) == ()
    (tmp_path / "ma-pre-start.sh").unlink()
    (tmp_path / "ma-pre-start.sh").symlink_to("real.sh")
    assert program_hooks(("x",), tmp_path, print) == (tmp_path / "ma-pre-start.sh",)


def test_beside_a_program_behind_a_link(tmp_path: Path) -> None:
    """`..` is resolved by the kernel, after the link."""
    put(tmp_path / "a" / "b")
    (tmp_path / "a" / "train.py").touch()
    (tmp_path / "link").symlink_to("a/b")
    put(tmp_path / "a", "startup-hook.sh")
    assert program_hooks(("link/../train.py",), tmp_path, print) == (tmp_path / "link/../startup-hook.sh",)


def test_python_of() -> None:
    """The interpreter that the command names, else python3."""
    for words, python in [
        ("python train.py", "python"),
        ("/opt/env/bin/python3.11 -m x", "/opt/env/bin/python3.11"),
        ("srun python3 x.py", "python3"),
        ("torchrun x.py", "python3"),
        ("python2 x.py", "python3"),
        ("pythonic x.py", "python3"),
    ]:
        assert python_of(words.split()) == python, words


@pytest.mark.parametrize("word", ["--prefix=/opt/python3", "-I/opt/python", "PYTHON=/opt/python", "./python"])
def test_what_only_looks_like_an_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    """An option, a variable, a directory (`apptainer --bind /opt/python`): they run no hook."""
    (tmp_path / "python").mkdir()
    monkeypatch.chdir(tmp_path)
    assert python_of(["env", word, "./train"]) == "python3"
    assert python_of(["env", word, "/opt/bin/python3.11", "x.py"]) == "/opt/bin/python3.11"
    assert python_of(["python", "x.py"]) == "python"  # found on PATH, whatever has this name here


def test_a_hook_that_a_job_names(tmp_path: Path) -> None:
    """It must be a file that not all can write. If it is not visible here, its node reports it."""
    (hook,) = put(tmp_path, "a.sh")
    assert refused(str(hook)) == ""
    hook.chmod(0o646)
    assert refused(str(hook)) == f"hooks: '{hook}' is not run: all users may write to it\n  run: chmod o-w '{hook}'"
    assert refused(str(tmp_path)) == f"hooks: '{tmp_path}' is no file; accepted: a .sh or a .py"
    assert refused(f"{tmp_path}/none.sh").startswith(f"hooks: found no '{tmp_path}/none.sh'")
