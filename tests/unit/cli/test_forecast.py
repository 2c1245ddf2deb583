"""`slurm-plugin forecast`: a spec and each of its alternatives, with a fake Slurm."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.cli import submit
from slurm_plugin.slurm import Forecast
from slurm_plugin.slurm.resources import Reservation
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


def test_a_reservation_for_which_slurm_refuses_the_job(
    door: Door, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job would wait for its end, if Slurm starts it now with the time before it. Else Slurm's refusal is shown."""
    now, asked = datetime.now(UTC), list[str]()
    door.reserved = [Reservation("m", now + timedelta(hours=1), now + timedelta(hours=3), frozenset({"n2", "n3"}))]
    refused = Forecast(refused="allocation failure: Requested node configuration is not available")
    Path("job.yaml").write_text(SPEC)
    for shorter, code in ((Forecast(now, "n[2-3]", "cpu"), 0), (refused, 1)):

        def forecast(
            _: str, *, arguments: Sequence[str], directory: str | None, shorter: Forecast = shorter
        ) -> Forecast:
            asked.extend(arguments)
            return shorter if "--time=00:55:00" in arguments else refused

        monkeypatch.setattr(door, "forecast", forecast)
        assert main(["forecast", "job.yaml"]) == code
        out = capsys.readouterr().out
        first = "a: would not start as things are; Slurm says:" if code else "a: start unknown: it would wait for"
        assert out.startswith(first)
        assert ("with `time: 55m` it could start now" in out) == (not code)
        assert ("what the nodes have" in out) == bool(code)
    assert asked.count("--time=00:55:00") == 2


def test_a_site_that_does_not_show_its_nodes(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """Slurm's answer alone."""
    Path("job.yaml").write_text(SPEC)
    door.private = True
    assert main(["forecast", "job.yaml"]) == 1
    assert capsys.readouterr().out == (
        "a: would not start as things are; Slurm says:\n  allocation failure: x\n"
        "  asked for: 2 node(s); this site does not show nodes to users\n"
    )


def test_another_cluster(door: Door, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes and the reservations of this one are not those of the job."""
    for text, variable, clusters in (
        ("sbatch: {clusters: beta}\n", "", "beta"), ("", "SBATCH_CLUSTERS", "b,c"), ("", "SLURM_CLUSTERS", "b,c"),
    ):  # fmt: skip
        Path("job.yaml").write_text(SPEC + text)
        with monkeypatch.context() as patch:
            if variable:
                patch.setenv(variable, clusters)
            assert main(["forecast", "job.yaml"]) == 1
        lines = capsys.readouterr().out.splitlines()
        assert lines[-1] == f"  asked for: 2 node(s); its nodes: sinfo --clusters={clusters}"


def test_a_reservation_in_the_way(
    door: Door, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job of it does not meet it."""
    now = datetime.now(UTC)
    door.reserved = [Reservation("m", now + timedelta(hours=1), now + timedelta(hours=3), frozenset({"n2", "n3"}))]
    later = Forecast(now + timedelta(hours=3), "n[2-3]", "cpu")
    monkeypatch.setattr(door, "forecast", lambda *_, **__: later)
    for text, says in (
        ("time: 4h\n", "  its time limit reaches into the reservation m, from "),
        ("", "  it has no time limit, and reaches into the reservation m, from "),
        ("time: 30m\n", ""),
        ("reservation: m\n", ""),
    ):
        Path("job.yaml").write_text(SPEC + text)
        assert main(["forecast", "job.yaml"]) == 0
        out = capsys.readouterr().out
        assert (says in out, "with `time: 55m` it could start now" in out) == (True, bool(says)), text
