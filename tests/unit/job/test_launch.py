"""The job's command: its exit code, its environment, and the signals that are handed on."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.job import launch
from slurm_plugin.job.launch import Launcher, as_a_shell

BY_THE_LAUNCHER = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
AWHILE = "sleep 10 & wait"  # ends at a signal, and by itself


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    """A launcher at work; afterwards this process has its own handlers again."""
    before = {number: signal.getsignal(number) for number in BY_THE_LAUNCHER}
    try:
        with Launcher() as launcher:
            yield launcher
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(launcher: Launcher, script: str, **environ: str) -> tuple[int, list[str]]:
    """The exit code of a shell script, and what the launcher said."""
    said: list[str] = []
    code = launcher.run(["/bin/sh", "-c", script], {"PATH": os.environ["PATH"], **environ}, said.append)
    return code, said


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 1", 1), ("exit 93", 93), ("exit 255", 255), ("kill -9 $$", 137), ("kill -TERM $$", 143)],
)
def test_exit_code(launcher: Launcher, script: str, code: int) -> None:
    """As a shell gives it; a command that ends by a signal of its own was not told to end."""
    assert run(launcher, script) == (code, [])
    assert not launcher.told_to_end


def test_not_found(launcher: Launcher, tmp_path: Path) -> None:
    """127 and words, as a shell has it; 126 for what is there and cannot be run."""
    said: list[str] = []
    assert launcher.run(["no-such-program", "x"], {"PATH": str(tmp_path)}, said.append) == 127
    (tmp_path / "text").write_text("text")
    assert launcher.run([str(tmp_path / "text")], {}, said.append) == 126
    assert said == [
        "no-such-program: command not found on the PATH of the batch script",
        f"{tmp_path}/text: Permission denied",
    ]


@pytest.mark.parametrize(
    ("code", "program", "shells"),
    [
        (134, "gone", 127),
        (132, "./gone", 127),
        (132, "./text", 126),
        (66, "gone", 127),
        (183, "./text", 126),
        (75, "gone", 127),
        (134, "./run", 134),
        (132, "run", 132),
        (1, "x", 1),
    ],
)
def test_mpirun_has_codes_of_its_own(
    code: int, program: str, shells: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a program that is not there, or is none; a program that is ended by such a signal is there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("text")
    (tmp_path / "run").touch(0o755)
    environ = {"PATH": str(tmp_path)}
    assert as_a_shell(code, ["/usr/bin/mpirun", program], program, environ) == shells
    assert as_a_shell(code, ["srun", program], program, environ) == code  # a program that aborts, found by a task


def test_environment(launcher: Launcher, tmp_path: Path) -> None:
    """The command gets exactly what it is given; its words reach it literally, seen by no shell."""
    out = tmp_path / "out"
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$RANK" "$HOME" "$@" >{out}\n')
    program.chmod(0o755)
    assert launcher.run(["program", "$(x) 'a'", "*"], {"PATH": str(tmp_path), "RANK": "3"}, print) == 0
    assert out.read_text().splitlines() == ["3", "", "$(x) 'a'", "*"]


def test_told_to_end(launcher: Launcher, tmp_path: Path) -> None:
    """SIGTERM reaches the whole group of the command, also what it started, and is remembered."""
    below = f"trap 'touch below; exit 0' TERM; touch ready; {AWHILE}"
    script = f'cd {tmp_path}; sh -c "{below}" & until [ -e ready ]; do sleep 0.02; done; '
    script += "trap 'wait; exit 5' TERM; kill -TERM $PPID; wait; exit 6"
    assert run(launcher, script) == (5, [])
    assert launcher.told_to_end
    assert (tmp_path / "below").exists()


def test_a_command_that_does_not_trap(launcher: Launcher) -> None:
    """It ends by the signal that was handed on, also one that comes while the command is being started.

    Twenty times: in about one of ten this process has not yet learnt the number of the child that it started.
    """
    for _ in range(20):
        launcher.told_to_end = False
        assert run(launcher, "kill -TERM $PPID; sleep 10") == (128 + signal.SIGTERM, [])
        assert launcher.told_to_end


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2])
def test_other_signals(launcher: Launcher, number: signal.Signals) -> None:
    """Handed on too - programs write checkpoints at them - and nobody was told to end."""
    name = number.name.removeprefix("SIG")
    assert run(launcher, f"trap 'exit 7' {name}; kill -{name} $PPID; {AWHILE}; exit 1") == (7, [])
    assert not launcher.told_to_end


def test_told_before_the_launch(launcher: Launcher, tmp_path: Path) -> None:
    """A command that is no longer wanted is not started: the code of SIGTERM."""
    os.kill(os.getpid(), signal.SIGTERM)
    assert run(launcher, f"touch {tmp_path}/started") == (143, [])
    assert not (tmp_path / "started").exists()


def test_signal_after_the_end(launcher: Launcher) -> None:
    """A signal that comes when the command has ended harms nobody: its number may be another's by now."""
    assert run(launcher, "exit 0") == (0, [])
    os.kill(os.getpid(), signal.SIGTERM)
    assert launcher.told_to_end


@pytest.mark.parametrize(
    ("says", "ends", "code"),
    [
        ("srun: error: n2: task 1: Exited with exit code 5\\n", 143, 5),
        ("srun: error: n[1-2]: tasks 0-1: Segmentation fault (core dumped)\\n", 143, 139),
        ("loss 1\\nsrun: error: n2: task 1: Killed\\nsrun: error: n1: task 0: Exited with exit code 3\\n", 143, 137),
        ("srun: error: n2: task 1: Exited with exit code 5\\n", 0, 0),
        ("10%%\\r20%%\\r", 143, 143),
        ("no newline", 7, 7),
    ],
)
def test_the_first_task_that_failed_gives_the_code(
    launcher: Launcher, tmp_path: Path, capfd: pytest.CaptureFixture[str], says: str, ends: int, code: int
) -> None:
    """srun ends with the code of those it killed; its stderr, copied as it is, names the one that failed first."""
    srun = tmp_path / "srun"
    srun.write_text(f"#!/bin/sh\nprintf '{says}' >&2\nexit {ends}\n")
    srun.chmod(0o755)
    assert launcher.run([str(srun)], {}, lambda _: None) == code
    assert capfd.readouterr().err == says.replace("\\n", "\n").replace("\\r", "\r").replace("%%", "%")


REFUSED = "srun: error: Unable to create step for job 3: Memory required by task is not available"


@pytest.mark.parametrize(
    ("says", "times", "seconds", "code", "runs"),
    [
        (REFUSED, 2, 30.0, 0, 3),  # slurmctld has just restarted
        (REFUSED, 2, 0.0, 1, 1),  # it stays so for too long
        (f"srun: warning: slow\\n{REFUSED}", 1, 30.0, 0, 2),
        (f"the program\\n{REFUSED}", 1, 30.0, 1, 1),  # an srun of its own
        ("srun: error: n1: task 0: Exited with exit code 1", 1, 30.0, 1, 1),
    ],
)
def test_a_step_that_slurm_does_not_make_yet_is_asked_for_again(
    launcher: Launcher,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    says: str,
    times: int,
    seconds: float,
    code: int,
    runs: int,
) -> None:
    """For a while, and only where nothing has run."""
    monkeypatch.setattr(launch, "REFUSED_EVERY_S", 0.1)
    monkeypatch.setattr(launch, "REFUSED_S", seconds)
    srun, count = tmp_path / "srun", tmp_path / "count"
    fails = f"{{ printf '{says}\\n' >&2; exit 1; }}"
    srun.write_text(f"#!/bin/sh\necho >>{count}\n[ $(wc -l <{count}) -gt {times} ] || {fails}\n")
    srun.chmod(0o755)
    assert launcher.run([str(srun)], {"PATH": os.environ["PATH"]}, lambda _: None) == code
    assert len(count.read_text().splitlines()) == runs
