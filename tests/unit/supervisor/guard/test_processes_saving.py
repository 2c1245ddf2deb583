"""Which processes of a job are signalled to save a checkpoint."""

import signal
import subprocess
import sys
from pathlib import Path

from slurm_plugin.supervisor.guard.processes import expects, request_save
from tests.guarded import Machine
from tests.waiting import HANG_S, until

HANDLES = """
import os, signal
signal.signal(signal.SIGUSR1, lambda *_: (os.write(1, b"saved\\n"), os._exit(0)))  # it may come within print
print("ready", flush=True)
while True:
    signal.pause()
"""
WAITS = """
import signal, threading
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
waiter = threading.Thread(target=signal.sigwait, args=([signal.SIGUSR1],))
waiter.start()
print("ready", flush=True)
waiter.join()
print("saved", flush=True)
"""


def started(machine: Machine, argv: list[str]) -> "subprocess.Popen[bytes]":
    """Start a process of the machine's job."""
    environ = {"SLURM_JOB_ID": str(machine.job_id), "PATH": "/usr/bin:/bin"}
    return subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE)


def test_a_program_saves_and_the_shell_above_it_lives(machine: Machine) -> None:
    """The signal does not end bash, which waits for its program and returns the program's exit code."""
    for program in (HANDLES, WAITS):
        shell = started(machine, ["bash", "-c", 'X=1 "$0" -c "$1"; exit $?', sys.executable, program])
        assert shell.stdout
        assert shell.stdout.readline() == b"ready\n"
        assert request_save(machine.job_id, str(machine.directory), (), signal.SIGUSR1) == 1
        assert shell.stdout.readline() == b"saved\n"
        assert shell.wait(HANG_S) == 0


def test_a_program_that_does_not_handle_the_signal_yet(machine: Machine) -> None:
    """It gets the signal when it does. Without a program, nothing waits beyond the limit. A shell counts for none."""
    late = "import sys\nsys.stdin.read(1)\n" + HANDLES
    argv, environ = [sys.executable, "-c", late], {"SLURM_JOB_ID": str(machine.job_id)}
    program = subprocess.Popen(argv, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert program.stdin
    assert program.stdout
    assert request_save(machine.job_id, str(machine.directory), (), signal.SIGUSR1, wait_s=0.1) == 0
    program.stdin.write(b"x")
    program.stdin.flush()
    assert request_save(machine.job_id, str(machine.directory), (), signal.SIGUSR1, wait_s=HANG_S) == 1
    shell = started(machine, ["bash", "-c", 'trap "exit 5" USR1; echo ready; while :; do :; done'])
    assert shell.stdout
    assert shell.stdout.readline() == b"ready\n"
    assert request_save(machine.job_id, str(machine.directory), (program.pid,), signal.SIGUSR1, wait_s=1.5) == 1
    assert shell.wait(HANG_S) == 5
    assert program.stdout.read() in (b"ready\nsaved\n", b"saved\n")
    assert program.wait(HANG_S) == 0


def test_a_program_that_expects_another_signal_runs_on(machine: Machine) -> None:
    """It has no handler for SIGUSR2, which would end it."""
    program = started(machine, [sys.executable, "-c", HANDLES])
    assert program.stdout
    assert program.stdout.readline() == b"ready\n"
    assert request_save(machine.job_id, str(machine.directory), (), signal.SIGUSR2) == 0
    assert request_save(machine.job_id, str(machine.directory), (program.pid,), signal.SIGUSR1) == 0
    program.kill()
    assert program.wait(HANG_S) == -signal.SIGKILL


def test_what_hands_signals_on_is_left_out(machine: Machine, tmp_path: Path) -> None:
    """mpirun would pass the signal to ranks without a handler. Ranks with one are signalled on their own nodes."""
    mpirun = tmp_path / "mpirun"
    mpirun.write_text("#!/bin/bash\ntrap 'exit 3' USR1\necho ready\nwhile :; do sleep 0.1; done\n")
    mpirun.chmod(0o755)
    process = started(machine, [str(mpirun)])
    assert process.stdout
    assert process.stdout.readline() == b"ready\n"
    assert not expects(process.pid, signal.SIGUSR1)
    process.kill()
    process.wait(HANG_S)


def test_the_guard_does_it_on_its_node(machine: Machine) -> None:
    """For this signal's number. Other numbers are ignored."""
    program = started(machine, [sys.executable, "-c", HANDLES])
    assert program.stdout
    assert program.stdout.readline() == b"ready\n"
    talk = machine.guard("n2")
    talk.tell(f"save {int(signal.SIGTERM)}", "beat 1")
    assert talk.line() == "slurm_plugin-guard n2 alive 1"
    talk.tell(f"save {int(signal.SIGUSR1)}")
    assert program.stdout.readline() == b"saved\n"
    until(lambda: program.poll() == 0)
