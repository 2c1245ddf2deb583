"""The door's first room: Slurm's own commands, the same on every release.

22.05 alone needs two of them for jobs: its `squeue -O` does not know ExcNodes, which only `squeue -o` has there. A
squeue that lacks a field says so and leaves its text empty; it is remembered, and both run at once from then on.
"""

import os
import re
import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from slurm_plugin.errors import MissingError
from slurm_plugin.slurm import Job, JobNotFoundError, Node, SlurmAwayError, SlurmError, Steps, records
from slurm_plugin.slurm.patience import Patience
from slurm_plugin.slurm.process import Command, Result, reading_environment, run_together, submitting_environment

NONCE_BYTES: Final = 9  # 72 random bits that a user would have to know before the call
MOST_IDS: Final = 1000  # named in one question; for more, all jobs are asked for
_UNKNOWN_JOB = "Invalid job id"
_LACKS_EXCLUDED = "Invalid job format specification: ExcNodes"
# What the commands of 22.05, 24.11 and 26.05 say where no slurmctld answers. `scontrol` has but "Unexpected message
# received" for it when it changes a job. Only a connection that was refused surely carried nothing.
_AWAY = re.compile(
    "Unable to contact slurm controller|Unexpected message received|Socket timed out|Zero Bytes were transmitted"
    "|[Cc]ommunication connection failure|in standby mode|Connection (?:refused|reset)"
)
_NOT_SENT = re.compile("connect failure|Connection refused|in standby mode")
_TO: Final[Mapping[Steps, tuple[str, ...]]] = {"steps": (), "batch": ("--batch",), "all": ("--full",)}


class Commands:
    """Slurm through sbatch, squeue and scontrol. Satisfies `slurm_plugin.slurm.Slurm`."""

    backend = "Slurm's commands"

    def __init__(
        self,
        directory: str = "",
        *,
        deadline_s: float = 30.0,
        patience: Patience = Patience(),  # noqa: B008 - frozen
    ) -> None:
        """`directory` holds the commands; empty: the PATH is searched (never by root's hooks)."""
        self._directory = directory
        self._deadline_s = deadline_s
        self._patience = patience
        self._lacks_excluded = False

    def submit(self, script: str, *, arguments: Sequence[str] = (), directory: str | None = None) -> int:
        """Submit a batch script on stdin and return the job id; what sbatch warned of is part of an error only."""
        argv = ["sbatch", "--parsable", *arguments]
        out = self._ask(argv, "submit the job", text=script, directory=directory, repeatable=False)
        number, end, _ = out.partition("\n")
        number = number.partition(";")[0]  # with a cluster's name behind it
        if not number.isdigit() or not end:
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

    def jobs(self, job_ids: Sequence[int] | None = None) -> Mapping[int, Job]:
        """Many jobs in one question, None: all; jobs that Slurm does not know are absent."""
        if job_ids is not None and not job_ids:
            return {}
        found = self._patience.ask(lambda: self._jobs(job_ids), repeatable=True)
        return found if job_ids is None else {each: found[each] for each in job_ids if each in found}

    def nodes(self, names: Sequence[str]) -> Mapping[str, Node]:
        """Nodes by name in one question; an empty sequence asks for all of them."""
        return records.nodes(
            self._ask(["scontrol", "-o", "show", "node", *([",".join(names)] if names else [])], "read the nodes")
        )

    def update_job(self, job_id: int, **fields: str) -> None:
        """Change a job's fields, named as scontrol names them."""
        changes = [f"{name}={value}" for name, value in fields.items()]
        self._ask(["scontrol", "update", f"JobId={job_id}", *changes], f"update job {job_id} ({', '.join(fields)})")

    def requeue(self, job_id: int) -> None:
        """End a batch job's run and put it back into the queue. Asked twice, Slurm refuses: it is there already."""
        self._ask(["scontrol", "requeue", str(job_id)], f"requeue job {job_id}")

    def hold(self, job_id: int) -> None:
        """Keep a pending job from starting."""
        self._ask(["scontrol", "hold", str(job_id)], f"hold job {job_id}")

    def release(self, job_id: int) -> None:
        """Let a held job start."""
        self._ask(["scontrol", "release", str(job_id)], f"release job {job_id}")

    def signal(self, job_id: int, name: str, to: Steps = "steps") -> None:
        """Send a signal to a running job's steps, to its batch script alone, or to all of it."""
        argv = ["scancel", f"--signal={name}", *_TO[to], str(job_id)]
        self._ask(argv, f"send {name} to job {job_id}", repeatable=False)

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
        return records.settings(self._ask(["scontrol", "show", "config"], "read slurmctld's settings"))

    def version(self) -> str:
        """slurmctld's release."""
        found = self.config().get("SLURM_VERSION", "")
        if not found:
            raise SlurmError("could not read slurmctld's version: scontrol show config names no SLURM_VERSION")
        return found

    def ping(self) -> bool:
        """Whether a slurmctld answers, the first or a backup."""
        try:
            return " is UP" in self._once(["scontrol", "ping"], "ask whether slurmctld is up")
        except SlurmError:
            return False

    def _jobs(self, job_ids: Sequence[int] | None) -> dict[int, Job]:
        nonce = f"~{secrets.token_urlsafe(NONCE_BYTES)}"
        which = [f"--jobs={','.join(map(str, job_ids))}"] if job_ids and len(job_ids) <= MOST_IDS else []
        squeue = ["squeue", "--noheader", "--all", "--array", "--states=all", *which]
        fields = [*squeue, "-O", ",".join(f"{field}:0{nonce}" for field in records.FIELDS)]
        excluded = [*squeue, "-o", f"%A{nonce}%x{nonce}"]
        asked = [fields, excluded] if self._lacks_excluded else [fields]
        answers = [
            self._said(argv[0], result, "read the jobs") for argv, result in zip(asked, self._run(asked), strict=True)
        ]
        if _LACKS_EXCLUDED in answers[0].err and not self._lacks_excluded:
            self._lacks_excluded = True
            return self._jobs(job_ids)
        rows = records.rows(answers[0].out, nonce, len(records.FIELDS))
        if not self._lacks_excluded:
            return {found.id: found for found in map(records.job, rows)}
        lists = {row[0]: row[1] for row in records.rows(answers[1].out, nonce, 2)}
        # A job that was submitted between the two is not in both: the next question sees it.
        return {int(row[0]): records.job(row, lists[row[0]]) for row in rows if row[0] in lists}

    def _ask(
        self,
        argv: Sequence[str],
        purpose: str,
        *,
        text: str = "",
        directory: str | None = None,
        repeatable: bool = True,
    ) -> str:
        """What a command says, asked again while the controller is away."""
        return self._patience.ask(
            lambda: self._once(argv, purpose, text=text, directory=directory), repeatable=repeatable
        )

    def _once(self, argv: Sequence[str], purpose: str, *, text: str = "", directory: str | None = None) -> str:
        (result,) = self._run([argv], text=text, directory=directory)
        return self._said(argv[0], result, purpose).out

    def _run(self, commands: Sequence[Sequence[str]], *, text: str = "", directory: str | None = None) -> list[Result]:
        """Run commands at once."""
        environ = submitting_environment if commands[0][0] == "sbatch" else reading_environment
        return run_together(
            [Command((self._program(argv[0]), *argv[1:]), text, directory) for argv in commands],
            deadline_s=self._deadline_s,
            environ=environ(os.environ),
        )

    def _said(self, program: str, result: Result, purpose: str) -> Result:
        """The result of a command that did as it was asked. Raises SlurmError for any other."""
        if result.code is None:
            raise SlurmAwayError(
                f"could not {purpose}: {program} gave no answer in {self._deadline_s:g} s\n"
                "  is slurmctld up? try: scontrol ping",
                sent=True,
            )
        if result.code == 0 or (program == "squeue" and _UNKNOWN_JOB in result.err):
            return result
        said = (result.err or result.out).strip() or f"exit code {result.code}, no message"
        message = f"could not {purpose}: {program} said: {said}"
        if _AWAY.search(said):
            raise SlurmAwayError(f"{message}\n  is slurmctld up? try: scontrol ping", sent=not _NOT_SENT.search(said))
        raise SlurmError(message)

    def _program(self, name: str) -> str:
        path = str(Path(self._directory) / name) if self._directory else shutil.which(name)
        if not path or not os.access(path, os.X_OK):
            raise MissingError(
                f"{name} was not found {f'in {self._directory}' if self._directory else 'on the PATH'}\n"
                "  install Slurm's client commands (Debian: apt-get install slurm-client), or load the site's module"
            )
        return path
