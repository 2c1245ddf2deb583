"""`slurm-plugin why` as a user types it, with a stand-in for the door."""

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from slurm_plugin import grant
from slurm_plugin.__main__ import main
from slurm_plugin.byhand import asked, why
from slurm_plugin.errors import MissingError
from slurm_plugin.job import files
from slurm_plugin.slurm import Queueing, SlurmAwayError, SlurmError
from tests.fakes import FakeSlurm, job, node

BAD = node("n2", "IDLE", "DRAIN", reason="slurm_plugin: gpu-check: 3 of 4 GPUs [job 7] [job 8]")
ASKED = "[sp1;retries=3;ib=auto]"


class Strict(FakeSlurm):
    """As Slurm's commands: they refuse a question that names a node which is none."""

    def nodes(self, names):  # type: ignore[no-untyped-def]
        if set(names) - set(self.known_nodes):
            raise SlurmError("could not read the nodes: scontrol said: Node n9 not found")
        return super().nodes(names)


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeSlurm]:
    """A door that knows job 7 and two nodes; an empty directory."""
    fake = Strict([job(state="FAILED", reason="", exit_code=5, comment=ASKED)], [node("n1"), BAD])
    fake.settings |= {"MinJobAge": "300 sec"}
    monkeypatch.setattr(asked, "connect", lambda **_: fake)
    monkeypatch.chdir(tmp_path)
    return fake


def history(directory: Path, job_id: int, cause: str, n: int = 1) -> None:
    """An attempt in the job's own directory."""
    files.record(files.directory(directory, job_id), {"n": n, "cause": cause, "action": "fail"})


def test_a_job(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its history is looked for where Slurm says that it runs, whatever directory this is."""
    history(tmp_path / "work", 7, "no restart is left\x1b[2J")
    slurm.directories[7] = str(tmp_path / "work")
    assert main(["why", "7"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == ["job 7: FAILED", "  it failed: no restart is left?[2J"]


def test_a_job_whose_directory_is_not_known(
    slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Then it is looked for here, or where the user says."""
    history(tmp_path, 7, "here")
    assert main(["why", "7"]) == 0
    assert "it failed: here" in capsys.readouterr().out
    history(tmp_path / "there", 7, "there")
    assert main(["why", "7", "--directory", "there"]) == 0
    assert "it failed: there" in capsys.readouterr().out


def test_json(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """One object; a job by its number, a node by its name."""
    assert main(["why", "--json", "7"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["v"], told["job"], told["state"]) == (1, 7, "FAILED")
    assert main(["why", "--json", "n2"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["node"], told["state"], told["next"][0]) == ("n2", "IDLE+DRAIN", "on n2: slurm-plugin check gpu-check")


def test_a_job_that_waits_after_a_restart(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """Its deadline and its time limit are asked for; of a job that waits without one of ours they are not."""
    slurm.known_jobs[7] = job(admin_comment=grant.written("", grant.Grant(3, deadline="2026-03-01T10:30:00")))
    slurm.queues[7] = Queueing(3600, 0, datetime(2026, 3, 1, 10, 30, tzinfo=UTC))
    assert main(["why", "7"]) == 0
    assert "  it may wait until 2026-03-01 09:30:00 UTC for its restart" in capsys.readouterr().out
    slurm.known_jobs[7] = job(admin_comment=grant.written("", grant.Grant(3)))
    assert main(["why", "7"]) == 0
    assert "may wait" not in capsys.readouterr().out
    assert [each for each in slurm.questions if each[0] == "queueing"] == [("queueing", (7,))]


def test_a_job_that_slurm_forgot(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 0 while a node or a file still tells of it, else 1 with where was looked and what to try."""
    assert main(["why", "8"]) == 0
    assert "Slurm has forgotten it, as it does 300 s after a job's end" in capsys.readouterr().out
    assert main(["why", "9"]) == 1
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[-1]) == ("", "  try in its working directory, or: sacct -j 9")
    assert ".slurm_plugin/9 does not tell of it" in err
    history(tmp_path, 9, "a cause")
    assert main(["why", "9"]) == 0
    assert "a cause" in capsys.readouterr().out


def test_a_node_that_does_not_exist(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 1, with the nearest one."""
    assert main(["why", "n22"]) == 1
    assert capsys.readouterr().err == (
        "slurm-plugin: Slurm has no node n22; did you mean n2?\n  see its nodes with: sinfo -N\n"
    )


def test_a_node_that_is_gone_hides_no_other(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """A job may leave out a node that slurm.conf does not have any more."""
    slurm.known_jobs[7] = slurm.known_jobs[7]._replace(excluded="n2,n9")
    assert main(["why", "7"]) == 0
    assert "n2 is out: gpu-check: 3 of 4 GPUs" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["n[1-2]", "7_3", "-", "7 8", "../x", "٧"])
def test_a_name_that_is_none(slurm: FakeSlurm, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong usage, exit 2, and what is accepted; nothing is asked."""
    if name == "7_3":
        assert main(["why", name]) == 1  # a node may be called so
        return
    assert main(["why", "--", name]) == 2
    assert "is no job and no node" in capsys.readouterr().err
    assert slurm.questions == []


@pytest.mark.parametrize(
    ("error", "code"),
    [(SlurmAwayError("no answer"), 2), (SlurmError("refused"), 2), (MissingError("no squeue"), 3)],
)
def test_slurm_does_not_say(
    slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not to be told is another thing than that there is no such job or node."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(slurm, "job", fail)
    monkeypatch.setattr(slurm, "nodes", fail)
    assert main(["why", "7"]) == code
    assert main(["why", "n1"]) == code
    assert capsys.readouterr().err == f"slurm-plugin: {error}\n" * 2


@pytest.mark.parametrize(
    ("settings", "periodic"),
    [
        ({}, None),
        ({"HealthCheckProgram": "", "HealthCheckInterval": "0 sec"}, False),
        ({"HealthCheckProgram": "/usr/sbin/nhc", "HealthCheckInterval": "300 sec"}, False),
        ({"HealthCheckProgram": "/etc/slurm/slurm_plugin/hooks/periodic", "HealthCheckInterval": "300 sec"}, True),
        ({"HealthCheckProgram": "/etc/slurm/slurm_plugin/hooks/periodic", "HealthCheckInterval": "0 sec"}, False),
    ],
)
def test_whether_our_periodic_check_runs(settings: dict[str, str], periodic: bool | None) -> None:
    """As slurm.conf has it; not known where Slurm does not say."""
    assert why._periodic(settings) is periodic


def test_the_history_of_a_stranger(tmp_path: Path) -> None:
    """Lines that are no objects are left out; a link, a pipe or a directory in the file's place is no history."""
    path = files.directory(tmp_path, 7) / files.ATTEMPTS
    assert files.history(tmp_path, 7) is None
    path.write_text('{"n": 0}\nnonsense\n[1]\n' + "[" * 100_000 + '\n{"n": 1')
    assert files.history(tmp_path, 7) == [{"n": 0}]
    path.rename(tmp_path / "other")
    path.symlink_to(tmp_path / "other")
    assert files.history(tmp_path, 7) is None
    path.unlink()
    os.mkfifo(path)
    assert files.history(tmp_path, 7) is None
    path.unlink()
    path.mkdir()
    assert files.history(tmp_path, 7) is None
