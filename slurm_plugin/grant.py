"""What a job was granted and has used: one line of JSON behind `sp1:` in its admin_comment.

job_submit.lua writes it at submission, SlurmUser later; users cannot. Whatever else a site keeps in admin_comment is
kept, and stands before our part once we have written.
"""

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

PREFIX = "sp1:"
_START = 'sp1:{"'  # inside our own JSON a quote is escaped, so the last one of these begins it
MAX_NAMED = 16  # nodes named in `excluded`: the whole list is the job's own ExcNodeList
MAX_WORDS = 2000  # bytes of `last`: the door reads 4096 of an admin_comment, and a grant cut off would be no grant


@dataclass(frozen=True, slots=True)
class Grant:
    """The budget of a job and what happened to it."""

    granted: int = 0  # restarts allowed
    requeues: int = 0  # restarts used by requeues
    excluded: tuple[str, ...] = ()  # the nodes left out because of us, newest last
    deadline: str = ""  # the job's Deadline while it is one of ours, UTC
    last: str = ""  # why the last restart happened, in words
    counted: int = -1  # the run (restart count) that was counted last
    again: int = 0  # restarts used inside an allocation, without a requeue
    own_deadline: str = ""  # the job's own, which ours stands in the place of
    kept: tuple[str, ...] = ()  # of `excluded` those that failed the job's own check: no drain tells when that is over
    nice: tuple[int, ...] = ()  # the job's own Nice and the one that it got from us

    @property
    def used(self) -> int:
        """Restarts that happened, of both kinds."""
        return self.requeues + self.again

    @property
    def left(self) -> int:
        """Restarts that may still happen."""
        return max(0, self.granted - self.used)

    def told(self, again: int) -> "Grant":
        """The grant with the restarts in place that the job's own token tells of.

        It is user text: it may only raise the number, which lowers what is left.
        """
        return replace(self, again=max(self.again, again))


def parse(admin_comment: str) -> Grant | None:
    """The grant in an admin_comment; None where there is none, or one that cannot be read."""
    _, fields, _ = _split(admin_comment)
    try:
        return None if fields is None else _grant(fields)
    except (ValueError, TypeError, OverflowError):
        return None


def _split(admin_comment: str) -> tuple[str, dict[str, Any] | None, str]:
    """What stands before our part, our part (None where it cannot be read), and what stands behind it."""
    before, found, rest = admin_comment.rpartition(_START)
    if not found:
        return admin_comment, None, ""
    try:
        fields, end = json.JSONDecoder().raw_decode('{"' + rest)
    except (ValueError, RecursionError):
        return before, None, ""
    return before, fields, rest[end - 2 :]


def _grant(fields: dict[str, Any]) -> Grant:
    nice = tuple(map(int, fields.get("nice", ())))
    return Grant(
        granted=int(fields.get("granted", 0)),
        requeues=int(fields.get("requeues", 0)),
        excluded=tuple(map(str, fields.get("excluded", ()))),
        deadline=str(fields.get("deadline", "")),
        last=str(fields.get("last", "")),
        counted=int(fields.get("counted", -1)),
        again=int(fields.get("again", 0)),
        kept=tuple(map(str, fields.get("kept", ()))),
        own_deadline=str(fields.get("own_deadline", "")),
        nice=nice if len(nice) == 2 else (),
    )


def written(admin_comment: str, grant: Grant) -> str:
    """The admin_comment with `grant` in the place of the old one, the site's own text kept before it."""
    before, _, after = _split(admin_comment)
    before += after.rstrip()
    if before and not before.endswith((" ", "\n")):
        before += " "
    fields = asdict(grant)
    fields["excluded"] = grant.excluded[-MAX_NAMED:]
    fields["kept"] = grant.kept[-MAX_NAMED:]
    fields["last"] = _cut(grant.last)
    return before + PREFIX + json.dumps(fields, ensure_ascii=True, separators=(",", ":"))


def _cut(text: str) -> str:
    """The beginning of `text`, as much as MAX_WORDS bytes of JSON hold."""
    text = text[:MAX_WORDS]
    while len(json.dumps(text)) > MAX_WORDS:
        text = text[:-1]
    return text
