"""Asking squeue for jobs: one process, on 22.05 two at once."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from slurm_plugin.slurm import JobNotFoundError, Queueing, Request, Slurm, SlurmError, connect
from slurm_plugin.slurm.commands import MOST_IDS
from tests.unit.slurm.fake_commands import Bin, record
from tests.unit.slurm.test_records import PLAIN

HOSTILE = "\n8~fedcba9876543210~root~fedcba9876543210~RUNNING~fedcba9876543210~\r\n"


def test_jobs(commands: Bin) -> None:
    """One squeue for all that are asked for, in their order; those that Slurm does not know are absent."""
    commands.squeue([record(9, ExcNodes="n4"), record(7, Comment=HOSTILE)])
    found = connect(str(commands.directory)).jobs([7, 8, 9])
    assert list(found.items()) == [(7, PLAIN._replace(comment=HOSTILE)), (9, PLAIN._replace(id=9, excluded="n4"))]
    assert len(commands.asked()) == 1


def test_all_jobs(commands: Bin) -> None:
    """None asks for all of them, and names none."""
    commands.squeue([record(9), record(7)])
    assert set(connect(str(commands.directory)).jobs()) == {7, 9}
    assert not [word for word in commands.asked()[0].argv if word.startswith("--jobs")]


def test_one_job(commands: Bin) -> None:
    """The same question."""
    commands.squeue([record()])
    assert connect(str(commands.directory)).job(7) == PLAIN
    assert "--jobs=7" in commands.asked()[0].argv


def test_work_directory(commands: Bin) -> None:
    """A question of its own; what a user has put into a path forges no other job's."""
    commands.squeue([record(WorkDir="/home/alice/a\n8~x~/tmp~b")])
    door = connect(str(commands.directory))
    assert door.work_directory(7) == "/home/alice/a\n8~x~/tmp~b"
    (asked,) = commands.asked()
    assert asked.variable == "SQUEUE_FORMAT"
    assert asked.nonce.strip("~") not in " ".join(asked.argv)
    commands.recorded("squeue", "", "slurm_load_jobs error: Invalid job id specified\n", 1)
    with pytest.raises(JobNotFoundError):
        door.work_directory(8)


@pytest.mark.parametrize(("number", "named"), [(MOST_IDS, True), (MOST_IDS + 1, False)])
def test_many_jobs(commands: Bin, number: int, named: bool) -> None:
    """More than a command line may hold: all are asked for, and those that nobody asked for are left out."""
    commands.squeue([record(1), record(MOST_IDS), record(50_000)])
    assert set(connect(str(commands.directory)).jobs(range(1, number + 1))) == {1, MOST_IDS}
    (asked,) = commands.asked()
    assert [word for word in asked.argv if word.startswith("--jobs")] == (
        [f"--jobs={','.join(map(str, range(1, number + 1)))}"] if named else []
    )


def test_queueing(commands: Bin) -> None:
    """One squeue for all that are asked for; limits in seconds, UNLIMITED and no deadline as None."""
    commands.recorded("squeue", "7|1-00:00:00|0:00|N/A|0|7|N/A\n8|UNLIMITED|10:00|2026-03-01T09:30:00|-100|8|2\n")
    assert connect(str(commands.directory)).queueing([7, 8, 10]) == {
        7: Queueing(86400, 0, None, 0),
        8: Queueing(None, 600, datetime(2026, 3, 1, 9, 30, tzinfo=UTC), -100, "8_2"),
    }
    assert "--jobs=7,8,10" in commands.read("argv").split("\0")
    assert (
        "SQUEUE_FORMAT2=JobID:0|,TimeLimit:0|,MinTime:0|,Deadline:0|,Nice:0|,ArrayJobID:0|,ArrayTaskID:0"
        in commands.read("env").split("\0")
    )
    assert connect(str(commands.directory)).queueing([]) == {}


@pytest.mark.parametrize(
    "said", ["7|1:00|0:00|N/A|0|7|N/A", "x|1:00|0:00|N/A|0|7|N/A\n", "7|1:00|0:00|N/A||7|N/A\n", "7|1:00|N/A|0|7|N/A\n"]
)
def test_queueing_that_is_no_answer(commands: Bin, said: str) -> None:
    """A line that is cut off, or none of ours, is an error and not a job without bounds."""
    commands.recorded("squeue", said)
    with pytest.raises(SlurmError, match="in place of a job"):
        connect(str(commands.directory)).queueing([7])


def test_jobs_that_are_not_known(commands: Bin) -> None:
    """Absent from an answer for many; by itself an error of its own kind. Asking for none asks nothing."""
    commands.recorded("squeue", "", "slurm_load_jobs error: Invalid job id specified\n", 1)
    door = connect(str(commands.directory))
    assert door.jobs([7, 8]) == {}
    with pytest.raises(JobNotFoundError) as caught:
        door.job(7)
    assert str(caught.value) == "Slurm does not know job 7 (any longer)\n  see what runs with: squeue --me"
    (commands.directory / "squeue").unlink()
    assert door.jobs([]) == {}


def test_refusal(commands: Bin) -> None:
    """An error with squeue's words, and no job where only a part of the answer came."""
    commands.recorded("squeue", "", "squeue: error: Invalid user\n", 1)
    door = connect(str(commands.directory))
    with pytest.raises(SlurmError, match="could not read the jobs: squeue said: squeue: error: Invalid user"):
        door.jobs([7])
    commands.recorded("squeue", "7", "")
    with pytest.raises(SlurmError, match="ends in the middle of a job"):
        door.jobs([7])


def test_nonce_is_new_each_time(commands: Bin) -> None:
    """No user can know what ends a field: two calls use different ones, of 48 random bits at least."""
    commands.squeue([record()])
    door = connect(str(commands.directory))
    door.jobs([7])
    door.jobs([7])
    nonces = [asked.nonce for asked in commands.asked()]
    assert len(set(nonces)) == 2
    assert min(len(nonce.strip("~")) for nonce in nonces) >= 8


JOBS_OF_22_05 = [record(6), record(7, Comment=HOSTILE, ExcNodes="n[3-4]", exit_code="256")]


def test_nonce_is_on_no_command_line(commands: Bin) -> None:
    """Everybody can read /proc/PID/cmdline, and write a comment that ends a record with what stands there."""
    commands.squeue(JOBS_OF_22_05, lacks=["ExcNodes"])
    door = connect(str(commands.directory))
    door.jobs([6, 7])
    door.jobs()
    found = commands.asked()
    assert len(found) == 4
    for asked in found:
        words = " ".join(asked.argv)
        assert asked.nonce.strip("~") not in words
        assert not {"-o", "-O", "--format", "--Format"} & {word.partition("=")[0] for word in asked.argv}
        assert "%" not in words


def test_squeue_that_lacks_a_field(commands: Bin) -> None:
    """22.05: learnt with the first answer, of which nothing is asked again but what it lacks, and remembered.

    From then on both processes run at once. Either way the same nonce ends the fields of both.
    """
    commands.squeue(JOBS_OF_22_05, lacks=["ExcNodes"])
    door = connect(str(commands.directory))
    wanted = {6: PLAIN._replace(id=6), 7: PLAIN._replace(comment=HOSTILE, excluded="n[3-4]", exit_code=1)}
    assert door.jobs([6, 7]) == wanted
    first, second = commands.asked()
    assert (first.variable, second.variable) == ("SQUEUE_FORMAT2", "SQUEUE_FORMAT")
    assert (first.nonce, first.argv) == (second.nonce, second.argv)
    (commands.directory / "together").touch()
    assert door.jobs([6, 7]) == wanted
    second, first = sorted(commands.asked())
    assert (first.variable, second.variable) == ("SQUEUE_FORMAT2", "SQUEUE_FORMAT")
    assert (first.nonce, first.argv) == (second.nonce, second.argv)
    assert second.form == f"%A{first.nonce}%x{first.nonce}"


def test_each_door_learns_for_itself(commands: Bin) -> None:
    """Another door may lead to another Slurm."""
    commands.squeue(JOBS_OF_22_05, lacks=["ExcNodes"])
    connect(str(commands.directory)).jobs([6])
    commands.asked()
    commands.squeue(JOBS_OF_22_05)
    assert connect(str(commands.directory)).jobs([7])[7].excluded == "n[3-4]"
    assert len(commands.asked()) == 1


def test_job_that_is_in_one_answer_only(commands: Bin) -> None:
    """One that was submitted between the two is left to the next question, and no other one with it."""
    commands.squeue(JOBS_OF_22_05, lacks=["ExcNodes"])
    script = commands.read("squeue").replace(
        "for record in records:", "for record in records[: 1 if name == 'SQUEUE_FORMAT' else None]:"
    )
    commands.script("squeue", script)
    assert set(connect(str(commands.directory)).jobs()) == {6}


@pytest.mark.parametrize("again", [False, True], ids=["first question", "later"])
def test_second_answer_that_is_no_answer(commands: Bin, again: bool) -> None:
    """Without the excluded nodes there is no job: that none is excluded would be a lie."""
    commands.squeue(JOBS_OF_22_05, lacks=["ExcNodes"])
    door = connect(str(commands.directory))
    if again:
        door.jobs()
    for line, said in (
        ("sys.exit('no')", "could not read the jobs: squeue said: no\n  try: squeue --all"),
        (
            "print('7'), sys.exit(0)",
            "squeue's answer ends in the middle of a job\n  ask again; it may have been killed",
        ),
    ):
        commands.squeue(JOBS_OF_22_05, lacks=["ExcNodes"])
        script = commands.read("squeue").replace(
            "records, lacks", f"name == 'SQUEUE_FORMAT' and ({line}); records, lacks"
        )
        commands.script("squeue", script)
        with pytest.raises(SlurmError) as caught:
            door.jobs()
        assert str(caught.value) == said


def test_jobs_of_a_user_on_a_node(commands: Bin) -> None:
    """One squeue on every release, which asks slurmctld for one user; no word in its answer is that user's."""
    commands.recorded("squeue", "7|COMPLETING\n8|RUNNING\n19|HUMMING\n")
    door = connect(str(commands.directory))
    assert door.jobs_of(20001, "n1") == {7: "COMPLETING", 8: "RUNNING", 19: "UNKNOWN"}
    assert commands.argv() == [
        "--noheader", "--all", "--array", "--states=all", "--user=20001", "--nodelist=n1", "--format=%A|%T",
    ]  # fmt: skip
    commands.recorded("squeue", "")
    assert door.jobs_of(20001, "n1") == {}


@pytest.mark.parametrize(
    ("answer", "err", "code", "words"),
    [
        ("", "squeue: error: Invalid user: 4242\n", 0, "squeue said: squeue: error: Invalid user: 4242"),
        ("", "squeue: error: Invalid node name n9\n", 1, "squeue said: squeue: error: Invalid node name n9"),
        ("7|RUNNING\n8|RUN", "", 0, "squeue answered '8|RUN' in place of a job"),
        ("forged\n", "", 0, r"squeue answered 'forged\n' in place of a job"),
    ],
    ids=["22.05 and later, a user who is not known", "a node that is not known", "cut off", "no record"],
)
def test_jobs_of_nobody(commands: Bin, answer: str, err: str, code: int, words: str) -> None:
    """That a user has no job is said by nothing but a whole answer: squeue exits 0 for one that it cannot look up."""
    commands.recorded("squeue", answer, err, code)
    with pytest.raises(SlurmError) as caught:
        connect(str(commands.directory)).jobs_of(4242, "n1")
    assert words in str(caught.value)


def test_an_update_that_was_made_though_scontrol_says_no(commands: Bin) -> None:
    """Slurm says so of any change in a partition that takes no jobs; any other refusal is one."""
    said = "Requested partition configuration not available now for job 7"
    commands.recorded("scontrol", "", said, 1)
    connect(str(commands.directory)).update_job(7, StartTime="now")
    commands.recorded("scontrol", "", "Access/permission denied for job 7", 1)
    with pytest.raises(SlurmError, match="Access/permission denied"):
        connect(str(commands.directory)).update_job(7, StartTime="now")


@pytest.mark.parametrize(
    ("batch", "requeue", "flags", "may"),
    [
        ("1", "1", "", True),
        ("3", "1", "", True),  # counted up by each failed start
        ("1", "0", "Alloc,DeferBatch", False),
        ("1", "0", "Alloc,DeferBatch,ForceRequeueOnFail", True),
        ("0", "1", "Alloc,DeferBatch,ForceRequeueOnFail", False),
        ("0", "0", "", False),
    ],
)
def test_may_requeue(commands: Bin, batch: str, requeue: str, flags: str, may: bool) -> None:
    """A batch job that may be, or any where the site forces it."""
    commands.script("scontrol", f"echo 'PrologFlags             = {flags or '(null)'}'")
    commands.recorded("squeue", f"7|{batch}|{requeue}|7|N/A\n")
    assert connect(str(commands.directory)).may_requeue(7) is may


UNREAD = {"": JobNotFoundError, "7|1|\n": SlurmError, "7|1|1|7|2": SlurmError}


@pytest.mark.parametrize(("answer", "error"), UNREAD.items())
def test_may_requeue_is_not_guessed(commands: Bin, answer: str, error: type[SlurmError]) -> None:
    """A job that is not in the answer, and an answer that is cut off."""
    commands.recorded("squeue", answer)
    with pytest.raises(error):
        connect(str(commands.directory)).may_requeue(7)


ROWS = {  # of 22.05, 24.11, 26.05, by another road and of a job that asked for little
    "big|x|high|r|a100&ib|64G|2|1|gres:gpu:a100:2,gres:shard:3|N/A|N/A|N/A": Request(
        "big", "x", "high", "r", "a100&ib", 65536, 2, ("gpu:a100:2", "shard:3"), requeue=True
    ),
    "main|(null)|normal|(null)|(null)|1465M|2|0|gres/gpu:2|N/A|N/A|cpu=2": Request(
        "main", "", "normal", "", "", 1465, 2, ("gpu:2",), requeue=False
    ),
    "main|(null)|(null)|(null)|(null)|97.50G|1|1|N/A|N/A|N/A|gres/gpu=1": Request("main", memory_mb=99840, gres=None),
    "main|(null)|(null)|(null)|(null)|0|N/A|1|gres/gpu|N/A|N/A|N/A": Request("main", gres=("gpu:1",)),
}


@pytest.mark.parametrize(("row", "request_"), ROWS.items(), ids=["22.05", "24.11", "26.05", "one"])
def test_request(commands: Bin, row: str, request_: Request) -> None:
    """In the words of each release; a job's own words can forge none."""
    line = "".join(f"{each}${{n}}" for each in ["7", *row.split("|")])
    commands.script("squeue", f'n=$(echo "$SQUEUE_FORMAT2" | sed "s/JobID:0\\(~[^,]*\\),.*/\\1/")\necho "{line}"')
    assert connect(str(commands.directory)).request(7) == request_


@pytest.mark.parametrize("answer", ["", "7~8~"])
def test_a_request_is_not_guessed(commands: Bin, answer: str) -> None:
    """Nothing, and what is cut off."""
    commands.recorded("squeue", answer)
    with pytest.raises(SlurmError):
        connect(str(commands.directory)).request(7)


CHANGES = {
    "update": (lambda door: door.update_job(4, StartTime="now"), "scontrol", "JobId=4_2"),
    "requeue": (lambda door: door.requeue(4), "scontrol", "4_2"),
    "hold": (lambda door: door.hold(4), "scontrol", "4_2"),
    "release": (lambda door: door.release(4), "scontrol", "4_2"),
    "signal": (lambda door: door.signal(4, "USR1"), "scancel", "4_2"),
    "cancel": (lambda door: door.cancel(4), "scancel", "4_2"),
}


@pytest.mark.parametrize(("change", "command", "named"), CHANGES.values(), ids=CHANGES.keys())
@pytest.mark.parametrize("known", ["asked for", "whether it may be requeued", "by its own batch script"])
def test_a_change_of_an_arrays_task_is_for_that_task_alone(
    commands: Bin,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Slurm], None],
    command: str,
    named: str,
    known: str,
) -> None:
    """Its last task has the id of the whole array, which scontrol and scancel take for all of its tasks."""
    door = connect(str(commands.directory))
    if known == "asked for":
        commands.recorded("squeue", "4|1:00|0:00|N/A|0|4|2\n")
        door.queueing([4])
    elif known == "whether it may be requeued":
        commands.recorded("squeue", "4|1|1|4|2\n")
        door.may_requeue(4)
    else:
        for name, value in {"SLURM_JOB_ID": "4", "SLURM_ARRAY_JOB_ID": "4", "SLURM_ARRAY_TASK_ID": "2"}.items():
            monkeypatch.setenv(name, value)
    commands.recorded(command, "")
    change(door)
    assert named in commands.read("argv").split("\0")
