"""The first back end: Slurm's own commands, used in the same way on every release, with one exception.

On 22.05, SQUEUE_FORMAT2 lacks the field ExcNodes; SQUEUE_FORMAT has it. squeue reports a field that it lacks on stderr
and leaves the text empty. From then on `Commands` reads jobs with two squeue commands that run together.
"""

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from hostfiles import nodelist
from slurm_plugin.slurm import calls, parse, resources
from slurm_plugin.slurm.batch import Batch
from slurm_plugin.slurm.calls import Patience, Purpose
from slurm_plugin.slurm.inventory import Inventory
from slurm_plugin.slurm.listing import Listing
from slurm_plugin.slurm.model import Job, Node, Queueing, Request, Slurm, SlurmError, Steps
from slurm_plugin.slurm.process import Command, new_nonce
from slurm_plugin.slurm.resources import Limit

Answer = TypeVar("Answer")
MOST_IDS: Final = 1000  # most ids in one request; for more ids `Commands` requests all jobs
FORCED: Final = "forcerequeueonfail"  # a value of PrologFlags
_UNKNOWN_NODE = re.compile(r"\bNode \S+ not found")  # scontrol's error on 22.05, 24.11 and 26.05
_LACKS_EXCLUDED = "Invalid job format specification: ExcNodes"
_TO: Final[Mapping[Steps, tuple[str, ...]]] = {"steps": (), "batch": ("--batch",), "all": ("--full",)}


class Commands(Batch, Listing, Inventory):
    """Slurm through sbatch, squeue, scontrol, scancel, sacct and sacctmgr. Implements `slurm_plugin.slurm.Slurm`."""

    backend = "Slurm's commands"

    def __init__(
        self, directory: str = "", *, deadline_s: float = 30.0, patience: Patience | None = None, **more: Any
    ) -> None:
        """Use the commands in `directory`; if it is empty, those on the PATH (never in root's hooks)."""
        super().__init__(directory, deadline_s=deadline_s, patience=patience or Patience(), **more)
        self._lacks_excluded = False
        self._names: dict[int, str] = {}  # job id -> name (4_2) of each array task that was read

    def on(self, cluster: str) -> Slurm:
        """Return the door to another cluster; this one for an empty name. pyslurm knows no other cluster."""
        if cluster == self._cluster:
            return self
        more = {"cluster": cluster, "in_job": self._in_job}
        return Commands(self._directory, deadline_s=self._deadline_s, patience=self._patience, **more)

    def job(self, job_id: int) -> Job:
        """Return one job. Raise JobNotFoundError once Slurm has forgotten it."""
        found = self.jobs([job_id])
        if job_id not in found:
            raise calls.no_job(job_id)
        return found[job_id]

    def jobs(self, job_ids: Sequence[int] | None = None) -> Mapping[int, Job]:
        """Return jobs in one request (None: all). Jobs that Slurm does not know are absent."""
        if job_ids is not None and not job_ids:
            return {}
        found = self._patience.ask(lambda: self._jobs(job_ids), repeatable=True)
        return found if job_ids is None else {each: found[each] for each in job_ids if each in found}

    def queueing(self, job_ids: Sequence[int]) -> Mapping[int, Queueing]:
        """Return the limits on these jobs' wait in the queue.

        Remember the names of array tasks, so that later changes apply to the task, not to the whole array.
        """
        if not job_ids:
            return {}
        nonce = new_nonce()
        form = parse.form(nonce, parse.QUEUEING, parse.TYPED)
        found = parse.queueing(self._fields(job_ids, form, calls.READ_JOBS), nonce)
        self._names |= {number: each.name for number, each in found.items() if each.name}
        return {each: found[each] for each in job_ids if each in found}

    def members(self, job_id: int) -> Mapping[str, int]:
        """Return the tasks of an array, or the parts of a heterogeneous job, by name."""
        return parse.members(self._fields([job_id], parse.MEMBERS, calls.READ_JOBS))

    def request(self, job_id: int) -> Request:
        """Return a job's request as Slurm has recorded it."""
        return self._one(job_id, parse.REQUEST, parse.requests)

    def jobs_of(self, uid: int, node: str) -> Mapping[int, str]:
        """Return id -> state of a user's jobs that use or used this node."""
        which = [f"--user={uid}", f"--nodelist={node}"]
        argv = ["squeue", "--noheader", "--all", "--array", "--states=all", *which, "--format=%A|%T"]
        return parse.states(self._patience.ask(lambda: self._listed(Command(argv)), repeatable=True))

    def queued(
        self, *, user: str = "", account: str = "", qos: str = "", partitions: Sequence[str] = ()
    ) -> Sequence[str]:
        """Return the names of the queued and running jobs with these values: `17`, of an array task `17_3`."""
        given = {"user": user, "account": account, "qos": qos, "partition": ",".join(partitions)}
        which = [f"--{name}={value}" for name, value in given.items() if value]
        argv = ["squeue", "--noheader", "--all", "--array", *which, "--format=%i"]
        return self._patience.ask(lambda: self._listed(Command(argv)), repeatable=True).split()

    def work_directory(self, job_id: int) -> str:
        """Return a job's working directory."""
        nonce = new_nonce()
        command = Command(_squeue([job_id]), variables={"SQUEUE_FORMAT": f"%A{nonce}%Z{nonce}"})
        why = calls.of_job(f"read job {job_id}", job_id)
        said = self._patience.ask(lambda: self._stdout(command, why), repeatable=True)
        found = {number.lstrip("\n"): path for number, path in parse.rows(said, nonce, 2)}
        if str(job_id) not in found:
            raise calls.no_job(job_id)
        return found[str(job_id)]

    def output(self, job_id: int) -> str:
        """Return the absolute path of a job's output; "" if it has none, or if only its node knows the name."""
        return self._one(job_id, parse.OUTPUT, parse.outputs)

    def errors(self, job_id: int) -> str:
        """Return the absolute path of a job's stderr, as `output`."""
        return self._one(job_id, parse.ERRORS, parse.outputs)

    def batch_script(self, job_id: int) -> str:
        """Return a job's batch script."""
        why = calls.of_job(f"read the batch script of job {job_id}", job_id)
        return self._ask(["scontrol", "write", "batch_script", str(job_id), "-"], why)

    def _one(self, job_id: int, fields: Sequence[str], read: Callable[[str, str], Mapping[int, Answer]]) -> Answer:
        """Request `fields` of one job, with a nonce behind each field. Return the result of `read` for this job."""
        nonce = new_nonce()
        form = ",".join(f"{field}:0{nonce}" for field in fields)
        found = read(self._fields([job_id], form, calls.of_job(f"read job {job_id}", job_id)), nonce)
        if job_id not in found:
            raise calls.no_job(job_id)
        return found[job_id]

    def _fields(self, job_ids: Sequence[int], form: str, why: Purpose) -> str:
        """Return squeue's answer about these jobs with the fields of `form`.

        If users can write a field of `form`, the form needs a nonce.
        """
        command = Command(_squeue(job_ids), variables={"SQUEUE_FORMAT2": form})
        return self._patience.ask(lambda: self._stdout(command, why), repeatable=True)

    def may_requeue(self, job_id: int) -> bool:
        """Return whether Slurm requeues this job when its prolog fails.

        Slurm requeues a batch job if the job allows it, or if the site forces it (PrologFlags, since 23.11). Remember
        the name of an array task, as `queueing` does.
        """
        why = calls.of_job(f"read job {job_id}", job_id)
        found = parse.requeueing(self._fields([job_id], parse.REQUEUEING, why)).get(job_id)
        if found is None:
            raise calls.no_job(job_id)
        batch, requeue, name = found
        if name:
            self._names[job_id] = name
        return batch and (requeue or FORCED in self.config().get("PrologFlags", "").lower().split(","))

    def nodes(self, names: Sequence[str]) -> Mapping[str, Node]:
        """Return nodes by name (an empty sequence: all). Nodes that Slurm does not know are absent.

        `scontrol show node` refuses a list with an unknown name. In that case request all nodes.
        """
        known = [name for name in names if nodelist.is_name(name)]
        if names and not known:
            return {}
        show = ["scontrol", "show", "node"]
        try:
            return parse.nodes(self._ask([*show, nodelist.fold(known)] if known else show, calls.READ_NODES))
        except SlurmError as error:
            if not _UNKNOWN_NODE.search(str(error)):
                raise
            if len(known) == 1:
                return {}
            found = parse.nodes(self._ask(show, calls.READ_NODES))
            return {name: found[name] for name in known if name in found}

    def update_job(self, job_id: int, **fields: str) -> None:
        """Change a job's fields, named as scontrol names them."""
        changes = [f"{name}={value}" for name, value in fields.items()]
        why = calls.of_job(f"update job {job_id} ({', '.join(fields)})", job_id)
        with calls.ignoring_applied_update():
            self._ask(["scontrol", "update", f"JobId={self._name(job_id)}", *changes], why)

    def requeue(self, job_id: int) -> None:
        """End a batch job's run and put the job back into the queue. Slurm refuses a second requeue."""
        self._ask(["scontrol", "requeue", self._name(job_id)], calls.of_job(f"requeue job {job_id}", job_id))

    def hold(self, job_id: int) -> None:
        """Keep a pending job from starting."""
        self._ask(["scontrol", "hold", self._name(job_id)], calls.of_job(f"hold job {job_id}", job_id))

    def release(self, job_id: int) -> None:
        """Let a held job start."""
        self._ask(["scontrol", "release", self._name(job_id)], calls.of_job(f"release job {job_id}", job_id))

    def signal(self, job_id: int, name: str, to: Steps = "steps") -> None:
        """Send a signal to a running job's steps, to its batch script only, or to all its processes."""
        argv = ["scancel", f"--signal={name}", *_TO[to], self._name(job_id)]
        self._ask(argv, calls.of_job(f"send {name} to job {job_id}", job_id), repeatable=False)

    def cancel(self, job_id: int) -> None:
        """Cancel a job. Ignore a job that has already ended."""
        self._ask(["scancel", self._name(job_id)], calls.of_job(f"cancel job {job_id}", job_id))

    def notify(self, job_id: int, text: str) -> None:
        """Send a line to a running job."""
        argv = ["scontrol", "notify", str(job_id), text]
        self._ask(argv, calls.of_job(f"tell job {job_id}", job_id), repeatable=False)

    def drain(self, node: str, reason: str) -> None:
        """Keep new jobs from a node and replace its reason."""
        argv = ["scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}"]
        self._ask(argv, calls.of_node(f"drain node {node}", node))

    def resume(self, node: str) -> None:
        """Let jobs start on a node again."""
        argv = ["scontrol", "update", f"NodeName={node}", "State=RESUME"]
        self._ask(argv, calls.of_node(f"resume node {node}", node))

    def reboot(self, node: str) -> None:
        """Let slurmd run RebootProgram when the node is idle. A drain stays."""
        self._ask(["scontrol", "reboot", node], calls.of_node(f"reboot node {node}", node))

    def update_node(self, node: str, **fields: str) -> None:
        """Change a node's fields, named as scontrol names them."""
        changes = [f"{name}={value}" for name, value in fields.items()]
        why = calls.of_node(f"update node {node} ({', '.join(fields)})", node)
        self._ask(["scontrol", "update", f"NodeName={node}", *changes], why)

    def unreserve(self, name: str) -> None:
        """Delete a reservation if it exists."""
        with calls.ignoring_missing_reservation():
            self._ask(["scontrol", "delete", f"ReservationName={name}"], calls.of_reservation("delete", name))

    def config(self) -> Mapping[str, str]:
        """Return slurmctld's settings by name."""
        return parse.settings(self._ask(["scontrol", "show", "config"], calls.READ_SETTINGS))

    def submit_limits(self, user: str, account: str = "", qos: str = "") -> Sequence[Limit]:
        """Return how many more jobs this user may submit. Without slurmdbd there are no such limits."""
        argv = ["scontrol", "-o", "show", "assoc_mgr", f"users={user}", "flags=assoc,qos"]
        return resources.user_limits(self._ask(argv, calls.READ_LIMITS), user, account, qos)

    def version(self) -> str:
        """Return slurmctld's release."""
        found = self.config().get("SLURM_VERSION", "")
        if not found:
            raise calls.READ_SETTINGS.refused("scontrol", "no SLURM_VERSION")
        return found

    def ping(self) -> bool:
        """Return whether a slurmctld answers, the primary or a backup."""
        try:
            return " is UP" in self._stdout(Command(["scontrol", "ping"]), calls.PING)
        except SlurmError:
            return False

    def _jobs(self, job_ids: Sequence[int] | None) -> dict[int, Job]:
        end = time.monotonic() + self._deadline_s
        nonce = new_nonce()
        squeue = _squeue(job_ids)
        # Pass the formats in the environment: any user can read a command line, and forge a record with its nonce.
        fields = Command(squeue, variables={"SQUEUE_FORMAT2": parse.form(nonce)})
        excluded = Command(squeue, variables={"SQUEUE_FORMAT": f"%A{nonce}%x{nonce}"})
        results = self._run([fields, excluded] if self._lacks_excluded else [fields], end)
        text = self._check("squeue", results[0], calls.READ_JOBS)
        if _LACKS_EXCLUDED in results[0].err and not self._lacks_excluded:
            self._lacks_excluded = True
            results += self._run([excluded], end)
        if not self._lacks_excluded:
            return parse.jobs(text, nonce)
        lists = parse.excluded(self._check("squeue", results[1], calls.READ_JOBS), nonce)
        return parse.jobs(text, nonce, lists)  # a job submitted between the two commands is missing

    def _name(self, job_id: int) -> str:
        """Return the name of a job for scontrol: the id of an array's last task would mean the whole array."""
        here = not self._cluster and os.environ.get("SLURM_JOB_ID") == str(job_id)
        mine = os.environ if here else {}
        own = mine.get("SLURM_ARRAY_TASK_ID") and f"{mine.get('SLURM_ARRAY_JOB_ID')}_{mine['SLURM_ARRAY_TASK_ID']}"
        return own or self._names.get(job_id, str(job_id))


def _squeue(job_ids: Sequence[int] | None) -> list[str]:
    """Return the squeue command for these jobs in any state; for all jobs if `job_ids` is None or too long."""
    which = [f"--jobs={','.join(map(str, job_ids))}"] if job_ids and len(job_ids) <= MOST_IDS else []
    return ["squeue", "--noheader", "--all", "--array", "--states=all", *which]
