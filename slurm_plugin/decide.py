"""What happens after an attempt. Pure: values in, one action with its reason in words.

| the attempt | its nodes | restarts left | action |
|---|---|---|---|
| was told to end (scancel, preemption, a requeue) | | | finish with its exit code |
| ended with 0 | | | finish |
| failed with 93 | | | fail, 93: the program asked not to be restarted |
| did not pass the checks, or failed | some failed | no | fail: 1, or the program's own code |
| did not pass the checks, or failed | some failed, enough are left | yes | again on those that are left |
| did not pass the checks, or failed | some failed, too few are left | yes | requeue without them |
| ran into its time limit, with a new checkpoint | | yes | requeue, to go on |
| ran into its time limit, its checkpoints cannot all be read | | yes, not the 4th in a row | requeue, to go on |
| ran into its time limit | | | fail |
| hung, or failed with `unconditional` | all fine, or nothing known | yes, not the 4th in a row | again on its nodes |
| hung, or failed with `unconditional` | all fine, or nothing known | no, or the 4th in a row | fail |
| failed | all fine, or nothing known | | fail with the program's own code |

Enough nodes are left where as many are healthy as the program wants (spares), or as it can do with (`min_nodes`). A
hook beside the program (`ma-pre-start.sh` …) that fails counts as the program. In a row: without progress, which is a
new checkpoint that was seen, and nothing else.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

DO_NOT_RESTART: Final = 93  # a program that ends with this is never restarted
IN_A_ROW: Final = 3  # restarts without a new checkpoint between them, on nodes without a fault (row B4)
LAST_SIGNAL: Final = 64

Phase = Literal["precheck", "stage_in", "hook", "program"]
WHO: Final[Mapping[Phase, str]] = {
    "stage_in": "the copying of its data",
    "hook": "a hook beside the program",
    "program": "the program",
}
# How a program ended: by itself, by us because it hung, because nodes of its were lost or drained under it, because
# its time is nearly over.
Cause = Literal["itself", "memory", "hang", "nodes", "time"]
Condition = Literal["ok", "node_problem", "job_problem", "unknown", "unreachable"]
# What keeps a job away from a node. `unknown` does not: what could not be measured is no fault.
BAD: Final[frozenset[Condition]] = frozenset({"node_problem", "job_problem", "unreachable"})
_SHELLS_CODES: Final = {126: "its command cannot be executed", 127: "its command was not found"}


@dataclass(frozen=True, slots=True)
class Health:
    """One node's condition, and what makes it so, in words."""

    condition: Condition
    what: str = ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One launch of the job's command, or the checks or the user's own hook that kept it from starting."""

    phase: Phase
    code: int  # as a shell gives it: 128 + n after signal n
    nodes: Mapping[str, Health]  # all nodes of the job, those that did not take part too
    told_to_end: bool = False
    cause: Cause = "itself"
    progress: bool | None = False  # whether it left a new checkpoint; None: nobody can tell
    in_a_row: int = 0  # restarts without progress right before this attempt


@dataclass(frozen=True, slots=True)
class Wish:
    """What a job asks for: how many nodes the program wants, how few it can do with, and whether any failure counts."""

    nodes: int
    least: int
    unconditional: bool = False


@dataclass(frozen=True, slots=True)
class Action:
    """What to do, the exit code where the job ends, the nodes to leave out or to run on, and why."""

    kind: Literal["finish", "again", "requeue", "fail"]
    code: int
    reason: str
    leave_out: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()  # of `again`: where the next attempt runs


def decide(attempt: Attempt, left: int, wish: Wish) -> Action:
    """One action for an attempt that ended, with `left` restarts still granted."""
    if attempt.told_to_end:
        return Action("finish", attempt.code, "it was told to end")
    if attempt.phase == "program" and attempt.code == 0 and attempt.cause == "itself":
        return Action("finish", 0, "the program ended with exit code 0")
    if attempt.phase != "precheck" and attempt.code == DO_NOT_RESTART:
        who = WHO[attempt.phase]
        return Action("fail", attempt.code, f"{who} asked not to be restarted (exit code {DO_NOT_RESTART})")
    bad = {name: health for name, health in attempt.nodes.items() if health.condition in BAD}
    return _with_faults(attempt, left, wish, bad) if bad else _without_faults(attempt, left, wish)


def chosen(nodes: Mapping[str, Health], wish: Wish) -> tuple[str, ...]:
    """The nodes that the program runs on, in the job's order: the first healthy ones; none where too few are."""
    healthy = tuple(name for name, health in nodes.items() if health.condition not in BAD)
    return healthy[: wish.nodes] if len(healthy) >= min(wish.least, wish.nodes) else ()


def _with_faults(attempt: Attempt, left: int, wish: Wish, bad: Mapping[str, Health]) -> Action:
    why = "; ".join(f"{name} {health.what}" for name, health in bad.items())
    if attempt.phase != "precheck":
        why = f"{_what(attempt)}, and {why}"
    if left <= 0:
        return Action("fail", _code(attempt), f"{why}; no restart is left")
    if attempt.cause != "time" and (nodes := chosen(attempt.nodes, wish)):
        return Action("again", _code(attempt), why, tuple(bad), nodes)
    return Action("requeue", _code(attempt), why, tuple(bad))


def _without_faults(attempt: Attempt, left: int, wish: Wish) -> Action:
    what, code = _what(attempt), _code(attempt)
    if attempt.cause == "time" and attempt.progress is False:
        return Action("fail", code, f"{what}, and it left no new checkpoint to go on from")
    if attempt.cause in ("itself", "memory") and not wish.unconditional:
        return Action("fail", code, f"{what}; its nodes are fine")
    if left <= 0:
        return Action("fail", code, f"{what}; no restart is left")
    if not attempt.progress and attempt.in_a_row >= IN_A_ROW:
        return Action("fail", code, f"{what}, after {attempt.in_a_row} restarts without a new checkpoint")
    if attempt.cause == "time":
        return Action("requeue", code, what)
    nodes = chosen(attempt.nodes, wish)
    return Action("again" if nodes else "fail", code, what, (), nodes)


def _code(attempt: Attempt) -> int:
    """The job's exit code where it ends here: never 0."""
    return attempt.code or 1


def _what(attempt: Attempt) -> str:
    who = WHO.get(attempt.phase, "the checks")
    if attempt.cause == "hang":
        return f"{who} hung"
    if attempt.cause == "nodes":
        return f"{who} was ended"
    if attempt.cause == "time":
        return f"{who} ran into its time limit"
    if attempt.cause == "memory":
        return f"{who} ran out of memory ({_words(attempt.code)})"
    if attempt.code in _SHELLS_CODES:
        return f"{who} failed with {_words(attempt.code)}: {_SHELLS_CODES[attempt.code]}"
    return f"{who} failed with {_words(attempt.code)}"


def _words(code: int) -> str:
    # A launcher in Python that ends with a rank's -9 gives 247: no signal has that number.
    return f"signal {code - 128}" if 128 < code <= 128 + LAST_SIGNAL else f"exit code {code}"
