"""The job's command: its exit code, its environment, and the signals that it gets."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.supervisor import launcher as launching
from slurm_plugin.supervisor.launcher import Launcher, as_a_shell, missing
from tests.guarded import AGES
from tests.waiting import HANG_S

BY_THE_LAUNCHER = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
AWHILE = "sleep 3000 & wait"  # ends at a signal


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    """Yield an active launcher. Restore this process's handlers afterwards."""
    before = {number: signal.getsignal(number) for number in BY_THE_LAUNCHER}
    try:
        with Launcher() as launcher:
            yield launcher
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(launcher: Launcher, script: str, **environ: str) -> tuple[int, list[str]]:
    """Return the exit code of a shell script, and the launcher's messages."""
    said: list[str] = []
    code = launcher.run(["/bin/sh", "-c", script], {"PATH": os.environ["PATH"], **environ}, said.append)
    return code, said


def test_exit_code(launcher: Launcher) -> None:
    """As a shell gives it. A command that ends by its own signal was not told to end."""
    codes = {"exit 0": 0, "exit 1": 1, "exit 93": 93, "exit 255": 255, "kill -9 $$": 137, "kill -TERM $$": 143}
    for script, code in codes.items():
        assert run(launcher, script) == (code, []), script
        assert not launcher.told_to_end, script


def test_not_found(launcher: Launcher, tmp_path: Path) -> None:
    """127 and a message, as in a shell; 126 for a file that cannot be run, or whose interpreter is missing."""
    said: list[str] = []
    assert launcher.run(["no-such-program", "x"], {"PATH": str(tmp_path)}, said.append) == 127
    (tmp_path / "text").write_text("text")
    assert launcher.run([str(tmp_path / "text")], {}, said.append) == 126
    scripts = {
        "gone": (b"#! /opt/gone/python -u\n", "this node does not have /opt/gone/python, which its first line names"),
        "dos": (
            b"#!/bin/sh\r\necho\r\n",
            "this node does not have /bin/sh, which its first line names; remove its DOS line ends: sed -i 's/\\r$//'",
        ),
    }
    for name, (text, _) in scripts.items():
        (tmp_path / name).write_bytes(text)
        (tmp_path / name).chmod(0o755)
        assert launcher.run([name], {"PATH": str(tmp_path)}, said.append) == 126
    assert said == [
        "no-such-program: command not found on the PATH of the batch script",
        f"{tmp_path}/text: Permission denied",
        *(f"{name}: {why}" for name, (_, why) in scripts.items()),
    ]


MISSING = {
    "bash: line 1: a.out: command not found\n": "a.out",
    "/var/spool/slurmd/job7/slurm_script: line 3: ./a.out: No such file or directory\n": "./a.out",
    "sh: 1: a.out: not found\n[slurm_plugin] later\n": "a.out",
    "env: \u2018a.out\u2019: No such file or directory\n": "a.out",
    "bash: line 1: first: command not found\n" + "x" * 99 + "\nbash: line 2: a\x1bb: command not found\n": "a?b",
    "train.py: 404: not found\n": "404",
    "the page was not found\n": "",
    "": "",
}


def test_what_was_not_found(tmp_path: Path) -> None:
    """The program itself, else the end of a shell's message, even if its output went to a file."""
    environ = {"PATH": os.environ["PATH"]}
    assert missing("no-such-program", environ, ()) == "no-such-program"
    assert missing(f"{tmp_path}/gone", environ, ()) == f"{tmp_path}/gone"
    for said, name in MISSING.items():
        (tmp_path / "log").write_text(said)
        with (tmp_path / "log").open("a") as log:
            for program in ("sh", ""):  # found, or not on this node
                assert missing(program, environ, (log.fileno(),)) == name, said
    read, write = os.pipe()
    assert missing("sh", environ, (read, write)) == ""
    os.close(read)
    os.close(write)
    assert missing("sh", environ, (write,)) == ""


MPIRUNS = (
    (134, "gone", 127),
    (132, "./gone", 127),
    (132, "./text", 126),
    (66, "gone", 127),
    (183, "./text", 126),
    (75, "gone", 127),
    (134, "./run", 134),
    (132, "run", 132),
    (1, "x", 1),
)


def test_mpirun_has_codes_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a missing or invalid program. A program that a signal ended with the same code is not missing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("text")
    (tmp_path / "run").touch(0o755)
    environ = {"PATH": str(tmp_path)}
    for code, program, shells in MPIRUNS:
        assert as_a_shell(code, ["/usr/bin/mpirun", program], program, environ) == shells, (code, program)
        assert as_a_shell(code, ["srun", program], program, environ) == code  # a program that aborts, found by a task


def test_environment(launcher: Launcher, tmp_path: Path) -> None:
    """The command gets exactly the given variables. No shell reads its words."""
    out = tmp_path / "out"
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$RANK" "$HOME" "$@" >{out}\n')
    program.chmod(0o755)
    assert launcher.run(["program", "$(x) 'a'", "*"], {"PATH": str(tmp_path), "RANK": "3"}, print) == 0
    assert out.read_text().splitlines() == ["3", "", "$(x) 'a'", "*"]


def test_told_to_end(launcher: Launcher, tmp_path: Path) -> None:
    """SIGTERM reaches the command's whole group, and is remembered."""
    below = f"trap 'touch below; exit 0' TERM; touch ready; {AWHILE}"
    script = f'cd {tmp_path}; sh -c "{below}" & until [ -e ready ]; do sleep 0.02; done; '
    script += "trap 'wait; exit 5' TERM; kill -TERM $PPID; wait; exit 6"
    assert run(launcher, script) == (5, [])
    assert launcher.told_to_end
    assert (tmp_path / "below").exists()


def test_told_to_stop(launcher: Launcher, tmp_path: Path) -> None:
    """SIGINT lets a program with a grace save, and a second one ends it. Other programs end immediately.

    They get SIGTERM: srun ends its tasks at a single SIGTERM, but not at a single SIGINT.
    """
    script = f"cd {tmp_path}; trap 'touch saved' USR1; trap 'exit 7' TERM; kill -INT $PPID; "
    assert run(launcher, f"{script} {AWHILE}; {AWHILE}") == (7, [])
    assert launcher.told_to_end
    assert launcher.told_to_stop
    assert not (tmp_path / "saved").exists()
    launcher.told_to_end = launcher.told_to_stop = False
    launcher.may_save = True
    script += "until [ -e saved ]; do sleep 0.02; done; "
    assert run(launcher, f"{script} exit 8") == (8, [])
    assert (launcher.told_to_stop, launcher.told_to_end) == (True, False)
    assert run(launcher, f"trap 'exit 7' TERM; kill -INT $PPID; {AWHILE}") == (7, [])
    assert launcher.told_to_end


def test_a_program_that_does_not_stop(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ended as Slurm would end it: with SIGTERM, then with SIGKILL. Nothing is left to wake this process."""
    monkeypatch.setattr(launching, "STOPPED_S", 0.05)
    assert run(launcher, "trap '' INT TERM; kill -INT $PPID; while :; do sleep 0.1; done") == (137, [])
    launcher.__exit__()
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_slurm_ends_a_program_that_may_save(launcher: Launcher, tmp_path: Path) -> None:
    """The first SIGTERM becomes the signal to save, and a second one ends it."""
    known = "trap 'known=1' HUP; kill -HUP $PPID; until [ \"$known\" ]; do sleep 0.02; done; "  # else it has not begun
    script = f"cd {tmp_path}; trap 'touch saved' USR1; trap 'exit 7' TERM; {known} kill -TERM $PPID; "
    launcher.may_save, launcher.kill_s = True, 26.0
    saves = f"{script} until [ -e saved ]; do sleep 0.02; done; "
    assert run(launcher, f"{saves} exit 8") == (8, [])
    assert (launcher.ending, launcher.told_to_end) == (True, False)
    assert run(launcher, f"{script} {AWHILE}") == (7, [])
    assert launcher.told_to_end


def test_srun_is_told_to_stop(launcher: Launcher, tmp_path: Path) -> None:
    """By SIGTERM: at one SIGINT srun only reports its tasks, and would run on."""
    srun = tmp_path / "srun"
    srun.write_text(f"#!/bin/sh\ntrap 'exit 7' TERM; trap : INT; kill -INT $PPID; {AWHILE}; wait; wait\n")
    srun.chmod(0o755)
    assert launcher.run([str(srun)], {"PATH": os.environ["PATH"]}, [].append) == 7
    assert launcher.told_to_stop


def test_a_command_that_does_not_trap(launcher: Launcher) -> None:
    """It ends by the signal, also if that comes while the command is being started.

    Twenty times: in about one of ten, this process does not yet know the child's pid.
    """
    for _ in range(20):
        launcher.told_to_end = False
        assert run(launcher, "kill -TERM $PPID; sleep 3000") == (128 + signal.SIGTERM, [])
        assert launcher.told_to_end


def test_other_signals(launcher: Launcher) -> None:
    """They are passed on, too - programs write checkpoints at them - and do not mean the end."""
    for name in ("HUP", "USR1", "USR2"):
        assert run(launcher, f"trap 'exit 7' {name}; kill -{name} $PPID; {AWHILE}; exit 1") == (7, []), name
        assert not launcher.told_to_end, name


def test_who_tells_the_program_to_save(launcher: Launcher, tmp_path: Path) -> None:
    """With guards the command gets no checkpoint signal, which would end a shell. The guards get its number."""
    told: list[int] = []
    done = tmp_path / "done"

    def save(number: int) -> None:
        told.append(number)
        done.touch()

    launcher.saver = save
    argv = ["/bin/sh", "-c", f"kill -USR2 $PPID; while [ ! -e {done} ]; do sleep 0.05; done; exit 4"]
    assert launcher.run(argv, os.environ, print, look=lambda: False) == 4
    assert told == [signal.SIGUSR2]
    assert launcher.run(argv, os.environ, print, look=lambda: False, checkpoints=False) == 4
    assert told == [signal.SIGUSR2]
    launcher.save()
    assert told == [signal.SIGUSR2, signal.SIGUSR1]


def test_a_signal_before_the_program(launcher: Launcher, tmp_path: Path) -> None:
    """The program gets it when it runs, once. The next one gets it only if it comes again."""
    told: list[int] = []
    done, until_done = tmp_path / "done", f"while [ ! -e {tmp_path}/done ]; do sleep 0.05; done"

    def save(number: int) -> None:
        told.append(number)
        done.touch()

    os.kill(os.getpid(), signal.SIGUSR1)  # before any command
    launcher.saver = save
    assert run(launcher, until_done) == (0, [])
    assert launcher.was_told_to_save(HANG_S)
    argv = ["/bin/sh", "-c", "kill -USR2 $PPID"]
    assert launcher.run(argv, os.environ, print, checkpoints=False) == 0
    done.unlink()
    assert run(launcher, until_done) == (0, [])
    assert told == [signal.SIGUSR1, signal.SIGUSR2]
    assert run(launcher, "exit 0") == (0, [])
    assert not launcher.was_told_to_save(HANG_S)
    os.kill(os.getpid(), signal.SIGUSR1)
    launcher.forget_saves()
    assert run(launcher, "sleep 1.5") == (0, [])
    assert told == [signal.SIGUSR1, signal.SIGUSR2]


def test_told_before_the_launch(launcher: Launcher, tmp_path: Path) -> None:
    """The command is not started: the code of SIGTERM."""
    os.kill(os.getpid(), signal.SIGTERM)
    assert run(launcher, f"touch {tmp_path}/started") == (143, [])
    assert not (tmp_path / "started").exists()


def test_signal_after_the_end(launcher: Launcher) -> None:
    """A signal after the command's end is not sent: another process may have its pid."""
    assert run(launcher, "exit 0") == (0, [])
    os.kill(os.getpid(), signal.SIGTERM)
    assert launcher.told_to_end


SAID = (
    ("srun: error: n2: task 1: Exited with exit code 5\\n", 143, 5),
    ("srun: error: n[1-2]: tasks 0-1: Segmentation fault (core dumped)\\n", 143, 139),
    ("loss 1\\nsrun: error: n2: task 1: Killed\\nsrun: error: n1: task 0: Exited with exit code 3\\n", 143, 137),
    ("srun: error: n2: task 1: Exited with exit code 5\\n", 0, 0),
    ("10%%\\r20%%\\r", 143, 143),
    ("no newline", 7, 7),
)


def test_a_full_disk_under_the_log(launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program's stderr is still read: more than a pipe holds does not block it."""
    srun = tmp_path / "srun"
    srun.write_text("#!/bin/sh\nhead -c 1000000 /dev/zero >&2 || exit 1\nexit 5\n")
    srun.chmod(0o755)
    with Path("/dev/full").open("w", encoding="utf-8") as full:  # every write to it fails with ENOSPC
        monkeypatch.setattr(launching.sys, "stderr", full)
        assert launcher.run([str(srun)], {"PATH": os.environ["PATH"]}, print) == 5


def test_the_first_task_that_failed_gives_the_code(
    launcher: Launcher, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """srun returns the code of ranks that it killed. Its stderr, copied unchanged, names the first failed rank."""
    srun = tmp_path / "srun"
    for says, ends, code in SAID:
        srun.write_text(f"#!/bin/sh\nprintf '{says}' >&2\nexit {ends}\n")
        srun.chmod(0o755)
        assert launcher.run([str(srun)], {}, lambda _: None) == code, says
        assert capfd.readouterr().err == says.replace("\\n", "\n").replace("\\r", "\r").replace("%%", "%")


REFUSED = "srun: error: Unable to create step for job 3: Memory required by task is not available"


@pytest.mark.parametrize(
    ("says", "times", "seconds", "code", "runs"),
    [
        (REFUSED, 2, AGES, 0, 3),  # slurmctld has just restarted
        (REFUSED, 2, 0.0, 1, 1),  # Slurm refuses for too long
        (f"srun: warning: slow\\n{REFUSED}", 1, AGES, 0, 2),
        (f"the program\\n{REFUSED}", 1, AGES, 1, 1),  # an srun of its own
        ("srun: error: n1: task 0: Exited with exit code 1", 1, AGES, 1, 1),
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
    """For a limited time, and only if nothing has run."""
    monkeypatch.setattr(launching, "REFUSED_EVERY_S", 0.1)
    monkeypatch.setattr(launching, "REFUSED_S", seconds)
    srun, count = tmp_path / "srun", tmp_path / "count"
    fails = f"{{ printf '{says}\\n' >&2; exit 1; }}"
    srun.write_text(f"#!/bin/sh\necho >>{count}\n[ $(wc -l <{count}) -gt {times} ] || {fails}\n")
    srun.chmod(0o755)
    assert launcher.run([str(srun)], {"PATH": os.environ["PATH"]}, lambda _: None) == code
    assert len(count.read_text().splitlines()) == runs
