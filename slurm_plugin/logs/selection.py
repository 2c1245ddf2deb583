"""The files with a job's logs, and which parts of them a reader asks for. Standard library only."""

import bisect
import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from hostfiles import HostfileError, nodelist
from slurm_plugin.errors import SlurmPluginError, printable
from slurm_plugin.logs import reader
from slurm_plugin.logs.reader import Stream
from slurm_plugin.records import launch_record, log_files
from slurm_plugin.records.log_files import Output

JOB, ERROR, APART, NODE, RANK = "job", "error", "plugin", "node", "rank"  # the kinds of files
MOST_RANKS: Final = 1_000_000  # of an attempt: the user owns the record
MOST_NODES: Final = 1 << 17  # of all attempts together
OUR_LOG: Final = "log"  # in the job's directory: slurm_plugin's lines of a script without a mode


class NoLogError(SlurmPluginError):
    """The job has no such log (exit 1)."""


class JobLog(NamedTuple):
    """A file with a log of the job."""

    kind: str
    path: Path
    attempt: int | None = None  # None: of all attempts
    worker: int | None = None
    node: str = ""
    rank: int | None = None
    device: int | None = None

    @property
    def speaker(self) -> str:
        """Return whose log it is, for people."""
        return {NODE: f"worker-{self.worker}", RANK: f"rank {self.rank}", APART: reader.OURS}.get(self.kind, self.kind)


class Choice(NamedTuple):
    """What a reader asks for; None or empty: all."""

    worker: str = ""
    rank: int | None = None
    attempt: int | None = None
    merge: bool = False


class Chosen(NamedTuple):
    """The files that a reader asks for."""

    sources: tuple[JobLog, ...]
    ranks: frozenset[int] | None = None  # the ranks whose lines are meant in them; None: all lines
    beside: bool = False  # the ranks or nodes have files of their own, whose lines are in the job's log, too

    def whole(self, source: JobLog) -> bool:
        """Return whether all lines of a file are meant; else only those of slurm_plugin and Slurm."""
        return not self.beside or source.kind in (NODE, RANK)


class Hosts(NamedTuple):
    """The nodes of an attempt in order, and the number of ranks on each; `slots` is empty if it is not known."""

    nodes: tuple[str, ...]
    slots: tuple[int, ...] = ()

    @property
    def firsts(self) -> tuple[int, ...]:
        """The first rank on each node."""
        return tuple(itertools.accumulate(self.slots, initial=0))[:-1] if self.slots else ()

    def by_rank(self) -> dict[int, str]:
        """Return rank -> its node."""
        pairs = zip(self.nodes, self.slots, strict=True) if self.slots else ()
        return dict(enumerate(name for name, count in pairs for _ in range(count)))

    def worker_of(self, rank: int) -> int | None:
        """Return the number of the node on which a rank runs; None if it is not known."""
        return bisect.bisect_right(self.firsts, rank) - 1 if self.slots else None

    def name(self, worker: int | None) -> str:
        """Return a node's name; empty if it is not known."""
        return self.nodes[worker] if worker is not None and worker < len(self.nodes) else ""


UNKNOWN: Final = Hosts(())


def hosts(directory: Path, attempts: Sequence[Mapping[str, Any]]) -> dict[int, Hosts]:
    """Return attempt -> its nodes, from the recorded attempts and the launch that runs. Skip what is malformed."""
    found: dict[int, Hosts] = {}
    for each in reversed(attempts):
        if sum(len(there.nodes) for there in found.values()) > MOST_NODES:
            break
        number, text, slots = each.get("n"), each.get("nodes"), each.get("slots")
        if not isinstance(number, int) or not isinstance(text, str):
            continue
        with suppress(HostfileError):
            nodes = tuple(nodelist.expand(text))
            found.setdefault(number, Hosts(nodes, _counts(slots, len(nodes))))
    with suppress(launch_record.SavedError):
        launch = launch_record.read(directory)
        found.setdefault(launch.attempt, Hosts(launch.nodes))  # its tasks need not be ranks
    return found


def _counts(slots: object, nodes: int) -> tuple[int, ...]:
    """Return the ranks on each node, from a record of any content; empty if it does not say them."""
    counts = [slots] * nodes if isinstance(slots, int) else slots
    if not isinstance(counts, list) or len(counts) != nodes:
        return ()
    known = tuple(each for each in counts if isinstance(each, int) and each >= 0)
    return known if len(known) == nodes and sum(known) <= MOST_RANKS else ()


def of_job(directory: Path, job_id: int, output: Output, known: Mapping[int, Hosts]) -> list[JobLog]:
    """Return the files of a job; whether they exist is not checked for the job's one log.

    `directory`: the job's own. `known`: attempt -> its nodes, as far as known.
    """
    found = [JobLog(JOB, Path(output.stdout))] if output.stdout else []
    if output.stderr and output.stderr != output.stdout:
        found.append(JobLog(ERROR, Path(output.stderr)))
    if (own := directory / OUR_LOG).is_file():
        found.append(JobLog(APART, own))
    apart = log_files.find(Path(output.directory), job_id) if output.directory else ()
    for path, attempt, worker, rank, device in apart:
        there = known.get(attempt, UNKNOWN)
        on = there.worker_of(rank) if worker is None and rank is not None else worker
        kind = NODE if rank is None else RANK
        found.append(JobLog(kind, path, attempt, on, there.name(on), rank, device))
    return found


def choose(found: Sequence[JobLog], choice: Choice, known: Mapping[int, Hosts]) -> Chosen:
    """Return the files that a reader asks for. Raise NoLogError if the job has no log of this worker.

    A rank or node without a file of its own is looked for in the job's one log, by the prefixes of its launcher.
    """
    common = tuple(each for each in found if each.kind not in (NODE, RANK))
    apart = [each for each in found if each.kind in (NODE, RANK) and choice.attempt in (None, each.attempt)]
    if choice.rank is not None:
        own = tuple(each for each in apart if each.rank == choice.rank)
        return Chosen(own) if own else Chosen(_parted(common), frozenset({choice.rank}))
    if choice.worker:
        return _of_worker(common, apart, choice, known)
    if choice.merge:
        kind = RANK if any(each.kind == RANK for each in apart) else NODE  # with both, each line is in both
        return Chosen((*common, *(each for each in apart if each.kind == kind)), beside=bool(apart))
    return Chosen(tuple(each for each in common if each.kind != APART) if choice.attempt is None else _parted(common))


def _of_worker(common: Sequence[JobLog], apart: Sequence[JobLog], choice: Choice, known: Mapping[int, Hosts]) -> Chosen:
    """Return the files of a node, else those of the ranks on it, else the job's log with the numbers of these ranks."""
    own = [each for each in apart if choice.worker in (f"worker-{each.worker}", str(each.worker), each.node)]
    for kind in (NODE, RANK):
        if files := tuple(each for each in own if each.kind == kind):
            return Chosen(files)
    ranks: set[int] = set()
    for there in (each for number, each in known.items() if choice.attempt in (None, number)):
        place = launch_record.worker(there.nodes, choice.worker)
        if place is not None and there.slots:
            first = there.firsts[place]
            ranks.update(range(first, first + there.slots[place]))
    if ranks:
        return Chosen(_parted(common), frozenset(ranks))
    numbers = (f"worker-{place} ({name})" for there in known.values() for place, name in enumerate(there.nodes))
    accepted = ", ".join(dict.fromkeys([each.speaker for each in apart if each.kind == NODE] or [*numbers][:64]))
    raise NoLogError(
        f"found no log of {printable(choice.worker)!r}; accepted: {accepted or 'none: its nodes are not known'}\n"
        "  for the next job, in its spec: logs: {per: both}"
    )


def _parted(common: Sequence[JobLog]) -> tuple[JobLog, ...]:
    """Return the log that has slurm_plugin's lines about attempts."""
    return tuple(each for each in common if each.kind == JOB)


def streams(chosen: Chosen, job_id: int, attempt: int | None) -> list[Stream]:
    """Return the chosen logs by speaker, without missing files. Raises NoLogError if all are missing."""
    found: dict[str, Stream] = {}
    problems: list[str] = []
    for source in chosen.sources:
        try:
            part = reader.part(source.path)
            apart = source.attempt is not None or attempt is None
            parts = [part] if apart else reader.of_attempt(part, job_id, attempt or 0)
        except OSError as error:
            problems.append(f"{source.path}: {error.strerror}")
            continue
        known = found.setdefault(source.speaker, Stream(source.speaker, (), chosen.whole(source)))
        found[source.speaker] = known._replace(parts=(*known.parts, *parts))
    if not found:
        told = "; ".join(problems) or "it has none"
        raise NoLogError(f"found no log of job {job_id}: {printable(told)}\n  its state: slurm-plugin why {job_id}")
    if not any(each.parts for each in found.values()):
        raise NoLogError(f"found no attempt {attempt} in the log\n  its attempts: slurm-plugin history {job_id}")
    return list(found.values())


def number(text: str) -> int:
    """Parse a rank or an attempt. Raises ValueError."""
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise ValueError(f"{text!r} is no number from 0")
    return int(text)
