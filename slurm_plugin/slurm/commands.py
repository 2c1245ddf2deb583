"""The door's first room: Slurm's own commands, the same on every release.

22.05 alone needs two of them for jobs: its SQUEUE_FORMAT2 does not know ExcNodes, which only SQUEUE_FORMAT has there. A
squeue that lacks a field says so and leaves its text empty; it is remembered, and both run at once from then on.
"""

import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from hostfiles import nodelist
from slurm_plugin.errors import MissingError
from slurm_plugin.slurm import Forecast, Job, Node, Queueing, Request, SlurmError, Steps, flags, purpose, records
from slurm_plugin.slurm.patience import Patience
from slurm_plugin.slurm.process import Command, Result, reading_environment, run_together, submitting_environment
from slurm_plugin.slurm.purpose import Purpose

NONCE_BYTES: Final = 6  # 48 random bits that a user would have to guess for a call of a few milliseconds
MOST_IDS: Final = 1000  # named in one question; for more, all jobs are asked for
FORCED: Final = "forcerequeueonfail"  # of PrologFlags
_UNKNOWN_JOB = "Invalid job id"
_UNKNOWN_USER = "Invalid user"
_LACKS_EXCLUDED = "Invalid job format specification: ExcNodes"
# What the commands of 22.05, 24.11 and 26.05 say where no slurmctld answers. `scontrol` has but "Unexpected message
# received" for it when it changes a job. Only a connection that was refused surely carried nothing.
_AWAY = re.compile(
    "Unable to contact slurm controller|Unexpected message received|Socket timed out|Zero Bytes were transmitted"
    "|[Cc]ommunication connection failure|in standby mode|Connection (?:refused|reset)"
)
_WOULD_NOT = "allocation failure: "  # how sbatch --test-only begins what slurmctld says against a job
_BROKEN = re.compile("[Aa]uthentication|[Cc]ommunication|[Mm]unge|timed out")  # nothing of the job's
_NOT_SENT = re.compile("connect failure|Connection refused|in standby mode")
# What an update of a job says in an INACTIVE partition, on 22.05, 24.11 and 26.05, after all of it was done.
_DONE = "Requested partition configuration not available now"
_TO: Final[Mapping[Steps, tuple[str, ...]]] = {"steps": (), "batch": ("--batch",), "all": ("--full",)}


@contextmanager
def done_all_the_same() -> Iterator[None]:
    """Pass over a refusal that is none: the change was made, and the job may not start now for a reason of its own."""
    try:
        yield
    except SlurmError as error:
        if _DONE not in str(error):
            raise


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
        self._names: dict[int, str] = {}  # of tasks of arrays, as far as they were asked for

    def submit(self, script: str, *, arguments: Sequence[str] = (), directory: str | None = None) -> int:
        """Submit a batch script on stdin and return the job id; what sbatch warned of is part of an error only."""
        command = Command(["sbatch", "--parsable", *arguments], script, directory)
        out = self._patience.ask(lambda: self._said(command, purpose.SUBMIT), repeatable=False)
        number, end, _ = out.partition("\n")
        number = number.partition(";")[0]  # with a cluster's name behind it
        if not number.isdigit() or not end:
            raise SlurmError(
                f"sbatch answered {out.strip()!r} in place of a job id\n  look for the job with: squeue --me"
            )
        return int(number)

    def forecast(self, script: str, *, arguments: Sequence[str] = (), directory: str | None = None) -> Forecast:
        """When a batch script would start, by `sbatch --test-only`, which says it on stderr."""
        local = {"SLURM_TIME_FORMAT": "standard"}  # in the caller's own zone, in which the script's --begin is, too
        command = Command(["sbatch", "--test-only", *arguments], script, directory, local)
        return self._patience.ask(lambda: self._forecast(command), repeatable=True)

    def sbatch_flags(self, names: Sequence[str] = ()) -> Mapping[str, str]:
        """Of the help; for each of `names` that is not there, as `hint`, sbatch is asked with an empty script."""
        words = {"LC_ALL": "C"}
        found = flags.parse(self._said(Command(["sbatch", "--help"], variables=words), purpose.READ_FLAGS))
        lacking = [
            each for each in names if flags.NAME.fullmatch(each) and not any(has.startswith(each) for has in found)
        ]
        asked = [Command(["sbatch", f"--{each}"], variables=words) for each in lacking]
        results = self._run(asked, time.monotonic() + self._deadline_s) if asked else []
        takes = {name: flags.probed(result.err) for name, result in zip(lacking, results, strict=True)}
        return found | {name: kind for name, kind in takes.items() if kind}

    def job(self, job_id: int) -> Job:
        """One job; `JobNotFoundError` once Slurm has forgotten it."""
        found = self.jobs([job_id])
        if job_id not in found:
            raise purpose.no_job(job_id)
        return found[job_id]

    def jobs(self, job_ids: Sequence[int] | None = None) -> Mapping[int, Job]:
        """Many jobs in one question, None: all; jobs that Slurm does not know are absent."""
        if job_ids is not None and not job_ids:
            return {}
        found = self._patience.ask(lambda: self._jobs(job_ids), repeatable=True)
        return found if job_ids is None else {each: found[each] for each in job_ids if each in found}

    def queueing(self, job_ids: Sequence[int]) -> Mapping[int, Queueing]:
        """What these jobs' wait goes by. No word in the answer is a user's, so it needs no nonce.

        Changes of a task of an array are for that task alone once it was asked for here.
        """
        if not job_ids:
            return {}
        command = Command(_squeue(job_ids), variables={"SQUEUE_FORMAT2": records.QUEUEING})
        said = self._patience.ask(lambda: self._said(command, purpose.READ_JOBS), repeatable=True)
        found = records.queueing(said)
        self._names |= {number: each.name for number, each in found.items() if each.name}
        return {each: found[each] for each in job_ids if each in found}

    def request(self, job_id: int) -> Request:
        """What a job was given of what it asked for."""
        nonce = f"~{secrets.token_urlsafe(NONCE_BYTES)}"
        form = ",".join(f"{field}:0{nonce}" for field in records.REQUEST)
        why = purpose.of_job(f"read job {job_id}", job_id)
        command = Command(_squeue([job_id]), variables={"SQUEUE_FORMAT2": form})
        found = records.requests(self._patience.ask(lambda: self._said(command, why), repeatable=True), nonce)
        if job_id not in found:
            raise purpose.no_job(job_id)
        return found[job_id]

    def jobs_of(self, uid: int, node: str) -> Mapping[int, str]:
        """The states of a user's jobs that have, or had, this node, by their ids.

        No word in the answer is a user's, so it needs no nonce.
        """
        which = [f"--user={uid}", f"--nodelist={node}"]
        argv = ["squeue", "--noheader", "--all", "--array", "--states=all", *which, "--format=%A|%T"]
        return self._patience.ask(lambda: self._jobs_of(argv), repeatable=True)

    def work_directory(self, job_id: int) -> str:
        """Where a job was told to run; a question of its own, because hardly anybody asks."""
        squeue = ["squeue", "--noheader", "--all", "--array", "--states=all", f"--jobs={job_id}"]
        nonce = f"~{secrets.token_urlsafe(NONCE_BYTES)}"
        command = Command(squeue, variables={"SQUEUE_FORMAT": f"%A{nonce}%Z{nonce}"})
        why = purpose.of_job(f"read job {job_id}", job_id)
        said = self._patience.ask(lambda: self._said(command, why), repeatable=True)
        found = {number.lstrip("\n"): path for number, path in records.rows(said, nonce, 2)}
        if str(job_id) not in found:
            raise purpose.no_job(job_id)
        return found[str(job_id)]

    def may_requeue(self, job_id: int) -> bool:
        """Whether Slurm puts this job back into the queue when its prolog fails: a batch job that may be requeued, or
        any batch job where the site forces it (PrologFlags, from 23.11 on).

        No word in the answer is a user's. Changes of a task of an array are for that task alone once it was asked for.
        """
        command = Command(_squeue([job_id]), variables={"SQUEUE_FORMAT2": records.REQUEUEING})
        why = purpose.of_job(f"read job {job_id}", job_id)
        said = self._patience.ask(lambda: self._said(command, why), repeatable=True)
        found = records.requeueing(said).get(job_id)
        if found is None:
            raise purpose.no_job(job_id)
        batch, requeue, name = found
        if name:
            self._names[job_id] = name
        return batch and (requeue or FORCED in self.config().get("PrologFlags", "").lower().split(","))

    def nodes(self, names: Sequence[str]) -> Mapping[str, Node]:
        """Nodes by name in one question; an empty sequence asks for all of them."""
        which = [nodelist.fold(names)] if names else []
        return records.nodes(self._ask(["scontrol", "show", "node", *which], purpose.READ_NODES))

    def update_job(self, job_id: int, **fields: str) -> None:
        """Change a job's fields, named as scontrol names them."""
        changes = [f"{name}={value}" for name, value in fields.items()]
        why = purpose.of_job(f"update job {job_id} ({', '.join(fields)})", job_id)
        with done_all_the_same():
            self._ask(["scontrol", "update", f"JobId={self._name(job_id)}", *changes], why)

    def requeue(self, job_id: int) -> None:
        """End a batch job's run and put it back into the queue. Asked twice, Slurm refuses: it is there already."""
        self._ask(["scontrol", "requeue", self._name(job_id)], purpose.of_job(f"requeue job {job_id}", job_id))

    def hold(self, job_id: int) -> None:
        """Keep a pending job from starting."""
        self._ask(["scontrol", "hold", self._name(job_id)], purpose.of_job(f"hold job {job_id}", job_id))

    def release(self, job_id: int) -> None:
        """Let a held job start."""
        self._ask(["scontrol", "release", self._name(job_id)], purpose.of_job(f"release job {job_id}", job_id))

    def signal(self, job_id: int, name: str, to: Steps = "steps") -> None:
        """Send a signal to a running job's steps, to its batch script alone, or to all of it."""
        argv = ["scancel", f"--signal={name}", *_TO[to], self._name(job_id)]
        self._ask(argv, purpose.of_job(f"send {name} to job {job_id}", job_id), repeatable=False)

    def cancel(self, job_id: int) -> None:
        """End a job for good; of one that has ended nothing is left to cancel, and that is no error."""
        self._ask(["scancel", self._name(job_id)], purpose.of_job(f"cancel job {job_id}", job_id))

    def notify(self, job_id: int, text: str) -> None:
        """Say a line to a running job."""
        argv = ["scontrol", "notify", str(job_id), text]
        self._ask(argv, purpose.of_job(f"tell job {job_id}", job_id), repeatable=False)

    def drain(self, node: str, reason: str) -> None:
        """Let no new job start on a node; replaces its reason."""
        argv = ["scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}"]
        self._ask(argv, purpose.of_node(f"drain node {node}", node))

    def resume(self, node: str) -> None:
        """Let jobs start on a node again."""
        argv = ["scontrol", "update", f"NodeName={node}", "State=RESUME"]
        self._ask(argv, purpose.of_node(f"resume node {node}", node))

    def update_node(self, node: str, **fields: str) -> None:
        """Change a node's fields, named as scontrol names them."""
        changes = [f"{name}={value}" for name, value in fields.items()]
        why = purpose.of_node(f"update node {node} ({', '.join(fields)})", node)
        self._ask(["scontrol", "update", f"NodeName={node}", *changes], why)

    def config(self) -> Mapping[str, str]:
        """slurmctld's settings by name."""
        return records.settings(self._ask(["scontrol", "show", "config"], purpose.READ_SETTINGS))

    def version(self) -> str:
        """slurmctld's release."""
        found = self.config().get("SLURM_VERSION", "")
        if not found:
            raise purpose.READ_SETTINGS.refused("scontrol", "no SLURM_VERSION")
        return found

    def ping(self) -> bool:
        """Whether a slurmctld answers, the first or a backup."""
        try:
            return " is UP" in self._said(Command(["scontrol", "ping"]), purpose.PING)
        except SlurmError:
            return False

    def _forecast(self, command: Command) -> Forecast:
        (result,) = self._run([command], time.monotonic() + self._deadline_s)
        if result.code and _WOULD_NOT in result.err and not (_AWAY.search(result.err) or _BROKEN.search(result.err)):
            return Forecast(refused=result.err.strip())
        self._checked("sbatch", result, purpose.FORECAST)
        found = records.forecast(result.err)
        if found is None:
            raise purpose.FORECAST.refused("sbatch", result.err.strip() or "nothing")
        return found

    def _jobs(self, job_ids: Sequence[int] | None) -> dict[int, Job]:
        end = time.monotonic() + self._deadline_s
        nonce = f"~{secrets.token_urlsafe(NONCE_BYTES)}"
        squeue = _squeue(job_ids)
        # The formats travel in the environment: everybody can read a command line, and forge a record with its nonce.
        fields = Command(squeue, variables={"SQUEUE_FORMAT2": records.form(nonce)})
        excluded = Command(squeue, variables={"SQUEUE_FORMAT": f"%A{nonce}%x{nonce}"})
        results = self._run([fields, excluded] if self._lacks_excluded else [fields], end)
        text = self._checked("squeue", results[0], purpose.READ_JOBS)
        if _LACKS_EXCLUDED in results[0].err and not self._lacks_excluded:
            self._lacks_excluded = True
            results += self._run([excluded], end)
        if not self._lacks_excluded:
            return records.jobs(text, nonce)
        lists = records.excluded(self._checked("squeue", results[1], purpose.READ_JOBS), nonce)
        return records.jobs(text, nonce, lists)  # one that was submitted between the two waits for the next question

    def _jobs_of(self, argv: Sequence[str]) -> dict[int, str]:
        (result,) = self._run([Command(argv)], time.monotonic() + self._deadline_s)
        text = self._checked("squeue", result, purpose.READ_JOBS)
        if _UNKNOWN_USER in result.err:  # one that squeue cannot look up has no jobs for it, and that is exit code 0
            raise purpose.READ_JOBS.refused("squeue", result.err.strip())
        return records.states(text)

    def _ask(self, argv: Sequence[str], why: Purpose, *, repeatable: bool = True) -> str:
        """What a command says, asked again while the controller is away."""
        return self._patience.ask(lambda: self._said(Command(argv), why), repeatable=repeatable)

    def _said(self, command: Command, why: Purpose) -> str:
        (result,) = self._run([command], time.monotonic() + self._deadline_s)
        return self._checked(command.argv[0], result, why)

    def _run(self, commands: Sequence[Command], end: float) -> list[Result]:
        """Run commands at once, until `end` of the monotonic clock."""
        environ = submitting_environment if commands[0].argv[0] == "sbatch" else reading_environment
        found = [replace(each, argv=(self._program(each.argv[0]), *each.argv[1:])) for each in commands]
        try:
            return run_together(found, deadline_s=end - time.monotonic(), environ=environ(os.environ))
        except OSError as error:  # no process left to start, a list of arguments that is too long, no such directory
            what = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
            raise SlurmError(f"could not start {commands[0].argv[0]}: {what}\n  see: df, ulimit -a") from error

    def _checked(self, program: str, result: Result, why: Purpose) -> str:
        """What a command printed that did as it was asked. Raises SlurmError for any other."""
        if result.code == 0 or (program == "squeue" and _UNKNOWN_JOB in result.err):
            return result.out
        if result.code is None:
            raise why.late(program, self._deadline_s, result.err.strip())
        said = (result.err or result.out).strip()
        if _AWAY.search(said):
            raise why.away(program, said, sent=not _NOT_SENT.search(said))
        raise why.refused(program, said or f"exit code {result.code}, no message")

    def _name(self, job_id: int) -> str:
        """A job as scontrol takes it for itself: the id of an array's last task is that of the whole array."""
        mine = os.environ if os.environ.get("SLURM_JOB_ID") == str(job_id) else {}
        own = mine.get("SLURM_ARRAY_TASK_ID") and f"{mine.get('SLURM_ARRAY_JOB_ID')}_{mine['SLURM_ARRAY_TASK_ID']}"
        return own or self._names.get(job_id, str(job_id))

    def _program(self, name: str) -> str:
        path = str(Path(self._directory) / name) if self._directory else shutil.which(name)
        if not path or not os.access(path, os.X_OK):
            raise MissingError(
                f"{name} was not found {f'in {self._directory}' if self._directory else 'on the PATH'}\n"
                "  install Slurm's client commands (Debian: apt-get install slurm-client), or load the site's module"
            )
        return path


def _squeue(job_ids: Sequence[int] | None) -> list[str]:
    """The question for these jobs, in any state; for all of them where they are too many to be named."""
    which = [f"--jobs={','.join(map(str, job_ids))}"] if job_ids and len(job_ids) <= MOST_IDS else []
    return ["squeue", "--noheader", "--all", "--array", "--states=all", *which]
