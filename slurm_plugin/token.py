"""The per-job request that travels in a job's `--comment`: `[sp1;retries=3;ib=auto]`.

It is user text and only a request: authority is the grant in admin_comment (`slurm_plugin.grant`). While a job runs,
the supervisor adds `again=` (restarts in place so far) and a **mark**: `run=` (the restart count of the run that is
asked to end), `x=` (the positions of the nodes to leave out, in that run's node list). Form and bounds:
docs/contract.md.

Named tuples made by `collections`: a prolog reads a token on every node of every job, and `dataclasses` costs it 14 ms.
"""

from __future__ import annotations

from collections import namedtuple

VERSION = "sp1"
MAX_BYTES = 200
MAX_COMMENT_BYTES = 1024  # sbatch refuses 1025 with "Pathname of a file, directory or other parameter too long"
MAX_RETRIES = 128
INFINIBAND = ("auto", "yes", "no")

FORM = f"[{VERSION};"  # with which a token begins
_OPENS, _CLOSES = FORM, "]"
_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_=;.,-")
_MAX_DIGITS = 6
_MAX_JOB_DIGITS = 10  # Slurm's own are of 32 bits
_MOST = 10**_MAX_DIGITS - 1


class Mark(namedtuple("Mark", "run leave_out", defaults=((),))):
    """A supervisor's request to run again elsewhere: which run ends, and which of its nodes to leave out."""

    __slots__ = ()
    run: int  # SLURM_RESTART_COUNT of the run that asks
    leave_out: tuple[int, ...]  # positions in that run's node list, from 0


class Had(namedtuple("Had", "run nodes")):
    """How many nodes a run began with: Slurm takes lost ones out of a job that is to outlive them (`--no-kill`)."""

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
    """What a job asks of the hooks, and what its supervisor tells them."""

    __slots__ = ()
    retries: int
    infiniband: str
    mark: Mark | None
    again: int  # restarts inside its allocations so far, over all runs
    queue_timeout_s: int | None  # how long it may wait after a requeue of ours; 0: any time; None: as the site says
    had: Had | None  # of the run that began last
    any_of: tuple[int, ...]  # the jobs that were submitted together, this one among them, for one of them to run

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
        return f"[{';'.join(parts)}]"


def find(comment: str) -> Token | None:
    """The token in a comment, or None: none there, more than one, or a malformed one."""
    if comment.count(_OPENS) != 1:
        return None
    _, inside, _ = _parted(comment)
    if not _CHARACTERS.issuperset(inside) or len(f"{_OPENS}{inside}{_CLOSES}") > MAX_BYTES:
        return None
    fields: dict[str, str] = {}
    for part in inside.split(";"):
        key, equals, value = part.partition("=")
        if not equals or not key or key in fields:
            return None
        fields[key] = value
    return _token(fields)


def _parted(comment: str) -> tuple[str, str, str]:
    """What stands before the first token, in it, and behind it. Without an end it has a character no token has."""
    before, _, rest = comment.partition(_OPENS)
    inside, closed, after = rest.partition(_CLOSES)
    return before, inside if closed else f"{inside}{_OPENS}", after


def _number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS


def _token(fields: dict[str, str]) -> Token | None:
    """A token from its `key=value` pairs; keys of a later version are passed over."""
    numbers = [fields.get(key, "0") for key in ("retries", "run", "again", "q")]
    places = [part for part in fields.get("x", "").split(",") if part]
    if not all(map(_number, (*numbers, *places))):
        return None
    retries, infiniband = int(numbers[0]), fields.get("ib", "auto")
    if retries > MAX_RETRIES or infiniband not in INFINIBAND:
        return None
    mark = Mark(int(numbers[1]), tuple(map(int, places))) if "run" in fields else None
    wait_s = int(numbers[3]) if "q" in fields else None
    run, _, count = fields.get("had", "").partition(".")
    had = Had(int(run), int(count)) if _number(run) and _number(count) else None
    jobs = [part for part in fields.get("any", "").split(",") if part]
    any_of = tuple(map(int, jobs)) if all(part.isdigit() and len(part) <= _MAX_JOB_DIGITS for part in jobs) else ()
    return Token(retries, infiniband, mark, int(numbers[2]), wait_s, had, any_of)


def marked(comment: str, mark: Mark) -> str:
    """The comment with its token carrying `mark`, everything else kept; nodes that do not fit are dropped.

    Raises ValueError where the comment holds no token of ours, or has no room.
    """
    return _written(comment, _held(comment)._replace(mark=mark))


def counted(comment: str, *, again: int) -> str:
    """The comment with its token telling of `again` restarts in place; a number that is there is never lowered.

    Everything else is kept, as `marked` does. Raises ValueError where the comment holds no token of ours, or has no
    room.
    """
    token = _held(comment)
    return _written(comment, token._replace(again=min(max(token.again, again), _MOST)))


def began(comment: str, had: Had) -> str:
    """The comment with its token telling how many nodes a run has, everything else kept. Raises as `counted`."""
    return _written(comment, _held(comment)._replace(had=had))


def grouped(comment: str, jobs: tuple[int, ...]) -> str:
    """The comment with its token naming the jobs of which one is to run, everything else kept. Raises as `counted`."""
    return _written(comment, _held(comment)._replace(any_of=jobs))


def _held(comment: str) -> Token:
    token = find(comment)
    if token is None:
        raise ValueError("the job's comment holds no [sp1;...] token: it was edited after submission")
    return token


def _written(comment: str, token: Token) -> str:
    """The comment with `token` in the place of the one in it; of a mark's nodes as many as fit."""
    before, _, after = _parted(comment)
    leave_out = token.mark.leave_out[: MAX_BYTES // 2] if token.mark else ()  # each takes two bytes at least
    while True:
        mark = token.mark and Mark(token.mark.run, leave_out)
        text = str(token._replace(mark=mark))
        whole = f"{before}{text}{after}"
        if len(text) <= MAX_BYTES and len(whole.encode()) <= MAX_COMMENT_BYTES:
            return whole
        if not leave_out:
            raise ValueError(f"the job's comment leaves no room for our mark: over {MAX_COMMENT_BYTES} bytes")
        leave_out = leave_out[:-1]
