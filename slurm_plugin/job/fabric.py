"""The fabric check of a job: one rank a host under the job's own MPI, its lines read until a deadline, then judged."""

import os
import secrets
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from prechecks import Verdict, fabric
from prechecks.fabric import Thresholds, program
from prechecks.verdict import ERROR, SKIPPED

DEADLINE_S = 30.0
END_S = 4.0  # of the deadline: for the ranks' guards to speak and for a launcher to take its daemons back
LEAVE_S = 2.0  # after the deadline: what is left of the launcher is killed
LOOK_EVERY_S = 0.2
MOST_BYTES = 4 << 20  # of output that is kept: a rank says some twenty short lines
LAST_LINES = 20


def open_mpi(hosts: Sequence[str], *, root: bool = False) -> list[str]:
    """The words before the program for Open MPI 4 and later: one rank on each of these hosts, in their order."""
    where = ["--host", ",".join(f"{name}:1" for name in hosts), "--map-by", "ppr:1:node", "--bind-to", "none"]
    return ["mpirun", *(["--allow-run-as-root"] if root else []), "-np", str(len(hosts)), *where]


def hydra(hosts: Sequence[str]) -> list[str]:
    """The same for MPICH's and Intel's launcher."""
    return ["mpiexec.hydra", "-n", str(len(hosts)), "-ppn", "1", "-hosts", ",".join(hosts)]


def check(
    hosts: Sequence[str],
    *,
    launcher: Sequence[str],
    python: str,
    environ: Mapping[str, str],
    deadline_s: float = DEADLINE_S,
    thresholds: Thresholds = Thresholds(),  # noqa: B008 - immutable
    say: Callable[[str], None],
    give_up: Callable[[], bool] = lambda: False,
) -> dict[str, Verdict]:
    """One verdict a host, within `deadline_s` and some LEAVE_S seconds.

    `launcher` starts one rank on each of `hosts`, in order; `python` has an mpi4py that belongs to that launcher's MPI.
    `give_up` is asked now and then: True ends the check early. Nothing raises: a check that breaks is an `error`.
    """
    if len(hosts) < 2:
        return fabric.judge(hosts, (), "")
    if deadline_s <= END_S:
        return fabric.unknown(hosts, ERROR, f"a deadline of {deadline_s:g} s: more than {END_S:g} s is needed")
    nonce, started = secrets.token_hex(4), time.monotonic()
    path = str(Path(program.__file__).resolve())
    argv = [*launcher, python, path, nonce, f"{deadline_s - END_S:.1f}", ",".join(hosts)]
    try:
        run = _Run(argv, environ)
    except OSError as error:
        return fabric.unknown(hosts, ERROR, f"no rank was started: {argv[0]}: {error.strerror}")
    try:
        late = not run.read(started + deadline_s, give_up)
    finally:
        run.end()
    if give_up():
        return fabric.unknown(hosts, SKIPPED, "the job was told to end")
    verdicts = fabric.judge(hosts, run.lines, nonce, thresholds, run.complaint)
    if late:
        say(f"fabric: {Path(argv[0]).name} did not end in {deadline_s:g} s and was ended")
    if run.complaint and any(verdict.verdict == ERROR for verdict in verdicts.values()):
        for line in run.last:
            say(f"fabric: {argv[0]} said: {line}")
    seconds = round(time.monotonic() - started, 3)
    return {name: verdict._replace(seconds=seconds) for name, verdict in verdicts.items()}


class _Run:
    """The launcher and its output. It leads a session of its own: ending the group ends what stayed in it."""

    def __init__(self, argv: Sequence[str], environ: Mapping[str, str]) -> None:
        self._out, self._kept = b"", 0
        self.lines: list[str] = []
        self.last: deque[str] = deque(maxlen=LAST_LINES)  # of stderr
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=environ, start_new_session=True
        )

    @property
    def complaint(self) -> str:
        """The launcher's last words; frames of dashes are none."""
        return next((line for line in reversed(self.last) if line.strip("-= ")), "")

    def read(self, until: float, give_up: Callable[[], bool]) -> bool:
        """Take lines as they come; whether the launcher ended by itself. Its children may keep its pipes open."""
        assert self._process.stdout and self._process.stderr  # noqa: S101 - for the type checker
        with selectors.DefaultSelector() as selector:
            for pipe in (self._process.stdout, self._process.stderr):
                selector.register(pipe, selectors.EVENT_READ)
            while selector.get_map() and time.monotonic() < until and not give_up():
                ended = self._process.poll() is not None
                ready = selector.select(0 if ended else LOOK_EVERY_S)
                for key, _ in ready:
                    chunk = os.read(key.fd, 1 << 16)
                    if not chunk:
                        selector.unregister(key.fileobj)
                    self._take(chunk, key.fileobj is self._process.stdout)
                if ended and not ready:
                    break
        return self._ended(until)

    def _take(self, chunk: bytes, is_out: bool) -> None:
        if not is_out:
            self.last.extend(line.strip() for line in chunk.decode(errors="replace").splitlines() if line.strip())
            return
        self._kept += len(chunk)
        *lines, self._out = (self._out + chunk).split(b"\n") if self._kept < MOST_BYTES else [b""]
        self.lines += [line.decode(errors="replace") for line in lines]

    def _ended(self, until: float) -> bool:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, until - time.monotonic()))
        return self._process.returncode is not None

    def end(self) -> None:
        """SIGTERM first, with which mpirun and srun end the steps on other nodes; then SIGKILL to what is left here."""
        below = children(self._process.pid)
        for number, wait_s in ((signal.SIGTERM, LEAVE_S), (signal.SIGKILL, LEAVE_S)):
            if self._process.poll() is None:
                os.killpg(self._process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(wait_s)
        for pid, start in below.items():  # mpirun puts the srun of its daemons into a group of its own
            if _parent_and_start(pid)[1] == start:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)  # to srun: end the step
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe:
                pipe.close()


def children(parent: int) -> dict[int, str]:
    """The children of a process, with the times they started at: a number alone may be another's by now."""
    found = {int(name): _parent_and_start(int(name)) for name in os.listdir("/proc") if name.isdigit()}  # noqa: PTH208
    return {pid: start for pid, (above, start) in found.items() if above == parent}


def _parent_and_start(pid: int) -> tuple[int, str]:
    """Fields 4 and 22 of proc(5)'s stat; 0 and nothing for a process that is gone."""
    try:
        words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0, ""
    return int(words[1]), words[19].decode()
