"""Asking a controller that is away again: what may be repeated, how often, and what is said at the end."""

from itertools import pairwise

import pytest

from slurm_plugin.slurm import SlurmAwayError, SlurmError, connect
from slurm_plugin.slurm.commands import Commands
from slurm_plugin.slurm.patience import Patience
from tests.fake_slurm import FakeClock
from tests.unit.slurm.fake_commands import Bin


class Question:
    """Raises these errors one after the other, then answers; notes when it was asked."""

    def __init__(self, clock: FakeClock, *errors: SlurmError) -> None:
        self.errors, self.clock, self.times = list(errors), clock, list[float]()

    def __call__(self) -> str:
        self.times.append(self.clock.time)
        if self.errors:
            raise self.errors.pop(0)
        return "answer"


def patience(clock: FakeClock, seconds: float, said: list[str] | None = None) -> Patience:
    """With a clock that only sleeps."""
    return Patience(seconds, clock=clock.now, sleep=clock.sleep, say=([] if said is None else said).append)


def away(number: int, *, sent: bool = True) -> list[SlurmAwayError]:
    """So many errors, each with its number."""
    return [SlurmAwayError(f"error {count}\n  try: ping", sent=sent) for count in range(number)]


@pytest.mark.parametrize("repeatable", [True, False])
def test_answer_at_once(repeatable: bool) -> None:
    """Nothing to wait for."""
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
    """The last pause ends with the time; asked once more then, and the last error is the one that is raised."""
    clock = FakeClock()
    question = Question(clock, *away(50))
    with pytest.raises(SlurmAwayError, match="error 6"):
        patience(clock, 40).ask(question, repeatable=True)
    assert question.times == [0, 1, 3, 7, 15, 30, 40]
    assert max(later - earlier for earlier, later in pairwise(question.times)) == 15


def test_no_patience() -> None:
    """None is the default: the first error is raised, and nobody sleeps."""
    clock = FakeClock()
    question = Question(clock, *away(5, sent=False))
    with pytest.raises(SlurmAwayError, match="error 0"):
        patience(clock, Patience().seconds).ask(question, repeatable=True)
    assert (question.times, clock.pauses) == ([0], [])


@pytest.mark.parametrize(
    ("repeatable", "sent", "attempts"), [(True, True, 3), (True, False, 3), (False, False, 3), (False, True, 1)]
)
def test_what_is_asked_again(repeatable: bool, sent: bool, attempts: int) -> None:
    """Only what could be done twice, and may have been done once, is not."""
    clock = FakeClock()
    question = Question(clock, *away(2, sent=sent))
    try:
        assert patience(clock, 60).ask(question, repeatable=repeatable) == "answer"
    except SlurmAwayError:
        assert (repeatable, sent) == (False, True)
    assert len(question.times) == attempts


def test_sent_after_all() -> None:
    """Each attempt counts for itself: the one that may have arrived is the last one."""
    clock = FakeClock()
    question = Question(clock, *away(2, sent=False), *away(1, sent=True), *away(1, sent=False))
    with pytest.raises(SlurmAwayError) as caught:
        patience(clock, 60).ask(question, repeatable=False)
    assert caught.value.sent
    assert len(question.times) == 3


def test_refusal_is_final() -> None:
    """A controller that says no is there."""
    clock = FakeClock()
    question = Question(clock, SlurmError("no"))
    with pytest.raises(SlurmError, match="no"):
        patience(clock, 60).ask(question, repeatable=True)
    assert clock.pauses == []


def test_what_is_said() -> None:
    """One line for a whole absence: what fails, and for how long it is tried."""
    clock, said = FakeClock(), list[str]()
    patience(clock, 60, said).ask(Question(clock, *away(4)), repeatable=True)
    assert said == ["error 0; asking again for 60 s"]


REFUSED = "Unable to contact slurm controller (connect failure)"
TIMED_OUT = "Socket timed out on send/recv operation"
CALLS = {
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


@pytest.mark.parametrize(("program", "call", "said", "attempts"), CALLS.values(), ids=CALLS)
def test_which_calls_are_asked_again(commands: Bin, program: str, call, said: str, attempts: int) -> None:  # type: ignore[no-untyped-def]
    """Submitting and signalling twice would do it twice; the rest is done once however often it is asked for."""
    at = commands.directory
    commands.script(program, f"echo x >> {at}/attempts\necho '{said}' >&2\nexit 1")
    with pytest.raises(SlurmAwayError):
        call(Commands(str(at), patience=patience(FakeClock(), 1)))
    assert len(commands.read("attempts").split()) == attempts


def test_patience_of_connect(commands: Bin, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the seconds, and whom to tell."""
    monkeypatch.setattr("slurm_plugin.slurm.patience.FIRST_PAUSE_S", 0.01)
    at, lines = commands.directory, list[str]()
    commands.script("scontrol", f"[ -e {at}/up ] && exit\ntouch {at}/up\necho 'Socket timed out' >&2\nexit 1")
    connect(str(at), patience_s=100, say=lines.append).requeue(1)
    assert lines == ["could not requeue job 1: scontrol said: Socket timed out; asking again for 100 s"]
