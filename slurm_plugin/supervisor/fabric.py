"""The fabric check of a job: run one rank on each host under the job's MPI, read the output, and judge the hosts."""

import os
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import prechecks
from prechecks import Verdict, fabric
from prechecks.child import stat
from prechecks.fabric import Thresholds, program
from prechecks.verdict import ERROR, FAILED, SKIPPED, TIMEOUT
from slurm_plugin.records import site_settings
from slurm_plugin.slurm import process
from slurm_plugin.supervisor.decide import Health
from slurm_plugin.supervisor.log import write

DEADLINE_S = 30.0
MORE_A_HOST_S = 0.02  # more time for each host: for the launch, and to load python from a shared file system
END_S = 4.0  # end of the deadline: the ranks' guards report, and the launcher ends its daemons
LEAVE_S = 2.0  # after the deadline: for each step in ending the launcher
LOOK_EVERY_S = 0.2
MOST_BYTES = 4 << 20  # of output that is kept; a rank writes about twenty short lines
LAST_LINES = 20


def unfit(verdicts: Mapping[str, Verdict]) -> dict[str, Health]:
    """Log the verdicts of the check. Return the nodes that failed it."""
    for name, verdict in verdicts.items():
        write(prechecks.line(name, verdict))
    bad = {name: verdict for name, verdict in verdicts.items() if verdict.failed}
    return {name: Health("job_problem", f"{verdict.keyword}: {verdict.message}") for name, verdict in bad.items()}


def launcher(mode: str, hosts: Sequence[str]) -> list[str]:
    """Return the words before the program for the MPI of this mode; Open MPI's for modes without an MPI."""
    if mode in ("mpich", "intelmpi"):
        return hydra(hosts, intel=mode == "intelmpi")
    return open_mpi(hosts, root=os.geteuid() == 0)


def open_mpi(hosts: Sequence[str], *, root: bool = False) -> list[str]:
    """Return the words before the program for Open MPI 4 and later: one rank on each of these hosts, in order.

    The ranks use the same transports as those of jobs.
    """
    where = ["--host", ",".join(f"{name}:1" for name in hosts), "--map-by", "ppr:1:node", "--bind-to", "none"]
    over = ["-mca", "pml", "ob1", "-mca", "btl", "^openib"]
    return ["mpirun", *(["--allow-run-as-root"] if root else []), "-np", str(len(hosts)), *where, *over]


def hydra(hosts: Sequence[str], *, intel: bool = False) -> list[str]:
    """Return these words for the launcher of MPICH or Intel MPI. Intel's option to start hosts by srun differs."""
    where = ["-bootstrap" if intel else "-launcher", "slurm", "-ppn", "1", "-hosts", ",".join(hosts)]
    return ["mpiexec.hydra", "-n", str(len(hosts)), *where]


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
    """Return one verdict for each host, within `deadline_s` and at most four times LEAVE_S.

    `launcher` starts one rank on each of `hosts`, in order. `python` must have an mpi4py for that launcher's MPI.
    `give_up` returns True to end the check early. If the check breaks, each verdict is `error`; nothing is raised.
    """
    if len(hosts) < 2:
        return fabric.judge(hosts, (), "")
    if deadline_s <= END_S:
        return fabric.unknown(hosts, ERROR, f"a deadline of {deadline_s:g} s: more than {END_S:g} s is needed")
    nonce, started = os.urandom(4).hex(), time.monotonic()
    ours = process.standalone_words(program, f"{site_settings.site_root()}/{site_settings.ARCHIVE}")
    argv = [*launcher, python, *ours, nonce, f"{deadline_s - END_S:.1f}", ",".join(hosts)]
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
    verdicts = fabric.judge(hosts, run.lines, nonce, thresholds, last_words([*run.last]))
    if late:
        say(f"fabric: {Path(argv[0]).name} did not end in {deadline_s:g} s and was ended")
    words = {verdict.verdict for verdict in verdicts.values()}
    if words & {ERROR, TIMEOUT} and FAILED not in words:  # no host is named: the launcher's messages may help
        for line in (line for line in run.last if line.strip("-")):
            say(f"fabric: {Path(argv[0]).name} said: {line}")
    seconds = round(time.monotonic() - started, 3)
    return {name: verdict._replace(seconds=seconds) for name, verdict in verdicts.items()}


class _Run:
    """The launcher and its output. The launcher leads a new session, which also contains mpirun's srun."""

    def __init__(self, argv: Sequence[str], environ: Mapping[str, str]) -> None:
        self._rest, self._kept = b"", 0
        self.lines: list[str] = []
        self.last: deque[str] = deque(maxlen=LAST_LINES)  # of stderr, without empty lines
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=environ, start_new_session=True
        )

    def read(self, until: float, give_up: Callable[[], bool]) -> bool:
        """Read lines until `until`; return whether the launcher ended. Ignore children that keep the pipes open."""
        assert self._process.stdout and self._process.stderr  # noqa: S101 - for the type checker
        with selectors.DefaultSelector() as selector:
            for pipe in (self._process.stdout, self._process.stderr):
                selector.register(pipe, selectors.EVENT_READ)
            while time.monotonic() < until and not give_up():
                ended = self._ended()
                if not selector.get_map():
                    time.sleep(LOOK_EVERY_S / 4)
                ready = selector.select(0 if ended else LOOK_EVERY_S) if selector.get_map() else []
                for key, _ in ready:
                    chunk = os.read(key.fd, 1 << 16)
                    if not chunk:
                        selector.unregister(key.fileobj)
                    self._take(chunk, key.fileobj is self._process.stdout)
                if ended and not ready:
                    break
        return self._ended()

    def _take(self, chunk: bytes, is_out: bool) -> None:
        if not is_out:
            self.last.extend(line.strip() for line in chunk.decode(errors="replace").splitlines() if line.strip())
            return
        self._kept += len(chunk)
        *lines, self._rest = (self._rest + chunk).split(b"\n") if self._kept < MOST_BYTES else [b""]
        self.lines += [line.decode(errors="replace") for line in lines]

    def _ended(self) -> bool:
        """Return whether the launcher has ended. Do not reap it: its pid, also the session's id, stays reserved."""
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def end(self) -> None:
        """End all processes of the session.

        Send the first SIGTERM to the launcher only: mpirun then ends its ranks and daemons on all hosts, and an srun
        ends its step.
        """
        for number, everyone in ((signal.SIGTERM, False), (signal.SIGTERM, True), (signal.SIGKILL, True)):
            until = time.monotonic() + LEAVE_S
            for pid in _session(self._process.pid):
                if everyone or pid == self._process.pid:
                    with suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, number)
            while _session(self._process.pid) and time.monotonic() < until:
                time.sleep(LOOK_EVERY_S / 4)
        with suppress(subprocess.TimeoutExpired):  # a process that hangs in the kernel is left alone
            self._process.wait(LEAVE_S)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe:
                pipe.close()


def last_words(lines: Sequence[str]) -> str:
    """Return a launcher's last line. If Open MPI put dashed lines around its last text, return the whole text."""
    framed = bool(lines) and not lines[-1].strip("-")
    words: list[str] = []
    for line in reversed(lines):
        text = line.strip("-")
        if text:
            words.insert(0, line)
        if words and not (framed and text):
            break
    return " ".join(words)


def _session(leader: int) -> list[int]:
    """Return the live processes of a session (field 6 of proc_pid_stat(5))."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - as in prechecks
    return [pid for pid in pids if (fields := stat(pid)[0]) and int(fields[3]) == leader]
