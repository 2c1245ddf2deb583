"""The plan and the recorded calls of fake_pyslurm.py."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

JOB: dict[str, Any] = {
    "id": 7,
    "name": "train",
    "user_name": "alice",
    "partition": "main",
    "state": "RUNNING",
    "state_reason": None,
    "allocated_nodes": "n[1-2]",
    "excluded_nodes": None,
    "requeue_count": 0,
    "exit_code": 0,
    "exit_code_signal": 0,
    "submit_time": 1714554000,
    "start_time": 1714557600,
    "end_time": 1714644000,
    "comment": None,
    "admin_comment": None,
}
NODE: dict[str, Any] = {
    "name": "n1",
    "state": "IDLE+DRAIN",
    "reason": "disk [a]",
    "reason_user": "root",
    "reason_time": 1714557601,
    "partitions": ["main", "long"],
    "comment": "rack 7",
    "configured_gres": {"gpu:a100": 4, "nvme": 1},
}


@dataclass
class FakePyslurm:
    """The directory from which the fake pyslurm is imported."""

    directory: Path
    planned: dict[str, Any] = field(
        default_factory=lambda: {
            "jobs": {"7": JOB},
            "nodes": {"n1": NODE, "n2": {**NODE, "name": "n2", "state": "IDLE", "reason": None, "reason_user": None,
                                         "reason_time": None, "partitions": [], "configured_gres": None}},
            "up": [True],
        }
    )  # fmt: skip

    def install(self) -> None:
        """Write the package."""
        self.directory.mkdir()
        source = Path(__file__).with_name("fake_pyslurm.py").read_text(encoding="utf-8")
        (self.directory / "pyslurm.py").write_text(source, encoding="utf-8")
        (self.directory / "calls").touch()
        self.plan()

    def plan(self, **changes: Any) -> None:
        """Change the plan from the next call on. None removes a fault."""
        self.planned |= changes
        (self.directory / "plan.json").write_text(json.dumps(self.planned), encoding="utf-8")

    def calls(self) -> list[list[Any]]:
        """Return the calls since the last call of `calls`, without those of a start."""
        path = self.directory / "calls"
        found = [json.loads(line) for line in path.read_text().splitlines()]
        path.write_text("")
        return [call for call in found if call[0] not in {"import", "slurm_init"}]

    def started(self) -> list[int]:
        """Return the processes that have imported it since the last call of `calls`."""
        found = [json.loads(line) for line in (self.directory / "calls").read_text().splitlines()]
        return [call[1] for call in found if call[0] == "import"]

    def has_noted(self, name: str) -> bool:
        """Return whether this function was called since the last call of `calls`."""
        return f'["{name}"' in (self.directory / "calls").read_text()
