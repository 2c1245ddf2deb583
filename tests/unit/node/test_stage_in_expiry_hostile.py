"""Old copies on a node: directories of other users under a user's name, and a search or removal that hangs or fails."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from prechecks import child
from prechecks.child import load_stuck
from slurm_plugin.node import stage_in_expiry
from tests.unit.node.copies import ANN, BEN, DAY_S, be_patient, directory, made, site_in, there
from tests.waiting import HANG_S, until


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A site that keeps copies for a day, on a machine that may take its time."""
    be_patient(monkeypatch)
    return site_in(tmp_path)


def test_what_another_user_has_made_stays(site: dict[str, Any], log: list[str]) -> None:
    """Root's prolog moves it out of the way; copies in it are not that user's."""
    place = Path(site["stage_in"]["directory"])
    made(site, "old", 2 * DAY_S).parent.rename(place / str(BEN))
    directory(place / str(ANN), 0)
    stage_in_expiry.clean(site)
    assert {path.name for path in place.iterdir()} == {str(BEN), str(ANN)}
    assert (place / str(BEN) / "old/data").exists()
    assert log == []


def test_a_look_that_hangs_is_the_only_one(
    site: dict[str, Any], log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While an unkillable process exists, no other starts. After its end the next one runs."""
    made(site, "old", 2 * DAY_S)
    where = site["stage_in"]["directory"]
    left_behind: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(stage_in_expiry, "find_old", lambda *_: time.sleep(3600))
        patch.setattr(stage_in_expiry, "REMOVE_S", 0.1)
        patch.setattr(child, "REAP_S", 0.0)
        patch.setattr(child.Child, "kill", lambda one: left_behind.append(one.pid))  # it takes no effect there
        stage_in_expiry.clean(site)
        stage_in_expiry.clean(site)
    (pid,) = left_behind
    name = Path("/proc/self/comm").read_text(encoding="ascii").strip()
    assert log == [
        f"remove old copies in {where}: not done after 0.1 s",
        f"remove old copies in {where}: {name} (process {pid}) of an earlier run is still stuck",
    ]
    os.kill(pid, signal.SIGKILL)
    until(lambda: not load_stuck(site["prechecks"]["state"]))
    stage_in_expiry.clean(site)
    assert there(site) == set()
    os.waitpid(pid, 0)


@pytest.mark.parametrize("late", [True, False])
def test_what_failed_is_told_from_what_is_late(
    site: dict[str, Any], log: list[str], monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """The log tells a failure from a timeout."""

    def slow(*_: object) -> int:
        time.sleep(3600)
        return 0

    def broken(*_: object) -> int:
        raise OSError(5, "Input/output error")

    made(site, "old", 2 * DAY_S)
    monkeypatch.setattr(stage_in_expiry, "REMOVE_S", 0.1 if late else HANG_S)
    monkeypatch.setattr(stage_in_expiry, "_remove_batch", slow if late else broken)
    stage_in_expiry.clean(site)
    why = "not done after 0.1 s" if late else "[Errno 5] Input/output error"
    assert log == [f"remove old copies in {site['stage_in']['directory']}: {why}"]
