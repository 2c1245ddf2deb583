"""`slurm-plugin check`: the checks of this node, by hand, as any user. Changes nothing, asks Slurm nothing.

Exit 0: all fine, what does not apply counts as fine; 1: something failed; 2: something could not be told and nothing
failed, or wrong usage; 130: interrupted.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import prechecks
from prechecks import units
from prechecks.setting import HOOKS, SIZE
from slurm_plugin import compiled
from slurm_plugin.byhand import explain, screen, situation
from slurm_plugin.errors import UsageError, printable
from slurm_plugin.nearest import suggestion

EVERY_S = 5.0
UNKNOWN = (prechecks.TIMEOUT, prechecks.ERROR)
COLOURS = {prechecks.OK: "green", prechecks.FAILED: "red", prechecks.SKIPPED: "dim"}
LARGE = 1 << 20
SIZES = {check.item for check in prechecks.CHECKS if any(each.kind == SIZE for each in check.settings.values())}
WIDE = 24  # characters of a value in the table; the report has it whole


def main(args: list[str]) -> int:
    """Run the command and return its exit code; errors of ours are one message."""
    options = _parser().parse_args(args)
    return screen.guarded(lambda: _main(options))


def _main(options: argparse.Namespace) -> int:
    site = situation.site(options.config)
    items = chosen(options.items)
    if options.list:
        return _list(site, items, as_json=options.json)
    return _watch(options, site, items) if options.watch else _look(options, site, items)


def _say_stale(site: situation.Site) -> None:
    """On stderr, as what stands on stdout is as the settings have it."""
    if said := compiled.stale(site.settings, anywhere=True):
        print(f"slurm-plugin: {site.source} is old: {printable(said)}", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="slurm-plugin check",
        description="Check this node by hand, as any user, with the site's settings. Changes nothing.",
        epilog="Exit 0: all fine; 1: something failed; 2: something could not be told. See docs/checks.md.",
        allow_abbrev=False,
    )
    parser.add_argument("items", nargs="*", metavar="ITEM", help="disk-size.shm, or disk-size for all of its items")
    parser.add_argument("--hook", choices=HOOKS, default="hand", help="as this hook looks (default: %(default)s)")
    parser.add_argument("--partition", default="", metavar="NAME", help="as for a job of this partition")
    parser.add_argument("--config", type=Path, metavar="FILE", help="this site file, not what is deployed here")
    parser.add_argument("--json", action="store_true", help="print the report, one line of JSON a look")
    parser.add_argument("--list", action="store_true", help="explain each check, its thresholds, where they are from")
    parser.add_argument(
        "--watch", nargs="?", type=_seconds, const=EVERY_S, metavar="SECONDS", help=f"again and again ({EVERY_S:g} s)"
    )
    return parser


def _seconds(text: str) -> float:
    found = float(text)
    if not 0.1 <= found <= 86400:
        raise ValueError(text)
    return found


def chosen(words: Sequence[str]) -> tuple[str, ...] | None:
    """The items that these words name, in the order of the registry; None for all. Raises UsageError for no item."""
    items = [check.item for check in prechecks.CHECKS]
    sections = {check.section for check in prechecks.CHECKS if check.section}
    for word in words:
        if word not in items and word not in sections:
            raise UsageError(
                f"no check has the name {printable(word)!r}{suggestion(word, (*items, *sections))}\n"
                f"  accepted are: {', '.join(items)}, and {', '.join(sorted(sections))} for all of theirs\n"
                "  each is explained by: slurm-plugin check --list"
            )
    if not words:
        return None
    return tuple(
        check.item for check in prechecks.CHECKS if check.item in words or (check.section and check.section in words)
    )


def _list(site: situation.Site, items: Sequence[str] | None, *, as_json: bool) -> int:
    settings = site.settings["prechecks"]
    checks = [check for check in prechecks.CHECKS if items is None or check.item in items]
    told = [explain.explained(check, settings, site.source) for check in checks]
    if as_json:
        print(json.dumps(explain.json_form(told, site.source), indent=1))
    else:
        print("\n".join(explain.text(told, site.source, on=screen.coloured())), flush=True)
    _say_stale(site)
    return 0


def _look(options: argparse.Namespace, site: situation.Site, items: Sequence[str] | None) -> int:
    """One look, shown."""
    report = examine(options.hook, os.environ, site, items, partition=options.partition)
    if options.json:
        print(report.to_json(), flush=True)
    else:
        on = screen.coloured()
        clear = screen.CLEAR if options.watch and sys.stdout.isatty() else ""
        print(clear + "\n".join((*table(report.items, on=on), "", *summary(report))), flush=True)
    _say_stale(site)
    return exit_code(report.items)


def _watch(options: argparse.Namespace, site: situation.Site, items: Sequence[str] | None) -> int:
    """Look again and again; only an interrupt ends it."""
    while True:
        _look(options, site, items)
        time.sleep(options.watch)


def examine(
    hook: str, environ: Mapping[str, str], site: situation.Site, items: Sequence[str] | None, *, partition: str = ""
) -> prechecks.Report:
    """All of the items here and now, as a report."""
    context = situation.context(hook, environ, site, partition=partition)
    verdicts = prechecks.run(context, situation.checked(site.settings, items), items=items)
    return prechecks.Report(context.node, situation.job(environ), hook, time.time(), verdicts)


def exit_code(verdicts: Sequence[prechecks.Verdict]) -> int:
    """1 where something failed that counts, 2 where something is not known, else 0."""
    if any(verdict.failed for verdict in verdicts):
        return 1
    return 2 if any(verdict.verdict in UNKNOWN for verdict in verdicts) else 0


def table(verdicts: Sequence[prechecks.Verdict], *, on: bool) -> list[str]:
    """A line for each item: its verdict, the seconds it took, value and threshold in short, its message."""
    head = ("ITEM", "VERDICT", "SECONDS", "VALUE", "THRESHOLD", "MESSAGE")
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
    return screen.columns(rows, paints, on=on)


def short(value: float | str | None, *, size: bool = False) -> str:
    """A measured value as a cell; `size`: a large whole number is bytes, a small one counts the places looked at."""
    if value is None:
        return ""
    if size and isinstance(value, int) and value >= LARGE:
        return units.size(value)
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= WIDE else f"{text[: WIDE - 3]}..."


def summary(report: prechecks.Report) -> list[str]:
    """What it comes to, and what to try next where something failed."""
    failed = [verdict.item for verdict in report.items if verdict.failed]
    unknown = [verdict.item for verdict in report.items if verdict.verdict in UNKNOWN]
    skipped = sum(verdict.verdict == prechecks.SKIPPED for verdict in report.items)
    fine = len(report.items) - len(failed) - len(unknown) - skipped
    parts = [f"{len(failed)} failed ({', '.join(failed)})"] if failed else []
    parts += [f"{len(unknown)} could not be told ({', '.join(unknown)})"] if unknown else []
    parts += [f"{fine} passed", *([f"{skipped} skipped: they do not apply here"] if skipped else [])]
    lines = [f"{report.node}: {', '.join(parts)}"]
    return [*lines, f"  what that means: slurm-plugin check --list {failed[0]}"] if failed else lines
