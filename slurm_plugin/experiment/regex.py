r"""Suggest the regular expression that finds a metric's values in a log.

Standard library only. The forms are those that training programs print: `loss=0.3`, `loss: 0.3`, `'loss': 0.3`,
`val_loss 0.3`, `loss = tensor(0.3)`, JSON, and Keras' `- loss: 0.3 - acc: 0.9`.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from slurm_plugin.records.nearest import nearest

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
