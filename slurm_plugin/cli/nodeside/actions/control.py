"""Commands that act on a job: `slurm-plugin rerun` and `release` (of a held job), `stop`, `shell`."""

import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, NoReturn

from slurm_plugin.cli.nodeside import job_lookup
from slurm_plugin.cli.nodeside.actions import share_request
from slurm_plugin.cli.nodeside.definition import JSON, Command, Parameter
from slurm_plugin.cli.nodeside.job_lookup import JOB, JOBS, Done, act_on_each
from slurm_plugin.errors import SlurmPluginError, printable
from slurm_plugin.records import launch_record
from slurm_plugin.slurm import Job, Slurm, SlurmError, steps
from slurm_plugin.slurm.inventory import GPU
from slurm_plugin.slurm.resources import count
from slurm_plugin.supervisor import hold

TAKEN_S = 20.0  # longest wait for the supervisor: it reads the file every second, through a file server
POLL_S = 0.2
SAVING = "it is told to save if it has `grace`, and is cancelled when it has ended or that time is over"
CANCELLED = "it is cancelled"


def _request(options: Namespace, verb: str, done: str) -> int:
    """Send a request to each job, wait until its supervisor accepts it, and print `done`."""

    def one(word: str) -> Done:
        job, directory, door = job_lookup.running_job(word)
        if share_request.is_anothers(job):
            return Done(job.id, share_request.ask(door, job, directory, verb))
        _send(job, directory, verb, job_lookup.cluster(door))
        return Done(job.id, done)

    return act_on_each(options.jobs, verb, one, as_json=options.json)


def _send(job: Job, directory: Path, verb: str, cluster: str) -> None:
    """Write the request and wait until the supervisor accepts it. Raise SlurmPluginError if it does not."""
    before = hold.now(job, directory, cluster)
    if not before:
        raise SlurmPluginError(f"job {job.id} is not held: its command runs\n  see it with: slurm-plugin why {job.id}")
    try:
        hold.request(directory, verb)
    except PermissionError as error:
        raise share_request.not_shared(job, verb) from error
    except OSError as error:
        raise SlurmPluginError(f"{error.filename}: {error.strerror}\n  to end the hold: scancel {job.id}") from error
    end = time.monotonic() + TAKEN_S
    while (found := hold.now(job, directory, cluster)) and found.get("number") == before.get("number"):
        if time.monotonic() > end:
            raise SlurmPluginError(
                f"job {job.id} did not take it in {TAKEN_S:g} s: its first node looks at {directory / hold.REQUEST}\n"
                f"  is that the same directory there? to end the hold: scancel {job.id}"
            )
        time.sleep(POLL_S)


def _command(verb: str, does: str, done: str) -> Command:
    """Return the command of a request. `done` tells the user what happens now."""
    exits = "Exit 0: it was taken; 1: the job is not held, or did not take it; 2: Slurm did not answer."
    return Command(verb, f"{does}\n\n{exits}", (JOBS, JSON), partial(_request, verb=verb, done=done))


RERUN = _command(
    hold.RERUN,
    "Run the command of a held job again, on its nodes; it is held anew where that fails.",
    "its command runs again, with its output in the job's log; it ends the job where it exits 0",
)
RELEASE = _command(
    hold.RELEASE,
    "End the hold of a job now: it ends FAILED, with the exit code of its command.",
    "its hold is over; it ends FAILED, with the exit code of its command",
)


def _stop(options: Namespace) -> int:
    """Stop each job."""
    return act_on_each(options.jobs, "stop", _stop_one, as_json=options.json)


def _stop_one(word: str) -> Done:
    """Signal a running job: its supervisor lets it save, then cancels it. Cancel any other job."""
    door = job_lookup.door_to_slurm()
    advice = "stop its tasks: slurm-plugin stop {tasks}\n  cancel those that wait: scancel --state=PENDING {job}"
    job_id = job_lookup.one_job(word, door, None, job_lookup.NotRunningError, advice)
    job = job_lookup.living_job(door, job_id)
    door.queueing([job_id])  # so that a signal to an array task does not reach the other tasks
    if saves := job.state == "RUNNING":
        # The signal would end the batch script of a job without slurm_plugin, and nothing would be saved.
        job_lookup.running_job(word)
        if place := share_request.place(door, job):
            return Done(job_id, share_request.ask(door, job, place, "stop"), {"saves": saves})
        with share_request.explained(job, "stop"):
            door.signal(job_id, "INT", "batch")
    else:
        with share_request.explained(job, "stop"):
            door.cancel(job_id)
    return Done(job_id, SAVING if saves else CANCELLED, {"saves": saves})


STOP = Command(
    "stop",
    "End jobs: the program gets the signal to save and has its grace time, then the job is CANCELLED.\n\n"
    "Exit 0: the job ends; 1: it has ended before, or slurm-plugin did not start it; 2: Slurm did not answer.",
    (JOBS, JSON),
    _stop,
)


def _shell(options: Namespace) -> NoReturn:
    """Replace this process with the shell. Raise SavedError or SlurmPluginError if that is impossible."""
    found = worker(options.job, options.worker)
    steps.become(found.step("enter", terminal=sys.stdin.isatty() and sys.stdout.isatty()))


class Worker(NamedTuple):
    """A worker of a running job, and its launch record."""

    launch: launch_record.Saved
    number: int
    directory: Path  # the job's own
    devices: tuple[str, ...] = ()  # options of srun, see `_devices`

    @property
    def node(self) -> str:
        """Return the name of the worker's node."""
        return self.launch.nodes[self.number]

    def step(self, *verb: str, terminal: bool = False, options: Sequence[str] = ()) -> list[str]:
        """Return the srun command that runs a verb of `slurm-plugin job` there."""
        words = [*self.launch.slurm_plugin, "job", *verb, f"--directory={self.directory}", f"--worker={self.number}"]
        group, options = self.launch.group(self.number), (*self.devices, *options)
        return steps.overlap_step(words, self.launch.job, self.node, terminal=terminal, group=group, options=options)


def worker(word: str, name: str) -> Worker:
    """Return a worker of a running job. Raise SavedError or SlurmPluginError if it has none of this name now."""
    job, directory, door = job_lookup.running_job(word)
    plain = f"srun --jobid={job.id} --overlap --pty bash"
    try:
        launch = launch_record.read(directory)
    except launch_record.SavedError as error:
        raise launch_record.SavedError(f"{error}\n  a shell without the launch's environment: {plain}") from error
    if launch.job != job.id or launch.restart != job.restarts:
        raise launch_record.SavedError(
            f"job {job.id} has not launched its command in this run yet\n  a shell all the same: {plain}"
        )
    number = launch_record.worker(launch.nodes, name)
    if number is None:
        known = "\n  ".join(launch_record.workers(launch.nodes))
        raise SlurmPluginError(f"job {job.id} has no {printable(name)!r}; it has\n  {known}")
    return Worker(launch, number, directory, _devices(door, launch, launch.nodes[number]))


def _devices(door: Slurm, launch: launch_record.Saved, node: str) -> tuple[str, ...]:
    """Return srun's options for a step on one node of a job that requested its GPUs in all, per socket or per task.

    Such a step would inherit the number of the whole job, and Slurm would refuse it.
    """
    try:
        if door.request(launch.job).gres is not None:
            return ()
        gpus = count(door.devices_of(launch.job).get(node, ()), GPU)
    except SlurmError:
        return ()
    return (f"--gpus={gpus}",) if gpus else ("--gres=none",)


SHELL = Command(
    "shell",
    "Open a shell on a worker of a job, in the environment and directory that its launch has there.\n\n"
    "The exit code is the shell's; 1: the job does not run or has no such worker; 2: Slurm did not answer.",
    (JOB, Parameter("worker", "worker-1, or a node's name", "WORKER", "worker-0", nargs="?")),
    _shell,
)
