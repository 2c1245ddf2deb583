"""Format the output of `slurm-plugin check`: the report, and with --list each check, its thresholds and their source.

The functions are pure. The list's texts come from the check: `looks_at`, `condition`, and `means` of each setting.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import prechecks
from prechecks.check import COMMON, FLAG, SECONDS, SIZE, SPACES, Check, Setting
from prechecks.verdict import format_size
from slurm_plugin.errors import printable
from slurm_plugin.views.columns import columns, paint

DEFAULT = "default"
UNITS = {"B": 0, "KB": 1, "MB": 2, "GB": 3, "TB": 4}
DRAINS = "drains the node"
LEAVES_OUT = "keeps the job away from the node, which stays"
LOGS = "a line in the log, nothing more"


class Value(NamedTuple):
    """One setting of a check on this machine."""

    name: str
    value: Any  # as compiled, such as bytes or seconds
    shown: str
    means: str
    source: str  # `default`, or the file that sets it


class Explained(NamedTuple):
    """One check on this machine."""

    item: str
    looks_at: str
    problem: str  # the kind of problem, with the site's `on-failure`
    on_failure: str  # the consequence of a failure, as text
    hooks: tuple[str, ...]
    condition: str  # why it may be skipped
    settings: tuple[Value, ...]


def explained(check: Check, settings: Mapping[str, Any], source: str) -> Explained:
    """Explain one check. `settings`: the `prechecks` part of the compiled settings. `source`: the settings file."""
    own = check.own(settings)
    beside = {other.item.partition(".")[2] for other in prechecks.CHECKS if other.section == check.section} - {
        check.item.partition(".")[2]
    }
    values = []
    for name, each in {**check.settings, **COMMON}.items():
        value, default = own.get(name), compiled_default(each)
        if name in beside or (name in COMMON and value is None):
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
    """Return the kind of problem, and a text with its consequences before a job and in the periodic check."""
    before, later = (check.problem_kind(prechecks.Context(hook, ""), settings) for hook in ("prolog", "periodic"))
    words = {prechecks.NODE_PROBLEM: DRAINS, prechecks.JOB_PROBLEM: LEAVES_OUT, prechecks.NO_PROBLEM: LOGS}
    said = words[before] if before == later else f"before a job: {words[before]}; in the periodic check: {words[later]}"
    wanted = check.own(settings).get("on-failure")
    return later, f"{said} (on-failure: {wanted})" if wanted else said


def compiled_default(each: Setting) -> Any:
    """Return a setting's default as compiled: `1GB` in bytes, `2m` in seconds, a flag as bool."""
    if each.kind == SIZE and each.default is not None:
        return int(float(each.default[:-2]) * 1024 ** UNITS[each.default[-2:]])
    if each.kind == SECONDS and each.default is not None:
        return float(each.default[:-1]) * (60 if each.default.endswith("m") else 1)
    if each.kind == FLAG:
        return each.default == "yes"
    return each.default


def same(value: Any, default: Any) -> bool:
    """Return whether two settings are equal. A list equals a tuple with the same items."""
    return (list(value) if isinstance(value, tuple | list) else value) == (
        list(default) if isinstance(default, tuple | list) else default
    )


def shown(each: Setting, value: Any) -> str:
    """Return a compiled value as text, with its unit."""
    if value is None:
        return "not set"
    if each.kind == SIZE:
        return format_size(value)
    if each.kind == SECONDS:
        return f"{value / 60:g} min" if value >= 120 else f"{value:g} s"
    if each.kind == FLAG:
        return "yes" if value else "no"
    if each.kind == SPACES:
        return ", ".join(f"{path} {format_size(size)}" for path, size in value) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def text(checks: Sequence[Explained], source: str, *, on: bool) -> list[str]:
    """Return the list as lines for people. `on`: in colours."""
    lines = [f"settings: {source}"]
    for each in checks:
        lines += ["", f"{paint(each.item, 'bold', on=on)}: {each.problem}"]
        rows = [
            ("looks at", each.looks_at.replace("`", "")),
            ("in", ", ".join(each.hooks) or "no hook on this site"),
            ("a failure", each.on_failure),
        ]
        rows += [("skipped if", each.condition)] if each.condition else []
        lines += [f"  {line}" for line in columns(rows)]
        settings = [(f"  {value.name}", value.shown, f"({value.source})", value.means) for value in each.settings]
        lines += [f"  {printable(line)}" for line in columns(settings)]
    return lines


def json_form(checks: Sequence[Explained], source: str) -> dict[str, Any]:
    """Return the list for --json."""
    return {
        "source": source,
        "checks": [{**each._asdict(), "settings": [value._asdict() for value in each.settings]} for each in checks],
    }


UNKNOWN = (prechecks.TIMEOUT, prechecks.ERROR)
COLOURS = {prechecks.OK: "green", prechecks.FAILED: "red", prechecks.SKIPPED: "dim"}
LARGE = 1 << 20
SIZES = {check.item for check in prechecks.CHECKS if any(each.kind == SIZE for each in check.settings.values())}
WIDE = 24  # characters of a value in the table; the report has the whole value


def exit_code(verdicts: Sequence[prechecks.Verdict]) -> int:
    """Return 1 if a check failed, unless it only logs; 2 if a result is unknown; else 0."""
    if any(verdict.failed for verdict in verdicts):
        return 1
    return 2 if any(verdict.verdict in UNKNOWN for verdict in verdicts) else 0


def table(verdicts: Sequence[prechecks.Verdict], *, on: bool, first: str = "ITEM") -> list[str]:
    """Return a table with a line for each item: verdict, seconds, value, threshold and message."""
    head = (first, "VERDICT", "SECONDS", "VALUE", "THRESHOLD", "MESSAGE")
    rows = [head]
    paints = [["bold"] * len(head)]
    for each in verdicts:
        ran = each.verdict != prechecks.SKIPPED
        what = "log only: " if each.verdict == prechecks.FAILED and not each.failed else ""
        rows.append(
            (
                each.item,
                each.verdict,
                f"{each.seconds:.2f}" if ran else "",
                short(each.value, size=each.item in SIZES),
                short(each.threshold, size=each.item in SIZES),
                what + each.message,
            )
        )
        colour = "yellow" if what else COLOURS.get(each.verdict, "yellow")
        paints.append(["", colour, "", "", "", "" if ran else "dim"])
    return columns(rows, paints, on=on)


def short(value: float | str | None, *, size: bool = False) -> str:
    """Return a value for a table cell. `size`: an integer from LARGE on is bytes, a smaller integer is a count."""
    if value is None:
        return ""
    if size and isinstance(value, int) and value >= LARGE:
        return format_size(value)
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= WIDE else f"{text[: WIDE - 3]}..."


def summary(report: prechecks.Report) -> list[str]:
    """Return the number of checks with each result, and the command to try after a failure."""
    failed = [verdict.item for verdict in report.items if verdict.failed]
    unknown = [verdict.item for verdict in report.items if verdict.verdict in UNKNOWN]
    skipped = sum(verdict.verdict == prechecks.SKIPPED for verdict in report.items)
    fine = len(report.items) - len(failed) - len(unknown) - skipped
    parts = [f"{len(failed)} failed ({', '.join(failed)})"] if failed else []
    parts += [f"{len(unknown)} could not be told ({', '.join(unknown)})"] if unknown else []
    parts += [f"{fine} passed", *([f"{skipped} skipped: they do not apply here"] if skipped else [])]
    lines = [f"{report.node}: {', '.join(parts)}"]
    return [*lines, f"  what that means: slurm-plugin check --list {failed[0]}"] if failed else lines
