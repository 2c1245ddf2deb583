"""The report of `slurm-plugin check`, and `check --list`: the checks' texts, with the site's values."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import prechecks
from prechecks import Verdict
from prechecks.check import Setting
from slurm_plugin.__main__ import main
from slurm_plugin.site import compilation
from slurm_plugin.site.configuration import SiteConfig
from slurm_plugin.views import check as view

FILE = "/etc/slurm/x.yaml"
NODE, JOB, NO = prechecks.NODE_PROBLEM, prechecks.JOB_PROBLEM, prechecks.NO_PROBLEM


def of(item: str, **changes: dict[str, Any]) -> view.Explained:
    """Explain one item, with these changes of the compiled settings."""
    settings = compilation.compile_site(SiteConfig())["prechecks"]
    for section, own in changes.items():
        settings[section.replace("_", "-")] |= own
    (check,) = [check for check in prechecks.CHECKS if check.item == item]
    return view.explained(check, settings, FILE)


def test_of_a_site_without_a_file_all_is_default() -> None:
    """Every setting that the defaults compile to is shown as a default."""
    for check in prechecks.CHECKS:
        found = of(check.item)
        assert {value.source for value in found.settings} <= {view.DEFAULT}, check
        assert found.looks_at, check
        assert found.problem == check.problem, check


def test_what_a_site_has_changed() -> None:
    """The source is the file. The settings of all checks are shown only if they are set, and so are the hooks."""
    found = of("disk-size.shm", disk_size={"shm": 2 << 30, "nodes": ["n1", "n2"], "hooks": ["prolog"]})
    assert [(*value[:3], value.source) for value in found.settings] == [
        ("shm", 2 << 30, "2 GB", FILE),
        ("required", [], "none", "default"),
        ("nodes", ["n1", "n2"], "n1, n2", FILE),
        ("hooks", ["prolog"], "prolog", FILE),
    ]
    assert found.hooks == ("prolog",)


def test_what_a_failure_does() -> None:
    """What the check does, unless the site changes it. A cause on many nodes drains only in the periodic check."""
    cases = [
        ("gpu-check", None, "node_problem", view.DRAINS),
        ("gpu-check", "leave-out", "job_problem", f"{view.LEAVES_OUT} (on-failure: leave-out)"),
        ("gpu-check", "log", "no_problem", f"{view.LOGS} (on-failure: log)"),
        ("processes.leftovers", None, "job_problem", view.LEAVES_OUT),
        ("mounts.paths", None, "node_problem",
         f"before a job: {view.LEAVES_OUT}; in the periodic check: {view.DRAINS}"),
    ]  # fmt: skip
    for item, word, problem, says in cases:
        section = item.partition(".")[0].replace("-", "_")
        found = of(item, **{section: {"on-failure": word} if word else {}})
        assert (found.problem, found.on_failure) == (problem, says), item


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines for people, and the same as JSON. Items or a section select a part."""
    config = tmp_path / "site.yaml"
    config.write_text("prechecks:\n  inodes: {shm: 0.5}\n  infiniband: {window: 90s}\n")
    assert main(["check", "--list", "inodes.shm", "infiniband", "--config", str(config)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"settings: {config}"
    assert lines[-6:] == [
        "inodes.shm: node_problem",
        "  looks at    inodes that users can still take on /dev/shm",
        "  in          prolog, epilog, barrier, recheck, periodic, hand",
        f"  a failure   before a job: {view.LEAVES_OUT}; in the periodic check: {view.DRAINS}",
        "  skipped if  no threshold on this site",
        f"    shm  0.5  ({config})  the same on /dev/shm",
    ]
    (window,) = [line for line in lines if line.startswith("    window ")]
    assert window.split()[:4] == ["window", "90", "s", f"({config})"]
    assert main(["check", "--list", "--json", "inodes.shm", "--config", str(config)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["source"] == str(config)
    (only,) = told["checks"]
    assert (only["item"], only["settings"][0]["value"], only["settings"][0]["source"]) == (
        "inodes.shm", 0.5, str(config),
    )  # fmt: skip


def test_values_in_words() -> None:
    """In the form of the site file, to be copied there."""
    cases = [
        ("seconds", 5.0, "5 s"),
        ("seconds", 3600.0, "60 min"),
        ("size", 1536 << 20, "1.5 GB"),
        ("flag", False, "no"),
        ("spaces", [["/a", 1 << 40]], "/a 1 TB"),
        ("texts", [], "none"),
        ("count", None, "not set"),
        ("count", 0, "0"),
    ]
    for kind, value, text in cases:
        assert view.shown(Setting(kind, None, ""), value) == text, kind


def test_exit_codes() -> None:
    """A failure that counts comes before an unknown result; a failure that a site only logs counts as passed."""
    cases = [
        ([("ok", NODE), ("skipped", NODE)], 0),
        ([("ok", NODE), ("failed", NODE)], 1),
        ([("failed", JOB), ("error", NODE)], 1),
        ([("failed", NO), ("ok", NODE)], 0),
        ([("ok", NODE), ("error", NODE)], 2),
        ([("timeout", JOB), ("failed", NO)], 2),
    ]
    for verdicts, code in cases:
        assert view.exit_code([Verdict("a", verdict, problem, "") for verdict, problem in verdicts]) == code, verdicts


def test_colours_of_a_terminal() -> None:
    """Only the verdict is coloured, and the columns stay aligned."""
    verdicts = [Verdict("dns", "ok", JOB, "1 name", value=1, threshold=1), Verdict("memory", "failed", NODE, "bad")]
    plain, painted = view.table(verdicts, on=False), view.table(verdicts, on=True)
    assert "\x1b[1;31mfailed \x1b[0m" in painted[2]
    assert [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in painted] == plain


def test_cells() -> None:
    """Bytes get a unit; long texts are cut."""
    cases = [
        (None, False, ""),
        (3085511, False, "3085511"),
        (0.01, False, "0.01"),
        (2 << 30, True, "2 GB"),
        (2, True, "2"),
        ("max locked memory 64, open files 20000", False, "max locked memory 64,..."),
    ]
    for value, size, cell in cases:
        assert view.short(value, size=size) == cell, value


def test_the_summary() -> None:
    """The summary names failed and unknown checks and counts the rest."""
    items = (
        Verdict("dns", "ok", JOB, ""), Verdict("memory", "error", NODE, ""), Verdict("clock", "skipped", NODE, ""),
        Verdict("ports", "failed", NO, ""),
    )  # fmt: skip
    assert view.summary(prechecks.Report("n2", None, "hand", 0.0, items)) == [
        "n2: 1 could not be told (memory), 2 passed, 1 skipped: they do not apply here"
    ]
