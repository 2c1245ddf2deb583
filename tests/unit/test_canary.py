"""An installation on trial: a dry run, and checks on a few nodes."""

from pathlib import Path

import pytest

from slurm_plugin import canary
from slurm_plugin.doctor import measure
from slurm_plugin.errors import UsageError
from slurm_plugin.siteconfig import SiteConfig, compiled, load

SECTIONS_OF_A_SITE = """
prechecks:
  dns: {nodes: "n[3-9]"}
  gpu-check: {nodes: "m1"}
"""


def test_checks_look_at_canaries_only(tmp_path: Path) -> None:
    """Every check, within the nodes that it has of its own; one that has none of these is looked at nowhere."""
    (tmp_path / "site.yaml").write_text(SECTIONS_OF_A_SITE)
    found = compiled(canary.on_trial(load(tmp_path / "site.yaml"), "n[1-4]"))
    assert found["dry_run"] is True
    assert found["prechecks"]["ulimit"]["nodes"] == ["n1", "n2", "n3", "n4"]
    assert found["prechecks"]["dns"]["nodes"] == ["n3", "n4"]
    assert found["prechecks"]["gpu-check"]["hooks"] == []
    parts = [part for part in found["prechecks"].values() if isinstance(part, dict)]
    assert all(part.get("hooks") == [] or set(part["nodes"]) <= {"n1", "n2", "n3", "n4"} for part in parts)


def test_no_node_list() -> None:
    """The error says what one is."""
    with pytest.raises(UsageError, match=r"--canary n\[1: .*\n  a node list such as n\[1-4\] is accepted"):
        canary.on_trial(SiteConfig(), "n[1")


def test_it_says_so() -> None:
    """In what hooks read, for the commands that compare."""
    found = measure.rendered(SiteConfig(), "/etc/slurm/slurm_plugin", canaries="n1")["compiled.json"].content
    assert found is not None
    assert b'"canary": "n1"' in found
    assert canary.of({"canary": "n1"}) == "n1"
    assert canary.of({}) == ""
