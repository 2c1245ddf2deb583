"""The door through pyslurm: what each call asks of it, and what becomes of its answers and its errors."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.errors import MissingError
from slurm_plugin.slurm import JobNotFoundError, Node, Slurm, SlurmAwayError, SlurmError
from slurm_plugin.slurm.library import Library
from slurm_plugin.slurm.patience import Patience
from tests.fake_slurm import FakeClock
from tests.unit.slurm.fake_commands import Bin, record
from tests.unit.slurm.pyslurm_plan import JOB, FakePyslurm
from tests.unit.slurm.test_records import PLAIN


@pytest.fixture
def door(pyslurm: FakePyslurm) -> Library:
    """A door with nothing behind it but the fake."""
    return Library(deadline_s=10.0)


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


@pytest.mark.parametrize(("call", "noted"), CALLS.values(), ids=CALLS)
def test_call(pyslurm: FakePyslurm, door: Library, call: Callable[[Slurm], object], noted: list[Any]) -> None:
    """One of pyslurm's for each, and no command."""
    call(door)
    assert pyslurm.calls() == [noted]


def test_job(pyslurm: FakePyslurm, door: Library) -> None:
    """The same as the commands make of it."""
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


@pytest.mark.parametrize(
    ("values", "code", "signal"),
    [
        ({"exit_code": 7, "exit_code_signal": 0}, 7, None),
        ({"exit_code": 0, "exit_code_signal": 9}, None, 9),
        ({"exit_code": None, "exit_code_signal": None}, None, None),
    ],
)
def test_exit(pyslurm: FakePyslurm, door: Library, values: dict[str, Any], code: int | None, signal: int) -> None:
    """A code or a signal, never both."""
    pyslurm.plan(jobs={"7": JOB | values})
    job = door.job(7)
    assert (job.exit_code, job.exit_signal) == (code, signal)


def test_what_is_not_known(pyslurm: FakePyslurm, door: Library) -> None:
    """A state of a later Slurm is UNKNOWN, and a reason that says None is none."""
    pyslurm.plan(jobs={"7": JOB | {"state": "HUMMING", "state_reason": "None"}})
    assert (door.job(7).state, door.job(7).reason) == ("UNKNOWN", "")


def test_bytes_that_are_no_text(pyslurm: FakePyslurm, door: Library) -> None:
    """pyslurm raises at such a comment: it is shown as the commands show it, and the job is as it is."""
    pyslurm.plan(jobs={"7": JOB | {"comment": {"hex": b"not \xff UTF-8".hex()}}})
    assert door.job(7) == PLAIN._replace(comment="not \ufffd UTF-8")


def test_job_that_is_not_known(door: Library) -> None:
    """The same errors as those of the commands."""
    with pytest.raises(JobNotFoundError) as caught:
        door.job(8)
    assert str(caught.value) == "Slurm does not know job 8 (any longer)\n  see what runs with: squeue --me"
    assert door.jobs([8]) == {}
    assert door.jobs([]) == {}


def test_nodes(door: Library) -> None:
    """Those that are asked for, or all."""
    when = datetime(2024, 5, 1, 10, 0, 1, tzinfo=UTC)
    first = Node("n1", frozenset({"IDLE", "DRAIN"}), "disk [a]", "root", when, ("main", "long"), "rack 7")
    second = Node("n2", frozenset({"IDLE"}), "", comment="rack 7")
    assert door.nodes([]) == {"n1": first, "n2": second}
    assert door.nodes(["n2", "n9"]) == {"n2": second}


@pytest.mark.parametrize(("up", "answers"), [([True], True), ([False, True], True), ([False], False), ([], False)])
def test_ping(pyslurm: FakePyslurm, door: Library, up: list[bool], answers: bool) -> None:
    """One controller that answers is enough."""
    pyslurm.plan(up=up)
    assert door.ping() is answers


def test_ping_of_nobody(pyslurm: FakePyslurm, door: Library) -> None:
    """An error is an answer: no."""
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


@pytest.mark.parametrize(("todo", "sent", "said"), ERRORS.values(), ids=ERRORS)
def test_errors(pyslurm: FakePyslurm, door: Library, todo: dict[str, Any], sent: bool | None, said: str) -> None:
    """Refused, or away and then whether the question may have arrived; with what to try.

    The next call works: with the same process, but where the controller was away, with one that reads slurm.conf again.
    """
    pyslurm.plan(requeue=todo)
    with pytest.raises(SlurmError) as caught:
        door.requeue(7)
    hint = "see it with: scontrol show job 7" if sent is None else "is slurmctld up? try: scontrol ping"
    assert not isinstance(caught.value, JobNotFoundError)
    assert isinstance(caught.value, SlurmAwayError) is (sent is not None)
    assert str(caught.value) == f"could not requeue job 7: pyslurm said: {said}\n  {hint}"
    assert getattr(caught.value, "sent", None) is sent
    first, *_ = pyslurm.started()
    assert Path(f"/proc/{first}").exists() is (sent is None)
    assert door.job(7) == PLAIN
    assert len(pyslurm.started()) == (1 if sent is None else 2)


HINTS: dict[str, tuple[Callable[[Slurm], object], str, str]] = {
    "job": (lambda door: door.job(7), "Job.load", "read job 7|see it with: scontrol show job 7"),
    "nodes": (lambda door: door.nodes([]), "Nodes.load", "read the nodes|try: scontrol show node"),
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


@pytest.mark.parametrize(("call", "verb", "words"), HINTS.values(), ids=HINTS)
def test_refusal(pyslurm: FakePyslurm, door: Library, call: Callable[[Slurm], object], verb: str, words: str) -> None:
    """What was asked, what Slurm said, what to try: as with the commands."""
    pyslurm.plan(**{verb: {"errno": 2010, "words": "Access/permission denied"}})
    with pytest.raises(SlurmError) as caught:
        call(door)
    asked, hint = words.split("|")
    assert str(caught.value) == f"could not {asked}: pyslurm said: Access/permission denied\n  {hint}"


def test_cancel_of_a_job_that_is_not_known(pyslurm: FakePyslurm, door: Library) -> None:
    """Nothing is left to cancel, and that is no error, as scancel has it."""
    pyslurm.plan(cancel={"errno": 2017, "words": "Invalid job id specified"})
    door.cancel(8)
    assert pyslurm.calls() == [["cancel", 8]]


@pytest.mark.parametrize(
    ("call", "verb", "errno", "attempts"),
    [
        (lambda door: door.requeue(7), "requeue", 1802, 2),
        (lambda door: door.signal(7, "USR1"), "send_signal", 1802, 1),
        (lambda door: door.signal(7, "USR1"), "send_signal", 1800, 2),
        (lambda door: door.requeue(7), "requeue", 2010, 1),
    ],
)
def test_patience(pyslurm: FakePyslurm, call: Callable[[Slurm], object], verb: str, errno: int, attempts: int) -> None:
    """As with the commands: what is not sent, or may be done twice."""
    clock, said = FakeClock(), list[str]()
    pyslurm.plan(**{verb: {"errno": errno, "words": "x"}})
    with pytest.raises(SlurmError):
        call(Library(deadline_s=10.0, patience=Patience(1, said.append, clock.now, clock.sleep)))
    assert [noted[0] for noted in pyslurm.calls()] == [verb] * attempts
    assert len(said) == attempts - 1


@pytest.mark.parametrize("fields", [{"Nice": "1", "ExcNodeList": "n1"}, {"Comment": ""}, {"StartTime": "now+60"}])
def test_what_pyslurm_cannot_say(tmp_path: Path, pyslurm: FakePyslurm, door: Library, fields: dict[str, str]) -> None:
    """scontrol does it, the whole of it."""
    with pytest.raises(MissingError, match="scontrol was not found"):
        door.update_job(7, **fields)
    commands = Bin(tmp_path / "bin")
    commands.script("scontrol", f'#!/bin/sh\nprintf "%s\\0" "$@" > {tmp_path}/bin/argv')
    door.update_job(7, **fields)
    assert commands.argv() == ["update", "JobId=7", *(f"{name}={value}" for name, value in fields.items())]
    assert pyslurm.calls() == []


def test_what_stays_with_the_commands(tmp_path: Path, pyslurm: FakePyslurm, door: Library) -> None:
    """Submitting, settings, jobs in bulk and those of a node."""
    commands = Bin(tmp_path / "bin")
    commands.squeue([record(7), record(9)])
    commands.script("sbatch", "#!/bin/sh\necho 12")
    commands.script("scontrol", "#!/bin/sh\necho 'SLURM_VERSION = 24.11.5'")
    assert (door.submit("x"), door.version(), door.config()) == (12, "24.11.5", {"SLURM_VERSION": "24.11.5"})
    assert set(door.jobs()) == set(door.jobs([7, 8, 9])) == {7, 9}
    commands.script("squeue", "#!/bin/sh\necho '7|RUNNING'")
    assert door.jobs_of(20001, "n1") == {7: "RUNNING"}
    assert pyslurm.calls() == []
