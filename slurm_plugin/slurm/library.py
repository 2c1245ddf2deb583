"""The second back end: pyslurm, in a separate process (pyslurm_process.py).

Some requests still use Slurm's commands. sbatch reads the script's #SBATCH lines, passes on the caller's resource
limits and runs the site's plug-ins. squeue reads 2,000 jobs faster than pyslurm loads them (benchmarks/slurm_door.py).
The other requests that `Library` does not override are rare.
"""

import importlib.util
import marshal
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from slurm_plugin.slurm import calls, parse, pyslurm_process
from slurm_plugin.slurm.calls import Patience, Purpose
from slurm_plugin.slurm.commands import Commands
from slurm_plugin.slurm.model import UNKNOWN, Job, JobNotFoundError, Node, SlurmError, Steps
from slurm_plugin.slurm.process import reading_environment, standalone_words
from slurm_plugin.slurm.pyslurm_process import FIELDS, LENGTH_BYTES

END_S: Final = 1.0
READ_BYTES: Final = 1 << 20
READY_S: Final = 5.0  # to import pyslurm, which takes 40 ms, and to read slurm.conf


class Bridge:
    """The child process. The first request starts it. A missed deadline ends it; the next request starts it again."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._parents: subprocess.Popen[bytes] | None = None  # kept: its end would close descriptors of a fork
        self._stderr = os.memfd_create("pyslurm")  # not a pipe, which would be full at some time
        self._maker = os.getpid()

    def __del__(self) -> None:
        """Stop the process and close the descriptor."""
        self.stop()
        os.close(self._stderr)

    def last_line(self) -> str:
        """Return the last line that libslurm wrote."""
        text = os.pread(self._stderr, READ_BYTES, 0).decode(errors="replace").strip()
        return text.rpartition("\n")[2]

    def start(self, deadline_s: float) -> tuple[Any, ...] | None:
        """Start the process and return its first answer, which says whether pyslurm works; None if it is late."""
        os.ftruncate(self._stderr, 0)
        os.lseek(self._stderr, 0, os.SEEK_SET)
        flags = ["-I"] if sys.flags.isolated else ["-EP"] if sys.flags.ignore_environment else ["-P"]
        try:
            self._process = subprocess.Popen(
                [sys.executable, *flags, *standalone_words(pyslurm_process)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env=reading_environment(os.environ),
                start_new_session=True,
            )
        except OSError as error:  # too many processes
            return ("ended", str(error))
        return self._answer(time.monotonic() + deadline_s)

    def ask(self, question: tuple[Any, ...], deadline_s: float) -> tuple[Any, ...] | None:
        """Return the answer; ("ended", why) if the process has ended; None if no answer came in time."""
        try:
            return self._send(question, time.monotonic() + deadline_s)
        except BaseException:  # else the next request would read the answer to this one
            self.stop()
            raise

    def _send(self, question: tuple[Any, ...], end: float) -> tuple[Any, ...] | None:
        if self._maker != os.getpid():  # a fork: these descriptors are its parent's, closed, or of other files
            self._parents, self._process = self._process, None
            self._stderr, self._maker = os.memfd_create("pyslurm"), os.getpid()
        if self._process is None or self._process.poll() is not None:
            first = self.start(end - time.monotonic())
            if first is None or first[0] != "ok":
                return first
        assert self._process is not None  # noqa: S101 - for the type checker
        assert self._process.stdin is not None  # noqa: S101
        text = marshal.dumps(question)
        try:
            self._process.stdin.write(len(text).to_bytes(LENGTH_BYTES, "big") + text)
            self._process.stdin.flush()
        except BrokenPipeError:
            return self._ended()
        return self._answer(end)

    def stop(self) -> None:
        """Kill the process."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe:
                with suppress(BrokenPipeError):  # the process has not read a request
                    pipe.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:  # the process hangs in the kernel
            return

    def _ended(self) -> tuple[str, str]:
        """Return ("ended", its last line) for a process that has ended by itself."""
        self.stop()
        return ("ended", self.last_line() or "it said nothing")

    def _answer(self, end: float) -> tuple[Any, ...] | None:
        """Return the next answer. If it is late, kill the process and return None."""
        assert self._process is not None  # noqa: S101
        assert self._process.stdout is not None  # noqa: S101
        fd = self._process.stdout.fileno()
        wait, text = select.poll(), bytearray()
        wait.register(fd, select.POLLIN)
        while (left := end - time.monotonic()) > 0 and wait.poll(left * 1000):
            part = os.read(fd, READ_BYTES)
            text += part
            length = int.from_bytes(text[:LENGTH_BYTES], "big")
            if not part:
                return self._ended()
            if len(text) >= LENGTH_BYTES + length > LENGTH_BYTES:
                answer: tuple[Any, ...] = marshal.loads(text[LENGTH_BYTES:])  # noqa: S302 - our own child's
                return answer
        self.stop()
        return None


class Library(Commands):
    """Slurm through pyslurm. Implements `slurm_plugin.slurm.Slurm`."""

    backend = "pyslurm"

    def __init__(self, *, deadline_s: float = 30.0, patience: Patience | None = None) -> None:
        """Start nothing: `why_not` or the first request starts the process."""
        super().__init__(deadline_s=deadline_s, patience=patience or Patience())
        self._bridge = Bridge()

    def why_not(self, *, asked_for: bool) -> str | None:
        """Return why pyslurm cannot be used; None if it can be used; "" if it is neither requested nor installed."""
        if not asked_for and importlib.util.find_spec("pyslurm") is None:
            return ""
        match self._bridge.start(min(READY_S, self._deadline_s)):
            case ("ok", version):
                self.backend = f"pyslurm {version}"
                return None
            case ("lack", lack):
                return str(lack)
            case ("ended", said):
                return f"pyslurm does not start ({said})"
        return f"pyslurm does not start ({self._bridge.last_line() or 'no answer'})"

    def job(self, job_id: int) -> Job:
        """Return one job. Raise JobNotFoundError once Slurm has forgotten it."""
        return _job(self._call(calls.of_job(f"read job {job_id}", job_id), "job", job_id))

    def jobs(self, job_ids: Sequence[int] | None = None) -> Mapping[int, Job]:
        """Return jobs in one request (None: all). Jobs that Slurm does not know are absent."""
        if job_ids is None or len(job_ids) != 1:
            return super().jobs(job_ids)
        try:
            return {job_ids[0]: self.job(job_ids[0])}
        except JobNotFoundError:
            return {}

    def nodes(self, names: Sequence[str]) -> Mapping[str, Node]:
        """Return nodes by name in one request (an empty sequence: all)."""
        return {row[0]: _node(row) for row in self._call(calls.READ_NODES, "nodes", list(names))}

    def update_job(self, job_id: int, **fields: str) -> None:
        """Change a job's fields, named as scontrol names them. Use scontrol if pyslurm cannot change all of them."""
        plain = all(
            value == "now" if name == "StartTime" else name in FIELDS and (value or name == "ExcNodeList")
            for name, value in fields.items()
        )
        if not plain:
            super().update_job(job_id, **fields)
            return
        with calls.ignoring_applied_update():
            why = calls.of_job(f"update job {job_id} ({', '.join(fields)})", job_id)
            self._call(why, "update_job", job_id, fields)

    def requeue(self, job_id: int) -> None:
        """End a batch job's run and put the job back into the queue."""
        self._call(calls.of_job(f"requeue job {job_id}", job_id), "requeue", job_id)

    def hold(self, job_id: int) -> None:
        """Keep a pending job from starting."""
        self._call(calls.of_job(f"hold job {job_id}", job_id), "hold", job_id)

    def release(self, job_id: int) -> None:
        """Let a held job start."""
        self._call(calls.of_job(f"release job {job_id}", job_id), "release", job_id)

    def signal(self, job_id: int, name: str, to: Steps = "steps") -> None:
        """Send a signal to a running job's steps, to its batch script only, or to all its processes."""
        self._call(
            calls.of_job(f"send {name} to job {job_id}", job_id), "signal", job_id, f"SIG{name}", to, repeatable=False
        )

    def cancel(self, job_id: int) -> None:
        """Cancel a job. Ignore a job that Slurm does not know."""
        self._call(calls.of_job(f"cancel job {job_id}", job_id), "cancel", job_id)

    def drain(self, node: str, reason: str) -> None:
        """Keep new jobs from a node and replace its reason."""
        self._call(calls.of_node(f"drain node {node}", node), "state", node, "DRAIN", reason)

    def resume(self, node: str) -> None:
        """Let jobs start on a node again."""
        self._call(calls.of_node(f"resume node {node}", node), "state", node, "RESUME", None)

    def ping(self) -> bool:
        """Return whether a slurmctld answers, the primary or a backup."""
        try:
            return bool(self._ask_once(calls.PING, ("ping",)))
        except SlurmError:
            return False

    def _call(self, why: Purpose, verb: str, *arguments: Any, repeatable: bool = True) -> Any:
        """Return pyslurm's answer. Repeat the request while no controller answers."""
        return self._patience.ask(lambda: self._ask_once(why, (verb, *arguments)), repeatable=repeatable)

    def _ask_once(self, why: Purpose, question: tuple[Any, ...]) -> Any:
        match self._bridge.ask(question, self._deadline_s):
            case None:
                raise why.late("pyslurm", self._deadline_s)
            case ("ok", value):
                return value
            case ("away", said, sent):
                self._bridge.stop()  # the controller may have moved: the next process reads slurm.conf again
                raise why.away("pyslurm", said, sent=sent)
            case ("ended", said):  # something killed it, or libslurm ended it
                raise why.away("pyslurm", said, sent=True)
            case ("no job", _) if question[0] == "cancel":  # scancel ignores it, too
                return None
            case ("no job", _) if question[0] == "job":
                raise calls.no_job(question[1])
            case (_, said):
                raise why.refused("pyslurm", said)


def _job(row: Sequence[Any]) -> Job:
    """Return a job from pyslurm's values for pyslurm_process.JOB."""
    number, name, user, partition, state, reason, nodes, excluded, restarts, code, signal, *times, comment, admin = row
    submit, start, end = map(_utc, times)
    return Job(
        id=number,
        name=name or "",
        user=user or "",
        partition=partition or "",
        state=state if state in parse.JOB_STATES else UNKNOWN,
        reason=parse.NOTHING.get(reason, reason or ""),
        nodes=nodes or "",
        excluded=parse.node_list(excluded or ""),
        restarts=restarts,
        comment=comment or "",
        admin_comment=admin or "",
        exit_code=None if signal else code,
        exit_signal=signal or None,
        submit_time=submit,
        start_time=start,
        end_time=end,
    )


def _node(row: Sequence[Any]) -> Node:
    """Return a node from pyslurm's values for pyslurm_process.NODE."""
    name, state, reason, reason_user, reason_time, partitions, comment, gres = row
    return Node(
        name=name,
        states=parse.node_states(state or ""),
        reason=reason or "",
        reason_user=reason_user or "",
        reason_time=_utc(reason_time),
        partitions=tuple(partitions),
        comment=comment or "",
        gres=tuple(f"{name}:{count}" for name, count in (gres or {}).items()),
    )


def _utc(seconds: int | None) -> datetime | None:
    """Return the time of `seconds` since the epoch."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
