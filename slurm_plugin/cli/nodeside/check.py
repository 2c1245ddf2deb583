"""`slurm-plugin check`: run the checks on this node, as any user. It changes nothing and calls no command of Slurm.

With `--hook periodic` it also prints what the periodic check would do now. With `--apply` root runs the periodic check.
"""

import json
import os
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import prechecks
from prechecks import boot_state
from prechecks.check import HOOKS
from slurm_plugin.cli.nodeside import check_context, check_fabric, output
from slurm_plugin.cli.nodeside.definition import Command, Parameter, Verbs, coloured, within
from slurm_plugin.errors import UsageError, printable
from slurm_plugin.node import disk_room, periodic
from slurm_plugin.node.hook import REPORT
from slurm_plugin.records import node_drains, site_settings
from slurm_plugin.records.nearest import suggestion
from slurm_plugin.views import check as view

EVERY_S: Final = 5.0
_SECONDS: Final = within(0.1, 86400)
CLEAR: Final = "\x1b[H\x1b[2J"  # clears a terminal
PERIODIC_S: Final = 60.0  # slurmd kills a periodic check that takes longer


def _check(options: Namespace) -> int:
    """Run, list or repeat the checks, depending on the options."""
    if options.equipment:
        return _equipment(os.environ)
    site = check_context.site(options.config)
    items = select_items(options.items)
    if options.list:
        return _list(site, items, as_json=options.json)
    if options.apply:
        if options.hook != periodic.HOOK or options.items or options.watch or options.partition or options.config:
            raise UsageError("--apply goes with --hook periodic, and with --json, alone")
        report = run_periodic(site)
        return _show(report, options, site, periodic_outcome(site, report))
    return _watch(options, site, items) if options.watch else _once(options, site, items)


def _say_stale(site: check_context.Site) -> None:
    """Warn on stderr if the compiled settings are older than the site file."""
    if said := site_settings.stale(site.settings, anywhere=True):
        print(f"slurm-plugin: {site.source} is old: {printable(said)}", file=sys.stderr, flush=True)


def select_items(words: Sequence[str]) -> tuple[str, ...] | None:
    """Return the items that these words name, in registry order; None: all. Raise UsageError for an unknown word."""
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


def _list(site: check_context.Site, items: Sequence[str] | None, *, as_json: bool) -> int:
    settings = site.settings["prechecks"]
    checks = [check for check in prechecks.CHECKS if items is None or check.item in items]
    told = [view.explained(check, settings, site.source) for check in checks]
    if as_json:
        print(json.dumps(view.json_form(told, site.source), indent=1))
    else:
        output.show("\n".join(view.text(told, site.source, on=coloured())))
    _say_stale(site)
    return 0


def _equipment(environ: Mapping[str, str]) -> int:
    """Print the devices of this node as one line of JSON."""
    from prechecks import equipment  # noqa: PLC0415 - only --equipment needs them
    from prechecks.measure import slurmconf  # noqa: PLC0415

    places = [place for place in (environ.get("SLURM_CONF"), *slurmconf.PLACES) if place and Path(place).exists()]
    conf = Path(places[0] if places else slurmconf.PLACES[0])
    print(json.dumps(equipment.count(check_context.node(environ), str(conf.with_name("gres.conf")))), flush=True)
    return 0


def _once(options: Namespace, site: check_context.Site, items: Sequence[str] | None) -> int:
    """Run the checks once and show the report."""
    report = examine(options.hook, os.environ, site, items, partition=options.partition)
    more = preview(site, report) if options.hook == periodic.HOOK and not items else []
    return _show(report, options, site, more)


def _show(report: prechecks.Report, options: Namespace, site: check_context.Site, more: Sequence[str]) -> int:
    """Print a report and return its exit code. `more`: further lines of the summary."""
    if options.json:
        print(report.to_json(), flush=True)
    else:
        on = coloured()
        clear = CLEAR if options.watch and sys.stdout.isatty() else ""
        print(
            clear + "\n".join((*view.table(report.items, on=on), "", *view.summary(report), *more)),
            flush=True,
        )
    _say_stale(site)
    return view.exit_code(report.items)


def _watch(options: Namespace, site: check_context.Site, items: Sequence[str] | None) -> int:
    """Repeat the checks until an interrupt."""
    while True:
        _once(options, site, items)
        time.sleep(options.watch)


def examine(
    hook: str, environ: Mapping[str, str], site: check_context.Site, items: Sequence[str] | None, *, partition: str = ""
) -> prechecks.Report:
    """Run the checks of these items and return the report."""
    context = check_context.context(hook, environ, site, partition=partition)
    if hook == periodic.HOOK:
        context = periodic.context_of(context.node, _memory(site, node_drains.DRAINED))
    verdicts = prechecks.run(context, check_context.checked(site.settings, items), items=items)
    return prechecks.Report(context.node, check_context.job(environ), hook, time.time(), verdicts)


def preview(site: check_context.Site, report: prechecks.Report) -> list[str]:
    """Return lines that say what the periodic check would do after this report."""
    facts, needed = _memory(site, node_drains.DRAINED), site.settings["periodic"]["failures"]
    row, bad = periodic.judged(site.settings, facts, _memory(site, periodic.ROW), report.items)
    lines = [f"  the periodic check would drain {report.node}: {prechecks.reason(bad, None)}"] if bad else []
    for each in prechecks.node_problems(report.items):
        if each not in bad:
            lines.append(f"  {each.item}: this look would be number {row.failures[each.item]}, {needed} in a row drain")
    if any(each.item in disk_room.ITEMS for each in prechecks.node_problems(report.items)):
        lines.append("  space and inodes count only while nobody uses the node, and room is made before")
    if row.reason and not bad:
        lines.append(f"  it is out for: {row.reason}; good looks in a row: {row.passes} of {_passes(site)}")
    lines = lines or ["  the periodic check would change nothing"]
    if site.settings["dry_run"]:
        lines.append("  this site only comments: dry_run")
    return [*lines, "  to have it look now: slurm-plugin check --hook periodic --apply, as root"]


def run_periodic(site: check_context.Site) -> prechecks.Report:
    """Run the deployed check as slurmd does, and return its report. Raise UsageError if it leaves no report."""
    compiled_file = Path(site.source)
    hook, switch = compiled_file.parent / "hooks" / periodic.HOOK, compiled_file.parent / site_settings.KILL_SWITCH
    if os.geteuid():
        raise UsageError("--apply may drain the node: run it as root, or leave it out")
    if compiled_file.name != site_settings.FILE or not hook.exists():
        raise UsageError(f"{hook} is not there: --apply runs the deployed check\n  see: slurm-plugin site install")
    if switch.exists():
        raise UsageError(f"{switch} is there: nothing of ours acts on this node")
    node, began = check_context.context(periodic.HOOK, os.environ, site).node, time.time()
    try:
        environ = {"SLURMD_NODENAME": node}
        said = subprocess.run(
            [str(hook)], env=environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=PERIODIC_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"the periodic check did not end well: {error}") from error
    path = Path(site.settings["run_directory"], REPORT)
    with suppress(OSError, ValueError, prechecks.PrecheckError):
        report = prechecks.Report.from_json(path.read_text(encoding="utf-8"))
        if report.time >= began:
            return report
    more = printable(said.stderr.decode(errors="replace").strip()[-1000:]) or f"{path} is not of now"
    raise UsageError(f"the periodic check left no report, see the system log: {more}")


def periodic_outcome(site: check_context.Site, report: prechecks.Report) -> list[str]:
    """Return lines that describe the state of the node after the check."""
    facts, row = _memory(site, node_drains.DRAINED), _memory(site, periodic.ROW)
    reason, node = str(facts.get("reason", "")), report.node
    if not reason:
        return [f"  {node} is not out by our doing; what was done is in the system log, tag slurm_plugin"]
    sure = "" if facts.get("done") else ", as far as Slurm has answered"
    return [f"  {node} is drained{sure}: {reason}; good looks in a row: {row.get('passes', 0)} of {_passes(site)}"]


def _passes(site: check_context.Site) -> int:
    return int(site.settings["periodic"]["passes"])


def _memory(site: check_context.Site, item: str) -> Mapping[str, Any]:
    """Return the values that root's hooks saved for `item` on this node; empty if they cannot be read."""
    with suppress(OSError):
        return boot_state.load(site.settings["prechecks"]["state"], item)
    return {}


_HERE = Command(
    "check",
    "Check this node by hand, as any user, with the site's settings. Changes nothing.\n\n"
    "`check fabric` measures the network between nodes: see its own --help.\n\n"
    "Exit 0: all fine; 1: something failed; 2: something could not be told. Explain one: check --list ITEM.",
    (
        Parameter("items", "disk-size.shm, or disk-size for all of its items", "ITEM", nargs="*"),
        Parameter("--hook", "Check as this hook does.  [default: hand]", default="hand", choices=tuple(HOOKS)),
        Parameter("--partition", "Check as for a job of this partition.", "NAME", ""),
        Parameter("--config", "Use this site file instead of the settings deployed here.", "FILE", read=Path),
        Parameter("--apply", "With --hook periodic, as root: run that check itself, which may drain."),
        Parameter("--json", "Print the report, one line of JSON for each run."),
        Parameter("--equipment", "Count this node's GPUs and links, for `slurm-plugin site equipment`."),
        Parameter("--list", "Explain each check, its thresholds, and where they are from."),
        Parameter(
            "--watch", f"Repeat the checks.  [every {EVERY_S:g} s]", "SECONDS", read=_SECONDS, without_value=EVERY_S
        ),
    ),
    _check,
)
CHECK = Verbs(_HERE, {"fabric": check_fabric.FABRIC})
