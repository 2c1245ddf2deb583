"""Records about the drains of a node: files of root, valid until the next boot, and texts in the node's Comment.

The files (prechecks.boot_state). An error when one is read or written is only logged:

- `drained.json`, the plugin's drain: `reason` (empty: no drain), `gpus` and `infiniband` (what was checked then),
  `done` (Slurm has accepted the drain), `earlier` (it was before this boot), `at` (when root knew that the node was
  drained, in seconds since the epoch). An administrator's resume leaves the file until the next periodic check.
- `owed.json`: a reason that Slurm has not accepted yet.
- `remark.json`: the reason in the Comment, on a dry run.

The Comment contains an administrator's text and, after it, in brackets:

- A **claim** says that a hook is about to drain the node (slurm_plugin.node.draining counts claims for the cap). It
  expires after CLAIM_S seconds, because a killed hook does not remove its claim.
- A **remark** says that a dry run would have drained the node, and why.
- The **past** has the last MOST_PAST drains by the plugin: when each began, when the plugin ended it, its items and its
  job. Everyone can read it where there is no slurmdbd. It is written with changes that a hook makes anyway.
- The **repairs** are the last steps by which the plugin tried to repair the node (slurm_plugin.records.node_repairs).
- The **driver** is the version of the accelerators' driver.
- The **machine** is a checksum of the serial number of the machine to which the past and the repairs belong.

A change of one text keeps the other texts and the administrator's. In a text, brackets and `=` are replaced: a bracket
would end the text, and Slurm prints a node as `name=value`, so ` Extra=` would end the Comment.
"""

from __future__ import annotations

import re
import time
from collections import namedtuple
from collections.abc import Iterable, Mapping

from prechecks import boot_state
from prechecks.report import OURS
from prechecks.verdict import one_line
from slurm_plugin.records import syslog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from prechecks import Context
    from slurm_plugin.slurm import Node

DRAINED, OWED, REMARK = "drained", "owed", "remark"
CLAIM_S = 300  # far longer than a hook runs, and than the clocks of two nodes differ
CLAIM = re.compile(r" ?\[slurm_plugin: to be drained, ([0-9]{1,11})\]", re.ASCII)
WOULD = re.compile(r" ?\[slurm_plugin: would be drained: ([^\[\]]*)\]")
_TOLD = re.compile(r"(.*) @([0-9]{1,11})", re.ASCII)
_PAST = re.compile(r" ?\[slurm_plugin: drains: ([^\[\]]*)\]")
REPAIRS = re.compile(r" ?\[slurm_plugin: repairs: ([^\[\]]*)\]")
_MACHINE = re.compile(r" ?\[slurm_plugin: machine ([^\[\]]*)\]")
_JOB = re.compile(r" \(job ([0-9]+)\)$", re.ASCII)
DRIVER = re.compile(r" ?\[slurm_plugin: driver ([^\[\]]*)\]")
_PLAIN = str.maketrans({"[": "(", "]": ")", "=": ":", '"': "'"})
MOST_PAST = 10  # drains
TIME = "%Y-%m-%dT%H:%M:%SZ"
_LONGEST_ITEMS, _LONGEST_DRIVER = 60, 40  # characters
REPEAT, BURN_IN = "repeat", "burn-in"  # keywords of a reason that only an administrator ends
REPEAT_DAYS = 30


def load(site: Mapping[str, Any], item: str) -> dict[str, Any]:
    """Return the facts that were recorded for `item` in this boot; empty if there are none."""
    try:
        return boot_state.load(site["prechecks"]["state"], item)
    except OSError as error:
        syslog.syslog(syslog.LOG_ERR, f"the record {item!r} of this node cannot be read: {error}")
        return {}


def keep(site: Mapping[str, Any], item: str, facts: Mapping[str, Any]) -> None:
    """Record these facts for `item`, in place of the old facts."""
    try:
        boot_state.save(site["prechecks"]["state"], item, facts)
    except OSError as error:
        syslog.syslog(syslog.LOG_ERR, f"the record {item!r} of this node cannot be written: {error}")


def keep_drain(site: Mapping[str, Any], reason: str, context: Context, *, done: bool, earlier: bool = False) -> None:
    """Record a drain by the plugin. Keep the devices of a recorded drain: they must still be checked."""
    before = load(site, DRAINED)
    if not before.get("reason"):
        before = {}
    facts = {
        "reason": reason,
        "gpus": sorted({*before.get("gpus", ()), *context.gpus}),
        "infiniband": bool(before.get("infiniband")) or (context.infiniband and not context.requested),
        "done": done,
        "earlier": earlier,
        "at": int(time.time()),
    }
    keep(site, DRAINED, facts)


def told(facts: Mapping[str, Any]) -> str:
    """Return a drain of drained.json as a guard reports it, `REASON @TIME` in one line; empty without one."""
    text = " ".join(str(facts.get("reason", ""))[:400].split()) if facts.get("done") else ""
    return f"{text} @{facts.get('at', 0)}" if text else ""


def parts(drain: str) -> tuple[str, float]:
    """Return the reason and the time in what `told` returned; the time 0 without one."""
    found = _TOLD.fullmatch(drain)
    return (found[1], float(found[2])) if found else (drain, 0.0)


def keep_unfinished(site: Mapping[str, Any]) -> None:
    """Record that a resume is not complete, so that the next check queries the node's reason."""
    keep(site, DRAINED, {**load(site, DRAINED), "done": False})


def keep_no_drain(site: Mapping[str, Any]) -> None:
    """Record that the plugin has not drained this node."""
    keep(site, DRAINED, {"reason": "", "done": True})


def reason(site: Mapping[str, Any], item: str) -> str:
    """Return the recorded reason of OWED or REMARK; empty without one."""
    return str(load(site, item).get("reason", ""))


def keep_reason(site: Mapping[str, Any], item: str, reason: str) -> None:
    """Record the reason of OWED or REMARK; an empty one removes it."""
    keep(site, item, {"reason": reason})


def with_claim(comment: str, now: float) -> str:
    """Return the comment with a claim made at `now` (seconds since the epoch), in place of any other claim."""
    return f"{without(CLAIM, comment)} [slurm_plugin: to be drained, {now:.0f}]".lstrip()


def has_claim(comment: str, now: float) -> bool:
    """Return whether the comment has a claim that has not expired."""
    found = CLAIM.search(comment)
    return found is not None and abs(now - int(found[1])) < CLAIM_S


def with_remark(comment: str, reason: str) -> str:
    """Return the comment with a new remark: at most 200 characters of this drain reason."""
    words = one_line(reason.removeprefix(OURS)).translate(_PLAIN)
    return f"{without(WOULD, comment)} [slurm_plugin: would be drained: {words}]".lstrip()


def text_in(mark: re.Pattern[str], comment: str) -> str:
    """Return what a comment says in this mark, such as the reason in a remark; empty without the mark."""
    found = mark.search(comment)
    return found[1] if found else ""


class PastDrain(namedtuple("PastDrain", "start end items job", defaults=("",))):
    """A drain by the plugin. The times are UTC, such as 2026-11-23T14:02:11Z; `end` is empty until the plugin ends it.

    `items`: the keywords of the failed items, with commas. `job`: the id of the job that found them, or empty.
    """

    __slots__ = ()
    start: str
    end: str
    items: str
    job: str


def past_in(comment: str) -> list[PastDrain]:
    """Return the drains in a comment, oldest first."""
    found = _PAST.search(comment)
    drains = []
    for entry in found[1].split("; ") if found else ():
        times, _, items = entry.partition(" ")
        start, _, end = times.partition("/")
        job = _JOB.search(items)
        drains.append(PastDrain(start, end, _JOB.sub("", items), job[1] if job else ""))
    return drains


def with_drain(comment: str, items: Iterable[str], now: float, job: str = "", machine: str = "") -> str:
    """Return the comment with one more drain of this machine, at `now` (seconds since the epoch).

    `job`: the id, or empty. `machine`: see `with_machine`.
    """
    comment = with_machine(comment, machine)
    words = one_line(",".join(items)).translate(_PLAIN).replace(";", ",")[:_LONGEST_ITEMS]
    whole = _with_past(comment, [*past_in(comment), PastDrain(utc(now), "", _JOB.sub("", words), job)])
    return with_machine(without(_MACHINE, whole), machine) if machine else whole  # behind the drains


def with_resume(comment: str, now: float) -> str:
    """Return the comment in which the last drain has ended at `now`; unchanged if that is not open."""
    past = past_in(comment)
    if not past or past[-1].end:
        return comment
    return _with_past(comment, [*past[:-1], past[-1]._replace(end=utc(now))])


def _with_past(comment: str, past: list[PastDrain]) -> str:
    entries = (
        f"{each.start}{each.end and '/'}{each.end} {each.items}{each.job and f' (job {each.job})'}"
        for each in past[-MOST_PAST:]
    )
    return f"{without(_PAST, comment)} [slurm_plugin: drains: {'; '.join(entries)}]".lstrip()


def jobs_of(comment: str, now: float) -> list[str]:
    """Return the different jobs that drained the node in REPEAT_DAYS before `now` (seconds since the epoch).

    A drain for REPEAT was ended by an administrator: those before it no longer count.
    """
    past, since = past_in(comment), utc(now - REPEAT_DAYS * 86400)
    first = max((place + 1 for place, each in enumerate(past) if REPEAT in each.items.split(",")), default=0)
    return list(dict.fromkeys(each.job for each in past[first:] if each.job and each.start >= since))


def drain_of(node: Node) -> str:
    """Return a name for the present drain of a node: its time and its reason."""
    return f"{node.reason_time and node.reason_time.isoformat()} {node.standing_reason}"


def with_machine(comment: str, machine: str) -> str:
    """Return the comment for this machine: without the past of another one. An empty `machine` is unknown."""
    found = _MACHINE.search(comment)
    if not machine or (found and found[1] == machine):
        return comment
    rest = without(_MACHINE, comment)
    rest = without(REPAIRS, without(_PAST, rest)) if found else rest
    return f"{rest} [slurm_plugin: machine {machine}]".lstrip()


def of_another_machine(comment: str, machine: str) -> bool:
    """Return whether the past in the comment is that of another machine."""
    found = _MACHINE.search(comment)
    return bool(found and machine and found[1] != machine)


def utc(seconds: float) -> str:
    """Return a time (seconds since the epoch) as the Comment has it."""
    return time.strftime(TIME, time.gmtime(seconds))


def with_driver(comment: str, version: str) -> str:
    """Return the comment with this version of the driver; without one if it is empty."""
    rest = without(DRIVER, comment)
    words = one_line(version).translate(_PLAIN)[:_LONGEST_DRIVER]
    return f"{rest} [slurm_plugin: driver {words}]".lstrip() if words else rest


def without(text: re.Pattern[str], comment: str) -> str:
    """Return the comment without this text and the blank before it, or after it at the beginning of the comment."""
    rest = text.sub("", comment)
    return rest if text.match(comment) is None else rest.lstrip(" ")
