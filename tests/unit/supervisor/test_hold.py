"""A hold: what ends it, what runs again during it, and its messages."""

import pytest

from slurm_plugin.supervisor import hold
from slurm_plugin.supervisor.decide import Action
from tests.unit.supervisor.held import FAILED, RUNNING, Held


def test_released(held: Held, capsys: pytest.CaptureFixture[str]) -> None:
    """The job ends with the program's code. The log has the failure, the end of the hold, and the commands."""
    seen = []
    held.pauses = [lambda: seen.append(hold.now(RUNNING, held.directory)), held.ask("release")]
    assert held.keep() == FAILED
    assert held.recorded == [(5, "hold")]
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("[slurm_plugin] held for debugging until 2")
    assert first.endswith(
        f" UTC: {FAILED.reason}; exit code 5; the command: python train.py;"
        " try: slurm-plugin shell 7, slurm-plugin rerun 7, slurm-plugin release 7"
    )
    assert last == "[slurm_plugin] the hold is over: it was released with slurm-plugin release"
    assert seen[0] == {**held.noted, "state": "held"}
    assert held.noted["state"] == "over"
    assert hold.now(RUNNING, held.directory) is None


def test_its_time_is_up(held: Held, capsys: pytest.CaptureFixture[str]) -> None:
    """The job ends in the same way."""
    held.pauses = [lambda: held.move(59.0), lambda: held.move(1.0)]
    assert held.keep(asked=60.0) == FAILED
    assert capsys.readouterr().out.endswith("the hold is over: its time is up\n")


def test_told_to_end(held: Held, capsys: pytest.CaptureFixture[str]) -> None:
    """scancel ends it immediately."""
    held.pauses = [held.end]
    assert held.keep() == FAILED
    assert capsys.readouterr().out.endswith("the hold is over: the job was told to end\n")


def test_run_again_and_mended(held: Held, capsys: pytest.CaptureFixture[str]) -> None:
    """The job succeeds, and the attempt is recorded."""
    held.pauses, held.codes = [held.ask("rerun")], [0]
    assert held.keep() == Action("finish", 0, "the program ended with exit code 0")
    assert held.recorded == [(5, "hold"), (0, "finish")]
    assert "[slurm_plugin] the command is run again by hand: python train.py\n" in capsys.readouterr().out
    assert held.noted["state"] == "over"


def test_run_again_and_failed_again(held: Held) -> None:
    """A new hold begins, with a new clock, but no second notification. Each request counts once."""
    until: list[str] = []
    held.pauses = [
        lambda: (until.append(held.noted["until"]), held.move(1.1)),
        held.ask("rerun"),
        lambda: until.append(held.noted["until"]),
        held.ask("release"),
    ]
    held.codes = [6]
    assert held.keep() == Action("fail", 6, "the program failed with exit code 6; its nodes are fine")
    assert held.recorded == [(5, "hold"), (6, "hold")]
    assert (held.noted["code"], held.noted["number"]) == (6, 2)
    assert until[0] < until[1]
    assert len(held.told) == 1


def test_told_to_end_in_a_rerun(held: Held) -> None:
    """A scancel then is not a failure to hold."""

    def cancelled() -> None:
        held.ask("rerun")()
        held.end()

    held.pauses, held.codes = [cancelled], []
    assert held.keep() == FAILED  # the end came first
    held.launcher.told_to_end = False

    class Ending(list[int]):
        def pop(self, *_: object) -> int:
            held.end()
            return super().pop(0)

    held.pauses, held.codes = [held.ask("rerun")], Ending([143])
    assert held.keep() == Action("finish", 143, "it was told to end")


def test_what_cannot_be_run_again(
    held: Held, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A disk that is full now does not end the hold."""

    class Broken(list[int]):
        def pop(self, *_: object) -> int:
            self.clear()
            raise OSError(28, "No space left on device")

    held.pauses, held.codes = [held.ask("rerun"), held.ask("release")], Broken([1])
    assert held.keep() == FAILED
    assert "it could not be run again: [Errno 28] No space left on device\n" in capsys.readouterr().out


def test_the_site_is_told_once(held: Held) -> None:
    """Its command gets the job and the message."""
    held.site["notify"], held.pauses = "/etc/slurm/notify", [held.ask("release")]
    held.keep()
    ((command, event, job_id, words),) = held.told
    assert (command, event, job_id) == ("/etc/slurm/notify", "hold", 7)
    assert str(words).startswith("held for debugging until 2")


def test_a_directory_that_cannot_be_written(held: Held, capsys: pytest.CaptureFixture[str]) -> None:
    """The job is held, and the log says how to end the hold."""
    held.directory, held.pauses = held.directory / "gone", [held.end]
    assert held.keep() == FAILED
    said = capsys.readouterr().out
    assert "hold.json: No such file or directory; slurm-plugin why does not know of the hold" in said
    assert "neither rerun nor release will work; to end the hold: scancel" in said


def test_a_note_of_an_earlier_run(held: Held) -> None:
    """A job that was requeued in its hold, or has ended, is not held, whatever its last supervisor wrote."""
    seen: list[object] = []
    again, ended = RUNNING._replace(restarts=1), RUNNING._replace(state="FAILED")
    held.pauses = [lambda: seen.extend(hold.now(each, held.directory) for each in (again, ended)), held.ask("release")]
    held.keep()
    assert seen == [None, None]


def test_another_clusters_note(held: Held) -> None:
    """Another cluster's job with the same id may be held in the same directory. It is not this one."""
    seen: list[bool] = []
    names = ("ours", "theirs", "")

    def look() -> None:
        seen.extend(hold.now(RUNNING, held.directory, name) is not None for name in names)

    held.pauses = [look, held.ask("release")]
    held.keep()
    assert seen == [True, False, True]
    (held.directory / hold.STATE).write_text('{"restart": 0, "state": "held"}')
    assert hold.now(RUNNING, held.directory, "ours") == {"restart": 0, "state": "held"}
