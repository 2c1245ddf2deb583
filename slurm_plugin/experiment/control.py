"""Change a running experiment: pause, resume, stop, cancel, concurrency, extend, repair.

Each function writes its event into the journal first, which every worker reads before it takes a trial, and then asks
Slurm. So the change holds even if Slurm does not answer. Standard library only.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from slurm_plugin.errors import SlurmPluginError, UsageError, printable
from slurm_plugin.experiment import array, journal
from slurm_plugin.experiment.array import Array
from slurm_plugin.records.experiments import INVALID, RUNNING, Experiment, State
from slurm_plugin.slurm import ENDED, WAITING, Slurm, SlurmAwayError
from slurm_plugin.slurm.calls import ignoring_ended_tasks


class Change(NamedTuple):
    """What a verb has done."""

    experiment: Experiment
    state: State  # after it
    tasks: Mapping[str, str]  # before it, as of `living`
    array: Array | None = None  # newly submitted
    refused: str = ""  # why Slurm has accepted no further tasks; empty: it has, or none was needed

    @property
    def at_work(self) -> int:
        """Return how many tasks had a trial or waited in the queue. A running task without one may be about to end."""
        working = {each.task for each in self.state.trials if each.state == RUNNING}
        return sum(state in WAITING or name in working for name, state in self.tasks.items())


def living(directory: Path, state: State, door: Slurm) -> dict[str, str]:
    """Return the tasks that Slurm has not ended: name (7_1) -> state. A state that is not known counts as alive.

    Raise SlurmPluginError if another cluster has them: this one has other jobs with these ids.
    """
    with suppress(OSError):
        there = (directory / array.CLUSTER).read_text(encoding="utf-8", errors="replace").strip()
        if there != (here := array.cluster(door)):
            raise SlurmPluginError(
                f"its tasks are on the cluster {printable(there)}, and this is {printable(here)}; "
                "what was changed is in the journal, which they read before each trial\n  repeat the command there"
            )
    found: dict[str, str] = {}
    for number in state.arrays:
        names = door.members(number)
        jobs = door.jobs(sorted(set(names.values())))
        found |= {name: jobs[each].state for name, each in names.items() if each in jobs}
    return {name: each for name, each in found.items() if each not in ENDED}


def left(experiment: Experiment, state: State) -> int:
    """Return how many trials are not over, or not begun: what workers still have to do."""
    made = sum(each.state != INVALID for each in state.trials)
    begun = sum(not each.is_over for each in state.trials)
    return begun + (0 if state.exhausted or state.stopped else max(array.in_all(experiment, state.budget) - made, 0))


def pause(directory: Path, door: Slurm) -> Change:
    """Begin no trial and start no task until `resume`. Running trials end as they would."""
    done = _record(directory, door, {"e": "pause"})
    _of_arrays(done.tasks, door.hold)  # running tasks too: one that is requeued waits for `resume`
    return done


def resume(directory: Path, door: Slurm) -> Change:
    """Go on after `pause` and `stop`. If its tasks are too few for what is left, submit an array."""
    done = _record(directory, door, {"e": "resume"})
    _of_arrays(done.tasks, door.release)
    return _with_workers(directory, door, done)


def stop(directory: Path, door: Slurm) -> Change:
    """Begin no new trial. Running ones end as they would; `resume` goes on."""
    return _record(directory, door, {"e": "stop"})


def cancel(directory: Path, door: Slurm) -> Change:
    """End all trials now and remove all tasks from Slurm."""
    done = _record(directory, door, {"e": "cancel"})
    _of_arrays(done.tasks, door.cancel)
    return done


def concurrency(directory: Path, door: Slurm, most: int) -> Change:
    """Set the most trials at once. Trials that already run go on."""
    done = _record(directory, door, {"e": "concurrent", "to": most})
    _of_arrays(done.tasks, lambda each: door.update_job(each, ArrayTaskThrottle=str(most)))
    return done


def extend(directory: Path, door: Slurm, trials: int) -> Change:
    """Raise the budget by this many trials. If its tasks are too few for what is left, submit an array.

    Raise UsageError for an algorithm that makes no more trials.
    """
    experiment = _own(directory)
    if not experiment.search.trials:
        name = experiment.search.algorithms[0].name
        raise UsageError(
            f"{printable(experiment.name)}: {name} has no more trials than the space has\n"
            "  submit another experiment, with another space or another algorithm"
        )
    done = _record(directory, door, {"e": "extend", "trials": trials})
    return done if done.state.paused or done.state.stopped else _with_workers(directory, door, done)


def repair(directory: Path) -> tuple[list[str], int]:
    """Write the journal anew from the trials' directories. Return what has changed, and how many trials there are."""
    _own(directory)
    try:
        before = journal.load(directory)[1]
    except UsageError:
        before = None
    count = journal.rebuild(directory)
    after = journal.load(directory)[1]
    if before is None:
        return ["the journal was missing"], count
    old, new = ({each.number: each for each in state.trials} for state in (before, after))
    changed = [
        f"trial {number}: " + (_difference(old[number], new[number]) if number in old else "it was missing")
        for number in sorted(new)
        if old.get(number) != new[number]
    ]
    return changed + [f"trial {number}: its directory is gone" for number in sorted(old.keys() - new.keys())], count


def _difference(old: Any, new: Any) -> str:
    """Return how two records of a trial differ."""
    names = [name for name in old._fields if getattr(old, name) != getattr(new, name)]
    if "state" in names:
        return f"{old.state} -> {new.state}"
    return f"changed: {', '.join(names)}"


def _own(directory: Path) -> Experiment:
    """Return this user's experiment. Raise SlurmPluginError if it is another user's."""
    experiment = journal.read_experiment(directory)
    if directory.stat().st_uid != os.geteuid():
        raise SlurmPluginError(
            f"{printable(str(directory))}: it belongs to another user, and only its owner changes an experiment\n"
            "  see how it goes: slurm-plugin experiment status " + printable(str(directory))
        )
    return experiment


def _record(directory: Path, door: Slurm, event: Mapping[str, Any]) -> Change:
    """Write an event of the user, and return what Slurm has of the experiment."""
    experiment = _own(directory)
    book = journal.Journal(directory)
    with book.locked():
        book.append(event)
    state = book.state
    return Change(experiment, state, living(directory, state, door))


def _of_arrays(tasks: Iterable[str], ask: Callable[[int], None]) -> None:
    """Send a request for each array that has tasks. Slurm refuses it for the tasks that have ended in the meantime."""
    for number in sorted({int(name.partition("_")[0]) for name in tasks}):
        with ignoring_ended_tasks():
            ask(number)


def _with_workers(directory: Path, door: Slurm, done: Change) -> Change:
    """Submit an array for what is left, as far as the tasks of earlier arrays are too few for it.

    Without any, it has a task for each trial, as the first array. Else only so many that all run at once.
    """
    trials, have, most = left(done.experiment, done.state), done.at_work, done.state.concurrent
    missing = min(trials, most or trials) - have if have else trials
    if missing < 1:
        return done
    script = (directory / array.SCRIPT).read_text(encoding="utf-8")
    try:
        tasks = array.size(missing, array.limits(door))
        made = array.submit(directory, script, tasks, max(most - have, 1) if most else 0, door)
    except SlurmAwayError:
        raise
    except SlurmPluginError as error:
        if not have:
            raise
        return done._replace(refused=error.one_line)  # those tasks do it, one trial after the other
    return done._replace(array=made, state=journal.load(directory)[1])
