"""What happens after an attempt. Pure: values in, one action with its reason in words.

| the attempt | its nodes | restarts left | action |
|---|---|---|---|
| was told to end (scancel, preemption, a requeue) | | | finish with its exit code |
| ended with 0 | | | finish |
| did not pass the checks | some failed | yes | requeue without them |
| did not pass the checks | some failed | no | fail, 1 |
| failed with 93 | | | fail, 93: the program asked not to be restarted |
| failed | some failed | yes | requeue without them |
| failed | some failed | no | fail with the program's own code |
| failed | all fine, or nothing known | | fail with the program's own code |

A hook beside the program (`ma-pre-start.sh` …) that fails counts as the program.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

DO_NOT_RESTART: Final = 93  # a program that ends with this is never restarted
LAST_SIGNAL: Final = 64

Phase = Literal["precheck", "hook", "program"]
WHO: Final[Mapping[Phase, str]] = {"hook": "a hook beside the program", "program": "the program"}
Condition = Literal["ok", "node_problem", "job_problem", "unknown", "unreachable"]
# What keeps a job away from a node. `unknown` does not: what could not be measured is no fault.
BAD: Final[frozenset[Condition]] = frozenset({"node_problem", "job_problem", "unreachable"})


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
    nodes: Mapping[str, Health]
    told_to_end: bool = False


@dataclass(frozen=True, slots=True)
class Action:
    """What to do, the exit code where the job ends, the nodes to leave out, and why."""

    kind: Literal["finish", "requeue", "fail"]
    code: int
    reason: str
    leave_out: tuple[str, ...] = ()


def decide(attempt: Attempt, left: int) -> Action:
    """One action for an attempt that ended, with `left` restarts still granted."""
    if attempt.told_to_end:
        return Action("finish", attempt.code, "it was told to end")
    if attempt.phase == "program" and attempt.code == 0:
        return Action("finish", 0, "the program ended with exit code 0")
    bad = {name: health for name, health in attempt.nodes.items() if health.condition in BAD}
    faults = "; ".join(f"{name} {health.what}" for name, health in bad.items())
    who = WHO.get(attempt.phase, "")
    if attempt.phase != "precheck" and attempt.code == DO_NOT_RESTART:
        return Action("fail", attempt.code, f"{who} asked not to be restarted (exit code {DO_NOT_RESTART})")
    if not bad:
        return Action("fail", attempt.code, f"{who} failed with {_words(attempt.code)}; its nodes are fine")
    if attempt.phase != "precheck":
        faults = f"{who} failed with {_words(attempt.code)}, and {faults}"
    if left <= 0:
        return Action("fail", attempt.code, f"{faults}; no restart is left")
    return Action("requeue", attempt.code, faults, tuple(bad))


def _words(code: int) -> str:
    # A launcher in Python that ends with a rank's -9 gives 247: no signal has that number.
    return f"signal {code - 128}" if 128 < code <= 128 + LAST_SIGNAL else f"exit code {code}"
