"""The input of a check (Context), its result (Finding), and the runner's conclusion (Verdict).

A prolog imports this module on every node of every job, in 0.3 ms. `dataclasses` would cost it 8 ms and `typing` 3 ms.
So the classes are named tuples of `collections`, and this package imports types only for type checkers.
"""

from __future__ import annotations

from collections import namedtuple

TYPE_CHECKING = False  # type checkers treat this name as true
if TYPE_CHECKING:
    from collections.abc import Sequence

    Scalar = int | float | str | None

OK = "ok"
FAILED = "failed"  # the only verdict that can be a problem
TIMEOUT = "timeout"  # unknown: no answer before the deadline
SKIPPED = "skipped"  # does not apply here
ERROR = "error"  # unknown: the check itself broke
VERDICTS = (OK, FAILED, TIMEOUT, SKIPPED, ERROR)

NODE_PROBLEM = "node_problem"  # drain the node
JOB_PROBLEM = "job_problem"  # this job should not run here now; the node stays in service
NO_PROBLEM = "no_problem"  # only write a log line
PROBLEMS = (NODE_PROBLEM, JOB_PROBLEM, NO_PROBLEM)

MAX_MESSAGE = 200  # characters; several messages share one drain reason
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")  # binary, as `df -h` counts


class PrecheckError(ValueError):
    """An invalid report, or an unknown check. The outcome of a check is a Verdict, never this error."""


class Context(
    namedtuple("Context", "hook node hosts gpus infiniband partition requested", defaults=((), (), False, "", False))
):
    """The input of a check: the hook, this node, and facts about the job.

    `hosts`: the job's nodes. `infiniband`: whether the job uses InfiniBand.
    """

    __slots__ = ()
    hook: str
    node: str
    hosts: tuple[str, ...]
    gpus: tuple[int, ...]  # minor numbers of the job's GPUs on this node (SLURM_JOB_GPUS)
    infiniband: bool
    partition: str
    requested: bool  # the job's user, and not the site, says that the job uses InfiniBand


class Finding(namedtuple("Finding", "verdict message value threshold used", defaults=(None, None, False))):
    """The result of a check: a verdict, a message, and the measured value beside its threshold.

    `used`: a job or a person on the node caused the failure, so the node has no fault.
    """

    __slots__ = ()
    verdict: str
    message: str
    value: Scalar
    threshold: Scalar
    used: bool


class Verdict(
    namedtuple("Verdict", "item verdict problem message value threshold seconds", defaults=(None, None, 0.0))
):
    """One line of a report: the finding of one item, its problem kind, and its duration in seconds."""

    __slots__ = ()
    item: str
    verdict: str
    problem: str
    message: str
    value: Scalar
    threshold: Scalar
    seconds: float

    @property
    def keyword(self) -> str:
        """Return the name of the item in logs: `disk-size shm` for `disk-size.shm`."""
        return self.item.replace(".", " ")

    @property
    def failed(self) -> bool:
        """Return whether the item failed and the failure is a problem. `timeout` and `error` mean unknown, not bad."""
        return self.verdict == FAILED and self.problem != NO_PROBLEM


def one_line(text: str) -> str:
    """Return `text` as at most 200 printable characters, so that it cannot forge a log line or a drain reason."""
    line = "".join(character if character.isprintable() else "?" for character in " ".join(text.split()))
    return line if len(line) <= MAX_MESSAGE else f"{line[: MAX_MESSAGE - 3]}..."


def first_few(texts: Sequence[str], count: int = 3, separator: str = ", ") -> str:
    """Join the first `count` texts: `a, b, c and 2 more`."""
    more = f" and {len(texts) - count} more" if len(texts) > count else ""
    return separator.join(texts[:count]) + more


def format_size(count: int) -> str:
    """Return bytes in the largest unit in which they are at least 1, with at most one decimal: 1610612736 -> 1.5 GB.

    Round down, so that a size just under a threshold does not read as the threshold itself.
    """
    unit = min((max(count, 1).bit_length() - 1) // 10, len(_UNITS) - 1)
    whole, tenth = divmod(count * 10 // 1024**unit, 10)
    return f"{whole}.{tenth} {_UNITS[unit]}" if tenth else f"{whole} {_UNITS[unit]}"


def compare(value: int, threshold: int) -> str:
    """Return how a value compares with the threshold that it must exceed: `>`, `<`, or `not >` if they are equal."""
    if value == threshold:
        return "not >"
    return ">" if value > threshold else "<"


def compare_sizes(value: int, threshold: int) -> str:
    """Return two sizes compared, `512 MB < 1 GB`; in bytes if the short forms are equal."""
    left, right = format_size(value), format_size(threshold)
    if left == right and value != threshold:
        left, right = f"{value} B", f"{threshold} B"
    return f"{left} {compare(value, threshold)} {right}"
