"""Further questions about jobs: wait, request, jobs of a user, array tasks."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from slurm_plugin.slurm import JobNotFoundError, Queueing, Request, Slurm, SlurmError
from tests.refusals import refusal_of
from tests.unit.slurm.fake_commands import Bin, record


def waiting(job_id: int, **fields: str) -> dict[str, str]:
    """Return a job's limits as SQUEUE_FORMAT2 names them, with these changes."""
    array = {"ArrayJobID": str(job_id), "ArrayTaskID": "N/A"}
    times = {"TimeLimit": "1-00:00:00", "MinTime": "0:00", "Deadline": "N/A", "Nice": "0"}
    return {"JobID": str(job_id), **times, "ReqNodes": "", **array, **fields}


TASK = {"TimeLimit": "UNLIMITED", "MinTime": "10:00", "Deadline": "2026-03-01T09:30:00", "Nice": "-100"}


def test_queueing(commands: Bin) -> None:
    """One squeue has the limits of several jobs in seconds; UNLIMITED and no deadline are None."""
    commands.squeue([waiting(7), waiting(8, **TASK, ReqNodes="n[1-2]", ArrayTaskID="2")])
    assert commands.door().queueing([7, 8, 10]) == {
        7: Queueing(86400, 0, None, 0),
        8: Queueing(None, 600, datetime(2026, 3, 1, 9, 30, tzinfo=UTC), -100, "8_2", "n[1-2]"),
    }
    (asked,) = commands.asked()
    assert "--jobs=7,8,10" in asked.argv
    assert commands.door().queueing([]) == {}


def test_queueing_of_a_typed_node_list(commands: Bin) -> None:
    """Slurm takes blanks, newlines and empty names in --nodelist: they hide no other job, and name the same nodes."""
    for typed in ("n1\nn[2, 4]", " n1,\tn[2,4]\n", "n1,,n[2,4],", "n1\n9|1:00|0:00|N/A|0|9|N/A\nn[2,4]"):
        commands.squeue([waiting(6), waiting(7, ReqNodes=typed), waiting(8)])
        found = commands.door().queueing([6, 7, 8, 9])
        assert [*found] == [6, 7, 8]
        assert "9|" in typed or found[7].required == "n1,n[2,4]"
    commands.squeue([record(ExcNodes="n1, n2\nn3,")])
    assert commands.door().jobs([7])[7].excluded == "n1,n2,n3"


def test_queueing_that_is_no_answer(commands: Bin) -> None:
    """A cut or foreign record is an error."""
    for wrong in (
        {"JobID": "x"},
        {"Nice": ""},
        {"Nice": "0|1"},
        {"TimeLimit": "1:00\n8"},
    ):
        commands.squeue([waiting(7) | wrong])
        with pytest.raises(SlurmError, match="in place of a job"):
            commands.door().queueing([7])
    commands.recorded("squeue", "7|1:00|0:00|N/A|0|7|N/A")
    with pytest.raises(SlurmError, match="in the middle of a job"):
        commands.door().queueing([7])


def test_jobs_of_a_user_on_a_node(commands: Bin) -> None:
    """One squeue asks slurmctld for one user's jobs."""
    commands.recorded("squeue", "7|COMPLETING\n8|RUNNING\n19|HUMMING\n")
    door = commands.door()
    assert door.jobs_of(20001, "n1") == {7: "COMPLETING", 8: "RUNNING", 19: "UNKNOWN"}
    assert commands.argv() == [
        "--noheader", "--all", "--array", "--states=all", "--user=20001", "--nodelist=n1", "--format=%A|%T",
    ]  # fmt: skip
    commands.recorded("squeue", "")
    assert door.jobs_of(20001, "n1") == {}


def test_the_queued_jobs_of_a_user(commands: Bin) -> None:
    """One squeue with the filters that are given lists waiting and running jobs, array tasks by name."""
    commands.recorded("squeue", "7\n8_[3]\n8_2\n")
    door = commands.door()
    assert door.queued(user="ada", partitions=["a", "b"]) == ["7", "8_[3]", "8_2"]
    assert commands.argv() == [
        "--noheader", "--all", "--array", "--user=ada", "--partition=a,b", "--format=%i",
    ]  # fmt: skip
    commands.recorded("squeue", "")
    assert door.queued(account="lab", qos="rush") == []
    assert commands.argv()[3:5] == ["--account=lab", "--qos=rush"]
    commands.recorded("squeue", "", err="squeue: error: Invalid user: ada\n")
    with pytest.raises(SlurmError, match="Invalid user: ada"):
        door.queued(user="ada")


def test_the_batch_script_of_a_job(commands: Bin) -> None:
    """It is printed as it is; Slurm's refusal is an error."""
    commands.recorded("scontrol", "#!/bin/sh\ntrue\n")
    assert commands.door().batch_script(7) == "#!/bin/sh\ntrue\n"
    assert commands.argv() == ["write", "batch_script", "7", "-"]
    commands.recorded("scontrol", "", err="job script retrieval failed: Invalid job id specified\n", code=1)
    with pytest.raises(SlurmError, match="could not read the batch script of job 7"):
        commands.door().batch_script(7)


NO_ANSWERS = {
    "22.05 and later, a user who is not known": (
        "", "squeue: error: Invalid user: 4242\n", 0, "squeue said: squeue: error: Invalid user: 4242"
    ),
    "a node that is not known": (
        "", "squeue: error: Invalid node name n9\n", 1, "squeue said: squeue: error: Invalid node name n9"
    ),
    "cut off": ("7|RUNNING\n8|RUN", "", 0, "squeue answered '8|RUN' in place of a job"),
    "no record": ("forged\n", "", 0, r"squeue answered 'forged\n' in place of a job"),
}  # fmt: skip


def test_jobs_of_nobody(commands: Bin) -> None:
    """An unknown user is an error, though squeue exits 0."""
    for name, (answer, err, code, words) in NO_ANSWERS.items():
        commands.recorded("squeue", answer, err, code)
        assert words in refusal_of(SlurmError, commands.door().jobs_of, 4242, "n1"), name


def test_an_update_that_was_made_though_scontrol_says_no(commands: Bin) -> None:
    """The message about an INACTIVE partition is no error. Any other refusal is one."""
    said = "Requested partition configuration not available now for job 7"
    commands.recorded("scontrol", "", said, 1)
    commands.door().update_job(7, StartTime="now")
    commands.recorded("scontrol", "", "Access/permission denied for job 7", 1)
    with pytest.raises(SlurmError, match="Access/permission denied"):
        commands.door().update_job(7, StartTime="now")


def test_may_requeue(commands: Bin) -> None:
    """Slurm requeues a batch job that may be requeued, or any job if the site forces it."""
    for batch, requeue, flags, may in (
        ("1", "1", "", True),
        ("3", "1", "", True),  # each failed start increases it
        ("1", "0", "Alloc,DeferBatch", False),
        ("1", "0", "Alloc,DeferBatch,ForceRequeueOnFail", True),
        ("0", "1", "Alloc,DeferBatch,ForceRequeueOnFail", False),
        ("0", "0", "", False),
    ):
        commands.script("scontrol", f"echo 'PrologFlags             = {flags or '(null)'}'")
        commands.recorded("squeue", f"7|{batch}|{requeue}|7|N/A\n")
        assert commands.door().may_requeue(7) is may, (batch, requeue, flags)


def test_may_requeue_is_not_guessed(commands: Bin) -> None:
    """An unknown job and a cut answer are errors."""
    for answer, error in {"": JobNotFoundError, "7|1|\n": SlurmError, "7|1|1|7|2": SlurmError}.items():
        commands.recorded("squeue", answer)
        with pytest.raises(error):
            commands.door().may_requeue(7)


ROWS = {  # of 22.05, 24.11, 26.05, with another path, and of a job with few requests
    "big|x|high|r|a100&ib|64G|2|1|gres:gpu:a100:2,gres:shard:3|N/A|N/A|N/A|9": Request(
        "big", "x", "high", "r", "a100&ib", 65536, 2, ("gpu:a100:2", "shard:3"), requeue=True, nodes=9
    ),
    "main|(null)|normal|(null)|(null)|1465M|2|0|gres/gpu:2|N/A|N/A|cpu=2|4-8": Request(
        "main", "", "normal", "", "", 1465, 2, ("gpu:2",), requeue=False, nodes=4
    ),
    "main|(null)|(null)|(null)|(null)|97.50G|1|1|N/A|N/A|N/A|gres/gpu=1|1": Request(
        "main", memory_mb=99840, gres=None, nodes=1
    ),
    "main|(null)|(null)|(null)|(null)|0|N/A|1|gres/gpu|N/A|N/A|N/A|1.5K": Request("main", gres=("gpu:1",)),
}


def test_request(commands: Bin) -> None:
    """The path is complete on each release, and a job's name cannot forge one."""
    for row, wanted in ROWS.items():
        line = "".join(f"{each}${{n}}" for each in ["7", *row.split("|")])
        commands.script("squeue", f'n=$(echo "$SQUEUE_FORMAT2" | sed "s/JobID:0\\(~[^,]*\\),.*/\\1/")\necho "{line}"')
        assert commands.door().request(7) == wanted


def test_a_request_is_not_guessed(commands: Bin) -> None:
    """An unknown job and a cut answer are errors."""
    for answer in ("", "7~8~"):
        commands.recorded("squeue", answer)
        with pytest.raises(SlurmError):
            commands.door().request(7)


CHANGES: dict[str, tuple[Callable[[Slurm], object], str, str]] = {
    "update": (lambda door: door.update_job(4, StartTime="now"), "scontrol", "JobId=4_2"),
    "requeue": (lambda door: door.requeue(4), "scontrol", "4_2"),
    "hold": (lambda door: door.hold(4), "scontrol", "4_2"),
    "release": (lambda door: door.release(4), "scontrol", "4_2"),
    "signal": (lambda door: door.signal(4, "USR1"), "scancel", "4_2"),
    "cancel": (lambda door: door.cancel(4), "scancel", "4_2"),
}


@pytest.mark.parametrize("known", ["asked for", "whether it may be requeued", "by its own batch script"])
def test_a_change_of_an_arrays_task_is_for_that_task_alone(
    commands: Bin, monkeypatch: pytest.MonkeyPatch, known: str
) -> None:
    """An array task is changed by its name, as the id of the last task means the whole array."""
    door = commands.door()
    if known == "asked for":
        commands.squeue([waiting(4, ArrayTaskID="2")])
        door.queueing([4])
    elif known == "whether it may be requeued":
        commands.recorded("squeue", "4|1|1|4|2\n")
        door.may_requeue(4)
    else:
        for name, value in {"SLURM_JOB_ID": "4", "SLURM_ARRAY_JOB_ID": "4", "SLURM_ARRAY_TASK_ID": "2"}.items():
            monkeypatch.setenv(name, value)
    for change, command, named in CHANGES.values():
        commands.recorded(command, "")
        change(door)
        assert named in commands.argv(), (command, known)
