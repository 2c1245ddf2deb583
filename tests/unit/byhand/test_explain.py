"""`check --list`: in the checks' own words, with the site's values and where they are from."""

import json
from pathlib import Path
from typing import Any

import pytest

import prechecks
from slurm_plugin import siteconfig
from slurm_plugin.__main__ import main
from slurm_plugin.byhand import explain
from slurm_plugin.siteconfig import SiteConfig

FILE = "/etc/slurm/x.yaml"


def of(item: str, **changes: dict[str, Any]) -> explain.Explained:
    """One item, with these parts of the compiled settings changed."""
    settings = siteconfig.compiled(SiteConfig())["prechecks"]
    for section, own in changes.items():
        settings[section.replace("_", "-")] |= own
    (check,) = [check for check in prechecks.CHECKS if check.item == item]
    return explain.explained(check, settings, FILE)


@pytest.mark.parametrize("check", prechecks.CHECKS, ids=lambda check: check.item)
def test_of_a_site_without_a_file_all_is_default(check: prechecks.Check) -> None:
    """Every setting that the site file compiles is known here to be the default that it is."""
    found = of(check.item)
    assert {value.source for value in found.settings} <= {explain.DEFAULT}
    assert found.looks_at
    assert found.problem == check.problem


def test_what_a_site_has_changed() -> None:
    """Names the file; what every check has is there only where it is set, and so are the hooks."""
    found = of("disk-size.shm", disk_size={"shm": 2 << 30, "nodes": ["n1", "n2"], "hooks": ["prolog"]})
    assert [(*value[:3], value.source) for value in found.settings] == [
        ("shm", 2 << 30, "2 GB", FILE),
        ("nodes", ["n1", "n2"], "n1, n2", FILE),
        ("hooks", ["prolog"], "prolog", FILE),
    ]
    assert found.hooks == ("prolog",)


@pytest.mark.parametrize(
    ("item", "word", "problem", "says"),
    [
        ("gpu-check", None, "node_problem", explain.DRAINS),
        ("gpu-check", "leave-out", "job_problem", f"{explain.LEAVES_OUT} (on-failure: leave-out)"),
        ("gpu-check", "log", "no_problem", f"{explain.LOGS} (on-failure: log)"),
        ("processes.leftovers", None, "job_problem", explain.LEAVES_OUT),
        ("mounts.paths", None, "node_problem",
         f"before a job: {explain.LEAVES_OUT}; in the periodic check: {explain.DRAINS}"),
    ],
)  # fmt: skip
def test_what_a_failure_does(item: str, word: str | None, problem: str, says: str) -> None:
    """The check's own, unless the site says else; causes that nodes share drain from the periodic check alone."""
    section = item.partition(".")[0].replace("-", "_")
    found = of(item, **{section: {"on-failure": word} if word else {}})
    assert (found.problem, found.on_failure) == (problem, says)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines for people, and the same as JSON; a part by its items or its section."""
    config = tmp_path / "site.yaml"
    config.write_text("prechecks:\n  inodes: {shm: 0.5}\n  infiniband: {window: 90s}\n")
    assert main(["check", "--list", "inodes.shm", "infiniband", "--config", str(config)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"settings: {config}"
    assert lines[-6:] == [
        "inodes.shm: node_problem",
        "  looks at    inodes that users can still take on /dev/shm",
        "  in          prolog, epilog, barrier, recheck, periodic, hand",
        "  a failure   drains the node",
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


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [("seconds", 5.0, "5 s"), ("seconds", 3600.0, "60 min"), ("size", 1536 << 20, "1.5 GB"), ("flag", False, "no"),
     ("spaces", [["/a", 1 << 40]], "/a 1 TB"), ("texts", [], "none"), ("count", None, "not set"), ("count", 0, "0")],
)  # fmt: skip
def test_values_in_words(kind: str, value: Any, text: str) -> None:
    """As the site file has them, so that they can be written there."""
    assert explain.shown(prechecks.setting.Setting(kind, None, ""), value) == text
