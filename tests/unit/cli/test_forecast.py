"""`slurm-plugin forecast`: a spec and each of its alternatives, with a fake Slurm."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.cli import submit
from slurm_plugin.slurm import Forecast
from tests.fakes import FakeSlurm, node

SPEC = "name: a\nmode: pytorch\nnodes: 2\ncommand: x\n"


class Door(FakeSlurm):
    """A door that refuses every job."""

    def forecast(self, script: str, *, arguments: Sequence[str] = (), directory: str | None = None) -> Forecast:
        """Refuse it, as Slurm does if a partition has too few nodes."""
        super().forecast(script)
        self.questions.append(("forecast", ()))
        return Forecast(refused="allocation failure: x")


@pytest.fixture
def door(home: Path, monkeypatch: pytest.MonkeyPatch) -> Door:
    """Return a door with two partitions."""
    nodes = [node("n1", "DRAIN", partitions=("gpu",)), node("n2", partitions=("cpu",)), node("n3", partitions=("cpu",))]
    made = Door(nodes=nodes)
    monkeypatch.setattr(submit, "connect", lambda: made)
    return made


def test_a_refused_job_counts_the_nodes_that_it_asked_for(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """Slurm names no partition of a refused job, but the spec does."""
    Path("job.yaml").write_text(f"{SPEC}partition: [gpu]\n")
    assert main(["forecast", "job.yaml"]) == 1
    assert "asked for: 2 node(s); in gpu: 1 out of service" in capsys.readouterr().out


def test_each_alternative(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """Each has one answer. The nodes are queried once."""
    Path("job.yaml").write_text(f"{SPEC}any_of: [{{partition: gpu}}, {{partition: cpu, nodes: 3}}, {{nodes: 4}}]\n")
    assert main(["forecast", "--json", "job.yaml"]) == 1
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [len(each["states"]["idle"]) for each in answers] == [0, 2, 2]
    assert [question for question, _ in door.questions] == ["nodes", "forecast", "forecast", "forecast"]


def test_nobody_can_tell(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2: the job may start or not."""
    Path("job.yaml").write_text(SPEC)
    door.refusals["forecast", None] = 1
    assert main(["forecast", "job.yaml"]) == 2
    assert capsys.readouterr().err.startswith("slurm-plugin: ")


def test_what_slurm_has_against_a_job_is_followed_up(
    door: Door, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a command that shows what the nodes have."""
    refused = Forecast(refused="allocation failure: Requested node configuration is not available")
    monkeypatch.setattr(door, "forecast", lambda *_, **__: refused)
    Path("job.yaml").write_text(SPEC)
    assert main(["forecast", "job.yaml"]) == 1
    assert "  what the nodes have: sinfo --Format=partition,nodelist,cpus" in capsys.readouterr().out
