"""The process of pyslurm: it starts on use, ends after a missed deadline, and never outlives its bridge."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from prechecks.child import Child
from slurm_plugin.slurm import SlurmAwayError, SlurmError, pyslurm_process
from slurm_plugin.slurm.calls import Patience
from slurm_plugin.slurm.library import Bridge, Library
from tests.fake_slurm import FakeClock
from tests.gone import until_gone
from tests.unit.slurm.pyslurm_plan import JOB, FakePyslurm
from tests.unit.slurm.test_records import PLAIN
from tests.waiting import HANG_S, until


def descriptors() -> int:
    """Return the number of open descriptors."""
    return len(list(Path("/proc/self/fd").iterdir()))


def test_start(pyslurm: FakePyslurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process for all questions, in UTC, in the caller's directory. No import can end it early.

    pyslurm does not import our modules under its own names.
    """
    monkeypatch.chdir(tmp_path)  # SLURM_CONF may be a relative path
    bridge = Bridge()
    assert pyslurm.started() == []
    assert bridge.start(HANG_S) == ("ok", "25.5.0")
    assert [bridge.ask(("ping",), HANG_S) for _ in range(3)] == [("ok", True)] * 3
    assert len(pyslurm.started()) == 1
    notes = [json.loads(line) for line in (pyslurm.directory / "calls").read_text().splitlines()]
    assert notes[1][:-1] == ["slurm_init", "1", "UTC", str(tmp_path)]
    assert str(Path(pyslurm_process.__file__).parent) not in notes[1][-1]


def test_first_question_starts_it(pyslurm: FakePyslurm) -> None:
    """The bridge needs no explicit start."""
    assert Bridge().ask(("ping",), HANG_S) == ("ok", True)


def test_nothing_is_left(pyslurm: FakePyslurm) -> None:
    """A deleted bridge leaves neither a process nor a descriptor, also after a stop."""
    before = descriptors()
    bridge = Bridge()
    bridge.start(HANG_S)
    assert descriptors() > before
    del bridge
    assert descriptors() == before
    bridge = Bridge()
    bridge.start(HANG_S)
    bridge.stop()
    bridge.stop()
    del bridge
    assert descriptors() == before
    first, second = pyslurm.started()
    for pid in (first, second):
        assert not Path(f"/proc/{pid}").exists()


def test_it_ends_with_its_questions(pyslurm: FakePyslurm) -> None:
    """End of file ends the process, for example when its parent is killed."""
    bridge = Bridge()
    bridge.start(HANG_S)
    process = bridge._process
    assert process
    assert process.stdin
    process.stdin.close()
    assert process.wait(HANG_S) == 0


def test_question_that_hangs(pyslurm: FakePyslurm) -> None:
    """A late question ends with its process; the next one has a new process and its own answer."""
    door = Library(deadline_s=HANG_S)
    assert door.job(7) == PLAIN
    pyslurm.plan(requeue={"hang": True})
    door._deadline_s = 0.4
    began = time.monotonic()
    with pytest.raises(SlurmAwayError) as caught:
        door.requeue(7)
    assert time.monotonic() - began >= 0.4
    assert caught.value.sent
    assert str(caught.value) == (
        "could not requeue job 7: pyslurm gave no answer in 0.4 s\n  is slurmctld up? try: scontrol ping"
    )
    (first,) = pyslurm.started()
    until_gone(first)
    door._deadline_s = HANG_S
    assert door.job(7) == PLAIN
    assert len(pyslurm.started()) == 2


@pytest.mark.parametrize(
    "todo",
    [
        {"half": "\0\0\0", "exit": 0},
        {"half": "\0\0\0\0\0\0\0\x64half of it", "exit": 1},
        {"exit": 0},
        {"half": "\0\0\0\0\0\0\0\x64half of it", "hang": True},
    ],
    ids=["in the length", "in the middle", "before", "hangs in the middle"],
)
def test_answer_that_is_not_whole(pyslurm: FakePyslurm, todo: dict[str, object]) -> None:
    """A bad answer counts as late or ended; the next question has a new process."""
    door = Library(deadline_s=HANG_S)
    assert door.job(7) == PLAIN
    pyslurm.plan(requeue=todo)
    door._deadline_s = 0.3 if "hang" in todo else HANG_S
    with pytest.raises(SlurmAwayError) as caught:
        door.requeue(7)
    assert caught.value.sent
    why = "gave no answer in 0.3 s" if "hang" in todo else "said: it said nothing"
    assert str(caught.value) == f"could not requeue job 7: pyslurm {why}\n  is slurmctld up? try: scontrol ping"
    door._deadline_s = HANG_S
    assert door.job(7) == PLAIN
    assert len(pyslurm.started()) == 2


@pytest.mark.parametrize(
    ("verb", "call", "attempts"),
    [("requeue", lambda door: door.requeue(7), 3), ("send_signal", lambda door: door.signal(7, "USR1"), 1)],
)
def test_process_that_ends_over_a_question(
    pyslurm: FakePyslurm, verb: str, call: Callable[[Library], object], attempts: int
) -> None:
    """The call may have been done: it is repeated in a new process, unless that could do it twice."""
    clock, said = FakeClock(), list[str]()
    pyslurm.plan(**{verb: {"stderr": "one\nslurm: fatal: two\n", "exit": 1}})
    door = Library(deadline_s=HANG_S, patience=Patience(2, said.append, clock.now, clock.sleep))
    with pytest.raises(SlurmAwayError) as caught:
        call(door)
    assert caught.value.sent
    asked = "requeue job 7" if verb == "requeue" else "send USR1 to job 7"
    line = f"could not {asked}: pyslurm said: slurm: fatal: two"
    assert str(caught.value) == f"{line}\n  is slurmctld up? try: scontrol ping"
    assert said == ([f"{line}; asking again for 2 s"] if attempts > 1 else [])
    assert len(pyslurm.started()) == attempts
    assert [noted[0] for noted in pyslurm.calls()] == [verb] * attempts


def test_interrupted(pyslurm: FakePyslurm) -> None:
    """Ctrl-C during a question ends the process; the next answer is that of the next question."""
    bridge = Bridge()
    bridge.start(HANG_S)
    (first,) = pyslurm.started()
    pyslurm.plan(requeue={"hang": True})

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)  # SIGINT may be ignored here, and SIGALRM is pytest-timeout's
    asked = threading.Thread(
        target=lambda: (until(lambda: pyslurm.has_noted("requeue")), os.kill(os.getpid(), signal.SIGUSR1))
    )
    try:
        with pytest.raises(KeyboardInterrupt):
            asked.start()
            bridge.ask(("requeue", 7), HANG_S)
    finally:
        asked.join()
        signal.signal(signal.SIGUSR1, before)
    assert not Path(f"/proc/{first}").exists()
    assert bridge.ask(("ping",), HANG_S) == ("ok", True)
    assert len(pyslurm.started()) == 2


def test_process_that_was_killed(pyslurm: FakePyslurm) -> None:
    """A process that dies between two questions is replaced."""
    bridge = Bridge()
    bridge.start(HANG_S)
    os.kill(pyslurm.started()[0], 9)
    until_gone(pyslurm.started()[0])
    assert bridge.ask(("ping",), HANG_S) == ("ok", True)
    assert len(pyslurm.started()) == 2


def test_process_that_reads_no_more(pyslurm: FakePyslurm) -> None:
    """A process that hangs or ends gives no answer; the next question has a new one."""
    bridge = Bridge()
    bridge.start(HANG_S)
    pyslurm.plan(ping_all={"deaf": True, "hang": True})
    assert bridge.ask(("ping",), 0.3) is None
    pyslurm.plan(ping_all={"deaf": True})
    assert bridge.ask(("ping",), HANG_S) == ("ok", True)
    pyslurm.plan(ping_all=None)
    assert bridge.ask(("ping",), HANG_S) == ("ended", "it said nothing")
    assert bridge.ask(("ping",), HANG_S) == ("ok", True)


def test_what_the_library_prints(pyslurm: FakePyslurm) -> None:
    """Much output on either stream harms no answer, and the last line is readable."""
    text = "x" * 200_000
    pyslurm.plan(ping_all={"print": text, "stderr": f"{text}\nslurm: error: last\n"})
    bridge = Bridge()
    assert bridge.ask(("ping",), HANG_S) == ("ok", True)
    assert bridge.last_line() == "slurm: error: last"
    bridge.stop()
    bridge.start(HANG_S)
    assert bridge.last_line() == ""


def test_long_answer(pyslurm: FakePyslurm) -> None:
    """Questions and answers may be longer than a pipe holds."""
    comment = "ü\n" * 200_000
    pyslurm.plan(jobs={"7": JOB | {"comment": comment}})
    door = Library(deadline_s=HANG_S)
    assert door.job(7).comment == comment
    pyslurm.plan(jobs={})
    door.update_job(7, Comment=comment)
    assert pyslurm.calls()[-1] == ["modify", 7, {"comment": comment}]


def test_pyslurm_that_is_gone(pyslurm: FakePyslurm) -> None:
    """A pyslurm that was uninstalled meanwhile is an error, not an absent controller."""
    door = Library(deadline_s=HANG_S)
    assert door.job(7) == PLAIN
    os.kill(pyslurm.started()[0], 9)
    until_gone(pyslurm.started()[0])
    (pyslurm.directory / "pyslurm.py").write_text("raise ImportError('libslurm.so.42: cannot open')")
    with pytest.raises(SlurmError, match=r"could not read job 7: pyslurm said: pyslurm cannot be imported \(libslurm"):
        door.job(7)
    assert door.ping() is False


def test_a_fork_has_a_process_of_its_own(pyslurm: FakePyslurm) -> None:
    """Its parent's pipes are closed there, and their numbers may be those of other files."""
    bridge = Bridge()
    assert bridge.ask(("ping",), HANG_S) == ("ok", True)
    fork = Child(lambda _say: repr(bridge.ask(("ping",), HANG_S)).encode())
    assert fork.collect(time.monotonic() + HANG_S)
    assert fork.output.decode() == "('ok', True)"
    assert bridge.ask(("ping",), HANG_S) == ("ok", True)
