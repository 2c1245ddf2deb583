"""Follow a running trial in a thread: its reports into the journal, the searcher's stop, its checkpoints' retention.

A thread, because a file server may hang: the worker still forwards Slurm's signals then, and its supervisor watches
the nodes. Which checkpoints are kept is Determined's saving policy: `save_experiment_best` and `save_trial_best` count
only checkpoints with a validation at the same time; `save_trial_latest` counts all. Standard library only.
"""

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from prechecks import files
from slurm_plugin.errors import SlurmPluginError
from slurm_plugin.experiment import journal, trial_input
from slurm_plugin.experiment.journal import Journal
from slurm_plugin.experiment.metrics import Event, Metrics, is_name
from slurm_plugin.records.experiments import Metric, Retention, Trial

Checkpoint = tuple[int, str]  # the trial's number, the checkpoint's name


def kept_checkpoints(trials: Sequence[Trial], metric: Metric, retention: Retention) -> set[Checkpoint]:
    """Return the checkpoints to keep. The newest one of a trial that is not over always is: it continues from there."""
    ranked = [(each.number, _ranked(each, metric)) for each in trials]
    found: set[Checkpoint] = set()
    for trial, (number, best) in zip(trials, ranked, strict=True):
        newest = sorted(trial.checkpoints, key=lambda each: each[1], reverse=True)
        latest = max(retention.trial_latest, 0 if trial.is_over else 1)
        found |= {(number, name) for name, _ in newest[:latest]}
        found |= {(number, name) for _, name in best[: retention.trial_best]}
    of_all = sorted((value, number, place, name) for number, best in ranked for place, (value, name) in enumerate(best))
    return found | {(number, name) for _, number, _, name in of_all[: retention.experiment_best]}


def _ranked(trial: Trial, metric: Metric) -> list[tuple[float, str]]:
    """Return the trial's checkpoints with a validation, the best first, the older of two equals first."""
    sign = 1 if metric.smaller_is_better else -1
    values = {each.time: sign * each.value for each in trial.reports}
    found = [(values[time], time, name) for name, time in trial.checkpoints if time in values]
    return [(value, name) for value, _, name in sorted(found)]


POLL_S: Final = 1.0
REMOVED: Final = ".removed-"  # how the name of a checkpoint that is being removed begins


def record_in(place: Path, events: Iterable[Mapping[str, Any]]) -> None:
    """Append events to a trial's own file. Raise OSError."""
    files.append(place / journal.EVENTS, "".join(f"{json.dumps(each, allow_nan=False)}\n" for each in events))


class Follower(threading.Thread):
    """Follows one trial, until `end`. The journal is this thread's while it runs."""

    def __init__(self, file: Journal, trial: Trial, say: Callable[[str], None], *, own_checkpoints: bool) -> None:
        """Begin after what earlier runs of the trial have read. `own_checkpoints`: in the trial's directory."""
        super().__init__(daemon=True)  # a hanging file server must not keep the worker from ending
        self._journal, self._say, self._own_checkpoints = file, say, own_checkpoints
        self._number, self._mine = trial.number, (trial.takes, trial.restarts)
        self._place = journal.trial_directory(file.directory, trial.number)
        earlier = journal.of_trial(self._place)
        search = file.experiment.search
        self._metrics = Metrics(self._place, search, iter(earlier), lambda text: say(f"trial {trial.number}: {text}"))
        # Events that the journal does not have yet: a worker that died may have written them into the trial's own file.
        self._waiting: list[Event] = [each for each in earlier if _is_missing(each, trial, self._place)]
        self._recorded = len(self._waiting)  # how many of them the trial's own file has
        self._said = ""
        self._over = threading.Event()
        self.api = False  # whether the program asks for the stop file by itself
        self.why_invalid: str | None = None  # why the program refused its values; None if it did not
        self.stops_since = 0.0  # since when the trial shall stop, on the monotonic clock; 0.0: it shall not
        self.lost_since = 0.0  # since when it is another task's, or the user has cancelled it; on the same clock

    @property
    def is_lost(self) -> bool:
        """Whether the trial is no longer this task's."""
        return self.lost_since > 0

    def run(self) -> None:
        """Look about once a second, and once more at the end."""
        while not self._over.wait(POLL_S):
            self.look()
        while not self._metrics.at_end:
            self.look()
        self.look(last=True)

    def end(self, give_up: Callable[[], bool]) -> None:
        """Read what is left of the program's reports, and end the thread. Stop waiting for it if `give_up`."""
        self._over.set()
        while self.is_alive() and not give_up():
            self.join(0.2)

    def look(self, *, last: bool = False) -> None:
        """Read the new values and events, and write them into the journal. On a full disk try again the next time."""
        try:
            self._read(last=last)
            self._write()
            trial = self._journal.fold.trial(self._number)
            if not is_mine(trial, self._mine) and not self.lost_since:
                self.lost_since = time.monotonic()
            if self._number in self._journal.fold.stopping and not self.stops_since:
                (self._place / trial_input.STOP).touch()
                self.stops_since = time.monotonic()
        except (OSError, SlurmPluginError) as error:
            if self._said != (text := " ".join(str(error).split())):
                self._said = text
                self._say(f"trial {self._number}: its reports wait: {text}")

    def _read(self, *, last: bool) -> None:
        for event in self._metrics.new(last=last):
            if event["e"] == "start":
                self.api = True
            elif event["e"] == "invalid":
                self.why_invalid = event["why"]
            else:
                self._waiting.append({"n": self._number, **event, "at": time.time()})

    def _write(self) -> None:
        if not self._waiting:
            self._journal.read()
            return
        if self._recorded < len(self._waiting):
            record_in(self._place, self._waiting[self._recorded :])
            self._recorded = len(self._waiting)
        with self._journal.locked():
            trial = self._journal.fold.trial(self._number)
            if trial and is_mine(trial, self._mine):
                last = trial.reports[-1].time if trial.reports else float("-inf")
                # The values of an earlier run of the trial count, so that the searcher hears each step once.
                fresh = [each for each in self._waiting if each["e"] != "report" or each["time"] > last]
                self._journal.append(*fresh)
                removed = remove(self._journal) if self._own_checkpoints else []
            else:
                removed = []
        self._waiting, self._recorded = [], 0
        delete(removed)


def _is_missing(event: Event, trial: Trial, place: Path) -> bool:
    """Return whether a trial lacks a report or a checkpoint that its own file has."""
    if event["e"] == "report":
        far = event.get("time")
        return type(far) is float and (not trial.reports or far > trial.reports[-1].time)
    if event["e"] != "checkpoint" or not is_name(event.get("name")):
        return False
    known = {name for name, _ in trial.checkpoints}
    return event["name"] not in known and (place / trial_input.CHECKPOINTS / event["name"]).exists()


def is_mine(trial: Trial | None, mine: tuple[int, int]) -> bool:
    """Return whether a trial is still that of the worker that took it so often, and is not over."""
    return trial is not None and not trial.is_over and (trial.takes, trial.restarts) == mine


def delete(paths: Iterable[Path]) -> None:
    """Delete what `remove` has renamed: directories, or single files. What cannot be deleted stays."""
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                path.unlink()


def remove(file: Journal) -> list[Path]:
    """Rename the checkpoints that are not kept, under the lock of the journal. Return what to delete.

    Only names that a trial has reported are touched.
    """
    rules = file.experiment.retention
    trials = [each for each in file.state.trials if each.checkpoints]
    if rules is None or not trials:
        return []
    kept, found, events = kept_checkpoints(trials, file.experiment.search.metric, rules), [], []
    for trial in trials:
        place = journal.trial_directory(file.directory, trial.number) / trial_input.CHECKPOINTS
        for name, _ in trial.checkpoints:
            if (trial.number, name) in kept or not is_name(name):
                continue
            gone = place / f"{REMOVED}{name}"
            if (place / name).exists():
                delete([gone])  # a worker that died has deleted a part of an earlier one
            try:
                (place / name).rename(gone)
            except FileNotFoundError:  # a worker that died here has renamed it
                pass
            except OSError:
                continue
            found.append(gone)
            events.append({"e": "removed", "n": trial.number, "name": name})
    if events:
        file.append(*events)
    return found
