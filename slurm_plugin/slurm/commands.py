"""The door's first room: Slurm's own commands, the same on every version.

Users choose job names and comments, and Slurm prints them unescaped: a newline in one forges a row. Every field is
therefore followed by a nonce chosen for the call, and a record counts only where all its fields are there.
"""

import os
import re
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from slurm_plugin.errors import MissingError
from slurm_plugin.slurm import UNKNOWN, Job, JobNotFoundError, Node, SlurmError
from slurm_plugin.slurm.process import reading_environment, run, submitting_environment

# squeue knows some fields only by -o (of any length) and some only by -O (of a fixed width).
_LONG = ("%A", "%u", "%T", "%r", "%N", "%x", "%S", "%k")
_FIXED = ("JobID:12", "RestartCnt:12", "exit_code:12", "admin_comment:4096")
_REASON_AUTHOR = re.compile(r" \[[^\[\]]*@[^\[\]]*\]$")
_STATE_WORD = re.compile(r"[A-Z_]+", re.ASCII)
_WAIT_STATUS_BITS = 8


class Commands:
    """Slurm through sbatch, squeue and scontrol. Satisfies `slurm_plugin.slurm.Slurm`."""

    def __init__(self, directory: str = "", *, deadline_s: float = 30.0) -> None:
        """`directory` holds the commands; empty: the PATH is searched (never by root's hooks)."""
        self._directory = directory
        self._deadline_s = deadline_s

    def submit(self, script: str, *, arguments: Sequence[str] = (), directory: str | None = None) -> int:
        """Submit a batch script on stdin and return the job id; what sbatch warned of is part of an error only."""
        out = self._ask(["sbatch", "--parsable", *arguments], "submit the job", text=script, directory=directory)
        number = out.strip().partition(";")[0]
        if not number.isdigit():
            raise SlurmError(
                f"sbatch answered {out.strip()!r} in place of a job id\n  look for the job with: squeue --me"
            )
        return int(number)

    def job(self, job_id: int) -> Job:
        """One job; `JobNotFoundError` once Slurm has forgotten it."""
        found = self.jobs([job_id])
        if job_id not in found:
            raise JobNotFoundError(f"Slurm does not know job {job_id} (any longer)\n  see what runs with: squeue --me")
        return found[job_id]

    def jobs(self, job_ids: Sequence[int]) -> Mapping[int, Job]:
        """Many jobs in one question; jobs that Slurm does not know are absent."""
        if not job_ids:
            return {}
        long = self._rows(job_ids, lambda nonce: ["-o", nonce.join(_LONG) + nonce], len(_LONG))
        fixed = self._rows(job_ids, lambda nonce: ["-O", ",".join(field + nonce for field in _FIXED)], len(_FIXED))
        rest = {row[0].strip(): row for row in fixed}
        return {int(row[0]): _job(row, rest[row[0]]) for row in long if row[0] in rest and row[0].isdigit()}

    def nodes(self, names: Sequence[str]) -> Mapping[str, Node]:
        """Nodes by name in one question; an empty sequence asks for all of them."""
        out = self._ask(["scontrol", "-o", "show", "node", *([",".join(names)] if names else [])], "read the nodes")
        found = (_node(line) for line in out.splitlines() if line.startswith("NodeName="))
        return {node.name: node for node in found}

    def update_job(self, job_id: int, **fields: str) -> None:
        """Change a job's fields, named as scontrol names them."""
        changes = [f"{name}={value}" for name, value in fields.items()]
        self._ask(["scontrol", "update", f"JobId={job_id}", *changes], f"update job {job_id} ({', '.join(fields)})")

    def requeue(self, job_id: int) -> None:
        """End a batch job's run and put it back into the queue."""
        self._ask(["scontrol", "requeue", str(job_id)], f"requeue job {job_id}")

    def cancel(self, job_id: int) -> None:
        """End a job for good."""
        self._ask(["scancel", str(job_id)], f"cancel job {job_id}")

    def drain(self, node: str, reason: str) -> None:
        """Let no new job start on a node; replaces its reason."""
        self._ask(
            ["scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}"],
            f"drain node {node}",
        )

    def resume(self, node: str) -> None:
        """Let jobs start on a node again."""
        self._ask(["scontrol", "update", f"NodeName={node}", "State=RESUME"], f"resume node {node}")

    def config(self) -> Mapping[str, str]:
        """slurmctld's settings by name."""
        return _settings(self._ask(["scontrol", "show", "config"], "read slurmctld's settings"))

    def ping(self) -> bool:
        """Whether a slurmctld answers, the first or a backup."""
        try:
            return " is UP" in self._ask(["scontrol", "ping"], "ask whether slurmctld is up")
        except SlurmError:
            return False

    def _rows(self, job_ids: Sequence[int], form: Callable[[str], list[str]], fields: int) -> list[list[str]]:
        """squeue's records, each a list of `fields` texts."""
        nonce = f"~{secrets.token_hex(8)}~"
        which = ",".join(map(str, job_ids))
        argv = ["squeue", "--noheader", "--all", "--array", "--states=all", f"--jobs={which}", *form(nonce)]
        try:
            out = self._ask(argv, "read the jobs")
        except SlurmError as error:
            if "Invalid job id" in str(error):
                return []
            raise
        parts = out.split(nonce)
        rows = [parts[start : start + fields] for start in range(0, len(parts) - fields, fields)]
        return [[row[0].lstrip("\n"), *row[1:]] for row in rows]

    def _ask(self, argv: Sequence[str], purpose: str, *, text: str = "", directory: str | None = None) -> str:
        program = self._program(argv[0])
        environ = submitting_environment(os.environ) if argv[0] == "sbatch" else reading_environment(os.environ)
        result = run([program, *argv[1:]], deadline_s=self._deadline_s, environ=environ, text=text, directory=directory)
        if result.code is None:
            raise SlurmError(
                f"could not {purpose}: {argv[0]} gave no answer in {self._deadline_s:g} s\n"
                "  is slurmctld up? try: scontrol ping"
            )
        if result.code:
            said = (result.err or result.out).strip() or f"exit code {result.code}, no message"
            raise SlurmError(f"could not {purpose}: {argv[0]} said: {said}")
        return result.out

    def _program(self, name: str) -> str:
        path = str(Path(self._directory) / name) if self._directory else shutil.which(name)
        if not path or not os.access(path, os.X_OK):
            raise MissingError(
                f"{name} was not found {f'in {self._directory}' if self._directory else 'on the PATH'}\n"
                "  install Slurm's client commands (Debian: apt-get install slurm-client), or load the site's module"
            )
        return path


def _job(long: Sequence[str], fixed: Sequence[str]) -> Job:
    """A job from its two records."""
    number, user, state, reason, nodes, excluded, start, comment = long
    _, restarts, status, admin_comment = (text.strip() for text in fixed)
    code, signal = _exit(status)
    return Job(
        id=int(number),
        user=user,
        state=state or UNKNOWN,
        reason=_given(reason),
        nodes=_given(nodes),
        excluded=_given(excluded),
        restarts=int(restarts) if restarts.isdigit() else 0,
        comment=_given(comment),
        admin_comment=_given(admin_comment),
        exit_code=code,
        exit_signal=signal,
        start_time=_given(start),
    )


def _given(text: str) -> str:
    """squeue's words for nothing become nothing."""
    return "" if text in ("(null)", "N/A", "None", "n/a") else text


def _exit(status: str) -> tuple[int | None, int | None]:
    """Exit code and signal of squeue's `exit_code`: `7:0` on 24.11 and 26.05, a wait status (wait(2)) on 22.05."""
    code, colon, signal = status.partition(":")
    if not code.isdigit() or (colon and not signal.isdigit()):
        return None, None
    if not colon:
        number = int(code)
        code, signal = str(number >> _WAIT_STATUS_BITS), str(number & 0x7F)
    return (None, int(signal)) if int(signal) else (int(code), None)


def _settings(text: str) -> dict[str, str]:
    """The settings in `scontrol show config`: `Name    = value` lines, `(null)` for what is not set.

    What may be given more than once has a number: `SlurmctldHost[0]`; from 24.05 on `Prolog[0]`, `Epilog[0]` too.
    """
    found = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name.strip(): "" if value.strip() == "(null)" else value.strip() for name, _, value in found}


def _node(line: str) -> Node:
    """A node from `scontrol -o show node`: only administrators choose what stands there."""
    before, _, reason = line.partition(" Reason=")  # the last field: free text
    fields = dict(part.split("=", 1) for part in before.split(" ") if "=" in part)
    states = fields.get("State", UNKNOWN).upper()
    return Node(
        name=fields["NodeName"],
        states=frozenset(_STATE_WORD.findall(states)) | ({"NOT_RESPONDING"} if "*" in states else set()),
        reason=_REASON_AUTHOR.sub("", reason.strip()),
    )
