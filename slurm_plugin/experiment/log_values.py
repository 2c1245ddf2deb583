"""The values of a metric in a trial's log: search its lines with the user's regular expression, and suggest one.

The search runs in a child process with a limit. `re` holds the GIL, and some expressions never end: in the worker
itself, no signal would be handled meanwhile. Standard library only.
"""

import json
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from slurm_plugin.records.nearest import nearest

LONGEST_LINE: Final = 1 << 16  # bytes at the end of a line that are searched
LONGEST_PIECE: Final = 1 << 12  # bytes at the end of what a carriage return ends
BATCH: Final = 1 << 17  # bytes that one child searches, and at most one line more
SEARCH_S: Final = 10.0  # processor time of a child
TIMEOUT_S: Final = 300.0  # wall-clock time of a child: the node may be busy
TRIES: Final = 3  # if a child ends otherwise: the node has no memory, or Slurm signals all processes of the step
_OURS: Final = b"[slurm_plugin] "  # lines of slurm_plugin in the log
# The kernel ends this process after its time, also if the worker is gone. Of a progress bar the last value counts.
_CHILD: Final = """
import json, re, signal, sys
signal.signal(signal.SIGPROF, signal.SIG_DFL)
regex, seconds, lines = json.load(sys.stdin.buffer)
signal.setitimer(signal.ITIMER_PROF, seconds)
pattern = re.compile(regex)
def value(pieces):
    for piece in reversed(pieces):
        for match in reversed(list(pattern.finditer(piece))):
            try:
                return float(match[1])
            except (ValueError, TypeError, IndexError):
                pass
print(json.dumps([value(pieces) for pieces in lines]))
"""


class LogValues:
    """Finds the metric's values in the lines of one trial's log."""

    def __init__(self, regex: str, say: Callable[[str], None]) -> None:
        """Take the expression. Raise re.error."""
        re.compile(regex)
        self._regex, self._say, self._is_on = regex, say, True

    def of(self, lines: Iterable[tuple[bytes, int]]) -> Iterator[tuple[float, int]]:
        """Yield the value of each line that has one, with the line's number. Of a progress bar the last value counts.

        If the search takes too long, it is switched off.
        """
        for batch in _batches(lines):
            values = self._searched([pieces for pieces, _ in batch]) if self._is_on else []
            yield from ((value, at) for value, (_, at) in zip(values, batch, strict=False) if value is not None)

    def _searched(self, lines: list[list[str]]) -> list[float | None]:
        text, why = json.dumps([self._regex, SEARCH_S, lines]).encode(), ""
        for _ in range(TRIES):
            try:
                words = [sys.executable, "-I", "-S", "-c", _CHILD]
                done = subprocess.run(words, input=text, capture_output=True, timeout=TIMEOUT_S, check=False)
                if done.returncode == 0:
                    found: list[float | None] = json.loads(done.stdout)
                    return found
                why = f"its process ended with {done.returncode}"
                if done.returncode == -signal.SIGPROF:
                    why = f"it took more than {SEARCH_S:.0f} s for {len(text) // 1024 + 1} KiB"
                    break
            except (OSError, subprocess.TimeoutExpired) as error:
                why = str(error)[:200]
            time.sleep(1)
        self._is_on = False
        self._say(f"the metric's regex is switched off for this trial: {why}; write a simpler one, such as loss=(\\S+)")
        return []


def _batches(lines: Iterable[tuple[bytes, int]]) -> Iterator[list[tuple[list[str], int]]]:
    """Yield lines in pieces, as many as one child searches."""
    batch: list[Any] = []
    size = 0
    for line, at in lines:
        pieces = [] if line.startswith(_OURS) else line[-LONGEST_LINE:].split(b"\r")
        if texts := [piece[-LONGEST_PIECE:].decode(errors="replace") for piece in pieces if piece]:
            batch.append((texts, at))
            size += sum(map(len, texts))
        if size > BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


NUMBER: Final = r"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?!\d|\.\d)|(?i:nan|inf(?:inity)?)\b)"
SIMPLE: Final = r"([-+.\w]+)"  # the value's group where it finds numbers alone
# Not the end of another name: val_loss, train/loss, top-loss. `loss- loss` is the end of a progress bar.
BEGIN: Final = r"(?<![\w./-])"
SEPARATOR: Final = r"[ \t]*(?:=>|->|[=:|])[ \t]*|[ \t]+(?:is[ \t]+)?"
WRAPPERS: Final = r"(?:[A-Za-z_][\w.]{0,30}\(|[\[('\"]){0,3}"  # tensor( np.float64( [ '
# Words that make another metric of the same name: `val loss: 0.3`. A search should optimise the first ones.
VALIDATION: Final = ("val", "valid", "validation", "eval", "evaluation", "dev", "test", "testing")
PART: Final = (*VALIDATION, "best", "final", "average", "avg", "mean", "total", "running", "train", "training")
HINTS: Final = 5  # most names that a message lists


class Suggestion(NamedTuple):
    """A regular expression, and what it finds. Its first group is the value."""

    regex: str
    values: tuple[float, ...]
    line: str  # the first line with a value


class _Form(NamedTuple):
    """How a log writes a metric."""

    part: str  # the word before the name, of PART, with its spaces; or empty
    quote: str
    name: str
    separator: str
    wrapper: str


def suggest(text: str, name: str) -> list[Suggestion]:
    """Return the regular expressions that find values of the metric `name` in a log, the best first.

    The best finds the name as it is written, of a validation before others, then most values.
    """
    lines = text.splitlines()
    forms = Counter(form for line in lines for form in _forms(line, name))
    parts = sorted({form.part for form in forms})
    ranked = sorted(forms, key=lambda form: (form.name != name, _rank(form.part), -forms[form]))
    made = dict.fromkeys(_expression(form, parts, group) for form in ranked for group in (SIMPLE, f"({NUMBER})"))
    found: dict[str, Suggestion] = {}
    for each in made:
        if one := _found(each, lines):
            found.setdefault(repr(one.values), one)  # the same values again are no alternative
    return list(found.values())


def names(text: str, name: str) -> list[str]:
    """Return the names that the log gives numbers for, those like `name` first, then the most frequent."""
    pattern = re.compile(rf"([A-Za-z_][\w./-]{{0,60}})['\"]?[ \t]*[=:][ \t]*{WRAPPERS}{NUMBER}")
    found = Counter(match[1] for line in text.splitlines() for match in pattern.finditer(line))
    near = nearest(name, found)
    return sorted(found, key=lambda each: (name.lower() not in each.lower(), each != near, -found[each]))[:HINTS]


def _forms(line: str, name: str) -> Iterator[_Form]:
    """Yield the form of each value of the metric in a line."""
    words = "[ _-]".join(re.escape(word) for word in re.split(r"[ _-]", name))
    pattern = (
        rf"{BEGIN}(?P<part>(?:{'|'.join(PART)})[ ]+)?(?P<quote>['\"]?){BEGIN}(?P<name>{words})(?P=quote)"
        rf"(?P<separator>{SEPARATOR})(?P<wrapper>{WRAPPERS}){NUMBER}"
    )
    for match in re.finditer(pattern, line, re.IGNORECASE):
        yield _Form(**{key: value or "" for key, value in match.groupdict().items()})


def _rank(part: str) -> int:
    """Return the place of a word before the name: validation, then no word, then others."""
    word = part.strip().lower()
    return 0 if word in VALIDATION else 2 if word else 1


def _expression(form: _Form, parts: list[str], group: str) -> str:
    """Return the regular expression for a form. Spaces may differ from value to value."""
    sign = form.separator.strip()
    separator = rf"\s*{_literal(sign)}\s*" if sign and sign != "is" else rf"\s+{sign and 'is '}"
    if form.part:
        begin = BEGIN + (form.part if len(parts) > 1 else "")
    else:
        begin = BEGIN + "".join(f"(?<!{each})" for each in parts if each)
    named = f"{form.quote}{_literal(form.name)}{form.quote}"
    return f"{begin}{named}{separator}{_literal(form.wrapper)}{group}"


def _literal(text: str) -> str:
    """Return a text as a regular expression, with fewer backslashes than re.escape."""
    return re.sub(r"([^\w\s\"'=:>-])", r"\\\1", text)


def _found(regex: str, lines: list[str]) -> Suggestion | None:
    """Return what a regular expression finds in a log; None if it finds nothing, or something that is no number."""
    pattern = re.compile(regex)
    matches = [(line, match[1]) for line in lines for match in pattern.finditer(line)]
    try:
        values = tuple(float(value) for _, value in matches)
    except ValueError:
        return None
    return Suggestion(regex, values, matches[0][0]) if matches else None
