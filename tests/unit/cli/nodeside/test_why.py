"""`slurm-plugin why` as a user types it, with a fake Slurm."""

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.cli.nodeside import job_lookup, why
from slurm_plugin.errors import MissingError
from slurm_plugin.records import grant, job_directory, usage
from slurm_plugin.slurm import Queueing, Request, SlurmAwayError, SlurmError
from slurm_plugin.slurm.resources import Partition, Reservation
from tests.fakes import FakeSlurm, job, node

BAD = node("n2", "IDLE", "DRAIN", reason="slurm_plugin: gpu-check: 3 of 4 GPUs [job 7] [job 8]")
ASKED = "[sp1;retries=3;ib=auto]"


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeSlurm]:
    """Return a door that knows job 7 and two nodes, in an empty directory."""
    fake = FakeSlurm([job(state="FAILED", reason="", exit_code=5, comment=ASKED)], [node("n1"), BAD])
    fake.settings |= {"MinJobAge": "300 sec"}
    monkeypatch.setattr(job_lookup, "connect", lambda **_: fake)
    monkeypatch.chdir(tmp_path)
    return fake


def history(directory: Path, job_id: int, cause: str) -> None:
    """Write an attempt into the job's own directory."""
    attempt = {"n": 1, "restart": 1, "cause": cause, "action": "fail"}
    job_directory.record(job_directory.directory(directory, job_id), attempt)


def test_a_job(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The attempts come from the working directory that Slurm names."""
    history(tmp_path / "work", 7, "no restart is left\x1b[2J")
    slurm.directories[7] = str(tmp_path / "work")
    assert main(["why", "7"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == ["job 7: FAILED", "  it failed: no restart is left?[2J"]


def test_a_job_that_hardly_uses_its_accelerators(
    slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The warning comes from the records in the job's directory. A job that waits has none."""
    path, counted = job_directory.directory(tmp_path, 7) / usage.FILE, usage.Mean()
    cards = (usage.Accelerator(0, 0.25),)
    samples = [usage.Sample(1.8e9 + 30 * number, 0, "n\x1b1", 0, accelerators=cards) for number in range(30)]
    usage.write(path, map(counted.added, samples), 1)
    assert main(["why", "7"]) == 0
    warning = "the accelerators of n?1 were used 25% of the last 14 min 30 s"
    assert warning in capsys.readouterr().out
    slurm.known_jobs[7] = job(reason="Resources")
    assert main(["why", "7"]) == 0
    assert warning not in capsys.readouterr().out


def test_a_site_that_does_not_show_its_nodes(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """`why JOB` goes on without them, also for a forgotten job. `why NODE` says so."""
    slurm.private = True
    slurm.known_jobs[7] = job(state="RUNNING", reason="", nodes="n[1-2]", excluded="n2")
    assert main(["why", "7"]) == 0
    assert "it runs on n[1-2]" in capsys.readouterr().out
    assert main(["why", "9"]) == 1
    assert "Slurm does not know job 9" in capsys.readouterr().err
    assert main(["why", "n1"]) == 2
    assert "denied" in capsys.readouterr().err


def test_a_reservation_in_the_way(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """It is asked for only if Slurm's reason may be one. Without an answer the reason stays."""
    begins = datetime.now(UTC) + timedelta(minutes=60)
    slurm.reserved = [Reservation("m", begins, begins + timedelta(hours=2), frozenset({"n1"}))]
    slurm.known_nodes = {"n1": node("n1", partitions=("main",))}
    slurm.known_jobs[7] = job(reason="ReqNodeNotAvail, Reserved for maintenance", partition="main", restarts=0)
    assert main(["why", "7"]) == 0
    said = capsys.readouterr().out
    assert "it has no time limit, and reaches into the reservation m, from " in said
    assert "with `time: 55m` it could start now\ntry next\n  scontrol show reservation\n" in said
    for refused in ("reservations", "nodes"):
        slurm.refusals = {(refused, None): 1}
        assert main(["why", "7"]) == 0
        assert "try next\n  sinfo -R\n" in capsys.readouterr().out
    slurm.known_jobs[7] = job(reason="ReqNodeNotAvail, UnavailableNodes:n1", partition="main", restarts=0)
    assert main(["why", "7"]) == 0
    assert "reservation m" not in capsys.readouterr().out


def test_more_nodes_than_there_are(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """A job with more nodes than its partition never starts; without Slurm's answer its reason stays."""
    slurm.known_jobs[7] = job(reason="PartitionNodeLimit", partition="main", restarts=0)
    slurm.known_partitions = [Partition("main", is_default=True, nodes=2), Partition("all", is_default=False, nodes=4)]
    slurm.requests[7] = Request("main", nodes=3)
    assert main(["why", "7"]) == 0
    says = "  it waits: PartitionNodeLimit: it asks for 3 nodes, and partition main has 2, so it never starts\n"
    said = capsys.readouterr().out
    assert f"{says}try next\n  scontrol show partition main\n  scancel 7\n" in said
    slurm.requests[7] = Request("main", nodes=2)
    assert main(["why", "7"]) == 0
    limit = "it asks for more, or fewer, nodes than the partition lets a job have"
    assert limit in capsys.readouterr().out
    slurm.refusals["partitions", None] = 1
    assert main(["why", "7"]) == 0
    assert limit in capsys.readouterr().out
    slurm.private = True  # PrivateData=partitions
    for partition, given_up in (("main", True), ("main,all", False)):
        slurm.known_jobs[7] = job(reason="PartitionNodeLimit", partition=partition, restarts=0)
        assert main(["why", "7"]) == 0
        assert ("scancel 7" in capsys.readouterr().out) == given_up


def test_a_job_whose_directory_is_not_known(
    slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without Slurm's working directory the current one or --directory counts."""
    history(tmp_path, 7, "here")
    assert main(["why", "7"]) == 0
    assert "it failed: here" in capsys.readouterr().out
    history(tmp_path / "there", 7, "there")
    assert main(["why", "7", "--directory", "there"]) == 0
    assert "it failed: there" in capsys.readouterr().out


def test_json(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """--json prints one object, with the number of a job or the name of a node."""
    assert main(["why", "--json", "7"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["v"], told["job"], told["state"]) == (1, 7, "FAILED")
    assert main(["why", "--json", "n2"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["node"], told["state"], told["next"][0]) == ("n2", "IDLE+DRAIN", "on n2: slurm-plugin check gpu-check")


def test_a_job_that_waits_after_a_restart(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """Only a job with our deadline costs a question about its limits."""
    slurm.known_jobs[7] = job(admin_comment=grant.written("", grant.Grant(3, deadline="2026-03-01T10:30:00")))
    slurm.queues[7] = Queueing(3600, 0, datetime(2026, 3, 1, 10, 30, tzinfo=UTC))
    assert main(["why", "7"]) == 0
    assert "  it may wait until 2026-03-01 09:30:00 UTC for its restart" in capsys.readouterr().out
    slurm.known_jobs[7] = job(admin_comment=grant.written("", grant.Grant(3)))
    assert main(["why", "7"]) == 0
    assert "may wait" not in capsys.readouterr().out
    assert [each for each in slurm.questions if each[0] == "queueing"] == [("queueing", (7,))]


def test_a_job_that_slurm_forgot(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A forgotten job gives exit code 0 if a node or a file names it, else 1 and the next command."""
    assert main(["why", "8"]) == 0
    assert "Slurm has forgotten it, as it does 300 s after a job's end" in capsys.readouterr().out
    assert main(["why", "9"]) == 1
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[-1]) == ("", "  try in its working directory, or: sacct -j 9")
    assert ".slurm_plugin/9 does not tell of it" in err
    history(tmp_path, 9, "a cause")
    assert main(["why", "9"]) == 0
    assert "a cause" in capsys.readouterr().out


@pytest.mark.usefixtures("slurm")
def test_a_failed_jobs_logs_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    """The next command shows them."""
    assert main(["why", "7"]) == 0
    assert "  slurm-plugin logs 7\n" in capsys.readouterr().out


def test_a_node_that_does_not_exist(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown node gives exit code 1 and the nearest name."""
    assert main(["why", "n22"]) == 1
    assert capsys.readouterr().err == (
        "slurm-plugin: Slurm has no node n22; did you mean n2?\n  see its nodes with: sinfo -N\n"
    )


@pytest.mark.usefixtures("slurm")
@pytest.mark.parametrize("step", ["7.0", "7.batch"])
def test_a_step(step: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Its job explains it. A node may have such a name."""
    assert main(["why", step]) == 1
    assert (
        capsys.readouterr().err
        == f"slurm-plugin: Slurm has no node {step}\n  of a step, name its job: slurm-plugin why 7\n"
    )


def test_a_node_that_is_gone_hides_no_other(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """An excluded node that slurm.conf lacks hides no other node."""
    slurm.known_jobs[7] = slurm.known_jobs[7]._replace(excluded="n2,n9")
    assert main(["why", "7"]) == 0
    assert "n2 is out: gpu-check: 3 of 4 GPUs" in capsys.readouterr().out


def test_a_name_that_is_none(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """A word that is no name is wrong usage, and costs no question."""
    for name in ["n[1-2]", "-", "7 8", "../x", "٧"]:
        assert main(["why", "--", name]) == 2, name
        assert "is no job and no node" in capsys.readouterr().err, name
        assert slurm.questions == [], name
    assert main(["why", "7_3"]) == 1  # a node may be called so


@pytest.mark.parametrize(
    ("error", "code"),
    [(SlurmAwayError("no answer"), 2), (SlurmError("refused"), 2), (MissingError("no squeue"), 3)],
)
def test_slurm_does_not_say(
    slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """No answer from Slurm gives exit code 2, not that of an unknown job or node."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(slurm, "job", fail)
    monkeypatch.setattr(slurm, "nodes", fail)
    assert main(["why", "7"]) == code
    assert main(["why", "n1"]) == code
    assert capsys.readouterr().err == f"slurm-plugin: {error}\n" * 2


def test_whether_our_periodic_check_runs() -> None:
    """slurm.conf says whether our periodic check runs; without settings it is unknown."""
    cases: list[tuple[dict[str, str], bool | None]] = [
        ({}, None),
        ({"HealthCheckProgram": "", "HealthCheckInterval": "0 sec"}, False),
        ({"HealthCheckProgram": "/usr/sbin/nhc", "HealthCheckInterval": "300 sec"}, False),
        ({"HealthCheckProgram": "/etc/slurm/slurm_plugin/hooks/periodic", "HealthCheckInterval": "300 sec"}, True),
        ({"HealthCheckProgram": "/etc/slurm/slurm_plugin/hooks/periodic", "HealthCheckInterval": "0 sec"}, False),
    ]
    for settings, periodic in cases:
        door = FakeSlurm()
        door.settings = settings
        assert why.periodic(door) is periodic, settings


def test_the_history_of_a_stranger(tmp_path: Path) -> None:
    """A broken line is left out; a link, a pipe or a directory is no attempts file."""
    path = job_directory.directory(tmp_path, 7) / job_directory.ATTEMPTS
    assert job_directory.attempts(tmp_path / job_directory.OURS / "7") is None
    path.write_text('{"n": 0}\nnonsense\n[1]\n' + "[" * 100_000 + '\n{"n": 1')
    assert job_directory.attempts(tmp_path / job_directory.OURS / "7") == [{"n": 0}]
    path.rename(tmp_path / "other")
    path.symlink_to(tmp_path / "other")
    assert job_directory.attempts(tmp_path / job_directory.OURS / "7") is None
    path.unlink()
    os.mkfifo(path)
    assert job_directory.attempts(tmp_path / job_directory.OURS / "7") is None
    path.unlink()
    path.mkdir()
    assert job_directory.attempts(tmp_path / job_directory.OURS / "7") is None
