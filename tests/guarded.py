"""Guards and ranks as real processes of this machine: an srun that hands lines on, guards in a hurry, and their job."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

BEAT_S, LEASE_S, EOF_S, LOST_S = 0.1, 0.8, 0.3, 0.6
MOST_BYTES = 1 << 16
AGES = 600.0  # a lease that does not run out in a test
KILLED = -signal.SIGKILL
ROOT = Path(__file__).parents[1]
# A guard whose times are short, started as on a node otherwise.
HURRIED = (
    "import sys; from slurm_plugin.job import guard, lease, main, turn;"
    " lease.LEASE_S, guard.EOF_S, turn.LOOK_S = {lease_s}, {eof_s}, 0.05;"
    " guard.BEAT_S, guard.FRESH_S = 0.1, 0.2;"
    " guard.MOST_BYTES = {most_bytes}; sys.exit(main(sys.argv[1:]))"
)
# Starts the task of every node here, hands its own stdin on to all of them, and ends when they have. The task of a
# node with a file `absent-NODE` never says a word.
SRUN = """#!{python} -IS
import os, subprocess, sys, threading
words = sys.argv[1:]
(nodes,) = (word[11:] for word in words if word.startswith("--nodelist="))
head, _, numbers = nodes.partition("[")
names = []
for part in numbers.rstrip("]").split(",") if numbers else ():
    first, _, last = part.partition("-")
    names += [head + str(number) for number in range(int(first), int(last or first) + 1)]
names = names or nodes.split(",")
tasks = []
for number, name in enumerate(names):
    environ = dict(os.environ, SLURMD_NODENAME=name, SLURM_PROCID=str(number), SLURM_STEP_NUM_TASKS=str(len(names)))
    absent = os.path.exists("{directory}/absent-" + name)
    argv = ["sleep", "60"] if absent else words[words.index("--") + 1:]
    tasks.append(subprocess.Popen(argv, stdin=subprocess.PIPE, env=environ, start_new_session=True))
    with open("{directory}/pids", "a") as file:
        file.write(name + " " + str(tasks[-1].pid) + "\\n")
def hand_on():
    for line in sys.stdin.buffer:
        for task in tasks:
            try:
                task.stdin.write(line)
                task.stdin.flush()
            except OSError:
                pass
    for task in tasks:
        try:
            task.stdin.close()
        except OSError:
            pass
threading.Thread(target=hand_on, daemon=True).start()
for task in tasks:
    task.wait()
os._exit(0)
"""
_numbers = count(1)


def new_job() -> int:
    """A job id that nothing else on this machine has."""
    return 1_000_000_000 + os.getpid() * 1000 + next(_numbers)


def until(done: Callable[[], object], seconds: float = 10.0) -> bool:
    """Whether it came true in this time."""
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def command(
    job_id: int,
    directory: Path,
    *,
    lease_s: float = LEASE_S,
    eof_s: float = EOF_S,
    **more: object,
) -> list[str]:
    """The words that start a guard of run 1, in a hurry; n1 is the first node."""
    options = {"first": "n1", "supervisor": os.getpid(), "restart": 1, "directory": directory, "lost": LOST_S, **more}
    code = HURRIED.format(lease_s=lease_s, eof_s=eof_s, most_bytes=MOST_BYTES)
    words = [sys.executable, "-S", "-c", code, "guard"]
    return [*words, *(f"--{name}={value}" for name, value in options.items())]


class Machine:
    """A directory with our srun, the processes of a job, and the end of them all."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.job_id = directory, new_job()
        self.environ = {"PATH": f"{directory}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        self.environ["SLURM_JOB_ID"] = str(self.job_id)
        self._started: list[subprocess.Popen[bytes]] = []
        self.srun(SRUN.replace("{python}", sys.executable).replace("{directory}", str(directory)))

    def srun(self, text: str) -> None:
        """Another srun."""
        (self.directory / "srun").write_text(text)
        (self.directory / "srun").chmod(0o755)

    def rank(self, *argv: str, **environ: str) -> "subprocess.Popen[bytes]":
        """A process of the job, with a group of its own; it sleeps unless told otherwise."""
        given = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": str(self.job_id), **environ}
        given = {name: value for name, value in given.items() if value}
        process = subprocess.Popen(argv or ("sleep", "60"), env=given, stdout=subprocess.PIPE, process_group=0)
        self._started.append(process)
        return process

    def guard(self, node: str, *, tasks: int = 2, number: int = 0, **more: object) -> "Talk":
        """A guard on its own, without an srun."""
        place = {"SLURMD_NODENAME": node, "SLURM_PROCID": str(number), "SLURM_STEP_NUM_TASKS": str(tasks)}
        words = command(self.job_id, self.directory, **more)  # type: ignore[arg-type]
        environ = {**self.environ, **place, "SLURM_PLUGIN_SPARED": "1"}
        talk = Talk(words, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, process_group=0)
        self._started.append(talk)
        return talk

    def pids(self, node: str) -> list[int]:
        """The tasks that srun has started for a node, the oldest first."""
        with suppress(FileNotFoundError):
            lines = (self.directory / "pids").read_text().splitlines()
            return [int(pid) for name, pid in map(str.split, lines) if name == node]
        return []

    def close(self) -> None:
        """End what is left."""
        with suppress(FileNotFoundError):
            for line in (self.directory / "pids").read_text().splitlines():
                with suppress(ProcessLookupError):
                    os.kill(int(line.split()[1]), signal.SIGKILL)
        (self.directory / "pids").unlink(missing_ok=True)
        while self._started:
            process = self._started.pop()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream:
                    stream.close()


class Talk(subprocess.Popen[bytes]):
    """A guard that one can talk to, line by line."""

    _heard = b""

    def tell(self, *lines: str) -> None:
        """Write lines, all at once."""
        assert self.stdin
        self.stdin.write("".join(f"{line}\n" for line in lines).encode())

    def line(self, seconds: float = 10.0) -> str:
        """What it says next; empty at its end, and where it says nothing in this time."""
        import select

        assert self.stdout
        end = time.monotonic() + seconds
        while b"\n" not in self._heard:
            if not select.select([self.stdout], [], [], max(0.0, end - time.monotonic()))[0]:
                return ""
            piece = self.stdout.read(65536)
            if not piece:
                return ""
            self._heard += piece
        line, _, self._heard = self._heard.partition(b"\n")
        return line.decode()

    def end(self) -> int:
        """Close its stdin; its exit code."""
        assert self.stdin
        self.stdin.close()
        return self.wait(10)


def beaten(talk: Talk, number: int = 1) -> str:
    """What a guard says to a beat."""
    talk.tell(f"beat {number}")
    return talk.line()


def lives(rank: "subprocess.Popen[bytes]") -> bool:
    """Whether nobody has ended it."""
    return rank.poll() is None
