"""The per-job request in a job's `--comment`: `[sp1;retries=3;ib=auto]`.

The token is user text and only a request: the grant in admin_comment (`slurm_plugin.records.grant`) decides. While a
job runs, the supervisor adds `again=` (restarts in place so far), `had=` (see Had) and a **mark**: `run=` (the restart
count of the run that requests a requeue) and `x=` (the positions of the nodes to exclude, in that run's node list),
`move=1` (exclude all of them until the next requeue) or `grow=1` (it requests more nodes).
docs/reference/contract.md has the form and the limits.

The classes are named tuples of `collections`, because `dataclasses` would cost every prolog that reads a token 14 ms.
"""

from __future__ import annotations

from collections import namedtuple

TYPE_CHECKING = False  # as in `typing`, which is too slow to import here (see slurm_plugin.records.site_settings)
if TYPE_CHECKING:
    from typing import Any

VERSION = "sp1"
MAX_BYTES = 200
MAX_COMMENT_BYTES = 1024  # sbatch refuses 1025 with "Pathname of a file, directory or other parameter too long"
MAX_RETRIES = 128
INFINIBAND = ("auto", "yes", "no")

OPENING = f"[{VERSION};"  # the beginning of a token
_CLOSES = "]"
_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_=;.,-")
_MAX_DIGITS = 6
_MAX_JOB_DIGITS = 10  # job ids have 32 bits
_MOST = 10**_MAX_DIGITS - 1


class Mark(namedtuple("Mark", "run leave_out grow moved", defaults=((), False, False))):
    """A supervisor's request for a requeue: which run ends, and which of its nodes to exclude."""

    __slots__ = ()
    run: int  # SLURM_RESTART_COUNT of that run
    leave_out: tuple[int, ...]  # positions in that run's node list, from 0
    grow: bool  # the job is requeued to run on more nodes, not after a fault
    moved: bool  # the job was slow on its nodes: exclude all of them, until its next requeue


class Had(namedtuple("Had", "run nodes")):
    """The number of nodes with which a run began. With `--no-kill`, Slurm removes lost nodes from a running job."""

    __slots__ = ()
    run: int
    nodes: int


class Token(
    namedtuple(
        "Token",
        "retries infiniband mark again queue_timeout_s had any_of",
        defaults=(0, "auto", None, 0, None, None, ()),
    )
):
    """The requests of a job and its supervisor to the hooks."""

    __slots__ = ()
    retries: int
    infiniband: str
    mark: Mark | None
    again: int  # restarts inside its allocations so far, over all runs
    queue_timeout_s: int | None  # longest wait after a requeue by the plugin; 0: no limit; None: the site's
    had: Had | None  # the nodes of the latest run
    any_of: tuple[int, ...]  # the ids of alternative jobs, with this job, of which only one runs

    def __str__(self) -> str:
        parts = [VERSION, f"retries={self.retries}", f"ib={self.infiniband}"]
        if self.queue_timeout_s is not None:
            parts.append(f"q={self.queue_timeout_s}")
        if self.any_of:
            parts.append("any=" + ",".join(map(str, self.any_of)))
        if self.again:
            parts.append(f"again={self.again}")
        if self.had:
            parts.append(f"had={self.had.run}.{self.had.nodes}")
        if self.mark:
            parts.append(f"run={self.mark.run}")
            if self.mark.leave_out:
                parts.append("x=" + ",".join(map(str, self.mark.leave_out)))
            if self.mark.grow:
                parts.append("grow=1")
            if self.mark.moved:
                parts.append("move=1")
        return f"[{';'.join(parts)}]"


def find(comment: str) -> Token | None:
    """Return the token in a comment; None if there is none, more than one, or a malformed token."""
    if comment.count(OPENING) != 1:
        return None
    _, inside, _ = _split(comment)
    if not _CHARACTERS.issuperset(inside) or len(f"{OPENING}{inside}{_CLOSES}") > MAX_BYTES:
        return None
    fields: dict[str, str] = {}
    for part in inside.split(";"):
        key, equals, value = part.partition("=")
        if not equals or not key or key in fields:
            return None
        fields[key] = value
    return _token(fields)


def _split(comment: str) -> tuple[str, str, str]:
    """Return the text before, in and after the first token. If it has no end, return a malformed text for it."""
    before, _, rest = comment.partition(OPENING)
    inside, closed, after = rest.partition(_CLOSES)
    return before, inside if closed else f"{inside}{OPENING}", after


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS


def _token(fields: dict[str, str]) -> Token | None:
    """Return a token from its `key=value` pairs; None if one is malformed. Ignore keys of a later version."""
    numbers = [fields.get(key, "0") for key in ("retries", "run", "again", "q")]
    places = [part for part in fields.get("x", "").split(",") if part]
    if not all(map(_is_number, (*numbers, *places))):
        return None
    retries, infiniband = int(numbers[0]), fields.get("ib", "auto")
    if retries > MAX_RETRIES or infiniband not in INFINIBAND:
        return None
    grow, moved = (fields.get(key) == "1" for key in ("grow", "move"))
    mark = Mark(int(numbers[1]), tuple(map(int, places)), grow, moved) if "run" in fields else None
    wait_s = int(numbers[3]) if "q" in fields else None
    run, _, count = fields.get("had", "").partition(".")
    had = Had(int(run), int(count)) if _is_number(run) and _is_number(count) else None
    jobs = [part for part in fields.get("any", "").split(",") if part]
    any_of = tuple(map(int, jobs)) if all(part.isdigit() and len(part) <= _MAX_JOB_DIGITS for part in jobs) else ()
    return Token(retries, infiniband, mark, int(numbers[2]), wait_s, had, any_of)


def update(comment: str, **changes: Any) -> str:
    """Return the comment with these fields in its token.

    `again` never decreases, and a mark keeps as many nodes as fit. Raises ValueError if there is no token or no room.
    """
    token = find(comment)
    if token is None:
        raise ValueError(f"the job's comment holds no {OPENING}...] token: it was edited after submission")
    if "again" in changes:
        changes["again"] = min(max(token.again, changes["again"]), _MOST)
    token = token._replace(**changes)
    before, _, after = _split(comment)
    leave_out = token.mark.leave_out[: MAX_BYTES // 2] if token.mark else ()  # each position takes two bytes at least
    while True:
        mark = token.mark and token.mark._replace(leave_out=leave_out)
        text = str(token._replace(mark=mark))
        whole = f"{before}{text}{after}"
        if len(text) <= MAX_BYTES and len(whole.encode()) <= MAX_COMMENT_BYTES:
            return whole
        if not leave_out:
            raise ValueError(f"the job's comment leaves no room for the mark: over {MAX_COMMENT_BYTES} bytes")
        leave_out = leave_out[:-1]
