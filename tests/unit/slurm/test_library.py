"""The back end that uses pyslurm: its calls, and how it converts answers and errors."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.errors import MissingError
from slurm_plugin.slurm import JobNotFoundError, Node, Slurm, SlurmAwayError, SlurmDeniedError, SlurmError
from slurm_plugin.slurm.calls import Patience
from slurm_plugin.slurm.library import Library
from tests.fake_slurm import FakeClock
from tests.refusals import refusal_of
from tests.unit.slurm.fake_commands import Bin, record
from tests.unit.slurm.pyslurm_plan import JOB, FakePyslurm
from tests.unit.slurm.test_commands import PRIVATE, SEE
from tests.unit.slurm.test_records import PLAIN
from tests.waiting import HANG_S


@pytest.fixture
def door(pyslurm: FakePyslurm) -> Library:
    """Return a back end with only the fake pyslurm."""
    return Library(deadline_s=HANG_S)


CALLS: dict[str, tuple[Callable[[Slurm], object], list[Any]]] = {
    "exclude": (
        lambda door: door.update_job(7, ExcNodeList="n1,n2", AdminComment="a", Comment="b"),
        ["modify", 7, {"excluded_nodes": ["n1", "n2"], "admin_comment": "a", "comment": "b"}],
    ),
    "exclude none": (lambda door: door.update_job(7, ExcNodeList=""), ["modify", 7, {"excluded_nodes": ","}]),
    "start now": (lambda door: door.update_job(7, StartTime="now"), ["modify", 7, {"begin_time": "now"}]),
    "requeue": (lambda door: door.requeue(7), ["requeue", 7]),
    "hold": (lambda door: door.hold(7), ["hold", 7]),
    "release": (lambda door: door.release(7), ["release", 7]),
    "signal to the steps": (lambda door: door.signal(7, "USR1"), ["send_signal", 7, "SIGUSR1", "children"]),
    "signal to the script": (lambda door: door.signal(7, "USR1", "batch"), ["send_signal", 7, "SIGUSR1", "batch"]),
    "signal to all": (lambda door: door.signal(7, "TERM", "all"), ["send_signal", 7, "SIGTERM", "all"]),
    "cancel": (lambda door: door.cancel(7), ["cancel", 7]),
    "drain": (lambda door: door.drain("n1", "x [a]"), ["Node.modify", "n1", {"state": "DRAIN", "reason": "x [a]"}]),
    "resume": (lambda door: door.resume("n1"), ["Node.modify", "n1", {"state": "RESUME"}]),
    "job": (lambda door: door.job(7), ["Job.load", 7]),
    "jobs": (lambda door: door.jobs([7]), ["Job.load", 7]),
    "nodes": (lambda door: door.nodes(["n1"]), ["Nodes.load"]),
    "ping": (lambda door: door.ping(), ["ping_all"]),
}


def test_call(pyslurm: FakePyslurm, door: Library) -> None:
    """One function of pyslurm for each call, and no command."""
    for name, (call, noted) in CALLS.items():
        call(door)
        assert pyslurm.calls() == [noted], name


def test_job(pyslurm: FakePyslurm, door: Library) -> None:
    """The same record as from the commands."""
    assert door.job(7) == PLAIN
    full = {
        "state": "PENDING", "state_reason": "BeginTime", "allocated_nodes": None, "excluded_nodes": "n[3,5]",
        "requeue_count": 2, "comment": "a\nb", "admin_comment": "c", "start_time": None, "end_time": None,
    }  # fmt: skip
    pyslurm.plan(jobs={"7": JOB | full})
    assert door.job(7) == PLAIN._replace(
        state="PENDING", reason="BeginTime", nodes="", excluded="n[3,5]", restarts=2, comment="a\nb",
        admin_comment="c", start_time=None, end_time=None,
    )  # fmt: skip


def test_exit(pyslurm: FakePyslurm, door: Library) -> None:
    """A code or a signal, never both."""
    for values, code, signal in (
        ({"exit_code": 7, "exit_code_signal": 0}, 7, None),
        ({"exit_code": 0, "exit_code_signal": 9}, None, 9),
        ({"exit_code": None, "exit_code_signal": None}, None, None),
    ):
        pyslurm.plan(jobs={"7": JOB | values})
        job = door.job(7)
        assert (job.exit_code, job.exit_signal) == (code, signal), values


def test_what_is_not_known(pyslurm: FakePyslurm, door: Library) -> None:
    """An unknown state is UNKNOWN, and the reason None is empty."""
    pyslurm.plan(jobs={"7": JOB | {"state": "HUMMING", "state_reason": "None"}})
    assert (door.job(7).state, door.job(7).reason) == ("UNKNOWN", "")


def test_bytes_that_are_no_text(pyslurm: FakePyslurm, door: Library) -> None:
    """pyslurm raises for such a comment. It is shown as the commands show it, and the job is complete."""
    pyslurm.plan(jobs={"7": JOB | {"comment": {"hex": b"not \xff UTF-8".hex()}}})
    assert door.job(7) == PLAIN._replace(comment="not \ufffd UTF-8")


def test_job_that_is_not_known(door: Library) -> None:
    """The same errors as those of the commands."""
    said = refusal_of(JobNotFoundError, door.job, 8)
    assert said == "Slurm does not know job 8 (any longer)\n  see what runs with: squeue --me"
    assert door.jobs([8]) == {}
    assert door.jobs([]) == {}


def test_nodes(door: Library) -> None:
    """The requested nodes, or all."""
    when = datetime(2024, 5, 1, 10, 0, 1, tzinfo=UTC)
    states, gres = frozenset({"IDLE", "DRAIN"}), ("gpu:a100:4", "nvme:1")
    first = Node("n1", states, "disk [a]", "root", when, ("main", "long"), "rack 7", gres)
    second = Node("n2", frozenset({"IDLE"}), "", comment="rack 7")
    assert door.nodes([]) == {"n1": first, "n2": second}
    assert door.nodes(["n2", "n9"]) == {"n2": second}


def test_ping(pyslurm: FakePyslurm, door: Library) -> None:
    """One controller that answers is enough. An error means no."""
    for up, answers in (([True], True), ([False, True], True), ([False], False), ([], False)):
        pyslurm.plan(up=up)
        assert door.ping() is answers, up
    pyslurm.plan(ping_all={"errno": 1800, "words": "Unable to contact slurm controller"})
    assert door.ping() is False


ERRORS: dict[str, tuple[dict[str, Any], bool | None, str]] = {
    "refused": ({"errno": 2010, "words": "Access/permission denied"}, None, "Access/permission denied"),
    "no job": ({"errno": 2017, "words": "Invalid job id specified"}, None, "Invalid job id specified"),
    "connection refused": ({"errno": 1800, "words": "Unable to contact"}, False, "Unable to contact"),
    "connection refused, without a controller": ({"errno": 1001, "words": "connection"}, False, "connection"),
    "no answer": ({"errno": 1802, "words": "Unable to contact"}, True, "Unable to contact"),
    "timed out": ({"errno": 5004, "words": "Socket timed out"}, True, "Socket timed out"),
    "of no sense": ({"errno": 1000, "words": "Unexpected message"}, True, "Unexpected message"),
    "a bug": ({"raise": "took an int"}, None, "ValueError: took an int"),
}


def test_errors(pyslurm: FakePyslurm, door: Library) -> None:
    """A refusal, or an absent controller and whether the request may have arrived; with what to try.

    The next call works: in the same process, or after an absence in a new one that reads slurm.conf again.
    """
    processes = 1
    for name, (todo, sent, said) in ERRORS.items():
        assert door.job(7) == PLAIN, name
        assert len(pyslurm.started()) == processes, name
        pyslurm.plan(requeue=todo)
        with pytest.raises(SlurmError) as caught:
            door.requeue(7)
        hint = "see it with: scontrol show job 7" if sent is None else "is slurmctld up? try: scontrol ping"
        assert not isinstance(caught.value, JobNotFoundError)
        assert isinstance(caught.value, SlurmAwayError) is (sent is not None), name
        assert str(caught.value) == f"could not requeue job 7: pyslurm said: {said}\n  {hint}"
        assert getattr(caught.value, "sent", None) is sent, name
        assert Path(f"/proc/{pyslurm.started()[-1]}").exists() is (sent is None), name
        processes += sent is not None
    assert door.job(7) == PLAIN
    assert len(pyslurm.started()) == processes


HINTS: dict[str, tuple[Callable[[Slurm], object], str, str]] = {
    "job": (lambda door: door.job(7), "Job.load", "read job 7|see it with: scontrol show job 7"),
    "nodes": (lambda door: door.nodes([]), "Nodes.load", f"read the nodes|{PRIVATE} nodes {SEE}"),
    "update_job": (
        lambda door: door.update_job(7, Comment="x", AdminComment="y"),
        "modify",
        "update job 7 (Comment, AdminComment)|see it with: scontrol show job 7",
    ),
    "hold": (lambda door: door.hold(7), "hold", "hold job 7|see it with: scontrol show job 7"),
    "release": (lambda door: door.release(7), "release", "release job 7|see it with: scontrol show job 7"),
    "signal": (
        lambda door: door.signal(7, "USR1"), "send_signal", "send USR1 to job 7|see it with: scontrol show job 7"
    ),
    "cancel": (lambda door: door.cancel(7), "cancel", "cancel job 7|see it with: scontrol show job 7"),
    "drain": (lambda door: door.drain("n1", "x"), "Node.modify", "drain node n1|see it with: scontrol show node n1"),
    "resume": (lambda door: door.resume("n1"), "Node.modify", "resume node n1|see it with: scontrol show node n1"),
}  # fmt: skip


def test_refusal(pyslurm: FakePyslurm, door: Library) -> None:
    """The request, Slurm's message and what to try, as with the commands."""
    for call, verb, words in HINTS.values():
        pyslurm.plan(**{verb: {"errno": 2010, "words": "Access/permission denied"}})
        with pytest.raises(SlurmError) as caught:
            call(door)
        asked, hint = words.split("|")
        assert str(caught.value) == f"could not {asked}: pyslurm said: Access/permission denied\n  {hint}"
        assert isinstance(caught.value, SlurmDeniedError)


def test_cancel_of_a_job_that_is_not_known(pyslurm: FakePyslurm, door: Library) -> None:
    """No error, as with scancel."""
    pyslurm.plan(cancel={"errno": 2017, "words": "Invalid job id specified"})
    door.cancel(8)
    assert pyslurm.calls() == [["cancel", 8]]


def test_patience(pyslurm: FakePyslurm) -> None:
    """As with the commands: repeat what was not sent, or what may be done twice."""
    clock, said = FakeClock(), list[str]()
    door = Library(deadline_s=HANG_S, patience=Patience(1, said.append, clock.now, clock.sleep))
    for call, verb, errno, attempts in (
        (lambda: door.requeue(7), "requeue", 1802, 2),
        (lambda: door.signal(7, "USR1"), "send_signal", 1802, 1),
        (lambda: door.signal(7, "USR1"), "send_signal", 1800, 2),
        (lambda: door.requeue(7), "requeue", 2010, 1),
    ):
        pyslurm.plan(**{verb: {"errno": errno, "words": "x"}})
        with pytest.raises(SlurmError):
            call()
        assert [noted[0] for noted in pyslurm.calls()] == [verb] * attempts, (verb, errno)
        assert len(said) == attempts - 1, (verb, errno)
        said.clear()


def test_what_pyslurm_cannot_say(tmp_path: Path, pyslurm: FakePyslurm, door: Library) -> None:
    """scontrol makes the whole change."""
    every = [{"Nice": "1", "ExcNodeList": "n1"}, {"Comment": ""}, {"StartTime": "now+60"}]
    for fields in every:
        with pytest.raises(MissingError, match="scontrol was not found"):
            door.update_job(7, **fields)
    commands = Bin(tmp_path / "bin")
    commands.script("scontrol", f'#!/bin/sh\nprintf "%s\\0" "$@" > {tmp_path}/bin/argv')
    for fields in every:
        door.update_job(7, **fields)
        assert commands.argv() == ["update", "JobId=7", *(f"{name}={value}" for name, value in fields.items())]
    assert pyslurm.calls() == []


def test_what_stays_with_the_commands(tmp_path: Path, pyslurm: FakePyslurm, door: Library) -> None:
    """Submissions, settings, many jobs, and the jobs of a node."""
    commands = Bin(tmp_path / "bin")
    commands.squeue([record(7), record(9)])
    commands.script("sbatch", "#!/bin/sh\necho 12")
    commands.script("scontrol", "#!/bin/sh\necho 'SLURM_VERSION = 24.11.5'")
    assert (door.submit("x").id, door.version(), door.config()) == (12, "24.11.5", {"SLURM_VERSION": "24.11.5"})
    assert set(door.jobs()) == set(door.jobs([7, 8, 9])) == {7, 9}
    commands.script("squeue", "#!/bin/sh\necho '7|RUNNING'")
    assert door.jobs_of(20001, "n1") == {7: "RUNNING"}
    assert pyslurm.calls() == []
