"""Read lists of jobs: those that slurmctld knows from squeue, those that ended long ago from slurmdbd through sacct.

Pending tasks of an array are one row, as in squeue. The number of accelerators comes from the job's TRES. Only sites
with `AccountingStorageTRES=gres/gpu` have it there; for the others it follows from the job's request.
"""

import re
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from slurm_plugin.errors import MissingError
from slurm_plugin.slurm import calls, parse
from slurm_plugin.slurm.model import ENDED, UNKNOWN, Job, Listed, SlurmError
from slurm_plugin.slurm.process import Command, CommandRunner, new_nonce

ACCELERATORS: Final = ("gpu", "npu")  # names of GRES
# Fields of squeue, as in parse.PLAIN and parse.FREE. A nonce is also behind the requests, which users write.
PLAIN: Final = (
    *parse.PLAIN[:10], "NumNodes", "tres-alloc", "TimeUsed", "TimeLimit", "NumTasks", "ArrayJobID", "ArrayTaskID",
    "HetJobID", "HetJobOffset",
)  # fmt: skip
FREE: Final = ("tres-per-job", "tres-per-node", "tres-per-task", *parse.FREE, "WorkDir")
ACCOUNTED: Final = (
    "JobID", "JobIDRaw", "User", "Partition", "State", "NodeList", "ExitCode", "Submit", "Start", "End", "NNodes",
    "AllocTRES", "ReqTRES", "ElapsedRaw", "TimelimitRaw", "JobName", "AdminComment",
    "WorkDir",
)  # fmt: skip
_NO_ACCOUNTING = "accounting storage is disabled"
_UNKNOWN_USER = "Invalid user"
_ALL = re.compile(rf"gres/(?:{'|'.join(ACCELERATORS)})=([0-9]+)", re.ASCII)
_OF_A_TYPE = re.compile(rf"gres/(?:{'|'.join(ACCELERATORS)}):[^,=]*=([0-9]+)", re.ASCII)
_WITH_UNIT = re.compile(r"([0-9]+)([KM]?)", re.ASCII)


class Listing(CommandRunner):
    """The part of the back ends that lists jobs. Both back ends use Slurm's commands for it."""

    def listing(self, *, user: str = "", job_ids: Sequence[int] = ()) -> list[Listed]:
        """Return the jobs that slurmctld knows, in one request. `user`: only this user's; a name or a uid.

        `job_ids`: only these, and all tasks and parts of each. Raise SlurmError for an unknown user.
        """
        nonce = new_nonce()
        which = [f"--user={user}"] * bool(user) + _jobs(job_ids)
        argv = ["squeue", "--noheader", "--all", "--states=all", *which]
        command = Command(argv, variables={"SQUEUE_FORMAT2": parse.form(nonce, PLAIN, FREE)})
        return listed(self._patience.ask(lambda: self._listed(command), repeatable=True), nonce)

    def ended(self, since: datetime, *, user: str = "", job_ids: Sequence[int] = ()) -> list[Listed] | None:
        """Return the jobs that ended since a time, by slurmdbd's records; None if the cluster has no slurmdbd.

        `user`, `job_ids`: as in `listing`. Slurm may hide the jobs of other users (PrivateData).
        """
        # Users can see the delimiter in sacct's arguments, but the names of these jobs are older.
        nonce = new_nonce()
        argv = [
            "sacct", "--noheader", "--allocations", "--duplicates", "--parsable", f"--delimiter={nonce}",
            f"--format={','.join(ACCOUNTED)}", f"--starttime={since:%Y-%m-%dT%H:%M:%S}",
            f"--user={user}" if user else "--allusers", *_jobs(job_ids),
        ]  # fmt: skip
        try:
            text = self._ask(argv, calls.READ_ENDED)
        except MissingError:
            return None
        except SlurmError as error:
            if _NO_ACCOUNTING in str(error):
                return None
            raise
        return [each for each in accounted(text, nonce) if each.job.end_time and each.job.end_time >= since]

    def _listed(self, command: Command) -> str:
        (result,) = self._run([command], time.monotonic() + self._deadline_s)
        text = self._check("squeue", result, calls.READ_JOBS)
        if _UNKNOWN_USER in result.err:  # squeue exits 0 for a user that it cannot look up
            raise calls.READ_JOBS.refused("squeue", result.err.strip())
        return text


def _jobs(job_ids: Sequence[int]) -> list[str]:
    return [f"--jobs={','.join(map(str, job_ids))}"] if job_ids else []


def listed(text: str, nonce: str) -> list[Listed]:
    """Return the jobs in squeue's answer to PLAIN and FREE. Raise SlurmError for a malformed record."""
    found, given, seconds = [], parse.NOTHING.get, parse.seconds
    for fixed, per_job, per_node, per_task, *free, directory in parse.rows(text, nonce, 1 + len(FREE)):
        plain = parse.plain_fields(fixed, len(PLAIN))
        count, tres, used, limit, tasks, array, task, whole, part = plain[10:]
        many = _count(count)
        gpus = _gpus(tres)
        if gpus is None:
            gpus = _requested(per_job) or many * _requested(per_node) or _count(tasks) * _requested(per_task)
        label = _label(plain[0], array, task, whole, part)
        job = parse.job(plain, "", free)
        found.append(Listed(job, label, many, gpus, seconds(used), seconds(limit), given(directory, directory)))
    return found


def accounted(text: str, nonce: str) -> list[Listed]:
    """Return the ended jobs in sacct's answer, one row a job. Each earlier run of a job is one restart.

    Raise SlurmError if a record is cut off.
    """
    runs: dict[str, list[Listed]] = {}
    for row in parse.rows(text, nonce, len(ACCOUNTED)):
        name, number, user, partition, state, nodes, status, submit, start, end, count, tres, asked, *rest = row
        used, limit, job_name, admin, directory = rest
        if not number.isdigit():  # of a step; --allocations leaves them out
            continue
        state = state.partition(" ")[0]  # CANCELLED by 1000
        job = Job(
            int(number),
            user,
            state if state in parse.JOB_STATES else UNKNOWN,
            "",
            "" if nodes == "None assigned" else nodes,
            "",
            0,
            "",
            admin,
            *parse.exit_of(status),
            job_name,
            partition,
            parse.utc(submit),
            parse.utc(start),
            parse.utc(end),
        )
        limit_s = int(limit) * 60 if limit.isdigit() else None
        elapsed_s = int(used) if used.isdigit() and int(used) else None
        gpus = _gpus(tres) or _gpus(asked) or 0
        runs.setdefault(number, []).append(
            Listed(job, name.strip(), _count(count), gpus, elapsed_s, limit_s, directory)
        )
    # Of runs that were submitted in the same second, sacct prints the last one last.
    last = {number: max(reversed(each), key=_submitted) for number, each in runs.items()}
    return [
        each._replace(
            job=each.job._replace(restarts=len(runs[number]) - 1),
            # The last record of a job that ended while it was pending has no directory.
            directory=each.directory or next((run.directory for run in runs[number] if run.directory), ""),
        )
        for number, each in last.items()
        if each.job.state in ENDED
    ]


def _submitted(each: Listed) -> float:
    """Return when a run was submitted or requeued."""
    time = each.job.submit_time
    return time.timestamp() if time else 0.0


def _label(number: str, array: str, task: str, whole: str, part: str) -> str:
    """Return the id of a job for people."""
    if task.isdigit():
        return f"{array}_{task}"
    if task[:1].isdigit():  # the tasks of an array that wait: 5-9%2
        return f"{array}_[{task}]"
    return f"{whole}+{part}" if part.isdigit() and whole.isdigit() and whole != "0" else number


def _count(text: str) -> int:
    """Return the first number in `4`, `2-8` or `1K`; 0 without a number."""
    if text.isdecimal():
        return int(text)
    found = _WITH_UNIT.match(text)
    return int(found[1]) * {"": 1, "K": 1024, "M": 1024**2}[found[2]] if found else 0


def _gpus(tres: str) -> int | None:
    """Return the accelerators in `cpu=4,gres/gpu=8,gres/gpu:a100=8`; None if there are none."""
    found = _ALL.findall(tres) or _OF_A_TYPE.findall(tres)
    return sum(map(int, found)) if found else None


def _requested(text: str) -> int:
    """Return the accelerators in a request such as `gres:gpu:a100:4` or `gres/gpu:a100=4`."""
    return sum(
        int(count) if (count := name.rpartition(":")[2]).isdigit() else 1
        for name in map(parse.gres, text.split(","))
        if name.partition(":")[0] in ACCELERATORS
    )
