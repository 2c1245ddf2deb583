"""`slurm-plugin time` and `priority` as a user types them."""

import json
from datetime import UTC, datetime

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.cli.nodeside import job_lookup
from slurm_plugin.cli.nodeside.actions import adjust
from slurm_plugin.slurm import Queueing, Request
from tests.fakes import FakeSlurm, away, job


class Door(FakeSlurm):
    """A Slurm that applies a time limit and a QOS."""

    def update_job(self, job_id: int, **fields: str) -> None:
        """Apply the change."""
        super().update_job(job_id, **fields)
        if "TimeLimit" in fields:
            self.queues[job_id] = self.queues[job_id]._replace(time_limit_s=int(fields["TimeLimit"]) * 60)
        if "QOS" in fields:
            self.requests[job_id] = self.request(job_id)._replace(qos=fields["QOS"])


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Door:
    """Return a door with two waiting jobs, on a site with urgent jobs."""
    fake = Door([job(7, name="a"), job(8, name="b")])
    for number in (7, 8):
        fake.queues[number] = Queueing(time_limit_s=3600)
        fake.requests[number] = Request("main", qos="normal")
    monkeypatch.setattr(job_lookup, "connect", lambda **_: fake)
    site = {"priorities": {"urgent": {"qos": "rush", "per_user": 1}}}
    monkeypatch.setattr(adjust, "_site", lambda: site)
    return fake


def test_the_time_of_several_jobs(slurm: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """Each job has a line, and one that cannot be changed does not keep the others from it."""
    slurm.known_jobs[8] = job(8, state="COMPLETED", end_time=datetime.now(UTC))
    assert main(["time", "7", "8", "9", "+1h"]) == 1
    said = capsys.readouterr()
    assert said.out == "job 7: its time limit is 02:00:00, it was 01:00:00\n"
    assert "job 8 has ended: it is COMPLETED" in said.err
    assert "Slurm does not know job 9" in said.err
    assert main(["time", "--json", "7", "30m"]) == 0
    assert json.loads(capsys.readouterr().out) == {"v": 1, "asked": "time", "jobs": [{"job": 7, "limit_s": 1800}]}


@pytest.mark.parametrize("words", [["7"], ["7", "soon"], ["+1h"], []])
def test_wrong_usage(words: list[str], slurm: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """The message has the accepted form."""
    with pytest.raises(SystemExit) as caught:
        main(["time", *words])
    assert caught.value.code == 2
    assert "Usage: slurm-plugin time [OPTIONS] JOB... TIME" in capsys.readouterr().err
    assert slurm.changes == []


def test_the_priority_of_several_jobs(slurm: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """The second one is over the user's cap."""
    assert main(["priority", "7", "8", "urgent"]) == 1
    said = capsys.readouterr()
    assert said.out == "job 7: it is urgent, it was normal (QOS=rush)\n"
    assert "job 8 stays normal: user alice has 1 urgent job queued or running, and the site allows 1: " in said.err
    assert main(["priority", "--json", "9", "urgent"]) == 1
    (form,) = json.loads(capsys.readouterr().out)["jobs"]
    assert form["job"] == "9"


def test_an_array(slurm: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """Its number is also that of its last task: only the tasks' names are clear."""
    slurm.names = {"7_1": 8, "7_2": 7}
    for words in (["time", "7", "2h"], ["priority", "7", "urgent"]):
        assert main(words) == 1
        assert f"name its tasks: slurm-plugin {words[0]} 7_1 7_2 ..." in capsys.readouterr().err
    assert slurm.changes == []
    assert main(["time", "7_1", "2h"]) == 0
    assert slurm.changes == [("update_job", 8, {"TimeLimit": "120"})]


def test_no_controller(slurm: Door, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The first job without an answer ends the command."""
    monkeypatch.setattr(slurm, "job", away)
    assert main(["priority", "7", "8", "urgent"]) == 2
    assert capsys.readouterr().err.count("no slurmctld answers") == 1
