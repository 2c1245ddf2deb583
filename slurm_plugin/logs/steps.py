r"""Find the training steps of a program in its log: the current step, the number of steps, and the seconds per step.

Known are the lines of Megatron-LM, NeMo, DeepSpeed, Lightning, tqdm (Hugging Face's Trainer) and Ascend's
`this iteration hardware time is`. A user's own expression replaces them. Pure; standard library only.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from slurm_plugin.logs.lines import OURS

GROUPS: Final = ("step", "of", "step_s", "step_ms")  # the groups of a user's own expression
MOST_STEPS: Final = 10**15
_LABEL: Final = r"(?:\[\w+\]:|\d+:|\[\d+,\d+\]<\w+>:)?"  # what srun, torchrun and mpirun put before a rank's line


class Step(NamedTuple):
    """What one line says. `step` is None if it gives only the time of a step."""

    step: int | None
    of: int | None = None
    step_s: float | None = None
    saves: bool = False  # whether a line about a checkpoint stands before it


Reader = Callable[[re.Match[str]], Step | None]


def _megatron(found: re.Match[str]) -> Step:
    return Step(int(found[1]), int(found[2]), float(found[3]) / 1000)


def _nemo(found: re.Match[str]) -> Step:
    """NeMo counts from 0 in each epoch. So the last step is known in the first epoch only."""
    epoch, place, last, step, seconds = found.groups()
    step = step or (place if epoch == "0" else None)
    return Step(None if step is None else int(step), int(last) if epoch == "0" else None, float(seconds))


def _deepspeed(found: re.Match[str]) -> Step:
    return Step(int(found[1]))


def _bar(found: re.Match[str]) -> Step | None:
    """Read a bar of tqdm without a description, or of an epoch. Others show downloads, checkpoints or evaluation."""
    text, place = found.string, found.start()
    before = text[max(text.rfind("\n", 0, place), text.rfind("\r", 0, place)) + 1 : place]
    step, of, rate, unit = int(found[1]), int(found[2]), float(found[3] or 0), found[4]
    step_s = (1 / rate if unit == "it/s" else rate) if rate else None
    if epoch := _EPOCH.fullmatch(before):
        return Step(int(epoch[1]) * of + step, None, step_s)
    return Step(step, of, step_s) if _PLAIN.fullmatch(before) else None


def _hardware(found: re.Match[str]) -> Step:
    return Step(None, None, float(found[2]) / 1000)


_PLAIN = re.compile(rf"{_LABEL}\s*\d+")
_EPOCH = re.compile(rf"{_LABEL}\s*Epoch (\d{{1,6}}):\s+\d+")
_N: Final = r"(\d{1,15})"
_X: Final = r"(\d{1,15}(?:\.\d{1,15})?)"
_HARDWARE = re.compile(rf"this iteration hardware time is {_X} and e2e time is {_X} ms")
_SAVES = re.compile("checkpoint|saving", re.IGNORECASE)
# The most trusted first: programs often write two of these lines. Each begins with fixed text, which `re` finds fast.
KNOWN: Final[tuple[tuple[re.Pattern[str], Reader], ...]] = (
    (re.compile(rf"iteration +{_N}/ *{_N} \|[^\r\n]{{0,400}}?elapsed time per iteration \(ms\): {_X}"), _megatron),
    (
        re.compile(
            r"Training epoch (\d{1,9}), iteration (\d{1,15})/(\d{1,15}) \|"
            rf"(?:[^\r\n]{{0,400}}?global_step: {_N})?[^\r\n]{{0,400}}?train_step_timing in s: {_X}"
        ),
        _nemo,
    ),
    (re.compile(rf"global_step={_N}, RunningAvgSamplesPerSec="), _deepspeed),
    (re.compile(rf"%\|[^|\r\n]{{0,400}}\| *{_N}/{_N} \[[^\],\r\n]{{0,40}}(?:, *{_X}(it/s|s/it))?"), _bar),
    (_HARDWARE, _hardware),
)


def own(expression: str, text: str) -> list[Step]:
    """Return what a user's own expression finds in the program's lines. A carriage return also ends a line.

    The step is the group `step`, else the first group without a name. This may take very long for some expressions.
    """
    pattern, text = re.compile(expression, re.MULTILINE), _programs(text)
    unnamed = next((group for group in range(1, pattern.groups + 1) if group not in pattern.groupindex.values()), 0)
    return _found(pattern, lambda found: _own(found, unnamed), text)


def ratios(expression: str, text: str) -> list[float]:
    """Return hardware time by end-to-end time for each line of the program that has both.

    `expression`: the user's own, with the groups `hardware` and `e2e`, else with two groups in this order; empty: the
    known line. It may take very long for some expressions.
    """
    pattern = re.compile(expression, re.MULTILINE) if expression else _HARDWARE
    hardware, e2e = ("hardware", "e2e") if {"hardware", "e2e"} <= pattern.groupindex.keys() else (1, 2)
    times = [(_number(found[hardware]), _number(found[e2e])) for found in pattern.finditer(_programs(text))]
    return [part / whole for part, whole in times if part is not None and whole]


def _programs(text: str) -> str:
    """Return the text without lines of slurm_plugin. A carriage return also ends a line."""
    return "\n".join(line for line in re.split(r"[\r\n]+", text) if not line.startswith(OURS))


def _found(pattern: re.Pattern[str], read: Reader, text: str) -> list[Step]:
    """Return the steps in a text, and for each whether the text before it tells of a checkpoint."""
    steps, before = [], 0
    for found in pattern.finditer(text):
        if step := read(found):
            steps.append(step._replace(saves=bool(_SAVES.search(text, before, found.start()))))
        before = found.end()
    return steps


def _own(found: re.Match[str], unnamed: int) -> Step | None:
    named: Mapping[str, str | None] = found.groupdict()
    step = named.get("step") or (found[unnamed] if unnamed else None)
    values = {name: _number(named.get(name)) for name in GROUPS} | {"step": _number(step)}
    seconds, milliseconds, of = values["step_s"], values["step_ms"], values["of"]
    step_s = seconds if milliseconds is None else milliseconds / 1000
    number = values["step"]
    if number is None and step_s is None:
        return None
    return Step(None if number is None else int(number), None if of is None else int(of), step_s)


def _number(text: str | None) -> float | None:
    try:
        found = float(text or "")
    except ValueError:
        return None
    return found if 0 <= found < MOST_STEPS else None


class Steps:
    """The steps of one attempt, from the pieces of its log."""

    def __init__(self) -> None:
        self._trusted = len(KNOWN)  # the place of the most trusted line that was seen
        self.first: Step | None = None
        self.last: Step | None = None
        self.fresh: list[Step] = []  # the newest ones; who reads them empties the list

    def read(self, text: str) -> bool:
        """Take the next whole lines of the log. Return whether there is a new step."""
        for place, (pattern, read) in enumerate(KNOWN[: self._trusted + 1]):
            if steps := _found(pattern, read, text):
                if place < self._trusted:
                    self._trusted, self.first, self.last = place, None, None
                return self.take(steps)
        return False

    def take(self, steps: list[Step]) -> bool:
        """Take the steps of the next piece. Return whether there is a new step."""
        before = self.last
        for each in steps:
            known, self.last = self.last, self._next(each)
            self.first = self.first or self.last
            if self.last is not known:
                self.fresh.append(self.last)
        return self.last != before

    def _next(self, found: Step) -> Step:
        """Return the state after a line. A line without a number is one more step."""
        last = self.last
        if found.step is None:
            return found._replace(step=(last.step or 0) + 1 if last else 1, of=last.of if last else None)
        # A bar of an evaluation inside the training has fewer steps than the bar of the training.
        if last and last.of and found.of and found.of < last.of and (last.step or 0) < last.of:
            return last
        return found
