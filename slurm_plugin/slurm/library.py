"""The door's second room: pyslurm, which runs in a process of its own (bridge.py, pyslurm_process.py).

Some questions stay with the commands: `submit`, because sbatch reads the script's #SBATCH lines, takes along the
caller's resource limits and runs the site's plug-ins; `jobs` in bulk, because squeue has 2,000 of them in less time
than pyslurm takes to load them (benchmarks/slurm_door.py), and `jobs_of`; `config`, `version`, `work_directory`,
`request`, `may_requeue` and `notify`, which nobody asks often.
"""

import importlib.util
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from slurm_plugin.slurm import UNKNOWN, Job, JobNotFoundError, Node, SlurmError, Steps, purpose, records
from slurm_plugin.slurm.bridge import Bridge
from slurm_plugin.slurm.commands import Commands, done_all_the_same
from slurm_plugin.slurm.patience import Patience
from slurm_plugin.slurm.purpose import Purpose
from slurm_plugin.slurm.pyslurm_process import FIELDS

READY_S: Final = 5.0  # for an import of 40 ms and a slurm.conf


class Library(Commands):
    """Slurm through pyslurm. Satisfies `slurm_plugin.slurm.Slurm`."""

    backend = "pyslurm"

    def __init__(self, *, deadline_s: float = 30.0, patience: Patience | None = None) -> None:
        """Starts nothing: the first question does."""
        super().__init__(deadline_s=deadline_s, patience=patience or Patience())
        self._bridge = Bridge()

    def why_not(self, *, asked_for: bool) -> str | None:
        """Why pyslurm cannot be used here, None where it can; empty where it is neither asked for nor installed."""
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
        """One job; `JobNotFoundError` once Slurm has forgotten it."""
        return _job(self._call(purpose.of_job(f"read job {job_id}", job_id), "job", job_id))

    def jobs(self, job_ids: Sequence[int] | None = None) -> Mapping[int, Job]:
        """Many jobs in one question, None: all; jobs that Slurm does not know are absent."""
        if job_ids is None or len(job_ids) != 1:
            return super().jobs(job_ids)
        try:
            return {job_ids[0]: self.job(job_ids[0])}
        except JobNotFoundError:
            return {}

    def nodes(self, names: Sequence[str]) -> Mapping[str, Node]:
        """Nodes by name in one question; an empty sequence asks for all of them."""
        return {row[0]: _node(row) for row in self._call(purpose.READ_NODES, "nodes", list(names))}

    def update_job(self, job_id: int, **fields: str) -> None:
        """Change a job's fields, named as scontrol names them; what pyslurm cannot say, scontrol does."""
        plain = all(
            value == "now" if name == "StartTime" else name in FIELDS and (value or name == "ExcNodeList")
            for name, value in fields.items()
        )
        if not plain:
            super().update_job(job_id, **fields)
            return
        with done_all_the_same():
            why = purpose.of_job(f"update job {job_id} ({', '.join(fields)})", job_id)
            self._call(why, "update_job", job_id, fields)

    def requeue(self, job_id: int) -> None:
        """End a batch job's run and put it back into the queue."""
        self._call(purpose.of_job(f"requeue job {job_id}", job_id), "requeue", job_id)

    def hold(self, job_id: int) -> None:
        """Keep a pending job from starting."""
        self._call(purpose.of_job(f"hold job {job_id}", job_id), "hold", job_id)

    def release(self, job_id: int) -> None:
        """Let a held job start."""
        self._call(purpose.of_job(f"release job {job_id}", job_id), "release", job_id)

    def signal(self, job_id: int, name: str, to: Steps = "steps") -> None:
        """Send a signal to a running job's steps, to its batch script alone, or to all of it."""
        self._call(
            purpose.of_job(f"send {name} to job {job_id}", job_id), "signal", job_id, f"SIG{name}", to, repeatable=False
        )

    def cancel(self, job_id: int) -> None:
        """End a job for good."""
        self._call(purpose.of_job(f"cancel job {job_id}", job_id), "cancel", job_id)

    def drain(self, node: str, reason: str) -> None:
        """Let no new job start on a node; replaces its reason."""
        self._call(purpose.of_node(f"drain node {node}", node), "state", node, "DRAIN", reason)

    def resume(self, node: str) -> None:
        """Let jobs start on a node again."""
        self._call(purpose.of_node(f"resume node {node}", node), "state", node, "RESUME", None)

    def ping(self) -> bool:
        """Whether a slurmctld answers, the first or a backup."""
        try:
            return bool(self._told(purpose.PING, ("ping",)))
        except SlurmError:
            return False

    def _call(self, why: Purpose, verb: str, *arguments: Any, repeatable: bool = True) -> Any:
        """What pyslurm answers, asked again while the controller is away."""
        return self._patience.ask(lambda: self._told(why, (verb, *arguments)), repeatable=repeatable)

    def _told(self, why: Purpose, question: tuple[Any, ...]) -> Any:
        match self._bridge.ask(question, self._deadline_s):
            case None:
                raise why.late("pyslurm", self._deadline_s)
            case ("ok", value):
                return value
            case ("away", said, sent):
                self._bridge.stop()  # the next process reads slurm.conf again: the controller may have moved
                raise why.away("pyslurm", said, sent=sent)
            case ("ended", said):  # killed, or by libslurm itself
                raise why.away("pyslurm", said, sent=True)
            case ("no job", _) if question[0] == "cancel":  # as scancel has it
                return None
            case ("no job", _) if question[0] == "job":
                raise purpose.no_job(question[1])
            case (_, said):
                raise why.refused("pyslurm", said)


def _job(row: Sequence[Any]) -> Job:
    """A job from pyslurm's values of pyslurm_process.JOB."""
    number, name, user, partition, state, reason, nodes, excluded, restarts, code, signal, *times, comment, admin = row
    submit, start, end = map(_utc, times)
    return Job(
        id=number,
        name=name or "",
        user=user or "",
        partition=partition or "",
        state=state if state in records.JOB_STATES else UNKNOWN,
        reason=records.NOTHING.get(reason, reason or ""),
        nodes=nodes or "",
        excluded=excluded or "",
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
    """A node from pyslurm's values of pyslurm_process.NODE."""
    name, state, reason, reason_user, reason_time, partitions, comment = row
    return Node(
        name=name,
        states=records.node_states(state or ""),
        reason=reason or "",
        reason_user=reason_user or "",
        reason_time=_utc(reason_time),
        partitions=tuple(partitions),
        comment=comment or "",
    )


def _utc(seconds: int | None) -> datetime | None:
    """A time of Slurm's, in seconds of the epoch."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
