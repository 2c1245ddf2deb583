"""A job's run on its first node: attempt after attempt in this allocation, until it ends or is put back.

The batch script ends with `exec ... job supervise`, so this is the process that Slurm signals and whose exit code is
the job's. One attempt is `slurm_plugin.job.attempt`; what follows it, `slurm_plugin.decide`.
"""

import argparse
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hostfiles import HostfileError, nodelist
from hostfiles.environment import number
from slurm_plugin import after_run, compiled, grant, token
from slurm_plugin.decide import BAD, IN_A_ROW, Action, Attempt, Health, Wish, decide
from slurm_plugin.job import choice, controller, files, hold, itself, saved, script, turn
from slurm_plugin.job.attempt import ENDED_BY_SLURM, Attempts
from slurm_plugin.job.launch import Launcher
from slurm_plugin.job.lease import LOST_S
from slurm_plugin.job.log import say
from slurm_plugin.job.nodes import Nodes
from slurm_plugin.job.putback import mark, put_back
from slurm_plugin.job.run import Run, from_environment, restart_count
from slurm_plugin.job.surroundings import Surroundings
from slurm_plugin.slurm import Slurm, SlurmError, connect
from slurm_plugin.slurm.patience import Patience

# What is left of the settings where they cannot be read: enough to launch.
UNCHECKED: Mapping[str, Any] = {
    "run_directory": "/run/slurm_plugin",
    "infiniband_partitions": (),
    "prechecks": {"deadline_s": 10.0},
}
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
        run = from_environment(environ, options.slots or None, [slots for slots, _ in options.group])
        if options.any_of and not choice.is_mine(door, run.job_id, launcher):
            return choice.LOSER
        if options.script:
            options.command = script.command(options, run)
        supervisor = Supervisor(Surroundings(options, site, door, environ, launcher), run)
        action = supervisor.supervise()
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
    """The attempts of one run, and what is done between them."""

    def __init__(self, surroundings: Surroundings, run: Run) -> None:
        options, site, self.door, environ, launcher = surroundings
        self.options, self.site, self.launcher = options, site, launcher
        self.files = files.directory(Path.cwd(), run.job_id)
        self.cluster = environ.get("SLURM_CLUSTER_NAME", "")
        self.run = replace(run, attempt=self._first_attempt(run.restart))
        wanted = options.nodes or len(run.nodes)
        self.wish = Wish(wanted, options.min_nodes or wanted, options.unconditional)
        self.lost_s = float(site.get("recovery", {}).get("node_timeout_s", LOST_S))
        leased = options.retries > 0
        self.nodes = Nodes(
            run.nodes, self._guard(), lambda: launcher.told_to_end, self.lost_s, leased=leased, groups=run.groups
        )
        self.attempts = Attempts(surroundings, self.run, self.nodes, self.wish)
        self.lost: frozenset[str] = frozenset()  # nodes that did not answer at the end of the last attempt
        self.again = 0  # restarts inside allocations, those of the runs before included where they were told of

    def _first_attempt(self, restart: int) -> int:
        """The number of this run's first attempt: behind all that any run before has begun."""
        turns, attempt = turn.taken(self.files, self.cluster)
        return max(restart, attempt + 1) if 0 <= turns < restart else restart

    def _guard(self) -> list[str]:
        """The words that start a guard."""
        words = [*itself.command(), "job", "guard", f"--first={os.environ.get('SLURMD_NODENAME', self.run.nodes[0])}"]
        words += [f"--supervisor={os.getpid()}", f"--restart={self.run.restart}", f"--directory={self.files}"]
        words += [f"--lost={self.lost_s:g}", f"--cluster={self.cluster}"]
        return [*words, *(["--no-kill"] if self.options.no_kill else [])]

    def supervise(self) -> Action:
        """Attempt after attempt; the action that ends this run."""
        reason = self._opening()
        if self.options.no_kill:
            self._tell_width()
        try:
            while True:
                if self.options.retries and not self._take_turn():
                    return Action("finish", ENDED_BY_SLURM, "a later run of this job has begun")
                action = self._one(reason)
                if action.kind != "again":
                    return action
                reason = self._prepare_again(action)
                if self.launcher.told_to_end:
                    return Action("finish", ENDED_BY_SLURM, "it was told to end before the program started again")
        finally:
            self.nodes.close(self.attempts.dirty)

    def _one(self, reason: str) -> Action:
        """One attempt, decided and recorded."""
        started = time.time()
        found = self.attempts.make(self.run, reason)
        if isinstance(found, Action):
            if found.kind != "finish":
                self._record(Attempt("precheck", found.code, {}), found, started, found.kind)
            return found
        attempt = replace(found, in_a_row=self._in_a_row())
        action = decide(attempt, 1, self.wish)
        if action.kind in ("again", "requeue"):  # only then it matters how many are left: Slurm may be away
            left, nodes = self._left(attempt.nodes)
            attempt = replace(attempt, told_to_end=self.launcher.told_to_end, nodes=nodes)
            action = decide(attempt, left, self.wish)
        self.lost = frozenset(name for name, health in attempt.nodes.items() if health.condition == "unreachable")
        held = hold.Hold(
            self.options.hold, self.run, directory=self.files, cluster=self.cluster, site=self.site, door=self.door
        )
        return held.keep(
            attempt,
            action,
            started,
            record=self._record,
            again=lambda: self.attempts.by_hand(hold.REASON),
            words=self.attempts.preparation.words,
            launcher=self.launcher,
        )

    def _tell_width(self) -> None:
        """Tell Slurm how many nodes this run has: from those that it takes out of it, the worker knows a lost one.

        22.05 without slurmdbd takes no word of ours about a job that has lost a node, until that runs again.
        """
        try:
            job = self.door.job(self.run.job_id)
            had = token.Had(self.run.restart, len(self.run.nodes))
            self.door.update_job(job.id, Comment=token.began(token.counted(job.comment, again=self._told()), had))
        except (SlurmError, ValueError) as error:
            say(f"could not tell Slurm of this run's nodes: {error}")

    def _told(self) -> int:
        """Restarts in place so far, by the job's own history: what a run could not tell Slurm, the next does."""
        return sum(line.get("action") == "again" for line in self._history())

    def _history(self) -> list[dict[str, Any]]:
        """The attempts of the job so far, those of runs before included."""
        return files.history(Path.cwd(), self.run.job_id, self.cluster) or []

    def _take_turn(self) -> bool:
        """Say that this run may write now; False where a later one has said so: this one is over."""
        if turn.taken(self.files, self.cluster)[0] > self.run.restart:
            return False
        try:
            turn.take(self.files, self.run.restart, self.run.attempt, self.cluster)
        except OSError as error:
            say(f"could not say that it is this run's turn: {error}")
        return True

    def _prepare_again(self, action: Action) -> str:
        """Between two attempts in this allocation. Returns why there is another one."""
        where = nodelist.fold(action.nodes)
        say(f"error,exiting: attempt {self.run.attempt}: {action.reason}; the program starts again on {where}")
        self.again += 1
        try:
            job = self.door.job(self.run.job_id)
            self.door.update_job(job.id, Comment=token.counted(job.comment, again=self.again))
        except (SlurmError, ValueError) as error:
            say(f"could not tell Slurm of this restart: {error}")
        self.nodes.give_back(action.leave_out, self.attempts.dirty)
        self.run = replace(self.run, attempt=self.run.attempt + 1)
        say(f"attempt {self.run.attempt} of job {self.run.job_id} on {where}: restarted because {action.reason}")
        return action.reason

    def _opening(self) -> str:
        """Say which attempt this is; why it is not the first, with the nodes that were left out. Returns the reason."""
        run, where = self.run, nodelist.fold(self.run.nodes)
        if not run.restart:
            say(f"attempt 0 of job {run.job_id} on {where}")
            return ""
        reason = files.last_cause(self.files, before=run.attempt, cluster=self.cluster)
        try:
            given = grant.parse(self.door.job(run.job_id).admin_comment) or grant.Grant()
        except SlurmError as error:
            say(f"could not read why the job was restarted: {error}")
            given = grant.Grant()
        if not reason:  # no script ran before: its nodes' lines open this log
            for line in lines_of_reason(given):
                say(line)
            reason = given.last
        say(f"attempt {run.attempt} of job {run.job_id} on {where}: restarted because {reason or 'Slurm did'}")
        if after_run.WENT_DOWN in given.last:  # its ranks may still write: they are ended when they see our turn
            self._take_turn()
            self.launcher.pause(turn.WAIT_S)
        return reason

    def _in_a_row(self) -> int:
        """Restarts without a fault of a node and without progress, right before this attempt."""
        count = 0
        for line in reversed(self._history()):
            if line.get("action") not in ("again", "requeue") or line.get("progress"):
                break
            count += not line.get("verdicts")
            if count > IN_A_ROW:
                break
        return count

    def _left(self, nodes: Mapping[str, Health]) -> tuple[int, Mapping[str, Health]]:
        """Restarts still granted, as the controller knows them, and the nodes less those that Slurm has taken back."""
        if not self.options.retries or (job := controller.job(self.door, self.run.job_id, self.launcher)) is None:
            return 0, nodes
        if job.restarts > self.run.restart:  # this node was cut off, and Slurm has begun the next run elsewhere
            self.launcher.told_to_end = True
            return 0, nodes
        try:
            there = set(nodelist.expand(job.nodes)) if job.nodes else set(nodes)
        except HostfileError:
            there = set(nodes)
        gone = Health("unreachable", "was taken out of the job by Slurm")
        nodes = {name: health if name in there else gone for name, health in nodes.items()}
        given = grant.parse(job.admin_comment)
        if given is None:
            say("this job was granted no restarts: is the site's job_submit.lua installed?")
            return 0, nodes
        told = token.find(job.comment)
        self.again = max(self.again, given.again, told.again if told else 0)
        return given.told(self.again).left, nodes

    def _record(self, attempt: Attempt, action: Action, started: float, then: str) -> None:
        bad = {name: health.what for name, health in attempt.nodes.items() if health.condition in BAD}
        fields = {
            "cluster": self.cluster,
            "n": self.run.attempt,
            "nodes": nodelist.fold(self.attempts.on or self.run.nodes),
            "start": _utc(started),
            "end": _utc(time.time()),
            "phase": attempt.phase,
            "code": action.code if action.kind == "fail" else attempt.code,
            "cause": action.reason,
            "progress": attempt.progress,
            "verdicts": bad,
            "action": then,
        }
        try:
            files.record(self.files, fields)
        except OSError as error:  # a full disk must not change what happens to the job
            say(f"could not record this attempt: {error}")

    def act(self, action: Action) -> int:
        """Say how the run ended and do what follows; the exit code of the job where it ends here."""
        with suppress(OSError):  # it holds the whole environment, and is of no use to anybody now
            (self.files / saved.FILE).unlink(missing_ok=True)
        if action.kind == "finish" and not action.code:
            return 0
        then = (
            f"; the job runs again without {nodelist.fold(action.leave_out)}"
            if action.leave_out
            else "; the job runs again"
        )
        then = then if action.kind == "requeue" else ""
        say(f"error,exiting: attempt {self.run.attempt}: {action.reason}{then}")
        if action.kind == "requeue":
            self._requeue(action)
        return action.code

    def _requeue(self, action: Action) -> None:
        """Mark the job's comment with this run and the nodes to leave out, then ask Slurm to requeue; Slurm ends us."""
        run, patience = self.run, Patience(controller.AWAY_S, say)
        try:
            if lost := tuple(name for name in action.leave_out if name in self.lost):
                # Put back before Slurm has noticed, the job stays COMPLETING until it does, and on 22.05 no step of the
                # next run gets a GPU then ("Invalid generic resource"). Without --no-kill Slurm ends us here.
                patience.ask(
                    lambda: mark(self.door, run.job_id, run.restart, action.leave_out, self.again), repeatable=True
                )
                say(f"waiting until Slurm has noticed that {nodelist.fold(lost)} is gone")
                controller.until_gone(self.door, run.job_id, lost)
            patience.ask(
                lambda: put_back(self.door, run.job_id, run.restart, action.leave_out, self.again), repeatable=True
            )
        except (SlurmError, ValueError) as error:
            say(f"could not requeue: {error}")
            return
        time.sleep(KILL_WAIT_S)


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
