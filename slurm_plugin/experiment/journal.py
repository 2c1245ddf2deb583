"""The journal of an experiment: one event a line, appended under a lock that the kernel releases when its holder dies.

The state is the fold of the events, and a reader remembers how far it has read. A line that a dead writer or a full
disk has cut off is no JSON: readers skip it, and the next writer ends it first. `experiment.json` has one writer, the
submission. The trials' own directories can replace a lost journal (`rebuild`). Standard library only.
"""

import errno
import fcntl
import json
import math
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from prechecks import files
from slurm_plugin.errors import MissingError, UsageError
from slurm_plugin.experiment.fold import Event, Fold, real, whole
from slurm_plugin.records import experiments
from slurm_plugin.records.experiments import Experiment, State

LOCK: Final = ".journal.lock"  # not the journal itself: to close any descriptor of a file ends its process's locks
TRIAL: Final = "trial.json"  # in a trial's directory: the event `new`
EVENTS: Final = "events.jsonl"  # in a trial's directory: its other events
BEFORE_REPAIR: Final = "journal.before-repair.jsonl"
_BEGIN: Final = "begin"
_HEAD_BYTES: Final = 64  # enough for the id in the first line
_CHUNK: Final = 4 << 20
_NO_LOCKS: Final = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_ARRAY: Final = re.compile("([0-9]{1,18})_[0-9]")  # how the name of an array's task begins
T = TypeVar("T", bound=tuple[Any, ...])


def trial_directory(directory: Path, number: int) -> Path:
    """Return the directory of a trial."""
    return directory / experiments.TRIALS / f"{number:04}"


def create(directory: Path, experiment: Experiment) -> None:
    """Write a new experiment into an existing directory. Raise OSError: FileExistsError if it has a journal."""
    with (directory / experiments.JOURNAL).open("x", encoding="utf-8") as file:
        file.write(_head())
    (directory / experiments.TRIALS).mkdir(exist_ok=True)
    search = experiment.search
    form = {
        **experiment._asdict(),
        "search": {
            **search._asdict(),
            "metric": search.metric._asdict(),
            "algorithms": [each._asdict() for each in search.algorithms],
        },
        "retention": experiment.retention and experiment.retention._asdict(),
    }
    files.replace(directory / experiments.FILE, json.dumps({"v": 1, **form}, indent=1) + "\n", mode=None, durable=True)


def _head() -> str:
    """Return the first line of a journal. By it a reader sees that the journal was rebuilt: inodes are used again."""
    return json.dumps({"e": _BEGIN, "v": 1, "id": secrets.token_hex(8), "at": time.time()}) + "\n"


def read_experiment(directory: Path) -> Experiment:
    """Read `experiment.json`. Raise UsageError if it is missing or is not as this release writes it."""
    path = directory / experiments.FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found.pop("v") != 1:
            raise ValueError("of another version; accepted: 1")
        search, retention = found["search"], found.get("retention")
        metric = _record(experiments.Metric, search["metric"])
        algorithms = tuple(_record(experiments.Algorithm, each) for each in search["algorithms"])
        made = _record(experiments.Search, {**search, "metric": metric, "algorithms": algorithms})
        kept = None if retention is None else _record(experiments.Retention, retention)
        return _record(Experiment, {**found, "search": made, "retention": kept})
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}\n  name the directory of an experiment") from error
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        why = f"{type(error).__name__}: {error}"
        raise UsageError(f"{path}: not as slurm_plugin writes it: {why}\n  submit the experiment again") from error


def _record(kind: type[T], found: Mapping[str, Any]) -> T:
    """Return the named tuple. Raise TypeError for an unknown or missing field, or a value of another type."""
    defaults: Mapping[str, Any] = kind._field_defaults  # type: ignore[attr-defined]
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}
    for name, value in given.items():
        wanted = type(defaults.get(name))
        if defaults.get(name) is None or type(value) is wanted or (wanted is float and type(value) is int):
            continue
        raise TypeError(f"{name}: found {value!r}; accepted: {wanted.__name__}")
    return kind(**given)


class Journal:
    """The journal of one experiment in this process. One process uses one object; its threads may share it."""

    def __init__(self, directory: Path, *, search: bool = False) -> None:
        """Read nothing yet. `search`: fold the searcher along; raise MissingError if its library is missing."""
        self.directory, self.experiment = directory, read_experiment(directory)
        self._path, self._search, self._mutex = directory / experiments.JOURNAL, search, threading.RLock()
        self._begins, self._offset, self._locked, self._torn = b"", 0, False, False
        self.fold = self._empty()

    def _empty(self) -> Fold:
        search = self.experiment.search
        if not (self._search or not search.trials):  # only the searcher knows how many a grid has
            return Fold(self.experiment)
        from slurm_plugin.experiment.searchers import make  # type: ignore[import-untyped,unused-ignore] # noqa: PLC0415

        return Fold(self.experiment, make(search))

    @property
    def state(self) -> State:
        """The state after the lines that this process has read."""
        return self.fold.state

    def read(self) -> State:
        """Read the lines that were appended since. Raise UsageError if the journal is missing."""
        with self._mutex:
            try:
                fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError as error:
                raise UsageError(
                    f"{self._path}: {error.strerror}\n  try: slurm-plugin experiment repair {self.directory}"
                ) from error
            try:
                self._read(fd)
            finally:
                os.close(fd)
            return self.state

    def _read(self, fd: int) -> None:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise UsageError(f"{self._path}: not a regular file")
        begins = os.pread(fd, min(_HEAD_BYTES, self._offset), 0)
        if begins != self._begins or found.st_size < self._offset:  # it was repaired
            self.fold, self._offset = self._empty(), 0
        rest = b""
        while piece := os.pread(fd, _CHUNK, self._offset + len(rest)):
            *lines, rest = (rest + piece).split(b"\n")
            self._offset += sum(map(len, lines)) + len(lines)
            for event in _events(lines):
                self.fold.apply(event)
        self._torn, self._begins = bool(rest), os.pread(fd, min(_HEAD_BYTES, self._offset), 0)

    @contextmanager
    def locked(self) -> Iterator[State]:
        """Hold the lock, and give the state, which no other process can change meanwhile.

        Most of the journal is read before the lock is taken; under the lock, only later lines. Raise MissingError
        without locks, or OSError.
        """
        self.read()
        with self._mutex:
            fd = os.open(self.directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
            try:
                _lock(fd, self.directory)
                self._locked = True
                yield self.read()
            finally:
                self._locked = False
                os.close(fd)  # this releases the lock

    def append(self, *events: Event) -> None:
        """Append events in one write, under the lock, and sync them. Raise OSError if none of them was written.

        On a full disk what was written of them is taken back.
        """
        if not self._locked:
            raise RuntimeError("append needs the lock")
        now = time.time()
        lines = [json.dumps({**event, "at": event.get("at", now)}, allow_nan=False) for event in events]
        text = b"\n" * self._torn + "".join(f"{line}\n" for line in lines).encode()
        fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)  # never make a new one
        try:
            size = os.fstat(fd).st_size
            try:
                _write(fd, text)
                os.fdatasync(fd)  # a file server reports a full disk only here
            except OSError:
                os.ftruncate(fd, size)
                raise
            self._read(fd)
        finally:
            os.close(fd)


def _write(fd: int, text: bytes) -> None:
    while text:  # one write, unless the disk is full
        text = text[os.write(fd, text) :]


def _lock(fd: int, directory: Path) -> None:
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        raise MissingError(
            f"{directory}: its file system has no locks ({error.strerror}), which an experiment needs\n"
            "  put the experiment on NFS 4, on NFS 3 mounted without `nolock`, or on Lustre mounted with `flock`"
        ) from error


def _events(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the lines that are JSON objects."""
    for line in lines:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and isinstance(event.get("e"), str):
            yield event


def load(directory: Path) -> tuple[Experiment, State]:
    """Return an experiment and its state now. Raise UsageError if the directory has none."""
    journal = Journal(directory)
    return journal.experiment, journal.read()


def rebuild(directory: Path) -> int:
    """Write the journal anew, from what is left of it and from the trials' directories. Return how many trials it has.

    What the user changed (pause, extend ...) is only in the journal itself. Raise OSError.
    """
    path, own = directory / experiments.JOURNAL, list[dict[str, Any]]()
    fd = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    try:
        _lock(fd, directory)
        if path.exists():
            own += (each for each in _events(path.read_bytes().split(b"\n")) if each["e"] != _BEGIN)
            files.replace(directory / BEFORE_REPAIR, path.read_bytes(), mode=None)
        places = sorted((directory / experiments.TRIALS).glob("[0-9]*"))
        trials = [of_trial(each) for each in places if each.name.isdecimal() and not each.is_symlink()]
        events = _with_arrays(_merged(own, trials))
        text = "".join(f"{json.dumps(each)}\n" for each in events)
        files.replace(path, _head() + text, mode=None, durable=True)
    finally:
        os.close(fd)
    return sum(each["e"] == "new" for each in events)


def _merged(own: Sequence[Event], trials: Iterable[Sequence[Event]]) -> list[Event]:
    """Return the events of a journal and of the trials' files, each once.

    The clocks of nodes differ, so the order of the journal stays, and so does that of each file. An event that the
    journal lacks comes just before the next one of its file that it has. Without such a one its time decides, or that
    of an earlier event of its file, if that is later.
    """
    found: dict[str, tuple[tuple[float, float, int], Event]] = {}  # line -> its place, and the event
    last = 0.0
    for number, each in enumerate(own):
        last = max(last, real(each, "at"))
        found.setdefault(json.dumps(each, sort_keys=True), ((last, number, 0), each))
    for trial in trials:
        last, missing = 0.0, dict[str, Event]()
        for each in trial:
            line = json.dumps(each, sort_keys=True)
            if line not in found:
                missing.setdefault(line, each)
                continue
            last, place, _ = found[line][0]
            found |= {name: ((last, place - 0.5, sub), one) for sub, (name, one) in enumerate(missing.items())}
            missing.clear()
        for sub, (name, one) in enumerate(missing.items()):
            last = max(last, real(one, "at"))
            found[name] = (last, math.inf, sub), one
    return [each for _, each in sorted(found.values(), key=lambda each: each[0])]


def _with_arrays(events: Sequence[Event]) -> list[Event]:
    """Add the arrays that no event names and whose tasks took trials: a lost journal has forgotten its submissions."""
    found = list[Event]()
    known = {whole(each, "array") for each in events if each["e"] == "submitted"}
    for each in events:
        array = _ARRAY.match(str(each.get("task", ""))) if each["e"] == "take" else None
        if array and (number := int(array[1])) not in known:
            found.append({"e": "submitted", "array": number, "at": real(each, "at")})
            known.add(number)
        found.append(each)
    return found


def of_trial(trial: Path) -> list[dict[str, Any]]:
    """Return the events in a trial's directory; none without a readable trial.json of this trial."""
    found = []
    for name in (TRIAL, EVENTS):
        try:
            text = (trial / name).read_bytes()
        except OSError:
            text = b""
        found += [each for each in _events(text.split(b"\n")) if each.get("n") == int(trial.name)]
    return found if found and found[0]["e"] == "new" else []
