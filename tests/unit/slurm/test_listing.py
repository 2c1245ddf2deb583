"""Mirrors slurm_plugin/slurm/listing.py: what squeue and sacct print for lists of jobs."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from slurm_plugin.slurm import SlurmError, listing, parse
from slurm_plugin.slurm.listing import ACCOUNTED, FREE, PLAIN, accounted, listed
from tests.unit.slurm.fake_commands import Bin

NONCE = "~0123"
JOB = {
    "JobID": "17", "UserName": "ada", "Partition": "main", "State": "RUNNING", "NodeList": "n[1-2]", "RestartCnt": "1",
    "exit_code": "0", "SubmitTime": "2026-11-23T09:00:00", "StartTime": "2026-11-23T10:00:00",
    "EndTime": "2026-11-23T12:00:00", "NumNodes": "2", "tres-alloc": "cpu=8,mem=1G,node=2,billing=8,gres/gpu=8",
    "TimeUsed": "30:05", "TimeLimit": "2:00:00", "NumTasks": "8", "ArrayJobID": "N/A", "ArrayTaskID": "N/A",
    "HetJobID": "N/A", "HetJobOffset": "N/A", "tres-per-job": "N/A", "tres-per-node": "gres:gpu:4",
    "tres-per-task": "N/A", "Reason": "None", "Name": "a", "Comment": "[sp1;retries=3;ib=auto]",
    "admin_comment": "(null)", "WorkDir": "/home/ada",
}  # fmt: skip
ENDED = {
    "JobID": "17", "JobIDRaw": "17", "User": "ada", "Partition": "main", "State": "CANCELLED by 1000",
    "NodeList": "n[1-2]", "ExitCode": "0:15", "Submit": "2026-11-23T09:00:00", "Start": "2026-11-23T10:00:00",
    "End": "2026-11-23T10:30:00", "NNodes": "2", "AllocTRES": "cpu=8,gres/gpu=8", "ReqTRES": "cpu=8,gres/gpu=8",
    "ElapsedRaw": "1800", "TimelimitRaw": "120", "JobName": "a", "AdminComment": 'sp1:{"granted":1}',
    "WorkDir": "/home/ada",
}  # fmt: skip


def squeue(*jobs: Mapping[str, str]) -> str:
    """Return squeue's answer to PLAIN and FREE."""
    lines = []
    for each in jobs:
        fields = {**JOB, **each}
        lines.append("|".join(fields[name] for name in PLAIN) + "".join(NONCE + fields[name] for name in FREE) + NONCE)
    return "".join(f"{line}\n" for line in lines)


def sacct(*jobs: Mapping[str, str]) -> str:
    """Return sacct's answer with the delimiter NONCE."""
    return "".join("".join({**ENDED, **each}[name] + NONCE for name in ACCOUNTED) + "\n" for each in jobs)


def test_form() -> None:
    """Every field has width 0, so that Slurm prints the whole text. A nonce is behind each that users write."""
    form = parse.form("~x", PLAIN, FREE)
    assert form.startswith("JobID:0|,UserName:0|,")
    assert form.endswith("HetJobOffset:0~x,tres-per-job:0~x,tres-per-node:0~x,tres-per-task:0~x,Reason:0~x,"
                         "Name:0~x,Comment:0~x,admin_comment:0~x,WorkDir:0~x")  # fmt: skip


def test_a_running_job() -> None:
    """All of its fields."""
    (found,) = listed(squeue({}), NONCE)
    assert found._replace(job=None) == (None, "17", 2, 8, 1805, 7200, "/home/ada")
    job = found.job
    assert (job.id, job.user, job.state, job.reason, job.nodes) == (17, "ada", "RUNNING", "", "n[1-2]")
    assert (job.restarts, job.comment, job.admin_comment, job.exit_code) == (1, "[sp1;retries=3;ib=auto]", "", 0)
    assert (job.name, job.partition, job.start_time) == ("a", "main", datetime(2026, 11, 23, 10, tzinfo=UTC))


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "17"),
        ({"ArrayJobID": "12", "ArrayTaskID": "3"}, "12_3"),
        ({"ArrayJobID": "17", "ArrayTaskID": "0-8:2,11%4"}, "17_[0-8:2,11%4]"),
        ({"HetJobID": "17", "HetJobOffset": "1"}, "17+1"),
        ({"HetJobID": "0", "HetJobOffset": "0"}, "17"),
    ],
)
def test_name(fields: Mapping[str, str], name: str) -> None:
    """Tasks of an array that wait are one row, as in squeue."""
    assert listed(squeue(fields), NONCE)[0].name == name


@pytest.mark.parametrize(
    ("fields", "gpus"),
    [
        ({}, 8),
        ({"tres-alloc": "cpu=1,gres/gpu=8,gres/gpu:a100=6,gres/gpu:h100=2"}, 8),
        ({"tres-alloc": "cpu=1,gres/gpu:a100=6,gres/gpu:h100=2"}, 8),
        ({"tres-alloc": "cpu=1,gres/npu=16,gres/shard=4"}, 16),
        ({"tres-alloc": "cpu=1"}, 8),
        ({"tres-alloc": "cpu=1", "tres-per-node": "gres/gpu:a100=2"}, 4),
        ({"tres-alloc": "cpu=1", "tres-per-node": "gres:gpu"}, 2),
        ({"tres-alloc": "N/A", "tres-per-node": "N/A", "tres-per-job": "gres:gpu:3,gres:tape:2"}, 3),
        ({"tres-alloc": "cpu=1", "tres-per-node": "N/A", "tres-per-task": "cpu=4,gres/gpu=1"}, 8),
        ({"tres-alloc": "cpu=1", "tres-per-node": "N/A"}, 0),
        ({"tres-alloc": "cpu=1", "tres-per-node": "gres:gpu:x:y"}, 2),
        ({"tres-alloc": "cpu=1", "NumNodes": "1K"}, 4096),
        ({"tres-alloc": "cpu=1", "NumNodes": "2-8"}, 8),
    ],
)
def test_gpus(fields: Mapping[str, str], gpus: int) -> None:
    """From the job's TRES; if the site does not track accelerators there, from the request."""
    assert listed(squeue(fields), NONCE)[0].gpus == gpus


@pytest.mark.parametrize(
    ("fields", "times"),
    [
        ({"TimeUsed": "0:00", "TimeLimit": "UNLIMITED"}, (None, None)),
        ({"TimeUsed": "INVALID", "TimeLimit": "NOT_SET"}, (None, None)),
        ({"TimeUsed": "2-03:00:01", "TimeLimit": "30:00"}, (183601, 1800)),
    ],
)
def test_times(fields: Mapping[str, str], times: tuple[int | None, int | None]) -> None:
    """No limit is None."""
    assert listed(squeue(fields), NONCE)[0][4:6] == times


def test_users_texts_forge_nothing() -> None:
    """A name may have newlines and all delimiters but the nonce."""
    name = f"x\n17|root|main~0\n{squeue({}).replace(NONCE, '~9')}"
    one, two = listed(squeue({"Name": name}, {"JobID": "18", "Comment": "\x1b[2J"}), NONCE)
    assert (one.job.name, one.job.user, two.job.id, two.job.comment) == (name, "ada", 18, "\x1b[2J")


@pytest.mark.parametrize("text", [squeue({})[:-9], squeue({"JobID": "x"}), squeue({"RestartCnt": ""})])
def test_malformed(text: str) -> None:
    """A job that is cut off or has no number is an error."""
    with pytest.raises(SlurmError):
        listed(text, NONCE)


def test_an_accounted_job() -> None:
    """All of its fields. sacct names who cancelled it."""
    (found,) = accounted(sacct({}), NONCE)
    assert found._replace(job=None) == (None, "17", 2, 8, 1800, 7200, "/home/ada")
    job = found.job
    assert (job.id, job.user, job.state, job.nodes, job.restarts) == (17, "ada", "CANCELLED", "n[1-2]", 0)
    assert (job.exit_code, job.exit_signal, job.comment, job.admin_comment) == (None, 15, "", 'sp1:{"granted":1}')


def test_accounted_runs() -> None:
    """Earlier runs are restarts. A job whose last run has not ended, and one that never ran, are no ended jobs.

    sacct has no directory for a job that was cancelled while it waited for its next run.
    """
    first = {"State": "NODE_FAIL"}
    last = {"Submit": "2026-11-23T10:30:00", "State": "COMPLETED", "ExitCode": "0:0", "WorkDir": ""}
    task = {"JobID": "20_3", "JobIDRaw": "23", "NodeList": "None assigned", "AllocTRES": "", "ElapsedRaw": "0",
            "TimelimitRaw": "UNLIMITED"}  # fmt: skip
    running = {"JobIDRaw": "30", "JobID": "30", "State": "RUNNING", "End": "Unknown"}
    found = accounted(sacct(last, first, task, running), NONCE)
    assert [(each.name, each.job.id, each.job.state, each.job.restarts) for each in found] == [
        ("17", 17, "COMPLETED", 1),
        ("20_3", 23, "CANCELLED", 0),
    ]
    assert [each.directory for each in found] == ["/home/ada"] * 2
    assert found[1][3:6] == (8, None, None)
    assert found[1].job.nodes == ""


def test_the_last_of_two_runs_in_one_second() -> None:
    """sacct prints it last."""
    (found,) = accounted(sacct({"State": "REQUEUED"}, {"State": "COMPLETED", "ExitCode": "0:0"}), NONCE)
    assert (found.job.state, found.job.restarts) == ("COMPLETED", 1)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, []),
        ({"user": "ada"}, ["--user=ada"]),
        ({"job_ids": [7, 9]}, ["--jobs=7,9"]),
        ({"user": "20001", "job_ids": [7]}, ["--user=20001", "--jobs=7"]),
    ],
)
def test_squeue_is_asked_once(asked: dict[str, Any], words: list[str], commands: Bin) -> None:
    """slurmctld sends only what is asked for. No nonce is on the command line."""
    commands.recorded("squeue", "\n")
    assert commands.door().listing(**asked) == []
    assert commands.argv() == ["--noheader", "--all", "--states=all", *words]
    assert commands.environment()["SQUEUE_FORMAT2"].startswith("JobID:0|,")


def test_an_unknown_user(commands: Bin) -> None:
    """squeue exits 0 and lists nothing: the door raises."""
    commands.recorded("squeue", "", "squeue: error: Invalid user: carol\n")
    with pytest.raises(SlurmError, match="Invalid user: carol"):
        commands.door().listing(user="carol")


def test_sacct(commands: Bin, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked in UTC, without the caller's settings, for one user's jobs; only ended ones are returned."""
    monkeypatch.setenv("SACCT_FORMAT", "JobID")
    monkeypatch.setattr(listing, "new_nonce", lambda: NONCE)
    late = {"JobID": "18", "JobIDRaw": "18", "End": "2026-11-23T10:00:01"}
    commands.recorded("sacct", sacct({}, {**late, "State": "RUNNING"}, {**late, "JobIDRaw": "19", "End": "Unknown"}))
    since = datetime(2026, 11, 23, 10, tzinfo=UTC)
    found = commands.door().ended(since, user="ada", job_ids=[17])
    assert [each.job.id for each in found or ()] == [17]
    assert {"--starttime=2026-11-23T10:00:00", "--user=ada", "--jobs=17", "--duplicates"} <= {*commands.argv()}
    assert commands.environment()["TZ"] == "UTC"
    assert "SACCT_FORMAT" not in commands.environment()
    assert commands.door().ended(since.replace(hour=11)) == []
    assert "--allusers" in commands.argv()


def test_no_slurmdbd(commands: Bin) -> None:
    """None if the cluster has no slurmdbd, or this machine no sacct; an error if slurmdbd does not answer."""
    since = datetime(2026, 11, 23, 10, tzinfo=UTC)
    assert commands.door().ended(since) is None
    commands.recorded("sacct", "", "Slurm accounting storage is disabled\n", 1)
    assert commands.door().ended(since) is None
    commands.recorded("sacct", "", "sacct: error: Problem talking to the database: Connection refused\n", 1)
    with pytest.raises(SlurmError, match="could not read the jobs that have ended"):
        commands.door().ended(since)
