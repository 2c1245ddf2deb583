"""The lines about a job until it ends."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import pytest

from slurm_plugin.records.grant import Grant, Run, written
from slurm_plugin.records.progress_file import Point
from slurm_plugin.slurm import Job, JobNotFoundError, SlurmError
from slurm_plugin.views.follow import Look, bar, changes, follow, may_never_start, of_several
from tests import fakes
from tests.fake_slurm import FakeClock, FakeSlurm
from tests.refusals import refusal_of

JOB = Job(17, "ada", "PENDING", "Priority", "", "", 0, "", "")


def told(*answers: Job | Exception) -> tuple[list[str], FakeClock]:
    """Return the reported changes of a job with these answers, and the clock."""
    clock = FakeClock()
    looks = list(follow(FakeSlurm(*answers), 17, clock))
    assert [look.ended for look in looks] == [False] * (len(looks) - 1) + [True]
    return [change for look in looks for change in look.changes], clock


class Looked(fakes.FakeSlurm):
    """Return these states of jobs 11 and 12, one pair for each question: `RUNNING`, or `PENDING Resources`.

    "": forgotten. None: no answer.
    """

    def __init__(self, looks: Iterable[tuple[str, str] | None]) -> None:
        super().__init__()
        self.left = list(looks)

    def jobs(self, job_ids: Sequence[int] | None = None) -> Mapping[int, Job]:
        """Return the next pair."""
        states = self.left.pop(0)
        if states is None:
            raise SlurmError("away")
        found = {}
        for number, (state, _, reason) in zip((11, 12), (each.partition(" ") for each in states), strict=True):
            if state:
                found[number] = fakes.job(number, state=state, reason=reason, restarts=0)
        return found


def test_a_bar() -> None:
    """With the time that is left, as far as it is known."""
    points = [Point(1000.0 + 10 * number, 0, 100 * number, 1200, 0.1) for number in range(4)]
    assert bar(points) == "[######..................] 300/1200, 25%, 1 min 30 s left"
    assert bar(points, 8) == "[##......] 300/1200, 25%, 1 min 30 s left"
    assert bar([Point(1.0, 0, 3, 1200)]) == "[........................] 3/1200, 0%"
    assert bar([Point(1.0, 0, 1300, 1200, 1.0)]) == "[########################] 1300/1200, 100%, 0 s left"
    assert bar([Point(1.0, 0, 1300, None, 0.28351)]) == "step 1300, 0.284 s each"
    assert bar([Point(1.0, 0, 1300)]) == "step 1300"
    assert bar([]) == ""


def test_which_of_them_runs() -> None:
    """It is the only one that is not cancelled, or a forgotten one that has run (12), or the first."""
    cases = [
        ([("PENDING", "PENDING"), ("RUNNING", "PENDING"), ("RUNNING", "CANCELLED")], 11),
        ([("RUNNING", "RUNNING"), ("CANCELLED", "RUNNING")], 12),
        ([("CANCELLED", "COMPLETED")], 12),
        ([("SPECIAL_EXIT", "CANCELLED"), ("EXPEDITING", "CANCELLED"), ("RUNNING", "CANCELLED")], 11),
        ([("PENDING", "PENDING"), ("CANCELLED", "CANCELLED")], 11),
        ([None, ("CANCELLED", "FAILED")], 12),
        ([("PENDING", "PENDING"), ("", "")], 12),
        ([("PENDING", "PENDING"), ("CANCELLED", "")], 12),
        ([("PENDING", "PENDING"), ("", "CANCELLED")], 11),
    ]
    for looks, which in cases:
        slurm = Looked(looks)
        found = of_several(slurm, (11, 12), FakeClock(), lambda number: number == 12, tell=lambda *_: None)
        assert found == which, looks
        assert slurm.left == [], looks


def test_alternatives_that_can_never_start() -> None:
    """Each change of a reason is reported. If the reasons of all that wait stay hopeless, the following ends.

    One that may start, or a reason that passes, goes on. So does a limit of the partition that may be raised.
    """
    hopeless = ("PENDING PartitionConfig", "PENDING DependencyNeverSatisfied")
    larger = ("PENDING PartitionNodeLimit", "CANCELLED")
    ends, still = ("RUNNING", "CANCELLED"), "it is still in the queue: scancel"
    config = "given up: its partition does not have what it asks for, so it never starts"
    never = "given up: the job that it waits for did not end as it has to, so it never starts"
    first = [(11, "PENDING (PartitionConfig)"), (12, "PENDING (DependencyNeverSatisfied)")]
    gives_up = [(11, f"{config}; {still} 11"), (12, f"{never}; {still} 12")]
    cases: list[tuple[list[tuple[str, str] | None], int | None, list[tuple[int, str]]]] = [
        ([hopeless] * 4, None, [*first, *gives_up]),
        ([*[hopeless] * 3, None, hopeless], None, [*first, *gives_up]),
        (
            [("PENDING Priority", hopeless[1]), *[hopeless] * 4],
            None,
            [(11, "PENDING (Priority)"), first[1], first[0], *gives_up],
        ),
        ([*[(hopeless[0], "PENDING Priority")] * 9, ends], 11, [first[0], (12, "PENDING (Priority)")]),
        ([*[(hopeless[0], "RUNNING")] * 9, ("CANCELLED", "RUNNING")], 12, first[:1]),
        (
            [larger] * 8,
            None,
            [(11, "PENDING (PartitionNodeLimit)"), (11, f"given up: it asks for 9 nodes; {still} 11")],
        ),
    ]
    for looks, which, lines in cases:
        answers, told = ["", "it asks for 9 nodes"], list[tuple[int, str]]()
        slurm = Looked(looks)
        tell = lambda number, line, told=told: told.append((number, line))  # noqa: E731
        found = of_several(
            slurm, (11, 12), FakeClock(), bool, tell=tell, more_than_there_are=lambda *_, left=answers: left.pop(0)
        )
        assert (found, told, slurm.left) == (which, lines, []), looks


def test_a_job_is_followed_to_its_end() -> None:
    """Every change is reported once."""
    running = JOB._replace(state="RUNNING", reason="", nodes="n[1-2]")
    lines, _ = told(JOB, JOB, running, running, running._replace(state="COMPLETED", exit_code=0))
    assert lines == ["PENDING (Priority)", "RUNNING on n[1-2]", "COMPLETED"]


def test_a_job_that_can_never_start_is_given_up() -> None:
    """Each change of Slurm's reason is reported. A reason that stays ends the following; one that passes does not."""
    wrong = JOB._replace(reason="PartitionConfig")
    looks = list(follow(FakeSlurm(JOB, *[wrong] * 4), 17, FakeClock()))
    assert [change for look in looks for change in look.changes] == [
        "PENDING (Priority)",
        "PENDING (PartitionConfig)",
        "given up: its partition does not have what it asks for, so it never starts; "
        "it is still in the queue: scancel 17",
    ]
    running = JOB._replace(state="RUNNING", reason="", nodes="n1")
    lines, _ = told(wrong, wrong, JOB, wrong, wrong, running, running._replace(state="COMPLETED"))
    assert lines[-1] == "COMPLETED"
    requeued = JOB._replace(reason="BadConstraints", restarts=1)  # our worker corrects that
    lines, _ = told(*[requeued] * 9, running._replace(state="COMPLETED", restarts=1))
    assert lines[-1] == "COMPLETED"


def test_more_nodes_than_there_are() -> None:
    """The job is given up only if the partition's own numbers say so.

    This is asked at every fourth look, and again if there was no answer.
    """
    wrong, asked = JOB._replace(reason="PartitionNodeLimit"), []
    for answers, many in ((["it asks for 9 nodes"], 4), (["", "it asks for 9 nodes"], 8)):
        left = list(answers)

        def says(_: object, job: Job, left: list[str] = left) -> str:
            asked.append(job.reason)
            return left.pop(0)

        looks = list(follow(FakeSlurm(*[wrong] * 20), 17, FakeClock(), says))
        assert looks[-1].changes == ("given up: it asks for 9 nodes; it is still in the queue: scancel 17",)
        assert (len(looks), left) == (many + 1, [])
    assert set(asked) == {"PartitionNodeLimit"}
    lines, _ = told(*[wrong] * 9, wrong._replace(state="COMPLETED"))
    assert lines[-1] == "COMPLETED"


def test_a_restart_is_told_with_its_reason_and_the_nodes_left_out() -> None:
    """From SlurmUser's grant. A failed state between two runs is no end."""
    running = JOB._replace(state="RUNNING", reason="", nodes="n[1-2]")
    grant = Grant(granted=3, requeues=1, excluded=("n2",), last="n2: disk-size shm: 0.2 GB of 1 GB", counted=0)
    waiting = JOB._replace(reason="BeginTime", excluded="n2", restarts=1, admin_comment=written("", grant))
    again = waiting._replace(state="RUNNING", reason="", nodes="n[1,3]")
    failed = running._replace(state="FAILED", exit_code=1)
    lines, _ = told(running, failed, waiting, again, again._replace(state="COMPLETED"))
    assert lines == [
        "RUNNING on n[1-2]",
        "restart 1 of 3: n2: disk-size shm: 0.2 GB of 1 GB",
        "left out: n2",
        "PENDING (BeginTime)",
        "RUNNING on n[1,3]",
        "COMPLETED",
    ]


def test_each_restart_is_told_with_its_own_cause() -> None:
    """When it is counted, not before. There may be several between two looks, one in place, or an ungranted one."""
    first = Grant(2, 1, last="n1: x", counted=0).with_run(Run(0, "n1", "", "n1: x"))
    second = replace(first, requeues=2, last="n2: y", counted=1).with_run(Run(1, "n2", "", "n2: y"))
    over = replace(second, last="no restart left after n3: z").with_run(Run(2, "n3", "", "n3: z"))

    def seen(given: Grant, **fields: object) -> Job:
        return JOB._replace(reason="BeginTime", admin_comment=written("", given), **fields)

    none, one, two = seen(Grant(2)), seen(first, restarts=1), seen(second, restarts=2)
    cases = [
        (none, one, ["restart 1 of 2: n1: x"]),
        (one, one._replace(restarts=2), []),
        (one._replace(restarts=2), two, ["restart 2 of 2: n2: y"]),
        (none, two, ["restart 1 of 2: n1: x", "restart 2 of 2: n2: y"]),
        (two, seen(over, restarts=3), ["error,exiting: no restart left after n3: z"]),
        (
            one,
            one._replace(comment="[sp1;retries=2;again=1]"),
            ["restart 2 of 2: on nodes that it has, without a requeue"],
        ),
        (JOB, JOB._replace(restarts=1), ["restart 1"]),
    ]
    for before, after, lines in cases:
        assert [*changes(before, after)] == [*lines, *changes(before, after)[len(lines) :]], lines
        assert [line for line in changes(before, after) if line.startswith(("restart", "error"))] == lines
    runs = one._replace(state="RUNNING", reason="", nodes="n2", restarts=2)
    assert changes(one._replace(restarts=2), runs) == (
        "requeued for another cause, which costs no restart",
        "RUNNING on n2",
    )
    assert changes(runs, runs) == ()


ENDS: dict[str, Callable[[], Job]] = {
    "FAILED with exit code 3": lambda: JOB._replace(state="FAILED", exit_code=3),
    "FAILED by signal 9": lambda: JOB._replace(state="FAILED", exit_signal=9),
    "TIMEOUT": lambda: JOB._replace(state="TIMEOUT", exit_code=0),
}


def test_an_end_that_is_no_success_is_looked_at_twice() -> None:
    """The end is reported with the exit code or the signal."""
    for line, wanted in ENDS.items():
        lines, clock = told(wanted())
        assert (lines, clock.pauses) == ([line], [3.0]), line
        lines, _ = told(wanted(), JobNotFoundError("forgotten meanwhile"))
        assert lines == [line]


def test_questions_become_rare_while_nothing_changes() -> None:
    """From one in 1 s to one in 15 s, to spare the controller."""
    _, clock = told(*[JOB] * 60, JOB._replace(state="COMPLETED"))
    assert clock.pauses[:10] == [1.0] * 10
    assert max(clock.pauses) == clock.pauses[-1] == 15.0


def test_a_controller_that_is_away_for_a_while_is_asked_again() -> None:
    """One line reports it. The job continues meanwhile."""
    silent = SlurmError("could not read the jobs: squeue gave no answer in 30 s\n  is slurmctld up? try: scontrol ping")
    lines, _ = told(JOB, silent, silent, JOB._replace(state="COMPLETED"))
    assert lines == [
        "PENDING (Priority)",
        "Slurm does not answer, asking again: could not read the jobs: squeue gave no answer in 30 s",
        "COMPLETED",
    ]


def test_following_ends_where_nothing_can_be_learned() -> None:
    """The controller is silent for ten minutes, or has forgotten the job."""
    for error in [SlurmError("silent"), JobNotFoundError("forgotten")]:
        assert re.search(str(error), refusal_of(type(error), list, follow(FakeSlurm(JOB, error), 17, FakeClock()))), (
            error
        )


def test_texts_of_others_cannot_steer_a_terminal() -> None:
    """Escape sequences in a reason are shown as question marks."""
    assert changes(None, JOB._replace(reason="\x1b[2Jx\n")) == ("PENDING (?[2Jx?)",)


def test_a_look_without_news_says_nothing() -> None:
    """The job has not changed."""
    assert changes(JOB, JOB) == ()
    assert Look(JOB, ()).ended is False


@pytest.mark.parametrize(
    ("reason", "partitions", "hopeless"),
    [
        ("PartitionTimeLimit", "main", True),
        ("PartitionTimeLimit", "main,long", False),
        ("AccountNotAllowed", "main", True),
        ("QOSNotAllowed", "main", True),
        ("QOSMaxWallDurationPerJobLimit", "main", True),
        ("AssocMaxWallDurationPerJobLimit", "main", True),
        ("QOSMaxGRESPerJob", "main", True),
        ("AssocMaxNodePerJobLimit", "main", True),
        ("QOSMaxCpuPerNode", "main", True),
        ("QOSMinCpuNotSatisfied", "main", True),
        ("QOSMaxJobsPerUserLimit", "main", False),
        ("AssocMaxJobsLimit", "main", False),
        ("QOSMaxGRESPerUser", "main", False),
        ("AssocGrpGRESMinutes", "main", False),
        ("QOSGrpCpuLimit", "main", False),
        ("Priority", "main", False),
    ],
)
def test_reasons_that_do_not_pass(reason: str, partitions: str, hopeless: bool) -> None:
    """A limit that the job exceeds by itself stays; one that the jobs of a user share does not."""
    waits = JOB._replace(reason=reason, partition=partitions)
    looks = list(follow(FakeSlurm(*[waits] * 8, JOB._replace(state="COMPLETED", exit_code=0)), 17, FakeClock()))
    lines = [change for look in looks for change in look.changes]
    assert lines[0] == f"PENDING ({reason})"
    assert (len(lines), lines[1].startswith("given up: ")) == (2, hopeless)


@pytest.mark.parametrize(("admin_comment", "hopeless"), [("", True), ('sp1:{"granted":2,"requeues":1}', False)])
def test_a_requeued_job_that_nobody_watches(admin_comment: str, hopeless: bool) -> None:
    """Without an installation no worker gives nodes back to a job that has excluded too many."""
    fields = {"comment": "[sp1;retries=2;ib=auto]", "admin_comment": admin_comment, "reason": "BadConstraints"}
    assert may_never_start(fakes.job(restarts=1, state="PENDING", **fields)) is hopeless
