"""Format the answers of `slurm-plugin why`, and explain why a node is out of service and how it returns.

The functions are pure. The plugin's reason for a drain names the check items and the jobs. views/reasons.py explains
Slurm's own reasons.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import prechecks
from prechecks.report import JOBS, OURS
from slurm_plugin.errors import printable
from slurm_plugin.records import history, node_drains
from slurm_plugin.slurm import OUT_OF_SERVICE, Node
from slurm_plugin.views import reasons
from slurm_plugin.views.columns import paint

EVENTS: Final = frozenset(check.item for check in prechecks.CHECKS if check.event)
PERIODIC: Final = frozenset(check.item for check in prechecks.CHECKS if "periodic" in check.hooks)
ITEMS: Final = {check.item.replace(".", " "): check.item for check in prechecks.CHECKS}


# How a node that the plugin drained returns to service: in few words, and as a sentence.
BACK: Final[Mapping[str, str]] = {
    "itself": "by itself", "reboot": "after a reboot", "unchecked": "by hand", "unseen": "by hand",
    "unknown": "if the site checks", "away": "when slurmd answers", "repeat": "by hand",
}  # fmt: skip
_SENTENCES: Final[Mapping[str, str]] = {
    "itself": "it comes back by itself once it is mended: after {row} of the periodic check",
    "unchecked": "it does not come back by itself: no periodic check of ours runs here; mend it, then resume it",
    "unknown": "it comes back once it is mended: by our periodic check where the site has one, else by hand",
    "reboot": "it comes back by itself after a reboot: after {row} of the periodic check",
    "unseen": (
        "it does not come back by itself, the periodic check does not look at all of that: mend it, then resume it"
    ),
    "repeat": "it failed again and again, or its burn-in failed: it stays out until an administrator resumes it",
    "away": "it does not come back as long as its slurmd does not answer",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """The explanation of one job or node. `state` is Slurm's. `then` are commands to try, the best first."""

    name: str  # `job 7`, `node n2`
    state: str
    reason: str  # Slurm's
    lines: tuple[str, ...]
    then: tuple[str, ...]
    diagnosis: Mapping[str, Any] | None = None  # of a job's last failed attempt


def text(found: Answer, *, on: bool) -> list[str]:
    """Return the answer as lines for people. `on`: in colours."""
    lines = [paint(f"{found.name}{f': {found.state}' if found.state else ''}", "bold", on=on)]
    lines += [f"  {printable(line)}" for line in found.lines]
    if found.then:
        lines += ["try next", *(f"  {printable(command)}" for command in found.then)]
    return lines


def form(found: Answer) -> dict[str, Any]:
    """Return the answer for --json. Its first key is `job` or `node`."""
    kind, _, name = found.name.partition(" ")
    more = {"diagnosis": found.diagnosis} if kind == "job" else {}
    return {
        "v": 1,
        kind: int(name) if kind == "job" else name,
        "state": found.state,
        "reason": found.reason,
        "lines": found.lines,
        "next": found.then,
        **more,
    }


def of_node(node: Node, *, periodic: bool | None, passes: int | None = None) -> Answer:
    """Explain why this node takes no jobs, and how it returns to service.

    `periodic`: whether the plugin's periodic check runs on the node; None if unknown. `passes`: how many checks
    in a row a node must pass to return; None if unknown.
    """
    flags = [words for flag, words in reasons.NODE_STATES.items() if flag in node.states]
    state = "+".join(sorted(node.states, key=lambda flag: (flag not in ("IDLE", "MIXED", "ALLOCATED", "DOWN"), flag)))
    lines, then = list(flags), list[str]()
    reason = node.standing_reason
    if reason.startswith(OURS):
        more, then = _plugin_drain(node, periodic=periodic, passes=passes)
        lines += more
    elif reason:
        more, then = _other_drain(node)
        lines += more
    elif node.states & OUT_OF_SERVICE:
        then = [f"scontrol show node {node.name}"]
    if not node.states & OUT_OF_SERVICE:
        if not lines:
            lines.append("it is in service: nothing keeps jobs away from it")
        if node.reason.strip():
            lines.append(f"what still stands there as its reason is left from before: {node.reason}")
        if would := node_drains.text_in(node_drains.WOULD, node.comment):
            lines.append(f"a check failed, and only the site's dry run kept it in service: {would}")
        then.append(f"on {node.name}: slurm-plugin check")
    return Answer(f"node {node.name}", state, node.reason, tuple(lines), tuple(then))


def naming(nodes: Iterable[Node], job_id: int) -> list[Node]:
    """Return the nodes that the plugin's checks drained for this job."""
    return [node for node in nodes if node.standing_reason.startswith(OURS) and f" [job {job_id}]" in node.reason]


def keywords(reason: str) -> list[str]:
    """Return the keywords of the items in the plugin's reason for a drain: `disk-size shm`."""
    return [part.strip().partition(": ")[0] for part in bare_reason(reason).split("; ")]


def returns(node: Node, *, periodic: bool | None) -> str:
    """Return how a node that the plugin drained returns to service, as a key of BACK."""
    items = {ITEMS.get(each) for each in keywords(node.standing_reason)} - {None}
    if node.states & {"DOWN", "NOT_RESPONDING"}:
        return "away"
    if {node_drains.REPEAT, node_drains.BURN_IN}.intersection(keywords(node.standing_reason)):
        return "repeat"
    if not periodic:
        return "unknown" if periodic is None else "unchecked"
    if not PERIODIC.issuperset(items):
        return "unseen"
    return "reboot" if EVENTS.intersection(items) else "itself"


def _plugin_drain(node: Node, *, periodic: bool | None, passes: int | None) -> tuple[list[str], list[str]]:
    """Explain the plugin's drain: each item, the jobs, and how the node returns. Also return commands to try."""
    text = node.standing_reason.removeprefix(OURS)
    found = [part.strip() for part in JOBS.sub("", text).split("; ")]
    jobs = [job.strip(" []") for job in JOBS.findall(text)]
    when = f" at {history.moment(node.reason_time)}" if node.reason_time else ""
    lines = [f"slurm_plugin drained it{when}: a check failed", *(f"  {part}" for part in found)]
    if jobs:
        lines.append(f"found for {', '.join(jobs)}")
    row = f"{passes} good looks in a row" if passes else "several good looks in a row"
    items = [ITEMS[each] for each in keywords(node.standing_reason) if each in ITEMS]
    back = _SENTENCES[returns(node, periodic=periodic)].format(row=row)
    lines.append(back)
    return lines, [
        f"on {node.name}: slurm-plugin check {' '.join(items)}".rstrip(),
        f"scontrol update nodename={node.name} state=resume",
    ]


def _other_drain(node: Node) -> tuple[list[str], list[str]]:
    """Explain a drain by Slurm or a person, which the plugin never undoes. Also return commands to try."""
    row = reasons.row_of(reasons.NODE_REASONS, node.standing_reason)
    who = f" ({node.reason_user}, {history.moment(node.reason_time)})" if node.reason_user and node.reason_time else ""
    resume = f"scontrol update nodename={node.name} state=resume"
    if row:
        lines = [f"Slurm took it out{who}: {node.standing_reason}", f"  {row.says}"]
        return [*lines, "we never give such a node back"], [row.then.format(node=node.name), resume]
    return [
        f"somebody took it out{who}: {node.standing_reason}",
        "we never change what an administrator wrote; who wrote it gives it back",
    ], [f"on {node.name}: slurm-plugin check", resume]


def bare_reason(reason: str) -> str:
    """Return the plugin's reason for a drain without its prefix and its jobs."""
    return JOBS.sub("", reason.removeprefix(OURS))
