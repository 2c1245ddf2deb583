"""Several hooks of one node drain it at the same moment: the reason names the jobs of all of them."""

import fcntl
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from prechecks.report import JOBS
from slurm_plugin.node import draining
from slurm_plugin.slurm import Node
from tests.fakes import FakeSlurm, node
from tests.unit.node.bad_node import PROLOG, REASON, default_site


class Slow(FakeSlurm):
    """Lets another hook go on between the question and what follows from it."""

    def nodes(self, names: Sequence[str]) -> Mapping[str, Node]:
        found = super().nodes(names)
        time.sleep(0.01)
        return found


def test_every_job_is_named(tmp_path: Path) -> None:
    """No hook overwrites another's job: the requeue of a job without its name would not count as the plugin's."""
    site, door = default_site(tmp_path), Slow(nodes=[node("n1")])
    reasons = [f"slurm_plugin: disk.shm: 99% used [job {number}]" for number in range(100, 116)]
    with ThreadPoolExecutor(len(reasons)) as pool:
        assert all(pool.map(lambda reason: draining.drain(door, site, PROLOG, reason), reasons))
    assert sorted(JOBS.findall(door.known_nodes["n1"].reason)) == [f" [job {number}]" for number in range(100, 116)]


def test_a_hook_that_hangs_holds_up_no_other_for_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The drain goes on after `LOCK_WAIT_S`."""
    monkeypatch.setattr(draining, "LOCK_WAIT_S", 0.0)
    site, door = default_site(tmp_path), FakeSlurm(nodes=[node("n1")])
    assert draining.drain(door, site, PROLOG, REASON)
    path = tmp_path / "run/state" / draining.LOCK
    assert path.stat().st_mode & 0o777 == 0o600
    with path.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert draining.drain(door, site, PROLOG, REASON.replace("7", "8"))
    assert door.known_nodes["n1"].reason == f"{REASON} [job 8]"
