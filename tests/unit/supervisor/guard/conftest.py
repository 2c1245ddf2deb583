"""Fixtures of the guards' tests: this machine as a node, and guards of three nodes on it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.records import site_settings
from slurm_plugin.supervisor.guard.client import Guards
from tests.guarded import AGES, Machine, command
from tests.unit.supervisor.guard.guarding import BEAT_S, LOST_S, THREE, Start


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """Yield this machine as a node of a separate job."""
    machine = Machine(tmp_path)
    yield machine
    machine.close()


@pytest.fixture
def guards_here(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the test's clock, and short times between heartbeats. The supervisor is on n1. Allow guards a slow end."""
    monkeypatch.setattr(site_settings, "BEAT_S", BEAT_S)
    monkeypatch.setattr("slurm_plugin.supervisor.guard.client.CLOSE_S", AGES)
    monkeypatch.setenv("SLURMD_NODENAME", "n1")


@pytest.fixture
def start(guards_here: None, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Yield a function that starts guards. Close them after the test."""
    started: list[Guards] = []

    def start(*hosts: str, **more: Any) -> Guards:
        words = command(machine.directory)
        more = {"lost_s": LOST_S, "clock": machine.clock, **more}
        started.append(Guards(words, hosts or THREE, machine.environ, **more))
        return started[-1]

    yield start
    monkeypatch.setattr("slurm_plugin.supervisor.guard.client.CLOSE_S", 0.1)
    for each in started:
        each.close(each.hosts)
