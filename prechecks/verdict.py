"""What a check is told (Context), what it finds (Finding), and what is made of it (Verdict).

These are named tuples made by `collections`, and this package names types only where a type checker looks: a prolog
runs on every node of every job, and importing `dataclasses` there costs 8 ms, `typing` 3 ms, this 0.3 ms.
"""

from __future__ import annotations

from collections import namedtuple

from prechecks.errors import PrecheckError

TYPE_CHECKING = False  # the name that type checkers know
if TYPE_CHECKING:
    Scalar = int | float | str | None

OK = "ok"
FAILED = "failed"  # the only verdict that counts as a problem
TIMEOUT = "timeout"  # unknown: no answer before the deadline
SKIPPED = "skipped"  # does not apply here
ERROR = "error"  # unknown: the check itself broke
VERDICTS = (OK, FAILED, TIMEOUT, SKIPPED, ERROR)

NODE_PROBLEM = "node_problem"  # drain the node
JOB_PROBLEM = "job_problem"  # this job should not run here now; the node stays
NO_PROBLEM = "no_problem"  # a site wants to read of it, and no more
PROBLEMS = (NODE_PROBLEM, JOB_PROBLEM, NO_PROBLEM)

MAX_MESSAGE = 200  # characters; several messages share one drain reason


class Context(namedtuple("Context", "hook node hosts gpus infiniband partition", defaults=((), (), False, ""))):
    """Where a check runs: the hook, this node, and of the job its hosts, its GPUs here, whether it uses InfiniBand, its
    partition."""

    __slots__ = ()
    hook: str
    node: str
    hosts: tuple[str, ...]
    gpus: tuple[int, ...]  # minor numbers of the job's GPUs on this node (SLURM_JOB_GPUS)
    infiniband: bool
    partition: str


class Finding(namedtuple("Finding", "verdict message value threshold", defaults=(None, None))):
    """What a check found: a verdict, the message for people, and the measured value beside its threshold."""

    __slots__ = ()
    verdict: str
    message: str
    value: Scalar
    threshold: Scalar


class Verdict(namedtuple("Verdict", "item verdict problem message value threshold seconds")):
    """One line of a report: the finding of one item, its problem kind, and how long it took in seconds."""

    __slots__ = ()
    item: str
    verdict: str
    problem: str
    message: str
    value: Scalar
    threshold: Scalar
    seconds: float

    def __new__(
        cls,
        item: str,
        verdict: str,
        problem: str,
        message: str,
        *,
        value: Scalar = None,
        threshold: Scalar = None,
        seconds: float = 0.0,
    ) -> Verdict:
        """Raises PrecheckError for a verdict or a problem that is not one of the contract's words."""
        for word, words in ((verdict, VERDICTS), (problem, PROBLEMS)):
            if word not in words:
                raise PrecheckError(f"{item}: {word!r} is none of {', '.join(words)}")
        return super().__new__(cls, item, verdict, problem, message, value, threshold, seconds)

    @property
    def keyword(self) -> str:
        """The item as people and logs name it: `disk-size.shm` is `disk-size shm`."""
        return self.item.replace(".", " ")

    @property
    def failed(self) -> bool:
        """Whether this counts as a problem; `timeout` and `error` are unknown, and unknown is not bad."""
        return self.verdict == FAILED and self.problem != NO_PROBLEM


def one_line(text: str) -> str:
    """`text` as at most 200 printable characters: a message must not forge a line of the log or of a drain reason."""
    line = "".join(character if character.isprintable() else "?" for character in " ".join(text.split()))
    return line if len(line) <= MAX_MESSAGE else f"{line[: MAX_MESSAGE - 3]}..."
