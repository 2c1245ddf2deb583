"""One attempt: ask the nodes, choose those that the program runs on, launch it, look at it, see how it ended."""

import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import prechecks
from hostfiles import nodelist
from slurm_plugin import envfile
from slurm_plugin.container import PYXIS
from slurm_plugin.decide import BAD, WHO, Action, Attempt, Cause, Health, Phase, Wish, chosen
from slurm_plugin.errors import UsageError
from slurm_plugin.job import barrier, contained, controller, itself, part, prestart, progress, saved, stage_in
from slurm_plugin.job.guards import Guards
from slurm_plugin.job.launch import NOT_FOUND, as_a_shell
from slurm_plugin.job.log import say
from slurm_plugin.job.nodes import WIPE_S, Nodes, only, show
from slurm_plugin.job.prepare import Preparation
from slurm_plugin.job.run import Run
from slurm_plugin.job.surroundings import Surroundings
from slurm_plugin.job.watch import Interruption, Watcher
from slurm_plugin.slurm import SlurmError

ENDED_BY_SLURM: Final = 143  # 128 + SIGTERM
TERM_S: Final = 2.0  # from SIGTERM to SIGKILL, for a program whose nodes are lost or which hangs
DUMP_S: Final = 3.0
AFTER_S: Final = 600.0  # for the hooks after the program: its nodes wait for them
# Modes whose launcher starts its daemons by an srun of its own. What is left of the step before may hold its nodes and
# memory for a while; variables say that to that srun, and would say it to a user's own, which are to share nothing.
LAUNCHERS: Final = ("openmpi", "mpich", "intelmpi", "horovod")


class Attempts:
    """Makes the attempts of one run, one after the other."""

    def __init__(self, surroundings: Surroundings, run: Run, nodes: Nodes, wish: Wish) -> None:
        self.options, self.site, self.door, self.outside, self.launcher = surroundings
        self.environ = self.outside  # with what the spec's files say, once an attempt is made
        self.above: tuple[str, ...] = ()  # the names of that
        self.run, self.nodes, self.wish = run, nodes, wish
        self.whole = run.allocation
        self.on: tuple[str, ...] = ()  # where the program runs, or was to run
        self.answers: barrier.Answers | None = None
        self.first: int = run.attempt
        self.dirty: tuple[str, ...] = ()  # nodes where something of the last attempt may still run
        self.task_prolog = self._task_prolog()
        self.preparation = self._prepared(run.nodes[: wish.nodes])

    def _task_prolog(self) -> str:
        """slurm.conf's, where the launch has to know it; empty where it has not, or nobody can tell."""
        if not self.options.container_image or self.options.container_runtime != PYXIS:
            return ""
        try:
            return self.door.config().get("TaskProlog") or ""
        except SlurmError as error:
            say(f"could not read slurm.conf: {error}")
            return ""

    def _prepared(self, names: Sequence[str]) -> Preparation:
        """What this attempt launches on these nodes of the job."""
        allocation = part.of(self.whole, names)
        environ = part.environment(self.environ, self.whole, allocation)
        again = self.run.attempt > self.first
        if again and self.options.mode in LAUNCHERS:
            environ = {**part.without_memory(environ), "SLURM_OVERLAP": "1", "SLURM_MEM_PER_NODE": "0"}
        self.on = allocation.names
        where = "" if allocation.names == self.whole.names else allocation.nodelist
        run = replace(self.run, allocation=allocation)
        return Preparation(
            self.options,
            run,
            self.site,
            environ,
            say,
            nodelist=where,
            again=again,
            task_prolog=self.task_prolog,
            above=self.above,
        )

    def make(self, run: Run, reason: str) -> Attempt | Action:
        """One attempt; an action at once where there is nothing to decide."""
        self.run, self.answers = run, None
        try:  # each time anew: a token in there may have been replaced
            said = envfile.over({}, self.options.env_file, self.options.own_env.split(","))
        except UsageError as error:
            return Action("fail", 1, error.one_line)
        self.environ, self.above = {**self.outside, **said}, tuple(said)
        if why := next(filter(None, map(prestart.refused, (*self.options.before, *self.options.after))), ""):
            return Action("fail", 1, " ".join(why.split()))
        if self.options.stage_in and not self.site.get("stage_in", {}).get("directory"):
            return Action("fail", 1, stage_in.NO_PLACE)
        checks = run.attempt == self.first  # later ones have just been looked at
        self.preparation = self._prepared(self.nodes.names[: self.wish.nodes])
        health = dict.fromkeys(self.nodes.names, Health("ok"))
        if self.options.retries or self.preparation.asks:
            self.answers = self._barrier(check=checks)
            if self.launcher.told_to_end or (self.answers.none and not controller.runs(self.door, run.job_id)):
                return Action("finish", ENDED_BY_SLURM, "Slurm took the nodes back before the program started")
            health = show(self.answers) if checks else barrier.conditions(self.answers)
            for name, why in controller.refused(self.door, run.nodes, run.parts).items() if run.groups else ():
                health[name] = Health("node_problem", why)
        if why := self._cannot_tell():
            return Action("fail", 1, why)
        if not self._settled(health):
            return Attempt("precheck", 1, health, self.launcher.told_to_end)
        if "fabric" in self.options.prechecks.split(","):
            health = {**health, **self._fabric(reason)}
            if self.launcher.told_to_end:
                return Action("finish", ENDED_BY_SLURM, "it was told to end before the program started")
            if not self._settled(health):
                return Attempt("precheck", 1, health)
        if (wait_s := self.nodes.fenced_at - time.monotonic()) > 0:
            say(f"waiting {wait_s:.0f} s until what ran on lost nodes has surely ended")
            self.launcher.pause(wait_s)
        return self._launched(reason, health)

    def _settled(self, health: dict[str, Health]) -> bool:
        """Choose the nodes that are fine, and tell those what they need to know; whether there are enough of them."""
        names = chosen(health, self.wish)
        if not names or names == self.on:
            return bool(names)
        bad = [f"{name} {each.what}" for name, each in health.items() if each.condition in BAD]
        say(f"the program runs on {nodelist.fold(names)}: {'; '.join(bad)}")
        self.preparation = self._prepared(names)
        if self.preparation.asks:
            self.answers = self._barrier(check=False)
            silent = [name for name in names if not self.answers.reports[name]]
            if silent:
                health.update(dict.fromkeys(silent, Health("unreachable", "did not answer")))
                return self._settled(health)
        return True

    def _barrier(self, *, check: bool) -> barrier.Answers:
        """Ask every node; where none answers and tasks must be told something, again when Slurm does.

        Not where it has taken the nodes back, which ends the steps before it ends us: a step would wait for them.
        """
        question = self.preparation.question("barrier")
        question = replace(question, check=check and question.check)
        answers = self.nodes.ask(question)
        if self.preparation.tells and answers.none and not self.launcher.told_to_end:
            job = controller.job(self.door, self.run.job_id, self.launcher)
            if job is not None and job.state == "RUNNING" and not self.launcher.told_to_end:
                answers = self.nodes.ask(question)
        return answers

    def _cannot_tell(self) -> str:
        """Why the program's tasks could not be told what makes them differ; empty where they can be."""
        if self.answers and self.answers.none and self.preparation.tells:
            return "no node answered, so none knows what the program's tasks are to be told"
        if self.preparation.task_script is not None:
            try:
                if not self.door.config().get("TaskProlog"):
                    return "slurm.conf names no TaskProlog, which tells each task its rank; see: slurm-plugin doctor"
            except SlurmError as error:
                say(f"could not read slurm.conf: {error}")
        return ""

    def _fabric(self, reason: str) -> dict[str, Health]:
        """The nodes that the fabric check keeps this job away from."""
        verdicts = self.preparation.fabric(reason, lambda: self.launcher.told_to_end)
        for name, verdict in verdicts.items():
            print(prechecks.line(name, verdict), flush=True)
        bad = {name: verdict for name, verdict in verdicts.items() if verdict.failed}
        return {name: Health("job_problem", f"{verdict.keyword}: {verdict.message}") for name, verdict in bad.items()}

    def _launched(self, reason: str, health: Mapping[str, Health]) -> Attempt:
        """Run the hooks and the program, and look at the nodes when that fails."""
        launcher, options = self.launcher, self.options
        before = progress.newest(options.checkpoint if options.retries else "")
        watcher = self._watcher() if options.retries or options.grace or options.hang_timeout else None
        phase, code = self._started(reason, watcher)
        if watcher and code:
            watcher.ended()
        found = watcher.found if watcher else None
        cause: Cause = "memory" if code and launcher.out_of_memory else "itself"
        if watcher and watcher.guards.turn_lost:  # it may have ended before we looked
            launcher.told_to_end = True
            watcher.guards.wipe(WIPE_S)
        if watcher and found:
            code = self._interrupted(watcher.guards, found, phase)
            cause = found.cause if code else "itself"
        elif (
            watcher and code and not watcher.guards.alive
        ):  # who had lost us may have ended its ranks: not its own doing
            cause = "nodes"
        nodes: Mapping[str, Health] = health
        self.dirty = ()
        if code and options.retries and not launcher.told_to_end:
            nodes = self._looked_at_again(phase, code, found)
        made = progress.made(before, progress.newest(options.checkpoint)) if code and options.retries else False
        if made is None:
            say(f"could not tell whether there is a new checkpoint: not all of {options.checkpoint} can be read")
        return Attempt(phase, code, nodes, launcher.told_to_end, cause, made)

    def _watcher(self) -> Watcher:
        """Who looks while the program runs; from here on every node holds a lease."""
        options, run = self.options, self.run
        self.nodes.guards.arm()
        return Watcher(
            self.nodes.guards,
            self.launcher,
            self.on,
            options.grace,
            options.hang_timeout,
            tuple(filter(None, (options.checkpoint, self.preparation.logs))),
            time_left=lambda: controller.time_left(self.door, run.job_id),
            drained=lambda names: controller.drained(self.door, names),
            reachable=lambda names: self.nodes.reachable(names, self.preparation.question("recheck")),
        )

    def _started(self, reason: str, watcher: Watcher | None) -> tuple[Phase, int]:
        """The hooks beside the program, once on each node, and the program; which of them ended it, and how."""
        preparation = self.preparation
        preparation.write(only(self.answers, self.on) if self.answers else None)
        kept = saved.Keeper(preparation.directory, preparation, say)
        if why := contained.lacking(preparation.container, preparation.environ):
            say(f"error: {why}")
            kept.begins("program", preparation.environment(reason, launched=True))  # for who holds such a job
            return "program", kept.ended(NOT_FOUND)
        look = watcher.look_at_nodes if watcher and self.options.retries else None
        if request := preparation.data:
            stage_in.forget(request.notes, self.on)
            environ = preparation.environment(reason, launched=False)
            kept.begins("stage_in", environ)
            step = preparation.data_step(request, itself.command())
            if code := self.launcher.run(step, environ, say, checkpoints=False, look=look):
                return "stage_in", kept.ended(code)
            stage_in.clear(request.notes, self.on)
        if preparation.hooks:
            step = preparation.hook_step(itself.command())
            environ = preparation.environment(reason, launched=False)
            kept.begins("hook", environ)
            if code := self.launcher.run(step, environ, say, checkpoints=False, look=look):
                return "hook", kept.ended(code)
        environ = preparation.environment(reason, launched=True)
        kept.begins("program", environ)
        launch = preparation.launch(environ)
        if preparation.logs:
            os.makedirs(preparation.logs, exist_ok=True)  # noqa: PTH103
        if launch.argv != preparation.words:
            say(f"launch: {launch.shown}")
        look = watcher.look if watcher else None
        code = self.launcher.run(launch.argv, environ, say, look=look)
        if not preparation.container:  # whose programs are not this node's
            code = as_a_shell(code, launch.argv, preparation.words[0], environ)
        code = kept.ended(code)
        if (
            preparation.hooks_after
            and not self.launcher.told_to_end
            and not (watcher and (watcher.found or watcher.lost))
        ):
            self._after(code, preparation.environment(reason, launched=False), watcher)
        return "program", code

    def _after(self, code: int, environ: Mapping[str, str], watcher: Watcher | None) -> None:
        """The hooks after a program that ended by itself; nothing of theirs changes how it did."""
        launcher, until, memory = self.launcher, time.monotonic() + AFTER_S, self.launcher.out_of_memory
        step = self.preparation.hook_step(itself.command(), after=True)
        given = {**environ, "SLURM_PLUGIN_EXIT_CODE": str(code)}

        def why() -> str:
            if watcher and watcher.lost:
                return "a node of theirs does not answer"
            return f"after {AFTER_S:.0f} s" if time.monotonic() > until else ""

        launcher.run(step, given, say, checkpoints=False, look=lambda: launcher.told_to_end or bool(why()))
        if ended := why():
            say(f"the hooks after the program are ended: {ended}")
            launcher.stop(TERM_S)
        launcher.out_of_memory = memory

    def by_hand(self, reason: str) -> tuple[Phase, int]:
        """The hooks and the program once more on the same nodes, as somebody wishes who looks at them himself."""
        if self.options.retries:
            self.nodes.wipe()
        return self._started(reason, None)

    def _interrupted(self, guards: Guards, found: Interruption, phase: Phase) -> int:
        """End a program that is still there: with time to save where it may, else at once. Its exit code.

        What stands before it has nothing to save, and has not done its work, however it ends.
        """
        launcher, grace_s = self.launcher, self.options.grace
        say(f"{WHO[phase]} is ended: {found.why}")
        if phase != "program":
            return launcher.stop(TERM_S) or 128 + signal.SIGTERM
        if found.save:
            if found.saving_since is None:
                launcher.save()
                say(f"it was told to save (SIGUSR1) and has {grace_s:.0f} s")
            since = found.saving_since or time.monotonic()
            launcher.ended(grace_s - (time.monotonic() - since), lambda: guards.turn_lost or bool(guards.silent()))
        if found.cause == "hang":
            guards.dump(DUMP_S)
        return launcher.stop(TERM_S)

    def _without_data(self) -> dict[str, Health]:
        """The nodes that cannot have this job's data."""
        told = stage_in.told(str(self.preparation.directory), self.on)
        return {name: Health("job_problem", f"{stage_in.KEYWORD}: {why}") for name, why in told.items()}

    def _looked_at_again(self, phase: Phase, code: int, found: Interruption | None) -> dict[str, Health]:
        """The nodes after a failure: nothing of the attempt is left there, and every check has been made anew."""
        if found and found.cause == "nodes" and not found.nodes and not self.nodes.guards.isolated:
            self.nodes.renew()
        dirty = self.nodes.wipe()
        self.dirty = tuple(dirty)
        say(f"{WHO[phase]} {'was ended' if found else f'failed with exit code {code}'}; looking at its nodes again")
        checked = show(self.nodes.ask(self.preparation.question("recheck")))
        health = {**checked, **(found.nodes if found else {})}
        if phase == "stage_in":
            health |= self._without_data()
        for name, each in dirty.items():
            if health.get(name, each).condition not in BAD:
                health[name] = each
        return {name: health[name] for name in self.nodes.names}
