"""A task of an experiment's array: it takes a trial when it can, runs the job's supervisor with it, and takes the next.

A trial belongs to the task that took it last. So a worker whose node was cut off sees in the journal that its trial is
another task's, and ends it. docs/explanation/experiments.md describes all cases. Standard library only.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeVar

from slurm_plugin.errors import SlurmPluginError, UsageError, printable
from slurm_plugin.experiment import claim, trial_input
from slurm_plugin.experiment.claim import Claims, Task, say
from slurm_plugin.experiment.follow import Follower
from slurm_plugin.experiment.journal import Journal
from slurm_plugin.experiment.metrics import LOG
from slurm_plugin.records import diagnoses, job_directory, job_plan, site_settings
from slurm_plugin.records.experiments import COMPLETED, Trial
from slurm_plugin.records.job_plan import JobPlan
from slurm_plugin.slurm import Slurm, SlurmError, connect, process

USAGE: Final = "usage: slurm-plugin experiment work DIRECTORY -- job supervise PLAN -- COMMAND..."
FORWARDED: Final = (
    signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGCONT,
)  # fmt: skip
LOOK_EVERY_S: Final = 1.0
HANDOVER_S: Final = 5.0  # until the worker that has lost a trial has seen that
API_S: Final = 60.0  # least time for a program that looks for the stop file
MORE_S: Final = 60.0  # from each signal to the next harder one
RETRY_EVERY_S, RETRY_S = 5.0, 300.0  # for what must be written: the disk may be full
T = TypeVar("T")
Child = subprocess.Popen[bytes]


def start(args: list[str]) -> int:
    """Run `slurm-plugin experiment work`, whose arguments the batch script gives. Return the task's exit code."""
    words = args[2:] if args[1:2] == ["--"] else args[1:]
    try:
        if words[:2] != ["job", "supervise"] or len(words) < 5 or words[3] != "--":
            raise UsageError(USAGE)
        return main(Path(args[0]), words)
    except (SlurmPluginError, OSError, re.error) as error:
        say(f"error,exiting: {error}")
        return error.exit_code if isinstance(error, SlurmPluginError) else 1


def main(directory: Path, words: Sequence[str]) -> int:
    """Take trials until none is left for this task. `words`: the supervisor's command line, of the batch script."""
    door = connect(directory=site_settings.slurm_bin(), say=say, in_job=True)
    with Worker(directory.absolute(), words, own_task(os.environ), door) as worker:
        return worker.work()


def own_task(environ: Mapping[str, str]) -> Task:
    """Return the task that this process is. Raise UsageError outside a job."""
    job, array, index = (environ.get(f"SLURM_{name}", "") for name in ("JOB_ID", "ARRAY_JOB_ID", "ARRAY_TASK_ID"))
    if not job.isdecimal():
        raise UsageError("no SLURM_JOB_ID: only the batch script of an experiment calls this\n  " + USAGE)
    restart = environ.get("SLURM_RESTART_COUNT", "")
    return Task(f"{array}_{index}" if array else job, int(job), int(restart) if restart.isdecimal() else 0)


class Worker:
    """Runs the trials of one task, one after the other."""

    def __init__(
        self, directory: Path, words: Sequence[str], task: Task, door: Slurm, *, supervisor: Sequence[str] = ()
    ) -> None:
        """Read the experiment. `supervisor`: the words that start slurm_plugin; empty: this code's own."""
        self.directory, self.task, self.door = directory, task, door
        self.plan, self.command = job_plan.read(words[2]), tuple(words[4:])
        self.supervisor = tuple(supervisor or site_settings.plugin_command())
        self.claims = Claims(Journal(directory, search=True), task, door)
        self.experiment = self.claims.experiment
        self.told_to_end = False  # by SIGTERM or SIGINT
        self.told_to_stop = False  # by SIGINT: `slurm-plugin stop`
        self._child: Child | None = None
        self._early: list[int] | None = None  # signals that arrive while the child is being started

    def __enter__(self) -> "Worker":
        for number in FORWARDED:
            signal.signal(number, self._forward)
        return self

    def __exit__(self, *_: object) -> None:
        for number in FORWARDED:
            signal.signal(number, signal.SIG_DFL)

    def _forward(self, number: int, _frame: FrameType | None) -> None:
        self.told_to_stop = self.told_to_stop or number == signal.SIGINT
        self.told_to_end = self.told_to_end or number in (signal.SIGTERM, signal.SIGINT)
        if self._child:
            _send(self._child, number)
        elif self._early is not None:
            self._early.append(number)

    def work(self) -> int:
        """Run trial after trial. Return the exit code of the task."""
        while not self.told_to_end:
            trial = self._patiently(self.claims.take)
            if trial is None:
                return 0
            code, goes_on = self._run(trial)
            if not goes_on:
                if self.told_to_stop:
                    self._cancel()
                return 128 - code if code < 0 else code
        return 128 + signal.SIGTERM

    def _cancel(self) -> None:
        """Cancel the job, as `slurm-plugin stop` promises. At a terminal Ctrl-C must not end the allocation."""
        if os.environ.get("ENVIRONMENT") == "BATCH":
            with suppress(SlurmError):
                self.door.cancel(self.task.job)
                time.sleep(2 * MORE_S)

    def _run(self, trial: Trial) -> tuple[int, bool]:
        """Run a trial to its end, and record that. Return the exit code, and whether this task may take another one."""
        place = self._patiently(lambda: self.claims.prepare(trial))
        say(f"trial {trial.number} begins: {trial_input.shown(trial.values)}; its log: {place / LOG}")
        if trial.takes > 1:
            self._pause(HANDOVER_S)
        plan = trial_input.plan(self.plan, self.directory, trial)
        own_checkpoints = plan.checkpoint != self.plan.checkpoint
        follower = Follower(self.claims.journal, trial, say, own_checkpoints=own_checkpoints)
        before = len(self._attempts(trial))
        code = self._supervise(trial, plan, place, follower)
        lines = self._attempts(trial)[before:]
        line, stops = lines[-1] if lines else None, ""
        if follower.stops_since:
            stops = claim.full_or_stopped(self.claims.journal.fold.trial(trial.number) or trial, self.experiment)
        invalid = follower.why_invalid is not None
        outcome = claim.outcome(code, line, told=self.told_to_end, stops=stops, invalid=invalid)
        why = printable(follower.why_invalid or self._diagnosed(line) or outcome.why)
        if follower.is_lost:
            say(f"trial {trial.number} is no longer this task's: another one has it, or it was cancelled")
        elif outcome.state:
            ended = outcome._replace(why=why)
            self._patiently(lambda: self.claims.end(trial, ended, own_checkpoints=own_checkpoints))
        else:
            say(f"trial {trial.number} is not over, a task will continue it: {why or f'exit code {code}'}")
        if outcome.state == COMPLETED:
            code = 0  # a signal of `_watch` may have ended the supervisor after the trial's last report
        return code, outcome.goes_on and not follower.is_lost

    def _supervise(self, trial: Trial, plan: JobPlan, place: Path, follower: Follower) -> int:
        """Run the supervisor as a child, with its output in the trial's log. Return its code, negative for a signal."""
        words = trial_input.command(self.command, self.experiment, trial, escaped=plan.variables)
        argv = [*self.supervisor, "job", "supervise", job_plan.text(plan), "--", *words]
        environ = trial_input.environment(self.directory, trial, os.environ)
        self._early = []
        if self.told_to_end:
            return -signal.SIGTERM
        log = _opened(place / LOG)
        try:
            child = subprocess.Popen(argv, env=environ, stdout=log, stderr=subprocess.STDOUT)
        except (OSError, ValueError) as error:  # ValueError: a value with a NUL
            say(f"trial {trial.number} could not be started: {error}")
            return claim.NOT_STARTED
        finally:
            os.close(log)
        self._child = child
        for number in self._early:
            _send(child, number)
        follower.start()
        self._watch(child, follower)
        self._child = self._early = None
        follower.end(lambda: self.told_to_end)
        return child.returncode

    def _watch(self, child: Child, follower: Follower) -> None:
        """Wait for the child. Tell it to end if its trial shall stop, or is no longer this task's."""
        grace_s = max(self.plan.grace_s, self.experiment.grace_s)
        sent = 0
        while not process.wait(child, LOOK_EVERY_S):
            first_s = max(grace_s, API_S) if follower.api else 0.0
            hard_s = first_s + grace_s + MORE_S
            hardest = (hard_s, signal.SIGTERM), (hard_s + MORE_S, signal.SIGKILL)
            steps: Sequence[tuple[float, int]] = ((first_s, signal.SIGINT), *hardest)
            since = follower.stops_since
            if follower.lost_since:
                since, steps = follower.lost_since, ((0.0, signal.SIGTERM), (MORE_S, signal.SIGKILL))
            if since and sent < len(steps) and time.monotonic() - since >= steps[sent][0]:
                _send(child, steps[sent][1])
                sent += 1

    def _own(self) -> Path:
        return Path.cwd() / job_directory.OURS / str(self.task.job)

    def _attempts(self, trial: Trial) -> list[dict[str, Any]]:
        """Return the records of the trial's attempts in this job."""
        found = job_directory.attempts(self._own(), os.environ.get("SLURM_CLUSTER_NAME", "")) or []
        return [each for each in found if each.get("trial") == trial.number]

    def _diagnosed(self, line: Mapping[str, Any] | None) -> str:
        """Return the likely cause of a failure, as the diagnosis of the attempt has it; empty without one."""
        if line is None or line.get("action") not in claim.FAILS:
            return ""
        form = diagnoses.read(self._own(), os.environ.get("SLURM_CLUSTER_NAME", "")).get(line.get("n", -1))
        lines = diagnoses.sentences(form) if form and form.get("confidence") != "unknown" else []
        return lines[0].removeprefix("likely cause: ") if lines else ""

    def _patiently(self, write: Callable[[], T]) -> T:
        """Call `write` until it succeeds. A full disk or a file server that is away gets some minutes.

        Raise the last OSError or UsageError when that time is over, or if this task shall end.
        """
        end = time.monotonic() + RETRY_S
        while True:
            try:
                return write()
            except (OSError, UsageError) as error:
                if self.told_to_end or time.monotonic() > end:
                    raise
                say(f"trying again in {RETRY_EVERY_S:.0f} s: {' '.join(str(error).split())}")
            self._pause(RETRY_EVERY_S)

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self.told_to_end and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.2))


def _send(child: Child, number: int) -> None:
    if child.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(child.pid, number)


def _opened(path: Path) -> int:
    """Open the log of a trial to append to it; /dev/null if that is impossible, as on a full disk."""
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError as error:
        say(f"{path}: {error.strerror}: what the trial prints is lost")
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
