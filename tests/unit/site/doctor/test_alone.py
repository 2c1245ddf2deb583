"""`slurm-plugin doctor` for a user of a cluster without an installation."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from slurm_plugin.records import site_settings
from slurm_plugin.site import doctor
from tests.fake_slurm import FakeSlurm

ROOT = "/etc/slurm/slurm_plugin"


@pytest.mark.parametrize(
    ("config", "named"),
    [({"TaskProlog": "/own/task_prolog"}, False), ({"TaskProlog": f"{ROOT}/hooks/task_prolog"}, True), ({}, False)],
)
def test_names_hooks(config: Mapping[str, str], named: bool) -> None:
    """As slurmctld reports them."""
    assert site_settings.names_hooks(config) is named


def test_a_user_is_told_what_works(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All findings are ok. For root, or beside a site directory, the missing files are wrong."""
    door = FakeSlurm()
    door.settings = {"SLURM_VERSION": "24.11.5", "TaskProlog": "/own/task_prolog", "Epilog": "/own/epilog"}
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(doctor.os, "geteuid", lambda: 1000)
    found = {each.name: each for each in doctor.examine(door, None, f"{tmp_path}/none")}
    assert {each.verdict for each in found.values()} == {"ok"}
    assert found["modes"].message.endswith("beside /own/task_prolog")
    assert "5 to 50 s after a requeue" in found["restarts"].message
    assert list(found)[-1] == "an admin adds"
    assert "wrong" in {each.verdict for each in doctor.examine(door, None, str(tmp_path))}  # there is a site directory
    monkeypatch.setattr(doctor.os, "geteuid", lambda: 0)
    assert "wrong" in {each.verdict for each in doctor.examine(door, None, f"{tmp_path}/none")}
