"""The decision after an attempt. Pure: values in, one action with its reason out.

| the attempt | its nodes | restarts left | action |
|---|---|---|---|
| was told to end (scancel, preemption, a requeue) | | | finish with its exit code |
| ended with 0 | | | finish |
| a trial that was told to save, and ended with 0 | | | as after a failure; finish with 0 where that would fail |
| failed with 93 | | | fail, 93: the program asked not to be restarted |
| did not pass the checks, or failed | some failed | no | fail: 1, or the program's own code |
| did not pass the checks, or failed | some failed, enough are left | yes | again on those that are left |
| did not pass the checks, or failed | some failed, too few are left | yes | requeue without them |
| ran into its time limit, with a new checkpoint of this run | | yes | requeue, to go on |
| ran into its time limit, its checkpoints cannot all be read | | yes, not the 4th in a row | requeue, to go on |
| ran into its time limit | | | fail |
| was ended to run on more nodes | | | requeue |
| was slow (`performance`), and other nodes are idle | | yes | requeue on other nodes |
| hung, or failed with `unconditional` | all fine, or nothing known | yes, not the 4th in a row | again on its nodes |
| hung, or failed with `unconditional` | all fine, or nothing known | no, or the 4th in a row | fail |
| failed | all fine, or nothing known | | fail with the program's own code |

Enough nodes are left if at least as many are healthy as the program wants (spares) or needs (`min_nodes`). A hook
beside the program (`ma-pre-start.sh` ...) that fails is treated like a program that fails. Restarts are in a row if
there was no new checkpoint between them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from slurm_plugin.records import history

DO_NOT_RESTART: Final = 93  # a program that ends with this is never restarted
IN_A_ROW: Final = 3  # restarts without a new checkpoint between them, on nodes without a fault
LAST_SIGNAL: Final = 64
SAVED: Final = "the program was told to save or to end, and ended with exit code 0"

Phase = Literal["precheck", "stage_in", "hook", "program"]
WHO: Final[Mapping[str, str]] = {
    "stage_in": "the copying of its data",
    "hook": "a hook beside the program",
    "program": "the program",
}
# Why a program ended: by itself, out of memory, because it hung, because its nodes were lost or drained, because its
# time limit was near, because it can run on more nodes, or because it was slow.
Cause = Literal["itself", "memory", "hang", "nodes", "time", "grow", "slow"]
Condition = Literal["ok", "node_problem", "job_problem", "unknown", "unreachable"]
# The conditions that keep a job away from a node. `unknown` does not: a failed measurement is not a fault.
BAD: Final[frozenset[Condition]] = frozenset({"node_problem", "job_problem", "unreachable"})
NOT_FOUND: Final = 127  # of history.SHELLS_CODES


@dataclass(frozen=True, slots=True)
class Health:
    """One node's condition, and the reason for it."""

    condition: Condition
    what: str = ""  # of an `unknown` one only where no node answered
    kernel: str = ""  # what its kernel wrote during the attempt, if this user may read it


@dataclass(frozen=True, slots=True)
class Attempt:
    """One launch of the job's command, or the checks or hooks that kept it from starting."""

    phase: Phase
    code: int  # exit code as a shell reports it: 128 + n after signal n
    nodes: Mapping[str, Health]  # all nodes of the job, used or not
    told_to_end: bool = False
    cause: Cause = "itself"
    progress: bool | None = False  # whether it left a new checkpoint; None: unknown
    in_a_row: int = 0  # restarts without progress right before this attempt
    earlier: bool = False  # whether an earlier attempt of this run left a new checkpoint
    saved: bool = False  # a trial that was told to save or to end, and ended with 0: it is not completed
    missing: str = ""  # the file that was not found, for code 127, if it is known


@dataclass(frozen=True, slots=True)
class Wish:
    """The job's request: nodes that the program wants, the fewest that it needs, whether any failure restarts it."""

    nodes: int
    least: int
    unconditional: bool = False


@dataclass(frozen=True, slots=True)
class Action:
    """The next step, the exit code if the job ends, the reason, and the nodes to leave out or to run on."""

    kind: Literal["finish", "again", "requeue", "fail"]
    code: int
    reason: str
    leave_out: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()  # of `again`: the nodes of the next attempt
    grow: bool = False  # of `requeue`: to run on more nodes; this uses no restart
    moved: bool = False  # of `requeue`: next on none of these nodes


def decide(attempt: Attempt, left: int, wish: Wish) -> Action:
    """Return the action after an attempt, with `left` restarts still granted."""
    if attempt.told_to_end:
        return Action("finish", attempt.code, history.TOLD_TO_END)
    if attempt.phase == "program" and attempt.code == 0 and attempt.cause == "itself":
        return Action("finish", 0, SAVED if attempt.saved else "the program ended with exit code 0")
    if attempt.phase != "precheck" and attempt.code == DO_NOT_RESTART:
        who = WHO[attempt.phase]
        return Action("fail", attempt.code, f"{who} asked not to be restarted (exit code {DO_NOT_RESTART})")
    if attempt.cause == "grow":
        return Action("requeue", attempt.code or 1, _what(attempt), grow=True)
    bad = {name: health for name, health in attempt.nodes.items() if health.condition in BAD}
    action = _with_faults(attempt, left, wish, bad) if bad else _without_faults(attempt, left, wish)
    if attempt.saved and action.kind == "fail":
        return Action("finish", 0, SAVED)
    return action


def chosen(nodes: Mapping[str, Health], wish: Wish) -> tuple[str, ...]:
    """Return the nodes for the program, the first healthy ones in the job's order; none if too few are healthy."""
    healthy = tuple(name for name, health in nodes.items() if health.condition not in BAD)
    return healthy[: wish.nodes] if len(healthy) >= min(wish.least, wish.nodes) else ()


def _with_faults(attempt: Attempt, left: int, wish: Wish, bad: Mapping[str, Health]) -> Action:
    why = "; ".join(f"{name} {health.what}" for name, health in bad.items())
    if attempt.phase != "precheck":
        why = f"{_what(attempt)}, and {why}"
    if left <= 0:
        return Action("fail", attempt.code or 1, f"{why}; no restart is left")
    if attempt.cause not in ("time", "slow") and (nodes := chosen(attempt.nodes, wish)):
        return Action("again", attempt.code or 1, why, tuple(bad), nodes)
    return Action("requeue", attempt.code or 1, why, tuple(bad), moved=attempt.cause == "slow")


def _without_faults(attempt: Attempt, left: int, wish: Wish) -> Action:
    what, code = _what(attempt), attempt.code or 1
    if attempt.cause == "time" and attempt.progress is False and not attempt.earlier:
        return Action("fail", code, f"{what}, and it left no new checkpoint to go on from")
    if attempt.cause in ("itself", "memory") and not wish.unconditional:
        silent = attempt.nodes and all(each.what for each in attempt.nodes.values())
        return Action("fail", code, f"{what}; {'none of its nodes answered' if silent else 'its nodes are fine'}")
    if left <= 0:
        return Action("fail", code, f"{what}; no restart is left")
    if attempt.cause == "slow":
        return Action("requeue", code, what, moved=True)
    if not attempt.progress and attempt.in_a_row >= IN_A_ROW:
        return Action("fail", code, f"{what}, after {attempt.in_a_row} restarts without a new checkpoint")
    if attempt.cause == "time":
        return Action("requeue", code, what)
    nodes = chosen(attempt.nodes, wish)
    return Action("again" if nodes else "fail", code, what, (), nodes)


def _what(attempt: Attempt) -> str:
    who = WHO.get(attempt.phase, "the checks")
    if words := history.WHY.get(attempt.cause):
        return f"{who} {words}" + (f" ({_words(attempt.code)})" if attempt.cause == "memory" else "")
    if attempt.code == NOT_FOUND and attempt.missing:
        return f"{who} failed with {_words(attempt.code)}: {attempt.missing} was not found"
    if attempt.code in history.SHELLS_CODES:
        return f"{who} failed with {_words(attempt.code)}: {history.SHELLS_CODES[attempt.code]}"
    return f"{who} failed with {_words(attempt.code)}"


def _words(code: int) -> str:
    # A launcher in Python that ends with a rank's -9 has exit code 247: no signal has the number 119.
    return f"signal {code - 128}" if 128 < code <= 128 + LAST_SIGNAL else f"exit code {code}"
