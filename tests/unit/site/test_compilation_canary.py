"""A canary installation: a dry run in which the checks run on a few nodes."""

from pathlib import Path

import pytest

from slurm_plugin.errors import UsageError
from slurm_plugin.site.compilation import canaries, compile_site, on_trial
from slurm_plugin.site.configuration import SiteConfig, load
from slurm_plugin.site.files import rendered

SECTIONS_OF_A_SITE = """
prechecks:
  dns: {nodes: "n[3-9]"}
  gpu-check: {nodes: "m1"}
"""


def test_checks_look_at_canaries_only(tmp_path: Path) -> None:
    """Each check runs on the canaries among its own nodes; without any, no hook runs it."""
    (tmp_path / "site.yaml").write_text(SECTIONS_OF_A_SITE)
    found = compile_site(on_trial(load(tmp_path / "site.yaml"), "n[1-4]"))
    assert found["dry_run"] is True
    assert found["prechecks"]["ulimit"]["nodes"] == ["n1", "n2", "n3", "n4"]
    assert found["prechecks"]["dns"]["nodes"] == ["n3", "n4"]
    assert found["prechecks"]["gpu-check"]["hooks"] == []
    parts = [part for part in found["prechecks"].values() if isinstance(part, dict)]
    assert all(part.get("hooks") == [] or set(part["nodes"]) <= {"n1", "n2", "n3", "n4"} for part in parts)


def test_no_node_list() -> None:
    """The error shows an accepted node list."""
    with pytest.raises(UsageError, match=r"--canary n\[1: .*\n  a node list such as n\[1-4\] is accepted"):
        on_trial(SiteConfig(), "n[1")


def test_compiled_settings_name_the_canaries(tmp_path: Path) -> None:
    """`canaries` reads them from the deployed file; without them, or without a file, there are none."""
    for nodes in ("n1", ""):
        content = rendered(SiteConfig(), str(tmp_path), canaries=nodes)["compiled.json"].content
        (tmp_path / "compiled.json").write_bytes(content or b"")
        assert canaries(str(tmp_path)) == nodes
    assert canaries(str(tmp_path / "none")) == ""
