"""Guards and ranks as real processes of this machine, a clock that the test moves, and an srun that passes lines on."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from slurm_plugin.records.site_settings import LOST_S
from slurm_plugin.supervisor.guard import barrier, server
from slurm_plugin.supervisor.requeue import by_owner
from tests.waiting import HANG_S, until

MOST_BYTES = 1 << 16
AGES = 1e6  # seconds; longer than any test
KILLED = -signal.SIGKILL
ROOT = Path(__file__).parents[1]
# A guard as on a node, but it polls the test's clock. It makes a file `end-PID` when it has read the end of its stdin,
# and `turn-PID` when another descriptor can be read. The alarm ends a forgotten guard.
GUARD = """
import functools, os, select, signal, sys, types
from slurm_plugin.supervisor.guard import fencing
from slurm_plugin.supervisor.guard import server
from slurm_plugin.supervisor.main import main
def clock():
    with open({directory!r} + "/clock") as file:
        return float(file.read())
def note(word):
    open("%s/%s-%d" % ({directory!r}, word, os.getpid()), "w").close()
def wait(read, write, extra, seconds):
    if 0 not in read:
        note("end")
    ready = select.select(read, write, extra, 0.02 if seconds is None else min(seconds, 0.02))
    if any(ready[0]):
        note("turn")
    return ready
signal.alarm(3000)
server.Guard = functools.partial(server.Guard, clock=clock)
server.select = types.SimpleNamespace(select=wait)
server.MOST_BYTES, server.WIPE_S, fencing.LOOK_S = {most_bytes}, {ages}, 0.02
sys.exit(main(sys.argv[1:], dict))
"""
# Start the tasks of all nodes on this machine, copy stdin to each, and end when all have ended. If there is a file
# `absent-NODE`, the task of that node never answers.
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
    argv = ["sleep", "3000"] if absent else words[words.index("--") + 1:]
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
    """Return a job id that nothing else on this machine uses."""
    return 1_000_000_000 + os.getpid() * 1000 + next(_numbers)


class Clock:
    """A clock that only the test moves. The guards read the time from a file."""

    def __init__(self, path: Path) -> None:
        self.path, self.now = path, 0.0
        self.move(1000.0)

    def __call__(self) -> float:
        return self.now

    def move(self, seconds: float) -> None:
        """Advance the clock."""
        later = self.path.with_suffix(".later")
        later.write_text(repr(self.now + seconds))
        later.replace(self.path)
        self.now += seconds

    def until(self, sign: Callable[[], object], step_s: float) -> None:
        """Advance the clock in steps until `sign` returns true."""
        until(lambda: sign() or self.move(step_s))


def command(directory: Path, cluster: str = "", **more: object) -> list[str]:
    """Return the command that starts a guard of run 1 on the clock in `directory`/clock. n1 is the first node."""
    plan = by_owner.Plan(no_kill=False, directory=str(directory), cluster=cluster)
    orders = server.Orders("n1", os.getpid(), 1, LOST_S, "", plan._asdict())
    code = GUARD.format(directory=str(directory), most_bytes=MOST_BYTES, ages=AGES)
    return [sys.executable, "-S", "-c", code, "guard", json.dumps({**orders._asdict(), **more})]


class Machine:
    """A directory with an srun and a clock, and the processes of a job."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.job_id = directory, new_job()
        self.clock = Clock(directory / "clock")
        self.environ = {"PATH": f"{directory}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        self.environ["SLURM_JOB_ID"] = str(self.job_id)
        self._started: list[subprocess.Popen[bytes]] = []
        self.srun(SRUN.replace("{python}", sys.executable).replace("{directory}", str(directory)))

    def srun(self, text: str) -> None:
        """Replace srun."""
        (self.directory / "srun").write_text(text)
        (self.directory / "srun").chmod(0o755)

    def rank(self, *argv: str, **environ: str) -> "subprocess.Popen[bytes]":
        """Start a process of the job in its own process group, by default `sleep`. Wait for its environment."""
        given = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": str(self.job_id), **environ}
        given = {name: value for name, value in given.items() if value}
        process = subprocess.Popen(argv or ("sleep", "3000"), env=given, stdout=subprocess.PIPE, process_group=0)
        self._started.append(process)
        until(lambda: has_begun(process))
        return process

    def guard(self, node: str, *, tasks: int = 2, number: int = 0, **more: Any) -> "Talk":
        """Start a guard directly, without srun."""
        place = {"SLURMD_NODENAME": node, "SLURM_PROCID": str(number), "SLURM_STEP_NUM_TASKS": str(tasks)}
        words = command(self.directory, **more)
        environ = {**self.environ, **place, "SLURM_PLUGIN_SPARED": "1"}
        talk = Talk(words, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, process_group=0)
        self._started.append(talk)
        return talk

    def request(self, **fields: object) -> barrier.Request:
        """Return a request of the supervisor. By default it requests no checks."""
        settings: Any = {"settings": {"deadline_s": AGES}, "infiniband": False, "check": False}
        run = f"{self.job_id}.0.0", str(self.directory / "run")
        plain = barrier.Request("barrier", self.job_id, *run, "n[1-3]", **settings)
        return replace(plain, **fields)  # type: ignore[arg-type]

    def question(self, **fields: object) -> str:
        """Return the request as one line."""
        return barrier.text(self.request(**fields))

    def noted(self, word: str, *pids: int) -> bool:
        """Return whether all these guards have noted `end` or `turn`."""
        return all((self.directory / f"{word}-{pid}").exists() for pid in pids)

    def pids(self, node: str) -> list[int]:
        """Return the tasks that srun has started for a node, oldest first."""
        with suppress(FileNotFoundError):
            lines = (self.directory / "pids").read_text().splitlines()
            return [int(pid) for name, pid in map(str.split, lines) if name == node]
        return []

    def close(self) -> None:
        """Kill all processes that are left."""
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
    """A guard that exchanges lines with the test."""

    _heard = b""

    def tell(self, *lines: str) -> None:
        """Write these lines in one write."""
        assert self.stdin
        self.stdin.write("".join(f"{line}\n" for line in lines).encode())

    def line(self) -> str:
        """Return the guard's next line; empty at the end of its output."""
        import select

        assert self.stdout
        while b"\n" not in self._heard:
            assert select.select([self.stdout], [], [], HANG_S)[0], f"no line of a guard in {HANG_S} s"
            piece = self.stdout.read(65536)
            if not piece:
                return ""
            self._heard += piece
        line, _, self._heard = self._heard.partition(b"\n")
        return line.decode()

    def end(self) -> int:
        """Close the stdin of a guard without a lease, and return its exit code."""
        assert self.stdin
        self.stdin.close()
        return self.wait(HANG_S)


def beaten(talk: Talk, number: int = 1, sent: float | None = None) -> str:
    """Send a heartbeat, and return the guard's answer. `sent`: the time of sending; None: now."""
    talk.tell(f"beat {number}" if sent is None else f"beat {number} {sent}")
    return talk.line()


def lives(rank: "subprocess.Popen[bytes]") -> bool:
    """Return whether the process has neither ended nor stopped."""
    return rank.poll() is None and state(rank.pid) not in ("T", "Z", "")


def state(pid: int) -> str:
    """Return the state letter in /proc: T: stopped, Z: zombie, empty: gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def has_begun(process: "subprocess.Popen[bytes]") -> bool:
    """Return whether a process already has its own environment, or has ended."""
    try:
        return bool(Path(f"/proc/{process.pid}/environ").read_bytes()) or process.poll() is not None
    except ProcessLookupError:
        return True


def gone(*pids: int) -> bool:
    """Return whether all these processes have ended."""
    return all(state(pid) in ("", "Z", "X") for pid in pids)
