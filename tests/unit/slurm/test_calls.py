"""A refusal names the command to try. Requests to an absent controller are repeated: which ones, and how often."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from slurm_plugin.slurm import Slurm, SlurmAwayError, SlurmError, calls, connect
from slurm_plugin.slurm.calls import Patience
from slurm_plugin.slurm.commands import Commands
from tests.fake_slurm import FakeClock
from tests.unit.slurm.fake_commands import Bin
from tests.waiting import HANG_S


class Question:
    """Raises these errors one after the other, then answers. It records the times of the calls."""

    def __init__(self, clock: FakeClock, *errors: SlurmError) -> None:
        self.errors, self.clock, self.times = list(errors), clock, list[float]()

    def __call__(self) -> str:
        self.times.append(self.clock.time)
        if self.errors:
            raise self.errors.pop(0)
        return "answer"


def patience(clock: FakeClock, seconds: float, said: list[str] | None = None) -> Patience:
    """Return a Patience with a clock that only `sleep` advances."""
    return Patience(seconds, clock=clock.now, sleep=clock.sleep, say=([] if said is None else said).append)


def away(number: int, *, sent: bool = True) -> list[SlurmAwayError]:
    """Return these errors, each with its number."""
    return [SlurmAwayError(f"error {count}\n  try: ping", sent=sent) for count in range(number)]


@pytest.mark.parametrize("repeatable", [True, False])
def test_answer_at_once(repeatable: bool) -> None:
    """No wait."""
    clock, said = FakeClock(), list[str]()
    assert patience(clock, 60, said).ask(Question(clock), repeatable=repeatable) == "answer"
    assert (clock.pauses, said) == ([], [])


def test_pauses() -> None:
    """They double from 1 s to 15 s, and stay there."""
    clock = FakeClock()
    assert patience(clock, 300).ask(Question(clock, *away(7)), repeatable=True) == "answer"
    assert clock.pauses == [1, 2, 4, 8, 15, 15, 15]


def test_pauses_start_anew_for_the_next_question() -> None:
    """One long absence does not slow down what comes later."""
    clock = FakeClock()
    patient = patience(clock, 300)
    for _ in range(2):
        patient.ask(Question(clock, *away(2)), repeatable=True)
    assert clock.pauses == [1, 2, 1, 2]


def test_time_is_up() -> None:
    """The last pause ends with the time. After one more call the last error is raised."""
    clock = FakeClock()
    question = Question(clock, *away(50))
    with pytest.raises(SlurmAwayError, match="error 6"):
        patience(clock, 40).ask(question, repeatable=True)
    assert question.times == [0, 1, 3, 7, 15, 30, 40]
    assert max(later - earlier for earlier, later in pairwise(question.times)) == 15


def test_no_patience() -> None:
    """By default the first error is raised, without a pause."""
    clock = FakeClock()
    question = Question(clock, *away(5, sent=False))
    with pytest.raises(SlurmAwayError, match="error 0"):
        patience(clock, Patience().seconds).ask(question, repeatable=True)
    assert (question.times, clock.pauses) == ([0], [])


@pytest.mark.parametrize(
    ("repeatable", "sent", "attempts"), [(True, True, 3), (True, False, 3), (False, False, 3), (False, True, 1)]
)
def test_what_is_asked_again(repeatable: bool, sent: bool, attempts: int) -> None:
    """All calls, except those that may have been done and could be done twice."""
    clock = FakeClock()
    question = Question(clock, *away(2, sent=sent))
    try:
        assert patience(clock, 60).ask(question, repeatable=repeatable) == "answer"
    except SlurmAwayError:
        assert (repeatable, sent) == (False, True)
    assert len(question.times) == attempts


def test_sent_after_all() -> None:
    """Each attempt counts by itself: after one that may have arrived, there is no other."""
    clock = FakeClock()
    question = Question(clock, *away(2, sent=False), *away(1, sent=True), *away(1, sent=False))
    with pytest.raises(SlurmAwayError) as caught:
        patience(clock, 60).ask(question, repeatable=False)
    assert caught.value.sent
    assert len(question.times) == 3


def test_refusal_is_final() -> None:
    """A controller that refuses is not absent."""
    clock = FakeClock()
    question = Question(clock, SlurmError("no"))
    with pytest.raises(SlurmError, match="no"):
        patience(clock, 60).ask(question, repeatable=True)
    assert clock.pauses == []


def test_what_is_said() -> None:
    """One message for a whole absence: what fails, and for how long it is tried."""
    clock, said = FakeClock(), list[str]()
    patience(clock, 60, said).ask(Question(clock, *away(4)), repeatable=True)
    assert said == ["error 0; asking again for 60 s"]


REFUSED = "Unable to contact slurm controller (connect failure)"
TIMED_OUT = "Socket timed out on send/recv operation"
CALLS: dict[str, tuple[str, Callable[[Slurm], object], str, int]] = {
    "submit, not sent": ("sbatch", lambda door: door.submit(""), REFUSED, 2),
    "submit, sent": ("sbatch", lambda door: door.submit(""), TIMED_OUT, 1),
    "signal, not sent": ("scancel", lambda door: door.signal(1, "USR1"), REFUSED, 2),
    "signal, sent": ("scancel", lambda door: door.signal(1, "USR1"), TIMED_OUT, 1),
    "cancel": ("scancel", lambda door: door.cancel(1), TIMED_OUT, 2),
    "jobs": ("squeue", lambda door: door.jobs(), TIMED_OUT, 2),
    "requeue": ("scontrol", lambda door: door.requeue(1), TIMED_OUT, 2),
    "update_job": ("scontrol", lambda door: door.update_job(1, Comment="x"), "Unexpected message received", 2),
    "hold": ("scontrol", lambda door: door.hold(1), TIMED_OUT, 2),
    "release": ("scontrol", lambda door: door.release(1), TIMED_OUT, 2),
    "nodes": ("scontrol", lambda door: door.nodes([]), TIMED_OUT, 2),
    "drain": ("scontrol", lambda door: door.drain("n1", "x"), TIMED_OUT, 2),
    "resume": ("scontrol", lambda door: door.resume("n1"), TIMED_OUT, 2),
    "config": ("scontrol", lambda door: door.config(), TIMED_OUT, 2),
}


def test_which_calls_are_asked_again(commands: Bin) -> None:
    """Submissions and signals could be done twice. Other calls may be repeated."""
    at = commands.directory
    for name, (program, call, said, attempts) in CALLS.items():
        commands.script(program, f"echo x >> {at}/attempts\necho '{said}' >&2\nexit 1")
        with pytest.raises(SlurmAwayError):
            call(Commands(str(at), deadline_s=HANG_S, patience=patience(FakeClock(), 1)))
        assert len(commands.read("attempts").split()) == attempts, name
        (at / "attempts").unlink()


def test_patience_of_connect(commands: Bin, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the seconds, and the function for messages."""
    monkeypatch.setattr("slurm_plugin.slurm.calls.FIRST_PAUSE_S", 0.01)
    at, lines = commands.directory, list[str]()
    commands.script("scontrol", f"[ -e {at}/up ] && exit\ntouch {at}/up\necho 'Socket timed out' >&2\nexit 1")
    connect(str(at), deadline_s=HANG_S, patience_s=HANG_S, say=lines.append).requeue(1)
    assert lines == ["could not requeue job 1: scontrol said: Socket timed out; asking again for 300 s"]


NODES = "what the nodes have: sinfo --Format=partition,nodelist,cpus,memory,gres,features"


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("sbatch: error: invalid partition specified: gpu\nInvalid partition name specified", "the partitions are: "),
        ("Batch job submission failed: Requested node configuration is not available", NODES),
        ("Invalid account or account/partition combination specified", "yours are: sacctmgr show associations "),
        ("Batch job submission failed: something new", "try the same script with: sbatch --test-only"),
    ],
)
def test_what_is_to_be_tried(said: str, hint: str) -> None:
    """By slurmctld's message; else the command for every refusal."""
    lines = str(calls.SUBMIT.refused("sbatch", said)).splitlines()
    assert lines[0].startswith("could not submit the job: sbatch said: ")
    assert lines[-1].startswith(f"  {hint}")
