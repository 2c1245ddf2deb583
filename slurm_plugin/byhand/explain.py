"""`check --list`: each check in words, with its thresholds, their values, and where each came from. Pure.

The words are those of the check itself: `looks_at`, `condition`, and `means` of each setting.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import prechecks
from prechecks import setting, units
from prechecks.check import Check
from prechecks.setting import Setting
from slurm_plugin.byhand import screen
from slurm_plugin.errors import printable

DEFAULT = "default"
UNITS = {"B": 0, "KB": 1, "MB": 2, "GB": 3, "TB": 4}
DRAINS = "drains the node"
LEAVES_OUT = "keeps the job away from the node, which stays"
LOGS = "a line in the log, nothing more"


class Value(NamedTuple):
    """One setting as it holds here."""

    name: str
    value: Any  # as compiled: bytes, seconds
    shown: str
    means: str
    source: str  # `default`, or the file that says else


class Explained(NamedTuple):
    """One check as it is here."""

    item: str
    looks_at: str
    problem: str  # its kind, the site's `on-failure` counted in
    on_failure: str  # in words
    hooks: tuple[str, ...]
    condition: str  # why it may be skipped
    settings: tuple[Value, ...]


def explained(check: Check, settings: Mapping[str, Any], source: str) -> Explained:
    """One check. `settings` is the `prechecks` part of the compiled settings, `source` where these are from."""
    own = check.own(settings)
    beside = {other.item.partition(".")[2] for other in prechecks.CHECKS if other.section == check.section} - {
        check.item.partition(".")[2]
    }
    values = []
    for name, each in {**check.settings, **setting.COMMON}.items():
        value, default = own.get(name), compiled_default(each)
        if name in beside or (name in setting.COMMON and value is None):
            continue
        values.append(Value(name, value, shown(each, value), each.means, DEFAULT if same(value, default) else source))
    hooks = own.get("hooks")
    problem, words = on_failure(check, settings)
    return Explained(
        check.item,
        check.looks_at,
        problem,
        words,
        tuple(check.hooks if hooks is None else hooks),
        check.condition,
        tuple(values),
    )


def on_failure(check: Check, settings: Mapping[str, Any]) -> tuple[str, str]:
    """The problem that a failure is, and in words what follows from it before a job and in the periodic check."""
    before, later = (check.means(prechecks.Context(hook, ""), settings) for hook in ("prolog", "periodic"))
    words = {prechecks.NODE_PROBLEM: DRAINS, prechecks.JOB_PROBLEM: LEAVES_OUT, prechecks.NO_PROBLEM: LOGS}
    said = words[before] if before == later else f"before a job: {words[before]}; in the periodic check: {words[later]}"
    wanted = check.own(settings).get("on-failure")
    return later, f"{said} (on-failure: {wanted})" if wanted else said


def compiled_default(each: Setting) -> Any:
    """A default, written as in the site file, as it is compiled."""
    if each.kind == setting.SIZE and each.default is not None:
        return int(float(each.default[:-2]) * 1024 ** UNITS[each.default[-2:]])
    if each.kind == setting.SECONDS and each.default is not None:
        return float(each.default[:-1]) * (60 if each.default.endswith("m") else 1)
    if each.kind == setting.FLAG:
        return each.default == "yes"
    return each.default


def same(value: Any, default: Any) -> bool:
    """Whether two settings are alike; a list that was compiled is no tuple."""
    return (list(value) if isinstance(value, tuple | list) else value) == (
        list(default) if isinstance(default, tuple | list) else default
    )


def shown(each: Setting, value: Any) -> str:
    """A compiled value in the units of the site file."""
    if value is None:
        return "not set"
    if each.kind == setting.SIZE:
        return units.size(value)
    if each.kind == setting.SECONDS:
        return f"{value / 60:g} min" if value >= 120 else f"{value:g} s"
    if each.kind == setting.FLAG:
        return "yes" if value else "no"
    if each.kind == setting.SPACES:
        return ", ".join(f"{path} {units.size(size)}" for path, size in value) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def text(checks: Sequence[Explained], source: str, *, on: bool) -> list[str]:
    """The lines that people read."""
    lines = [f"settings: {source}"]
    for each in checks:
        lines += ["", f"{screen.paint(each.item, 'bold', on=on)}: {each.problem}"]
        rows = [
            ("looks at", each.looks_at.replace("`", "")),
            ("in", ", ".join(each.hooks) or "no hook on this site"),
            ("a failure", each.on_failure),
        ]
        rows += [("skipped if", each.condition)] if each.condition else []
        lines += [f"  {line}" for line in screen.columns(rows)]
        settings = [(f"  {value.name}", value.shown, f"({value.source})", value.means) for value in each.settings]
        lines += [f"  {printable(line)}" for line in screen.columns(settings)]
    return lines


def json_form(checks: Sequence[Explained], source: str) -> dict[str, Any]:
    """The same for programs."""
    return {
        "source": source,
        "checks": [{**each._asdict(), "settings": [value._asdict() for value in each.settings]} for each in checks],
    }
