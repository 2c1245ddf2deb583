"""A node that the periodic hook looks at: what its looks find is planned."""

from pathlib import Path
from typing import Any

import pytest

import prechecks
from prechecks import Context, Verdict
from slurm_plugin import siteconfig
from slurm_plugin.hooks import marker, periodic
from slurm_plugin.siteconfig import SiteConfig
from tests.fakes import FakeSlurm, node

REASON = "slurm_plugin: gpu-check: 3 of 4 GPUs"
FINE = (Verdict("gpu-check", "ok", "node_problem", "4 of 4 GPUs"), Verdict("dns", "ok", "node_problem", "x"))
BAD = (Verdict("gpu-check", "failed", "node_problem", "3 of 4 GPUs"), FINE[1])
NO_DNS = (FINE[0], Verdict("dns", "failed", "node_problem", "no answer"))
CANNOT_TELL = (Verdict("gpu-check", "timeout", "node_problem", "no answer"), FINE[1])


class Machine:
    """This node: its looks find what is planned."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.site = siteconfig.compiled(SiteConfig())
        self.site["run_directory"] = str(directory / "run")
        self.site["prechecks"]["state"] = str(directory / "run/state")
        self.door = FakeSlurm(nodes=[node("n1", partitions=("main",))])
        self.connected = 0
        self.contexts: list[Context] = []
        self.verdicts = FINE
        monkeypatch.setenv("SLURMD_NODENAME", "n1")
        monkeypatch.setattr(periodic.compiled, "read", lambda _: self.site)
        monkeypatch.setattr(prechecks, "run", self.run)
        monkeypatch.setattr("slurm_plugin.slurm.connect", self.connect)

    def run(self, context: Context, _settings: object) -> tuple[Verdict, ...]:
        self.contexts.append(context)
        return self.verdicts

    def connect(self, slurm_bin: str, *, deadline_s: float) -> FakeSlurm:
        assert slurm_bin == "/usr/bin"
        assert 8 * deadline_s + self.site["prechecks"]["deadline_s"] < 60  # slurmd kills it then
        self.connected += 1
        return self.door

    def look(self, *looks: tuple[Verdict, ...]) -> list[tuple[object, ...]]:
        """What these looks changed in Slurm, but for claims."""
        before = len(self.door.changes)
        for self.verdicts in looks:
            assert periodic.main() == 0
        return [change for change in self.door.changes[before:] if "Comment" not in str(change)]

    def boot(self) -> None:
        """Forget what root remembers on this node."""
        for item in (marker.DRAINED, marker.OWED, marker.REMARK, periodic.ROW):
            Path(self.site["prechecks"]["state"], f"{item}.json").unlink(missing_ok=True)

    @property
    def marker(self) -> dict[str, Any]:
        return marker.load(self.site, marker.DRAINED)


def drained(machine: Machine, **changed: Any) -> None:
    """Drain it by a bad look, then change what Slurm has of it."""
    machine.look(BAD)
    machine.door.known_nodes["n1"] = machine.door.known_nodes["n1"]._replace(**changed)
