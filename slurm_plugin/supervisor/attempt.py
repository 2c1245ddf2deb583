"""One attempt: check the nodes, choose nodes, launch the program, watch it, and report how it ended."""

import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Final

from hostfiles import nodelist
from slurm_plugin.errors import UsageError
from slurm_plugin.launch import env_file, hooks, variables
from slurm_plugin.launch.container import IMAGE_FLAG
from slurm_plugin.records import history, launch_record, site_settings, stage_in
from slurm_plugin.supervisor import diagnose, fabric, progress, queries
from slurm_plugin.supervisor.decide import BAD, NOT_FOUND, WHO, Action, Attempt, Cause, Health, Phase, Wish, chosen
from slurm_plugin.supervisor.diagnose import PendingForm, log_sizes
from slurm_plugin.supervisor.growth.growth import Growth
from slurm_plugin.supervisor.guard import barrier
from slurm_plugin.supervisor.guard.client import Guards
from slurm_plugin.supervisor.guard.nodes import WIPE_S, Nodes, only, show
from slurm_plugin.supervisor.launcher import TERM_S, as_a_shell, missing
from slurm_plugin.supervisor.log import say
from slurm_plugin.supervisor.preparation import allocation_part, container_step
from slurm_plugin.supervisor.preparation.prepare import Preparation
from slurm_plugin.supervisor.queries import Surroundings
from slurm_plugin.supervisor.recording.client import Mover, Recording
from slurm_plugin.supervisor.run import Run
from slurm_plugin.supervisor.watch import Interruption, Watcher, allowed_grace

ENDED_BY_SLURM: Final = 143  # 128 + SIGTERM
DUMP_S: Final = 3.0
ASK_AGAIN_S: Final = (0.0, 3.0, 15.0)  # pause before each repeated question if no node answered
SAVED_S: Final = 30.0  # a trial that ends with 0 so long after its grace has completed
AFTER_S: Final = 600.0  # limit of the hooks after the program: its nodes stay allocated until they end


class Attempts:
    """Makes the attempts of one run, one after the other."""

    missing = ""  # the file that the last program did not find, if it ended with NOT_FOUND and the file is known
    recording: Recording | None = None  # of the last program
    saved = False  # whether the last program was a trial's, was told to save or to end, and ended with 0

    def __init__(self, surroundings: Surroundings, run: Run, nodes: Nodes, wish: Wish) -> None:
        self.plan, self.site, self.door, self.outside, self.launcher = surroundings
        self.environ = self.outside  # from the first attempt on, with the variables of the spec's `env_file`
        self.above: tuple[str, ...] = ()  # the names of the files' variables
        self.run, self.nodes, self.wish = run, nodes, wish
        self.whole = run.allocation
        self.on: tuple[str, ...] = ()  # the nodes chosen for the program
        self.answers: barrier.Answers | None = None
        self.first, self.newest = run.attempt, progress.Newest()  # checkpoint of an attempt
        self.dirty: Mapping[str, Health] = {}  # nodes where processes of the last attempt may still run
        self.diagnosis: PendingForm = lambda: None  # of this attempt, if it failed
        self.prolog = cache(self._task_prolog)  # by the number of the attempt
        self.preparation = self._prepare(run.nodes[: wish.nodes])

    def _prepare(self, names: Sequence[str]) -> Preparation:
        """Prepare the launch of this attempt on these nodes of the job."""
        allocation = allocation_part.of(self.whole, names)
        again = self.run.attempt > self.first
        env = allocation_part.attempt_environment(self.environ, self.whole, allocation, self.plan.mode, again=again)
        self.on = allocation.names
        where = "" if allocation.names == self.whole.names else allocation.nodelist
        run = replace(self.run, allocation=allocation)
        prolog = partial(self.prolog, run.attempt)
        return Preparation(
            self.plan, run, self.site, env, say, nodelist=where, again=again, task_prolog=prolog, above=self.above
        )

    def _task_prolog(self, attempt: int) -> str:
        """Return slurm.conf's TaskProlog; if unreadable, that of the attempt before. An uninstallation changes it."""
        return queries.task_prolog(self.door, lambda: self.prolog(attempt - 1) if attempt > self.first else "")

    def make(self, run: Run, reason: str) -> Attempt | Action:
        """Make one attempt. If its end leaves nothing to decide, return the action instead of the attempt."""
        self.run, self.answers, self.newest = run, None, progress.Newest()
        self.diagnosis = lambda: None
        try:  # read the files for each attempt: a token in a file may have been replaced
            said = env_file.over({}, self.plan.env_files, self.plan.own_env)
        except UsageError as error:
            return Action("fail", 1, error.one_line)
        self.environ, self.above = {**self.outside, **said}, tuple(said)
        if why := next(filter(None, map(hooks.refused, (*self.plan.before, *self.plan.after))), ""):
            return Action("fail", 1, " ".join(why.split()))
        if self.plan.stage_in and not self.site.get("stage_in", {}).get("directory"):
            return Action("fail", 1, stage_in.NO_PLACE)
        checks = run.attempt == self.first  # the nodes of a later attempt have just been checked
        self.preparation = self._prepare(self.nodes.names[: self.wish.nodes])
        health = dict.fromkeys(self.nodes.names, Health("ok"))
        if self.plan.retries or self.preparation.asks:
            self.answers = self._barrier(check=checks)
            if self.launcher.told_to_end or (self.answers.none and not queries.runs(self.door, run.job_id)):
                return Action("finish", ENDED_BY_SLURM, "Slurm took the nodes back before the program started")
            health = show(self.answers) if checks else barrier.conditions(self.answers)
            for name, why in queries.refused(self.door, run.nodes, run.parts).items() if run.groups else ():
                health[name] = Health("node_problem", why)
        if self.answers and self.answers.none and self.preparation.tells:
            return Action("fail", 1, "no node answered, so the program's tasks cannot get their ranks")
        if not self._choose_nodes(health):
            return Attempt("precheck", 1, health, self.launcher.told_to_end)
        if "fabric" in self.plan.prechecks:
            verdicts = self.preparation.fabric(reason, lambda: self.launcher.told_to_end)
            health = {**health, **fabric.unfit(verdicts)}
            if self.launcher.told_to_end:
                return Action("finish", ENDED_BY_SLURM, f"{history.TOLD_TO_END} before the program started")
            if not self._choose_nodes(health):
                return Attempt("precheck", 1, health)
        if (wait_s := self.nodes.fenced_at - time.monotonic()) > 0:
            say(f"waiting {wait_s:.0f} s until all processes on lost nodes have ended")
            self.launcher.pause(wait_s)
        return self._launched(reason, health)

    def _choose_nodes(self, health: dict[str, Health]) -> bool:
        """Choose healthy nodes and send them the data for their tasks. Return whether there are enough nodes."""
        names = chosen(health, self.wish)
        if not names or names == self.on:
            return bool(names)
        bad = [f"{name} {each.what}" for name, each in health.items() if each.condition in BAD]
        say(f"the program runs on {nodelist.fold(names)}: {'; '.join(bad)}")
        self.preparation = self._prepare(names)
        if self.preparation.asks:
            self.answers = self._barrier(check=False)
            silent = [name for name in names if not self.answers.reports[name]]
            if silent:
                health.update(dict.fromkeys(silent, Health("unreachable", "did not answer")))
                return self._choose_nodes(health)
        return True

    def _barrier(self, *, check: bool) -> barrier.Answers:
        """Send the barrier's question to every node. If no node answers and the tasks need the answers, repeat it.

        A slurmd may be restarting. Do not repeat the question if Slurm has revoked the nodes: Slurm ends the steps
        before it ends this process, and a new step would only wait.
        """
        self.preparation.write_prolog()
        asked = self.preparation.question("barrier")
        answers = self.nodes.ask(question := replace(asked, check=check and asked.check))
        for pause_s in ASK_AGAIN_S:
            if not (self.preparation.tells and answers.none):
                break
            self.launcher.pause(pause_s)
            job = None if self.launcher.told_to_end else queries.job(self.door, self.run.job_id, self.launcher)
            if job is None or job.state != "RUNNING" or self.launcher.told_to_end:
                break
            answers = self.nodes.ask(question)
        return answers

    def _launched(self, reason: str, health: Mapping[str, Health]) -> Attempt:
        """Copy the data, run the hooks and the program. If that fails and retries are set, check the nodes again."""
        launcher, plan = self.launcher, self.plan
        before = progress.newest(plan.checkpoint if plan.retries else "")
        sizes = log_sizes()
        launcher.may_save = plan.grace_s > 0
        launcher.kill_s = launcher.kill_s or (queries.kill_wait(self.door) if plan.grace_s else 0.0)
        watcher = self._watcher() if plan.retries or plan.grace_s or plan.hang_timeout_s else None
        phase, code = self._started(reason, watcher)
        if watcher and code and phase != "program":
            watcher.ended()
        found = watcher.found if watcher else None
        cause: Cause = "memory" if code and launcher.out_of_memory else "itself"
        if watcher and watcher.guards.turn_lost:  # the program may have ended before the last check
            launcher.told_to_end = True
            watcher.guards.wipe(WIPE_S)
        if watcher and found:
            if not self.saved:
                code = self._interrupt(watcher.guards, found, phase)
                self.saved = plan.trial > 0 and not code and not launcher.told_to_stop
            cause = found.cause if code or self.saved else "itself"
        elif plan.trial and launcher.told_to_stop:
            code = launcher.stop(TERM_S)
        elif watcher and plan.retries and code and not watcher.guards.alive and watcher.guards.answered:
            cause = "nodes"  # a guard that lost the supervisor may have ended its ranks
        launcher.told_to_end = launcher.told_to_end or launcher.told_to_stop or launcher.ending
        nodes, self.dirty = health, {}
        unfinished = bool(code or (self.saved and found))
        if unfinished and not launcher.told_to_end:
            again = plan.retries > 0 and cause != "grow"  # a fault that shows up now would use a restart
            if again:
                self._wipe(phase, code, found)
            reader = diagnose.start(self.preparation, sizes, self.site, phase=phase, code=code, cause=cause)
            if again:
                nodes = self._recheck(phase, found)
            elif found and not code:
                nodes = {**nodes, **found.nodes}
            cut_off = watcher is not None and watcher.guards.isolated
            checked, look = plan.retries > 0, None if plan.retries else self._look
            self.diagnosis, nodes = diagnose.finish(reader, nodes, checked=checked, look=look, isolated=cut_off)
        if self.recording:  # it has read the end of the log meanwhile
            self.recording.wait()
        self.newest = progress.newest(plan.checkpoint if unfinished and plan.retries else "")
        if (made := progress.has_new_checkpoint(before, self.newest)) is None:
            say(f"could not tell whether there is a new checkpoint: not all of {plan.checkpoint} can be read")
        return Attempt(phase, code, nodes, launcher.told_to_end, cause, made, missing=self.missing, saved=self.saved)

    def _watcher(self, *, by_hand: bool = False) -> Watcher:
        """Start the leases of the nodes and return the watcher of the program. `by_hand`: it runs again in a hold."""
        plan, run = self.plan, self.run
        self.nodes.guards.arm()
        return Watcher(
            self.nodes.guards,
            self.launcher,
            self.on,
            plan.grace_s,
            plan.hang_timeout_s,
            plan.checkpoint,
            time_left=lambda: queries.time_left(self.door, run.job_id),
            drained=lambda told: queries.drained(self.door, run.job_id, told),
            grows=Growth(plan, run, self.on, slurm_bin=self.site.get("slurm_bin", "")),
            reachable=lambda names: self.nodes.reachable(names, self.preparation.question("recheck")),
            mover=Mover(plan, self.site, self.door, run, plan.min_nodes or len(run.nodes)),
            restarts=plan.retries > 0,
            by_hand=by_hand,
        )

    def _started(self, reason: str, watcher: Watcher | None) -> tuple[Phase, int]:
        """Copy the data, run the hooks and the program. Return the phase that ended the launch, and its exit code."""
        preparation, launcher, self.missing, self.saved = self.preparation, self.launcher, "", False
        self.launcher.saver = watcher.guards.save if watcher else None
        preparation.write(only(self.answers, self.on) if self.answers else None)
        kept = launch_record.Keeper(preparation.directory, say)
        if why := container_step.lacking(preparation.container, preparation.environ):
            say(f"error: {why}")
            self.missing, found, _ = why.partition(" was not found")
            self.missing = self.missing if found else f"srun's --{IMAGE_FLAG}"
            environ = preparation.environment(reason, launched=True)
            kept.begins(preparation.record("program", environ))  # for `slurm-plugin shell` while the failed job is held
            return "program", kept.ended(NOT_FOUND)
        look = watcher.look_at_nodes if watcher and self.plan.retries else None
        if request := preparation.data:
            stage_in.reset_notes(request.notes, self.on)
            environ = preparation.environment(reason, launched=False)
            kept.begins(preparation.record("stage_in", environ))
            step = preparation.data_step(request, site_settings.plugin_command())
            if code := self.launcher.run(step, environ, say, checkpoints=False, look=look):
                return "stage_in", kept.ended(code)
            stage_in.remove_notes(request.notes, self.on)
        if preparation.hooks:
            step = preparation.hook_step(site_settings.plugin_command())
            environ = preparation.environment(reason, launched=False)
            kept.begins(preparation.record("hook", environ))
            if code := self.launcher.run(step, environ, say, checkpoints=False, look=look):
                return "hook", kept.ended(code)
        environ = preparation.environment(reason, launched=True)
        kept.begins(preparation.record("program", environ))
        launch = preparation.launch(environ)
        try:  # replace variables of a command that runs only on this node; on other nodes bash replaces them
            launch = launch._replace(argv=variables.replaced(launch.argv, environ))
        except UsageError as error:
            say(f"error: {error}")
            return "program", kept.ended(error.exit_code)
        if launch.argv != preparation.words:
            say(f"launch: {launch.shown}")
        look = watcher.look if watcher else (lambda: launcher.told_to_stop) if self.plan.trial else None
        mover = watcher.mover if watcher else None
        with Recording(self.plan, self.site, self.run, self.nodes, names=self.on, mover=mover) as self.recording:
            code = self.launcher.run(launch.argv, environ, say, look=look)
        if self.plan.trial and not code:
            self.saved = launcher.was_told_to_save(self.plan.grace_s + SAVED_S)
        program = "" if preparation.container else variables.with_values(preparation.words[:1], environ)[0]
        code = as_a_shell(code, launch.argv, program, environ) if program else code  # a container has its own programs
        self.missing = missing(program, environ) if code == NOT_FOUND else ""
        code = kept.ended(code)
        if watcher and (code or self.saved):
            watcher.ended()  # before the hooks: the launcher would then have their exit code, and their signals
        by_itself = not self.launcher.told_to_end and not (watcher and (watcher.found or watcher.lost))
        if preparation.hooks_after and by_itself:
            self._after(code, preparation.environment(reason, launched=False), watcher)
        return "program", code

    def _after(self, code: int, environ: Mapping[str, str], watcher: Watcher | None) -> None:
        """Run the hooks after a program that ended by itself. They do not change its exit code."""
        launcher, until, memory = self.launcher, time.monotonic() + AFTER_S, self.launcher.out_of_memory
        step = self.preparation.hook_step(site_settings.plugin_command(), after=True)
        given = {**environ, "SLURM_PLUGIN_EXIT_CODE": str(code)}

        def why() -> str:
            if watcher and watcher.lost:
                return "one of their nodes does not answer"
            return f"after {AFTER_S:.0f} s" if time.monotonic() > until else ""

        launcher.run(step, given, say, checkpoints=False, look=lambda: launcher.told_to_end or bool(why()))
        if ended := why():
            say(f"the hooks after the program are ended: {ended}")
            launcher.stop(TERM_S)
        launcher.out_of_memory = memory

    def by_hand(self, reason: str) -> tuple[Phase, int]:
        """Run the hooks and the program again on the same nodes, on a request of the user during a hold."""
        launcher, watcher = self.launcher, None
        launcher.forget_saves()  # signals before or in the hold
        sizes, self.diagnosis = log_sizes(), lambda: None
        if self.plan.retries or self.plan.grace_s:
            self.nodes.wipe()
            watcher = self._watcher(by_hand=True)
        phase, code = self._started(reason, watcher)
        if watcher and watcher.found:
            code = self._interrupt(watcher.guards, watcher.found, phase)
        launcher.told_to_end = launcher.told_to_end or launcher.told_to_stop or launcher.ending
        if not launcher.told_to_end:
            reader = diagnose.start(self.preparation, sizes, self.site, phase=phase, code=code)
            self.diagnosis, _ = diagnose.finish(reader, {}, checked=False, look=None)
        if self.recording:
            self.recording.wait()
        return phase, code

    def _interrupt(self, guards: Guards, found: Interruption, phase: Phase) -> int:
        """End the current phase and return its exit code. A program may get time to save.

        A phase before the program has nothing to save. It has failed, so its exit code is never 0.
        """
        launcher = self.launcher
        say(f"{WHO[phase]} is ended: {found.why}")
        if phase != "program":
            return launcher.stop(TERM_S) or 128 + signal.SIGTERM
        if found.save:
            grace_s = allowed_grace(self.plan.grace_s, self.site, launcher)
            if found.saving_since is None:
                launcher.save()
                say(f"it was told to save (SIGUSR1) and has {grace_s:.0f} s")
            since = found.saving_since or time.monotonic()
            launcher.ended(grace_s - (time.monotonic() - since), lambda: guards.turn_lost or bool(guards.silent()))
        if found.cause == "hang":
            guards.dump(DUMP_S)
        return launcher.stop(TERM_S)

    def _look(self) -> dict[str, Health]:
        """Check the nodes, log their verdicts, and return the health of each node."""
        return show(self.nodes.ask(replace(self.preparation.question("recheck"), check=True)))

    def _wipe(self, phase: Phase, code: int, found: Interruption | None) -> None:
        """End the remaining processes of the attempt on all nodes."""
        if found and found.cause == "nodes" and not found.nodes and not self.nodes.guards.isolated:
            self.nodes.renew()
        self.dirty = self.nodes.wipe()
        say(f"{WHO[phase]} {'was ended' if found else f'failed with exit code {code}'}; looking at its nodes again")

    def _recheck(self, phase: Phase, found: Interruption | None) -> dict[str, Health]:
        """Check the nodes again after `_wipe`, and return the health of each node."""
        health = {**self._look(), **(found.nodes if found else {})}
        if phase == "stage_in":
            notes = stage_in.read_notes(str(self.preparation.directory), self.on)
            health |= {name: Health("job_problem", f"{stage_in.KEYWORD}: {why}") for name, why in notes.items()}
        for name, each in self.dirty.items():
            if health.get(name, each).condition not in BAD:
                health[name] = each
        return {name: health[name] for name in self.nodes.names}
