"""How much of its nodes a job uses: `usage.jsonl` in the job's directory, one line for each node and sample.

The recorder of the supervisor writes the file as the job's user. So it may have any content, and readers check every
value. Standard library only.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from slurm_plugin.errors import printable
from slurm_plugin.records import job_directory
from slurm_plugin.records.history import duration

FILE: Final = "usage.jsonl"
VERSION: Final = 1
EVERY_S: Final = 30.0  # seconds between two samples of a node
RECENT_BYTES: Final = 1 << 15  # a few samples of a large job: for lists of many jobs
NUMBERS: Final = ("used", "memory", "total", "watts", "clock", "throttle")  # of an accelerator
LOW: Final = 0.5  # a warning below this mean of the accelerators of worker 0
LOW_AFTER_S: Final = 600.0  # but only after these seconds
# What usually helps. Each is half a sentence after "try".
HELPS: Final = (
    "a larger batch, as far as the memory of the accelerators allows",
    "faster reading of data: more workers of the data loader, DALI, stage_in to copy the data to the node",
    "saving checkpoints less often, or in the background",
    "printing and computing metrics less often: they make the accelerators wait",
)


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One accelerator at one time. A value that its tool does not tell is None."""

    index: int
    used: float | None = None  # the part of the time in which it computed, 0.0 to 1.0
    memory: float | None = None  # bytes in use
    total: float | None = None  # bytes of its memory
    watts: float | None = None
    clock: float | None = None  # MHz
    throttle: float | None = None  # bits of NVML's nvmlClocksEventReasons


@dataclass(frozen=True, slots=True)
class Sample:
    """One node of a job at one time. A value that could not be measured is None."""

    t: float  # seconds since the epoch
    attempt: int
    node: str
    worker: int | None = None  # the place of the node in the attempt, from 0
    cpu: float | None = None  # processor time since the last sample, as a fraction of the job's CPUs there
    memory: float | None = None  # bytes of the job's processes
    read: float | None = None  # bytes a second
    write: float | None = None
    accelerators: tuple[Accelerator, ...] = ()
    mean: float | None = None  # of worker 0: the utilisation of all its accelerators in this attempt so far
    since: float | None = None  # the seconds that `mean` covers
    links: float | None = None  # errors that the ports of the node have counted

    @property
    def used(self) -> float | None:
        """Return the mean utilisation of the accelerators, 0.0 to 1.0."""
        return _mean([each.used for each in self.accelerators if each.used is not None])


class Low(NamedTuple):
    """The accelerators of worker 0 are used less than half of the time."""

    node: str
    used: float
    seconds: float

    @property
    def text(self) -> str:
        """Return the warning as one sentence."""
        return (
            f"the accelerators of {printable(self.node)} were used {self.used:.0%} of the last {duration(self.seconds)}"
        )


def write(path: Path, samples: Iterable[Sample], nodes: int) -> None:
    """Append samples of a job with `nodes` nodes to the file. Raise OSError."""
    lines = ({"v": VERSION, **_known(asdict(each))} for each in samples)
    # Half of the lines are those of worker 0, from which the warning is computed.
    fine = EVERY_S / 2 ** (nodes - 1).bit_length()
    job_directory.add_to_series(path, lines, lambda line: EVERY_S if line.get("worker") else fine)


def read(path: Path, owner: int | None = None) -> list[Sample]:
    """Return the samples in a file, oldest first; none if it cannot be read. `owner`: the required uid."""
    return [sample(line) for line in job_directory.series(path, owner)]


def recent(path: Path, owner: int | None = None) -> list[Sample]:
    """Return the newest samples, some of worker 0 among them: cheap enough for a list of many jobs."""
    found = [sample(line) for line in job_directory.series(path, owner, RECENT_BYTES)]
    return found if not found or any(each.worker == 0 for each in found) else read(path, owner)


def mean(samples: Iterable[Sample], *, worker: int | None = None) -> float | None:
    """Return the mean utilisation of all accelerators at all times, 0.0 to 1.0; None without any.

    `worker`: only of this worker.
    """
    wanted = (each for each in samples if worker is None or each.worker == worker)
    return _mean([card.used for each in wanted for card in each.accelerators if card.used is not None])


def low(samples: Sequence[Sample]) -> Low | None:
    """Return the warning about the newest attempt, if the mean of worker 0 is below LOW after LOW_AFTER_S."""
    newest = max((each.attempt for each in samples), default=0)
    own = [each for each in samples if each.worker == 0 and each.attempt == newest and each.used is not None]
    if not own or (used := mean(own) if own[-1].mean is None else own[-1].mean) is None:
        return None
    since = own[-1].t - own[0].t if own[-1].since is None else own[-1].since
    return Low(own[-1].node, used, since) if used < LOW and since >= LOW_AFTER_S else None


class Mean:
    """The mean utilisation of worker 0 in an attempt. Each sample has it, so that readers need only the last sample."""

    def __init__(self) -> None:
        self._sum, self._count = 0.0, 0
        self._began: float | None = None

    def added(self, sample: Sample) -> Sample:
        """Return the next sample, with the mean so far if it is of worker 0."""
        used = [card.used for card in sample.accelerators if card.used is not None]
        if sample.worker != 0 or not used:
            return sample
        self._began = sample.t if self._began is None else self._began
        self._sum, self._count = self._sum + sum(used), self._count + len(used)
        return replace(sample, mean=round(self._sum / self._count, 3), since=sample.t - self._began)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _known(found: Any) -> Any:
    """Return a value without the fields that are not known. Write whole numbers short: there are many."""
    if isinstance(found, float) and found.is_integer():
        return int(found)
    if isinstance(found, dict):
        return {name: _known(value) for name, value in found.items() if value is not None}
    return [_known(each) for each in found] if isinstance(found, tuple) else found


def sample(line: Mapping[str, Any]) -> Sample:
    """Return a sample from the fields of a line, of which only `t` is known to be a number."""
    attempt, worker, node, cards = (line.get(name) for name in ("attempt", "worker", "node", "accelerators"))
    numbers = ("cpu", "memory", "read", "write", "links", "mean", "since")
    return Sample(
        float(line["t"]),
        attempt if isinstance(attempt, int) else 0,
        node if isinstance(node, str) else "",
        worker if isinstance(worker, int) else None,
        **{name: job_directory.number(line.get(name)) for name in numbers},
        accelerators=tuple(_card(place, each) for place, each in enumerate(cards if isinstance(cards, list) else ())),
    )


def _card(place: int, card: object) -> Accelerator:
    found = card if isinstance(card, dict) else {}
    values = {name: job_directory.number(found.get(name)) for name in NUMBERS}
    if values["used"] is not None:
        values["used"] = min(values["used"], 1.0)
    return Accelerator(index if isinstance(index := found.get("index"), int) else place, **values)
