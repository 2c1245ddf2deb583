"""What the periodic check makes of its verdicts over time. Pure.

| an item | counts |
|---|---|
| fails, and its causes are the node's own | at once |
| fails, and its causes are shared by many nodes (dns, mounts, services, clock ...) | the `failures`-th time in a row |
| could not tell (timeout, error) | as nothing: it neither drains nor brings back, and leaves the row as it is |

A node that we have drained is back after `passes` looks in a row at which every item that its reason names was ok and
no item failed. One that could not be told, or was not looked at, ends the row: unknown is not healthy. Nor is an event
over because later looks see it no more.
"""

import re
from collections import namedtuple
from collections.abc import Collection, Mapping, Sequence

from prechecks.report import JOBS, OURS, node_problems
from prechecks.verdict import OK, SKIPPED, Verdict

_OURS = re.compile(rf"{OURS}((?:(?!{JOBS.pattern}).)*)(?:{JOBS.pattern})*", re.ASCII)


class Row(namedtuple("Row", "failures passes reason", defaults=({}, 0, ""))):
    """What the looks so far came to.

    `failures`: item -> how often it failed in a row. `passes`: good looks in a row, while the node is out for `reason`.
    """

    __slots__ = ()
    failures: Mapping[str, int]
    passes: int
    reason: str


def after(
    before: Row, verdicts: Sequence[Verdict], reason: str, items: Collection[str], events: Collection[str] = ()
) -> Row:
    """The row with one look more. `reason`: why the node is out by our doing, or empty; `items`: the ids of all.

    `events`: the items for which no later look makes good.
    """
    bad = {verdict.item for verdict in node_problems(verdicts)}
    known = {verdict.item for verdict in verdicts if verdict.failed or verdict.verdict in (OK, SKIPPED)}
    failures = {item: count for item, count in before.failures.items() if item not in known}
    failures.update({item: before.failures.get(item, 0) + 1 for item in bad})
    if not reason:
        return Row(failures)
    fine = {verdict.item for verdict in verdicts if verdict.verdict == OK}
    names = named(reason, items)
    good = not bad and bool(names) and names <= fine and names.isdisjoint(events)
    earlier = before.passes if before.reason == reason else 0
    return Row(failures, earlier + 1 if good else 0, reason)


def draining(row: Row, verdicts: Sequence[Verdict], shared: Collection[str], needed: int) -> tuple[Verdict, ...]:
    """The verdicts that drain the node now. `shared`: the items that fail on many nodes at once."""
    return tuple(
        verdict
        for verdict in node_problems(verdicts)
        if verdict.item not in shared or row.failures[verdict.item] >= needed
    )


def well(verdicts: Sequence[Verdict], reason: str, items: Collection[str]) -> bool:
    """Whether nothing fails at this look, and every item that `reason` names could be told or is not looked at."""
    unknown = {verdict.item for verdict in verdicts if not verdict.failed and verdict.verdict not in (OK, SKIPPED)}
    return not node_problems(verdicts) and unknown.isdisjoint(named(reason, items))


def named(reason: str, items: Collection[str]) -> frozenset[str]:
    """The items that a reason of ours names: `slurm_plugin: gpu-check: 3 of 4 GPUs; disk-size shm: ... [job 7]`.

    None where the reason is not wholly ours: somebody has added words, or it is of a version with other items.
    """
    keywords = {item.replace(".", " "): item for item in items}
    found = _OURS.fullmatch(reason)
    words = [part.partition(": ")[0] for part in found[1].split("; ")] if found else []
    return frozenset(keywords[word] for word in words) if all(word in keywords for word in words) else frozenset()
