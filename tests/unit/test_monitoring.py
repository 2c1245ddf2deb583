"""The dashboard and the alert rules read only metrics that the code writes, with labels that they have."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from prechecks import Report, Verdict
from slurm_plugin.records import metrics
from tests.unit.pages import page, rows, words

MONITORING = Path(__file__).parents[2] / "monitoring"
NAME = re.compile(r"slurm_plugin_\w+")


def written() -> dict[str, set[str]]:
    """Return the labels of every metric that the hooks write."""
    verdicts = (Verdict("dns", "ok", "node_problem", "x"),)
    samples = [*metrics.initial(metrics.NODE), *metrics.initial(metrics.CONTROLLER), metrics.CAP]
    samples += [
        metrics.sample(metrics.BUILD, actor="", version=""),
        *Report("n1", None, "periodic", 1.0, verdicts).metrics().splitlines(),
    ]
    found: dict[str, set[str]] = {}
    for each in samples:
        if not each.startswith("#"):
            found.setdefault(each.split("{")[0].split(" ")[0], set()).update(re.findall(r'(\w+)="', each))
    return found


def panels() -> list[dict[str, Any]]:
    """Return the panels of the dashboard."""
    return list(json.loads((MONITORING / "dashboard.json").read_text())["panels"])


def expressions() -> Iterator[str]:
    """Yield the PromQL of the dashboard and of the rules."""
    for panel in panels():
        yield from (target["expr"] for target in panel["targets"])
    for group in yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]:
        yield from (rule["expr"] for rule in group["rules"])


def test_every_metric_exists() -> None:
    """And every family is in the dashboard."""
    known = written()
    used = {name for expression in expressions() for name in NAME.findall(expression)}
    assert used <= set(known)
    shown = {name for panel in panels() for target in panel["targets"] for name in NAME.findall(target["expr"])}
    assert {metrics.family_of(name) for name in shown} >= set(metrics.FAMILIES)


def test_every_label_exists() -> None:
    """Those by which an expression groups or selects; `instance` is Prometheus' own."""
    known = written()
    for expression in expressions():
        labels = set().union(*(known[name] for name in NAME.findall(expression))) | {"instance"}
        named = {each.strip() for each in ",".join(re.findall(r" by \(([^)]*)\)", expression)).split(",") if each}
        named |= set(re.findall(r"[{,](\w+)=", expression))
        assert named <= labels, expression


def test_panels_do_not_overlap() -> None:
    """Each has a place of its own in the grid of 24 columns, and a number of its own."""
    seen: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & seen, panel["title"]
        assert max(x for x, _ in cells) < 24, panel["title"]
        seen |= cells
    assert len({panel["id"] for panel in panels()}) == len(panels())


def test_every_rule_is_tested() -> None:
    """Each alert has a case in which it fires."""
    rules = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"][0]["rules"]
    cases = yaml.safe_load((MONITORING / "alerts_test.yml").read_text())["tests"]
    fired = {each["alertname"] for case in cases for each in case["alert_rule_test"] if each.get("exp_alerts")}
    assert fired == {rule["alert"] for rule in rules}


def test_the_reference() -> None:
    """The page names every metric, with its labels."""
    shown = {}
    for name, labels, *_ in rows(page("reference/metrics.md"), "metric"):
        shown |= {each: set(words(labels)) for each in words(name)}
    known = {}
    for name, labels in written().items():
        known.setdefault(metrics.family_of(name) or name, set()).update(labels - {"le"})
    assert shown == known
