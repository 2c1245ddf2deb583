"""Captured answers of three real Slurms about jobs, nodes and settings: all give the same records.

tests/captured/capture.py took the answers, and says which jobs and nodes there were; replay.py replays them.
"""

from datetime import UTC, datetime, timedelta

import pytest

from slurm_plugin.slurm import Job, JobNotFoundError
from tests.captured.capture import FORGED, NODE_COMMENT, NODE_EXTRA, NONCE, REASON_OF_LINES, UNKNOWN_JOB
from tests.unit.slurm.replay import FILES, Release

OURS = "slurm_plugin: gpu-check: 3 of 4 GPUs [job 7]"


@pytest.fixture
def jobs(slurm: Release) -> dict[str, Job]:
    """Return all jobs by name, from one question."""
    found = slurm.ask("jobs", lambda door: door.jobs())
    assert set(found) == set(range(1, 14))
    assert all(job.id == number for number, job in found.items())
    return {"hostile" if job.name == FORGED else job.name: job for job in found.values()}


def test_releases() -> None:
    """The three releases are captured, with the same questions."""
    assert [version.rpartition(".")[0] for version in FILES] == ["22.05", "24.11", "26.05"]
    first, *others = [list(dict.fromkeys(each["name"] for each in Release(version).answers)) for version in FILES]
    assert all(names == first for names in others)


STATES = {
    "running": ("RUNNING", "", "n[1-2]", 0, None),
    "completed": ("COMPLETED", "", "n5", 0, None),
    "failed": ("FAILED", "NonZeroExitCode", "n5", 7, None),
    "killed": ("FAILED", {"22.05.8": "JobLaunchFailure"}, "n5", None, 9),
    "cancelled": ("CANCELLED", "JobHeldUser", "", 0, None),
    "completing": ("CANCELLED", "", "n5", None, 9),
    "requeued": ("PENDING", "BeginTime", "", 0, None),
    "held": ("PENDING", "JobHeldAdmin", "", 0, None),
    "begin": ("PENDING", "BeginTime", "", 0, None),
    "excluding": ("PENDING", "JobHeldUser", "", 0, None),
    "hostile": ("PENDING", "JobHeldUser", "", 0, None),
    "noted": ("PENDING", "JobHeldUser", "", 0, None),
    "waiting": ("PENDING", "Resources", "", 0, None),
}


def test_states(slurm: Release, jobs: dict[str, Job]) -> None:
    """Each job has its state, reason, nodes, exit code or signal; 22.05 has its own reason of a killed job."""
    wanted = {
        name: (state, reason if isinstance(reason, str) else reason.get(slurm.version, "RaisedSignal:9(Killed)"), *rest)
        for name, (state, reason, *rest) in STATES.items()
    }
    assert wanted == {
        name: (job.state, job.reason, job.nodes, job.exit_code, job.exit_signal) for name, job in jobs.items()
    }


def test_other_fields(jobs: dict[str, Job]) -> None:
    """Each job has its user, partition, restarts, excluded nodes and comment, one of which imitates a record."""
    special = {
        "requeued": ("root", 1, "", "", ""),
        "excluding": ("root", 0, "n[1,3-4]", "", ""),
        "hostile": ("root", 0, "", FORGED, ""),
        "noted": ("alice", 0, "n3", "a [sp1;retries=3] b", 'site sp1:{"granted":3}'),
    }
    for name, job in jobs.items():
        found = (job.user, job.restarts, job.excluded, job.comment, job.admin_comment)
        assert found == special.get(name, ("root", 0, "", "", "")), name
        assert job.partition == "main"


def test_times(jobs: dict[str, Job]) -> None:
    """Times are in UTC; a waiting job has an expected start or none, and no end."""
    running, begin = jobs["running"], jobs["begin"]
    assert running.start_time
    assert running.end_time == running.start_time + timedelta(minutes=10)
    assert (begin.start_time, begin.end_time) == (datetime(2030, 1, 1, tzinfo=UTC), None)
    assert (jobs["excluding"].start_time, jobs["excluding"].end_time) == (None, None)
    for job in jobs.values():
        assert job.submit_time
        assert not job.start_time or job.submit_time <= job.start_time
        assert not job.end_time or (job.start_time and job.start_time <= job.end_time)


def test_some_jobs(slurm: Release, jobs: dict[str, Job]) -> None:
    """Jobs by id are the same; unknown ones are absent."""
    assert slurm.ask("one job", lambda door: door.job(1)) == jobs["running"]
    assert slurm.ask("two jobs", lambda door: door.jobs([1, 3])) == {1: jobs["running"], 3: jobs["failed"]}
    assert slurm.ask("unknown job: jobs", lambda door: door.jobs([1, UNKNOWN_JOB])) == {1: jobs["running"]}
    assert slurm.ask("completing", lambda door: door.job(6)).state == "COMPLETING"
    with pytest.raises(JobNotFoundError, match=f"Slurm does not know job {UNKNOWN_JOB}"):
        slurm.ask("unknown job: job", lambda door: door.job(UNKNOWN_JOB))


def test_how_many_commands(slurm: Release) -> None:
    """A question is one command, on 22.05 two with one nonce, which is on no command line."""
    asked = slurm.named("jobs")
    assert [list(each["variables"]) for each in asked] == (
        [["SQUEUE_FORMAT2"], ["SQUEUE_FORMAT"]] if slurm.version.startswith("22.05") else [["SQUEUE_FORMAT2"]]
    )
    for answer in slurm.answers:
        assert NONCE not in " ".join(answer["argv"])
        assert all(NONCE in form for form in answer["variables"].values())


def test_nodes(slurm: Release) -> None:
    """Nodes have their states, reasons, and the author and time of each."""
    found = slurm.ask("nodes", lambda door: door.nodes([]))
    assert {name: set(node.states) for name, node in found.items()} == {
        "n1": {"ALLOCATED"}, "n2": {"ALLOCATED"}, "n3": {"IDLE", "DRAIN"}, "n4": {"DOWN"}, "n5": {"IDLE"},
        "n6": {"IDLE", "DRAIN", "RESERVED"},
    }  # fmt: skip
    assert {name: found[name].reason for name in ("n1", "n2", "n3", "n4")} == {
        "n1": "", "n2": "", "n3": OURS, "n4": "State=IDLE [a] b",
    }  # fmt: skip
    assert {name: found[name].reason_user for name in ("n1", "n3", "n4")} == {"n1": "", "n3": "root", "n4": "root"}
    assert found["n1"].reason_time is None
    assert found["n3"].reason_time
    assert found["n3"].reason_time.tzinfo is UTC
    assert {node.partitions for node in found.values()} == {("main",)}
    two = slurm.ask("two nodes", lambda door: door.nodes(["n1", "n3"]))
    assert two == {name: found[name] for name in ("n1", "n3")}


def test_what_stands_behind_a_reason(slurm: Release) -> None:
    """Long reasons and odd comments of nodes are read completely."""
    (answer,) = slurm.named("nodes")
    first, *more = REASON_OF_LINES.split("\n")
    behind = "".join([f"\n{' ' * 10}{line}" for line in more])
    behind += f"\n   Comment={NODE_COMMENT}\n   Extra={NODE_EXTRA}"
    behind += "" if slurm.version.startswith("22.05") else "\n   ReservationName=spare"
    assert answer["out"].endswith(f"]{behind}\n\n")
    found = slurm.ask("nodes", lambda door: door.nodes([]))
    assert (found["n6"].reason, found["n6"].reason_user, found["n6"].comment) == (first, "root", NODE_COMMENT)
    assert found["n6"].reason_time
    assert abs(found["n6"].reason_time - found["n3"].reason_time) < timedelta(minutes=1)
    assert found["n6"].standing_reason == found["n6"].reason


def test_settings(slurm: Release) -> None:
    """The settings have the release, and "" where not set."""
    found = slurm.ask("config", lambda door: door.config())
    assert slurm.ask("config", lambda door: door.version()) == found["SLURM_VERSION"] == slurm.version
    assert (found["ClusterName"], found["AccountingStorageBackupHost"]) == ("sandbox", "")
    assert slurm.ask("ping", lambda door: door.ping()) is True
