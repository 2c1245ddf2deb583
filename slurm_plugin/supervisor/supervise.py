"""Supervise a job's run on its first node: make attempts in this allocation until the job ends or is requeued.

The batch script ends with `exec ... job supervise`. So Slurm signals this process, and its exit code is the job's.
`slurm_plugin.supervisor.attempt` makes one attempt, and `slurm_plugin.supervisor.decide` decides the next action.
"""

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from hostfiles import HostfileError, nodelist
from slurm_plugin.errors import UsageError
from slurm_plugin.records import diagnoses, grant, history, job_directory, launch_record, site_settings, token
from slurm_plugin.records.job_plan import JobPlan
from slurm_plugin.records.site_settings import LOST_S
from slurm_plugin.slurm import SlurmError, connect
from slurm_plugin.supervisor import any_of, attempt_record, hold, job_end, log, queries, script
from slurm_plugin.supervisor.attempt import ENDED_BY_SLURM, Attempts
from slurm_plugin.supervisor.decide import Action, Attempt, Health, Phase, Wish, decide
from slurm_plugin.supervisor.guard import fencing, server
from slurm_plugin.supervisor.guard.nodes import Nodes
from slurm_plugin.supervisor.launcher import Launcher
from slurm_plugin.supervisor.log import say
from slurm_plugin.supervisor.preparation import lifecycle
from slurm_plugin.supervisor.requeue import by_owner
from slurm_plugin.supervisor.requeue.with_grant import takes_changes
from slurm_plugin.supervisor.run import Run
from slurm_plugin.supervisor.share.process import share_process

# The settings for a launch if the site's settings cannot be read.
UNCHECKED: Mapping[str, Any] = {
    "run_directory": "/run/slurm_plugin",
    "infiniband_partitions": (),
    "prechecks": {"deadline_s": 10.0},
}


def main(plan: JobPlan, default_settings: Callable[[], Mapping[str, Any]]) -> int:
    """Supervise this run and return the job's exit code.

    `default_settings` compiles the settings if this code was installed, but not deployed to a site directory.
    """
    deployed = site_settings.deployed()
    try:
        site = site_settings.read(site_settings.site_root()) if deployed else default_settings()
    except (OSError, ValueError, UsageError) as error:  # as in a hook: a failure of this package ends no job
        why = error.one_line if isinstance(error, UsageError) else str(error)
        say(f"the site's settings cannot be read: {why}; the program runs unchecked, and no fault restarts it")
        plan, site = plan._replace(retries=0, prechecks=()), UNCHECKED
    if deployed and Path(site_settings.site_root(), site_settings.KILL_SWITCH).exists():
        say("slurm_plugin is switched off on this site: the program runs unchecked, and no fault restarts it")
        # The hooks are switched off too: a requeue would wait for Slurm's 121 s, and would not be counted.
        plan = plan._replace(retries=0, prechecks=())
    launcher = Launcher()
    with script.or_alone(plan, launcher), launcher:  # before any call of Slurm: the launcher forwards signals
        door = connect(directory=site.get("slurm_bin", ""), say=say, in_job=True)
        run, environ = queries.run(os.environ, door, plan)
        if plan.any_of and not any_of.is_mine(door, run.job_id, launcher):
            return any_of.LOSER
        if plan.mark:
            plan = plan._replace(command=script.command(plan, run))
        if plan.plain and not run.restart:
            log.keep_apart(job_directory.directory(Path.cwd(), run.job_id))
        supervisor = Supervisor(queries.Surroundings(plan, site, door, environ, launcher), run)
        with share_process(plan, site, run, supervisor.files, supervisor.cluster):
            action = supervisor.supervise()
    return supervisor.act(action)


class Supervisor:
    """The attempts of one run, and the steps between them."""

    def __init__(self, surroundings: queries.Surroundings, run: Run) -> None:
        plan, site, self.door, environ, launcher = surroundings
        self.plan, self.site, self.launcher = plan, site, launcher
        self.files = job_directory.directory(Path.cwd(), run.job_id)
        self.cluster = environ.get("SLURM_CLUSTER_NAME", "")
        if not (run.restart or plan.trial):
            attempt_record.forget_another(self.files, self.cluster, lambda: self.door.job(run.job_id))
        self.run = run
        self.run = replace(run, attempt=self._first_attempt(run.restart))
        wanted = plan.nodes or len(run.nodes)
        self.wish = Wish(wanted, plan.min_nodes or wanted, plan.unconditional)
        self.lost_s = float(site.get("recovery", {}).get("node_timeout_s", LOST_S))
        more: Any = {"leased": plan.retries > 0, "groups": run.groups, "devices": run.devices}
        more["slurm_bin"] = site_settings.slurm_bin()
        self.nodes = Nodes(run.nodes, self._guard(), lambda: launcher.told_to_end, self.lost_s, **more)
        self.attempts = Attempts(surroundings, self.run, self.nodes, self.wish)
        self.lost: frozenset[str] = frozenset()  # nodes that did not answer at the end of the last attempt
        self.spent = ""  # why this run may not start, on a site that grants no restarts
        self.again = 0  # restarts inside allocations, including those of earlier runs as far as known

    def _first_attempt(self, restart: int) -> int:
        """Return the number of this run's first attempt. An earlier run whose script never began counts as one."""
        turns, attempt = fencing.taken(self.files, self.cluster)
        if self.plan.trial:  # after those of the task's earlier trials
            earlier = attempt_record.next_number(self._history(all_trials=True))
            return max(restart, earlier, attempt + max(restart - turns, 1) if 0 <= turns <= restart else 0)
        return max(restart, attempt + restart - turns) if 0 <= turns < restart else restart

    def _guard(self) -> list[str]:
        """Return the command that starts a guard."""
        first = os.environ.get("SLURMD_NODENAME", self.run.nodes[0])
        tasks = by_owner.tasks_of(self.plan) if self.plan.retries else 0
        plan = by_owner.Plan(self.plan.retries, tasks, self.plan.no_kill, str(self.files), self.cluster)
        slurm_bin = self.site.get("slurm_bin", "")
        orders = server.Orders(first, os.getpid(), self.run.restart, self.lost_s, slurm_bin, plan._asdict())
        return [*site_settings.plugin_command(), "job", "guard", json.dumps(orders._asdict())]

    def supervise(self) -> Action:
        """Make attempts until one ends this run. Return the action that ends the run."""
        attempt_record.output(self.files, self.plan, self.attempts.outside)
        reason, restarted = self._opening(), self.plan.continued if self.plan.trial else self.run.restart > 0
        if self.spent:
            action = Action("fail", 1, self.spent)
            self._record(Attempt("precheck", 1, {}), action, time.time(), action.kind)
            return action
        if self.plan.no_kill:
            self._record_node_count()
        try:
            while True:
                if self.plan.retries and not self._take_turn():
                    return Action("finish", ENDED_BY_SLURM, "a later run of this job has begun")
                if restarted or self.run.attempt > self.attempts.first:
                    self._happened(lifecycle.RESTART, reason)
                action = self._make_attempt(reason)
                if action.kind != "again":
                    self._clear(action)
                    if action.kind == "fail":
                        self._happened(lifecycle.FAILURE, action.reason)
                    return action
                reason = self._prepare_again(action)
                if self.launcher.told_to_end:
                    return Action("finish", ENDED_BY_SLURM, f"{history.TOLD_TO_END} before the program started again")
        finally:
            self.nodes.close(self.attempts.dirty)

    def _happened(self, event: str, reason: str, **more: str) -> None:
        """Run the job's scripts for an event."""
        about = {"SLURM_PLUGIN_REASON": reason, "SLURM_PLUGIN_ATTEMPT": str(self.run.attempt), **more}
        lifecycle.run(event, self.attempts.preparation, self.launcher, self.cluster, about)

    def _clear(self, action: Action) -> None:
        """End what a trial has left on its nodes: the next trial starts there. A job's end does this for other jobs."""
        stopped, plan = self.launcher.told_to_stop, self.plan
        if plan.trial and (stopped or (plan.retries and action.kind == "finish" and not self.launcher.told_to_end)):
            self.nodes.give_up = lambda: False
            self.attempts.dirty = self.nodes.wipe()

    def _make_attempt(self, reason: str) -> Action:
        """Make one attempt, decide the next action, and record both."""
        started = time.time()
        found = self.attempts.make(self.run, reason)
        if found.code:
            log.show()
        if isinstance(found, Action):
            if found.kind != "finish":
                self._record(Attempt("precheck", found.code, {}), found, started, found.kind)
            return found
        lines = self._history()
        earlier = attempt_record.has_saved(lines, self.run.restart)
        attempt = replace(found, in_a_row=attempt_record.in_a_row(lines), earlier=earlier)
        action = decide(attempt, 1, self.wish)
        if action.kind in ("again", "requeue"):  # only for these ask Slurm for the restarts: it may not answer
            left, nodes = self._restarts_left(attempt.nodes)
            attempt = replace(attempt, told_to_end=self.launcher.told_to_end, nodes=nodes)
            action = decide(attempt, left, self.wish)
        lost = [name for name, health in attempt.nodes.items() if health.condition == "unreachable"]
        if attempt.told_to_end:
            lost, action = [], self._after_a_node_went_down(action)
        self.lost = frozenset(lost)
        self._record_diagnosis()
        held = hold.Hold(
            self.plan.hold_s,
            self.run,
            directory=self.files,
            cluster=self.cluster,
            site=self.site,
            door=self.door,
            began=lambda reason, until: self._happened(lifecycle.HOLD, reason, SLURM_PLUGIN_HELD_UNTIL=until),
        )
        return held.keep(
            attempt,
            action,
            started,
            record=self._record,
            again=self._run_by_hand,
            words=self.attempts.preparation.words,
            launcher=self.launcher,
        )

    def _run_by_hand(self) -> tuple[Phase, int]:
        """Run the program again in a hold. Return the phase that ended it, and its exit code."""
        phase, code = self.attempts.by_hand(hold.REASON)
        self._record_diagnosis(diagnoses.NONE if code else None)  # not that of the failure before
        return phase, code

    def _record_diagnosis(self, default: diagnoses.Form | None = None) -> None:
        """Record the attempt's diagnosis, or `default` if it has none."""
        if form := self.attempts.diagnosis() or default:
            attempt_record.diagnosis(self.files, self.run.attempt, form, self.cluster)

    def _after_a_node_went_down(self, action: Action) -> Action:
        """Return a requeue if Slurm ended this run because a node went down, on a site that counts no restarts."""
        if not self.plan.retries or self.launcher.told_to_stop:
            return action
        try:
            job, nodes = self.door.job(self.run.job_id), self.door.nodes(self.run.nodes)
        except SlurmError:
            return action
        down = tuple(name for name, node in nodes.items() if "DOWN" in node.states)
        if not down or job.restarts <= self.run.restart or not grant.is_alone(job, self.plan.retries):
            return action
        return Action("requeue", action.code, f"{nodelist.fold(down)} {grant.DOWN}", leave_out=down)

    def _record_node_count(self) -> None:
        """Write the number of this run's nodes to the job's comment. From it the worker detects a lost node."""
        try:
            job = self.door.job(self.run.job_id)
            had = token.Had(self.run.restart, len(self.run.nodes))
            comment = token.update(job.comment, again=0 if self.plan.trial else self._restarts_in_place(), had=had)
            self.door.update_job(job.id, Comment=comment)
        except (SlurmError, ValueError) as error:
            say(f"could not tell Slurm of this run's nodes: {error}")

    def _restarts_in_place(self) -> int:
        """Count the restarts in place in the history, also those that an earlier run could not report."""
        return sum(line.get("action") == "again" for line in self._history())

    def _history(self, *, all_trials: bool = False) -> list[dict[str, Any]]:
        """Return the attempts of the job so far, including those of earlier runs; of a trial only its own."""
        found = job_directory.attempts(Path.cwd() / job_directory.OURS / str(self.run.job_id), self.cluster) or []
        return [line for line in found if all_trials or line.get("trial", 0) == self.plan.trial]

    def _take_turn(self) -> bool:
        """Write this run into `turn`, so that it may write the job's files. Return False if a later run has done so."""
        if fencing.taken(self.files, self.cluster)[0] > self.run.restart:
            return False
        try:
            fencing.take(self.files, self.run.restart, self.run.attempt, self.cluster)
        except OSError as error:
            say(f"could not say that it is this run's turn: {error}")
        return True

    def _prepare_again(self, action: Action) -> str:
        """Prepare the next attempt in this allocation. Return the reason for the restart."""
        where = nodelist.fold(action.nodes)
        say(f"error,exiting: attempt {self.run.attempt}: {action.reason}; the program starts again on {where}")
        self.again += 1
        try:
            job, there = self.job, len(nodelist.expand(self.job.nodes or "x"))
            # Else the next run reports the restart. Those of a trial count for the trial, not for the whole job.
            if not self.plan.trial and takes_changes(self.door, there, len(self.run.nodes)):
                self.door.update_job(job.id, Comment=token.update(job.comment, again=self.again))
                job_end.close_budget(self.door, job, self.plan, self._history())
        except (SlurmError, ValueError) as error:
            say(f"could not tell Slurm of this restart: {error}")
        self.nodes.give_back(action.leave_out, self.attempts.dirty)
        self.run = replace(self.run, attempt=self.run.attempt + 1)
        say(f"attempt {self.run.attempt} of job {self.run.job_id} on {where}: restarted because {action.reason}")
        return action.reason

    def _opening(self) -> str:
        """Log the attempt's number, its nodes and the reason for a restart. Return the reason."""
        run, where, trial = self.run, nodelist.fold(self.run.nodes), self.plan.trial
        if not run.restart or (trial and not self.plan.continued):
            say(f"attempt {run.attempt} of job {run.job_id} on {where}{f', trial {trial}' if trial else ''}")
            return attempt_record.CONTINUED if self.plan.continued else ""
        reason = job_directory.last_cause(self.files, before=run.attempt, cluster=self.cluster)
        given = grant.Grant()
        try:
            job = self.door.job(run.job_id)
            self.spent = job_end.spent(self.door, job, self.plan, self._history(all_trials=True))
            given = grant.parse(job.admin_comment) or given
            if not reason:  # the last attempt recorded no cause: begin this log with that of the grant
                for line in attempt_record.lines_of_reason(given):
                    say(line)
                reason = given.last
            attempt_record.made_up(self.files, self._history(all_trials=True), job, self.cluster)
            reason = reason or job_directory.last_cause(self.files, before=run.attempt, cluster=self.cluster)
        except SlurmError as error:
            say(f"could not read why the job was restarted: {error}")
        say(f"attempt {run.attempt} of job {run.job_id} on {where}: restarted because {reason or 'Slurm did'}")
        if grant.WENT_DOWN in given.last:  # old ranks may still write: their guards end them when `turn` names this run
            self._take_turn()
            self.launcher.pause(fencing.WAIT_S)
        return reason

    def _restarts_left(self, nodes: Mapping[str, Health]) -> tuple[int, Mapping[str, Health]]:
        """Return the remaining restarts, and the nodes. A node that Slurm has removed from the job is unreachable."""
        if not self.plan.retries or (job := queries.job(self.door, self.run.job_id, self.launcher)) is None:
            return 0, nodes
        self.job = job
        if job.restarts > self.run.restart:  # this node was isolated, and Slurm has begun the next run on other nodes
            self.launcher.told_to_end = True
            return 0, nodes
        try:
            there = set(nodelist.expand(job.nodes)) if job.nodes else set(nodes)
        except HostfileError:
            there = set(nodes)
        gone = Health("unreachable", "was taken out of the job by Slurm")
        nodes = {name: health if name in there else gone for name, health in nodes.items()}
        given = grant.parse(job.admin_comment)
        if given is None and grant.is_alone(job, self.plan.retries):
            given = grant.of_owner(job, self.plan.retries, self._history(all_trials=True), self.plan.trial)
        if given is None:
            say("this job was granted no restarts: is the site's job_submit.lua installed?")
            return 0, nodes
        told = token.find(job.comment)
        known = (self._restarts_in_place(),) if self.plan.trial else (given.again, told.again if told else 0)
        self.again = max(self.again, *known)
        return given.with_restarts(self.again).left, nodes

    def _record(self, attempt: Attempt, action: Action, started: float, then: str) -> None:
        where = nodelist.fold(self.attempts.on or self.run.nodes)
        slots = self.attempts.preparation.slots
        launch = self.attempts.preparation.launch_level
        told: Any = {"slots": slots, "launch": launch, "trial": self.plan.trial}
        told |= {"program": self.launcher.program, "checkpoint": self.attempts.newest.at}
        line = attempt_record.line(self.run, where, attempt, action, started=started, then=then, **told)
        attempt_record.write(self.files, line, self.cluster)

    def act(self, action: Action) -> int:
        """Log how the run ended, cancel or requeue the job if needed, and return the job's exit code."""
        with suppress(OSError):  # the record has the whole environment and is no longer needed
            (self.files / launch_record.FILE).unlink(missing_ok=True)
        without = f" without {nodelist.fold(action.leave_out)}" if action.leave_out else ""
        without = " on other nodes" if action.moved else without
        then = f"; the job runs again{without}" if action.kind == "requeue" else ""
        if action.kind != "finish" or action.code:
            say(f"{'' if action.grow else 'error,exiting: '}attempt {self.run.attempt}: {action.reason}{then}")
        if self.launcher.told_to_stop and not self.plan.trial:
            job_end.cancel(self.door, self.run.job_id)
        elif action.kind == "requeue":
            job_end.requeue(
                self.door,
                self.run,
                self.plan,
                action,
                again=0 if self.plan.trial else self.again,
                lost=[name for name in action.leave_out if name in self.lost],
                lines=self._history(),
                files=self.files,
            )
        return action.code
