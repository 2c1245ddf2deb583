"""A node with planned results of its periodic checks."""

from pathlib import Path
from typing import Any

import pytest

import prechecks
from prechecks import Context, Verdict
from slurm_plugin.node import periodic
from slurm_plugin.records import node_drains
from slurm_plugin.site import compilation
from slurm_plugin.site.configuration import SiteConfig
from tests.fakes import FakeSlurm, node

REASON = "slurm_plugin: gpu-check: 3 of 4 GPUs"
FINE = (Verdict("gpu-check", "ok", "node_problem", "4 of 4 GPUs"), Verdict("dns", "ok", "node_problem", "x"))
BAD = (Verdict("gpu-check", "failed", "node_problem", "3 of 4 GPUs"), FINE[1])
NO_DNS = (FINE[0], Verdict("dns", "failed", "node_problem", "no answer"))
CANNOT_TELL = (Verdict("gpu-check", "timeout", "node_problem", "no answer"), FINE[1])


class Machine:
    """This node. Its checks return the planned verdicts."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.site = compilation.compile_site(SiteConfig())
        self.site["run_directory"] = str(directory / "run")
        self.site["prechecks"]["state"] = str(directory / "run/state")
        self.door = FakeSlurm(nodes=[node("n1", partitions=("main",))])
        self.connected = 0
        self.contexts: list[Context] = []
        self.verdicts = FINE
        monkeypatch.setenv("SLURMD_NODENAME", "n1")
        monkeypatch.setattr(periodic.site_settings, "read", lambda _: self.site)
        monkeypatch.setattr(prechecks, "run", self.run)
        monkeypatch.setattr("slurm_plugin.slurm.connect", self.connect)

    def run(self, context: Context, _settings: object) -> tuple[Verdict, ...]:
        self.contexts.append(context)
        return self.verdicts

    def connect(self, slurm_bin: str, *, deadline_s: float) -> FakeSlurm:
        assert slurm_bin == "/usr/bin"
        assert 8 * deadline_s + self.site["prechecks"]["deadline_s"] < 60  # slurmd kills the hook after 60 s
        self.connected += 1
        return self.door

    def look(self, *looks: tuple[Verdict, ...]) -> list[tuple[object, ...]]:
        """Run the periodic hook once for each of these results, and return its changes in Slurm, except of comments."""
        before = len(self.door.changes)
        for self.verdicts in looks:
            assert periodic.main() == 0
        return [change for change in self.door.changes[before:] if "Comment" not in str(change)]

    def boot(self) -> None:
        """Forget what root remembers on this node."""
        for item in (node_drains.DRAINED, node_drains.OWED, node_drains.REMARK, periodic.ROW):
            Path(self.site["prechecks"]["state"], f"{item}.json").unlink(missing_ok=True)

    @property
    def marker(self) -> dict[str, Any]:
        return node_drains.load(self.site, node_drains.DRAINED)


def drained(machine: Machine, **changed: Any) -> None:
    """Drain the node by a failed check, then change its record in Slurm."""
    machine.look(BAD)
    machine.door.known_nodes["n1"] = machine.door.known_nodes["n1"]._replace(**changed)
