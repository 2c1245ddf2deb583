"""One run of a job, on its first node: check the nodes, launch the command, look again when it fails, act.

The batch script ends with `exec ... job supervise`, so this is the process that Slurm signals and whose exit code is
the job's.
"""

import argparse
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import prechecks
from hostfiles import nodelist
from hostfiles.environment import number
from slurm_plugin import compiled, grant, token
from slurm_plugin.decide import WHO, Action, Attempt, Health, Phase, decide
from slurm_plugin.job import barrier, files, hold, itself, saved
from slurm_plugin.job.launch import Launcher
from slurm_plugin.job.log import say
from slurm_plugin.job.prepare import Preparation
from slurm_plugin.job.run import Run, from_environment, restart_count
from slurm_plugin.slurm import Job, Slurm, SlurmError, connect
from slurm_plugin.slurm.patience import Patience

# What is left of the settings where they cannot be read: enough to launch.
UNCHECKED: Mapping[str, Any] = {
    "run_directory": "/run/slurm_plugin",
    "infiniband_partitions": (),
    "prechecks": {"deadline_s": 10.0},
}
ENDED_BY_SLURM = 143  # 128 + SIGTERM
CONTROLLER_AWAY_S = 300.0  # a slurmctld that restarts or fails over; nothing could start or be requeued meanwhile
KILL_WAIT_S = 120.0  # how long we wait for Slurm to end us after a requeue; KillWait is 30 s unless a site says else


def main(options: argparse.Namespace) -> int:
    """Supervise this run and return the job's exit code."""
    try:
        site = _site()
    except (OSError, ValueError) as error:  # as in a hook: a failure of ours costs no job
        say(f"the site's settings cannot be read: {error}; the program runs unchecked, and no fault restarts it")
        options.retries, options.prechecks, site = 0, "", UNCHECKED
    if itself.deployed() and Path(compiled.site_root(), compiled.KILL_SWITCH).exists():
        say("slurm_plugin is switched off on this site: the program runs unchecked, and no fault restarts it")
        options.retries = 0  # a requeue without our hooks would wait 121 s and never be counted
        options.prechecks = ""
    with Launcher() as launcher:  # first: from now on a signal reaches the program, and not us alone
        door = connect(say=say)
        environ = counted(os.environ, door)
        supervisor = Supervisor(options, from_environment(environ, options.slots), site, door, environ)
        action = supervisor.attempt(launcher)
    return supervisor.act(action)


def _site() -> Mapping[str, Any]:
    """The deployed settings; where this code was not deployed but installed, the defaults."""
    if itself.deployed():
        return compiled.read(compiled.site_root())
    from slurm_plugin import siteconfig  # noqa: PLC0415 - needs packages that a deployed copy does without

    return siteconfig.compiled(siteconfig.load())


def counted(environ: Mapping[str, str], door: Slurm) -> Mapping[str, str]:
    """The environment, without a count of restarts where the controller knows of none.

    Slurm sets none on a job's first run: one that the program of a restarted job submitted has that job's.
    """
    if not restart_count(environ) or (job_id := number(environ, "SLURM_JOB_ID")) is None:
        return environ
    try:
        if door.job(job_id).restarts:
            return environ
    except SlurmError as error:
        say(f"could not read whether the job was restarted: {error}")
        return environ
    return {name: value for name, value in environ.items() if name != "SLURM_RESTART_COUNT"}


class Supervisor:
    """The surroundings of one run, and its steps in order."""

    def __init__(
        self, options: argparse.Namespace, run: Run, site: Mapping[str, Any], door: Slurm, environ: Mapping[str, str]
    ) -> None:
        self.options, self.job, self.site, self.door = options, run, site, door
        self.files = files.directory(Path.cwd(), run.job_id)
        self.preparation = Preparation(options, run, site, environ, say)

    def attempt(self, launcher: Launcher) -> Action:
        """One attempt, from its first line to the action that follows it."""
        started, reason, answers = time.time(), self._opening(), None
        nodes: Mapping[str, Health] = {}
        if self.options.retries or self.preparation.asks:
            answers = self._ask("barrier", launcher, again=self.preparation.tells)
            if launcher.told_to_end or (answers.none and not self._runs()):
                return Action("finish", ENDED_BY_SLURM, "Slurm took the nodes back before the program started")
            nodes = self._show(answers)
        attempt = Attempt("precheck", 1, nodes)
        if why := self._cannot_tell(answers):
            action = Action("fail", 1, why)
            self._record(attempt, action, started, action.kind)
            return action
        if "fabric" in self.options.prechecks.split(",") and decide(attempt, 1).kind != "requeue":
            attempt = Attempt("precheck", 1, {**nodes, **self._fabric(launcher, reason)})
            if launcher.told_to_end:
                return Action("finish", ENDED_BY_SLURM, "it was told to end before the program started")
        if decide(attempt, 1).kind != "requeue":
            phase, code = self._run(launcher, reason, answers)
            if code and self.options.retries and not launcher.told_to_end:
                say(f"{WHO[phase]} failed with exit code {code}; looking at its nodes again")
                nodes = self._show(self._ask("recheck", launcher, again=True))
            attempt = Attempt(phase, code, nodes, launcher.told_to_end)
        action = decide(attempt, 1)
        if action.kind == "requeue":  # only then does it matter how many are left: Slurm may be away, and be waited for
            left = self._left(launcher)
            action = decide(replace(attempt, told_to_end=launcher.told_to_end), left)
        held = hold.Hold(self.options.hold, self.job, directory=self.files, site=self.site, door=self.door)
        return held.keep(
            attempt,
            action,
            started,
            record=self._record,
            again=lambda: self._run(launcher, hold.REASON, answers),
            words=self.preparation.words,
            launcher=launcher,
        )

    def _cannot_tell(self, answers: barrier.Answers | None) -> str:
        """Why the program's tasks could not be told what makes them differ; empty where they can be."""
        if answers and answers.none and self.preparation.tells:
            return "no node answered, so none knows what the program's tasks are to be told"
        if self.preparation.task_script is not None:
            try:
                if not self.door.config().get("TaskProlog"):
                    return "slurm.conf names no TaskProlog, which tells each task its rank; see: slurm-plugin doctor"
            except SlurmError as error:
                say(f"could not read slurm.conf: {error}")
        return ""

    def _fabric(self, launcher: Launcher, reason: str) -> dict[str, Health]:
        """The nodes that the fabric check keeps this job away from."""
        verdicts = self.preparation.fabric(reason, lambda: launcher.told_to_end)
        for name, verdict in verdicts.items():
            print(prechecks.line(name, verdict), flush=True)
        bad = {name: verdict for name, verdict in verdicts.items() if verdict.failed}
        return {name: Health("job_problem", f"{verdict.keyword}: {verdict.message}") for name, verdict in bad.items()}

    def _run(self, launcher: Launcher, reason: str, answers: barrier.Answers | None) -> tuple[Phase, int]:
        """The hooks beside the program, once on each node, and the program; which of them ended it, and how."""
        self.preparation.write(answers)
        kept = saved.Keeper(self.files, self.preparation, say)
        if self.preparation.hooks:
            step = self.preparation.hook_step(itself.command())
            environ = self.preparation.environment(reason, launched=False)
            kept.begins("hook", environ)
            if code := launcher.run(step, environ, say, checkpoints=False):
                return "hook", kept.ended(code)
        environ = self.preparation.environment(reason, launched=True)
        kept.begins("program", environ)
        launch = self.preparation.launch(environ)
        if launch.argv != self.preparation.words:
            say(f"launch: {launch.shown}")
        return "program", kept.ended(launcher.run(launch.argv, environ, say))

    def _opening(self) -> str:
        """Say which attempt this is; why it is not the first, with the nodes that were left out. Returns the reason."""
        where = nodelist.fold(self.job.nodes)
        if not self.job.restart:
            say(f"attempt 0 of job {self.job.job_id} on {where}")
            return ""
        reason = files.last_cause(self.files, before=self.job.restart)
        try:
            given = grant.parse(self.door.job(self.job.job_id).admin_comment) or grant.Grant()
        except SlurmError as error:
            say(f"could not read why the job was restarted: {error}")
            given = grant.Grant()
        if not reason:  # no script ran before: its nodes' lines open this log
            for line in lines_of_reason(given):
                say(line)
            reason = given.last
        say(
            f"attempt {self.job.restart} of job {self.job.job_id} on {where}: restarted because {reason or 'Slurm did'}"
        )
        return reason

    def _ask(self, hook: str, launcher: Launcher, *, again: bool) -> barrier.Answers:
        """Ask every node; where none answers, `again` when Slurm does: no step starts while it is away.

        Not where it has taken the nodes back, which ends the steps before it ends us: a step would wait for them.
        """
        question, command = self.preparation.question(hook), itself.command()
        answers = barrier.ask(question, command, self.job.nodes)
        if again and answers.none and not launcher.told_to_end:
            job = self._job(launcher)
            if job is not None and job.state == "RUNNING" and not launcher.told_to_end:
                answers = barrier.ask(question, command, self.job.nodes)
        return answers

    def _job(self, launcher: Launcher) -> Job | None:
        """The job as the controller knows it; one that is away is waited for, as long as nobody tells us to end."""
        patience = Patience(CONTROLLER_AWAY_S, say, sleep=launcher.pause, give_up=lambda: launcher.told_to_end)
        try:
            return patience.ask(lambda: self.door.job(self.job.job_id), repeatable=True)
        except SlurmError as error:
            say(f"could not read the job: {error}")
            return None

    def _show(self, answers: barrier.Answers) -> dict[str, Health]:
        """Write what the nodes said into the log; their conditions."""
        if answers.complaint:
            say(f"srun said: {answers.complaint}")
        for name, report in answers.reports.items():
            for verdict in report.items if report else ():
                if verdict.verdict != prechecks.SKIPPED:
                    print(prechecks.line(name, verdict))
            if report is None:
                say(f"{name} did not answer")
        sys.stdout.flush()
        return barrier.conditions(answers)

    def _runs(self) -> bool:
        """Whether this run still has its nodes: Slurm starts a batch script beside a failing prolog, and ends it."""
        try:
            return self.door.job(self.job.job_id).state == "RUNNING"
        except SlurmError:
            return True

    def _left(self, launcher: Launcher) -> int:
        """Restarts still granted, as the controller knows them; a controller that is away is waited for."""
        if not self.options.retries:
            return 0
        job = self._job(launcher)
        if job is None:
            return 0
        given = grant.parse(job.admin_comment)
        if given is None:
            say("this job was granted no restarts: is the site's job_submit.lua installed?")
            return 0
        return given.left

    def _record(self, attempt: Attempt, action: Action, started: float, then: str) -> None:
        bad = {name: health.what for name, health in attempt.nodes.items() if health.condition != "ok"}
        fields = {
            "n": self.job.restart,
            "nodes": nodelist.fold(self.job.nodes),
            "start": _utc(started),
            "end": _utc(time.time()),
            "phase": attempt.phase,
            "code": attempt.code,
            "cause": action.reason,
            "verdicts": bad,
            "action": then,
        }
        try:
            files.record(self.files, fields)
        except OSError as error:  # a full disk must not change what happens to the job
            say(f"could not record this attempt: {error}")

    def act(self, action: Action) -> int:
        """Say how the attempt ended and do what follows; the exit code of the job where it ends here."""
        if action.kind == "finish" and not action.code:
            return 0
        then = f"; the job runs again without {nodelist.fold(action.leave_out)}" if action.kind == "requeue" else ""
        say(f"error,exiting: attempt {self.job.restart}: {action.reason}{then}")
        if action.kind == "requeue":
            self._requeue(action)
        return action.code

    def _requeue(self, action: Action) -> None:
        """Mark the job's comment with this run and the nodes to leave out, then ask Slurm to requeue; Slurm ends us."""
        mark = token.Mark(self.job.restart, tuple(self.job.nodes.index(name) for name in action.leave_out))
        try:
            Patience(CONTROLLER_AWAY_S, say).ask(lambda: self._put_back(mark), repeatable=True)
        except (SlurmError, ValueError) as error:
            say(f"could not requeue: {error}")
            return
        time.sleep(KILL_WAIT_S)

    def _put_back(self, mark: token.Mark) -> None:
        """Once: a request whose answer was lost may have been granted."""
        job = self.door.job(self.job.job_id)
        if job.restarts > self.job.restart:
            return
        self.door.update_job(job.id, Comment=token.marked(job.comment, mark))
        self.door.requeue(job.id)


def lines_of_reason(given: grant.Grant) -> list[str]:
    """The words of the last restart as log lines, `<node> <item>: failed: <what>`."""
    lines, node = [], ""
    for part in filter(None, given.last.split("; ")):
        head, _, rest = part.partition(": ")
        if head in given.excluded:
            node, (head, _, rest) = head, rest.partition(": ")
        lines.append(f"{node} {head}: failed: {rest}" if node and rest else f"{node} {head}".strip())
    return lines


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
