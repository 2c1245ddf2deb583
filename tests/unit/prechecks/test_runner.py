"""The runner: whatever a check does, the result is there in time, and nothing is left behind."""

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import pytest

import prechecks
from prechecks import Check, Context, Finding, PrecheckError, Verdict
from prechecks.runner import PATIENCE_S, _group
from tests.unit.prechecks.looks import CONTEXT, Looks, fine, kill_it, leave, raise_it, run
from tests.unit.prechecks.pace import RunnersTime
from tests.waiting import HANG_S, until


@pytest.fixture(autouse=True)
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunnersTime:
    """Time passes only while a hanging check is waited for. Wait for the end of killed processes."""
    monkeypatch.setattr("prechecks.runner.REAP_S", HANG_S)
    directory = tmp_path / "hanging"
    directory.mkdir()
    return RunnersTime(directory, monkeypatch)


@pytest.fixture
def hang(clock: RunnersTime) -> Callable[[], NoReturn]:
    """Never return."""
    return clock.hang


@pytest.fixture
def deaf(clock: RunnersTime) -> Callable[[], NoReturn]:
    """Never return, and ignore every signal that can be ignored."""

    def hang_and_ignore_everything() -> NoReturn:
        for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_IGN)
        clock.hang()

    return hang_and_ignore_everything


def test_a_check_that_passes() -> None:
    """Its finding becomes the verdict. It ran in a separate process."""
    (verdict,) = run(Looks("one.two", fine))
    assert verdict[:3] == ("one.two", "ok", "node_problem")
    assert (verdict.value, verdict.threshold, verdict.keyword) == (1, 2, "one two")
    assert verdict.message.startswith("process ")
    assert verdict.message != f"process {os.getpid()}"


def test_a_check_that_cannot_hang_runs_here() -> None:
    """Without a separate process."""
    (verdict,) = run(Looks("one", fine, forked=False))
    assert verdict.message == f"process {os.getpid()}"


def test_quick_checks_share_a_child() -> None:
    """One process for all of them; other checks have their own."""
    first, other, last = run(Looks("a", fine, quick=True), Looks("b", fine), Looks("c", fine, quick=True))
    assert first.message == last.message != other.message


BROKEN: dict[str, tuple[Callable[[], Finding] | str, str, str]] = {
    "hangs": ("hang", "timeout", "no answer within 3 s"),
    "ignores signals": ("deaf", "timeout", "no answer within 3 s"),
    "is killed": (kill_it, "error", "the check was killed by signal 9"),
    "leaves": (leave, "error", "the check ended without a result"),
    "raises": (raise_it, "error", "PermissionError: no way"),
    "answers nonsense": (lambda: Finding("ok", "", object()), "error", "the check ended without a result"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize(("how", "verdict", "message"), BROKEN.values(), ids=BROKEN)
def test_one_that_is_broken_takes_nobody_with_it(
    request: pytest.FixtureRequest, how: Callable[[], Finding] | str, verdict: str, message: str
) -> None:
    """Whatever one of the checks in a child does, the others before and after it have results."""
    look = request.getfixturevalue(how) if isinstance(how, str) else how
    looks = (fine, look, fine, look, fine)
    found = run(*(Looks(f"check{number}", each, quick=True) for number, each in enumerate(looks)), deadline_s=3.0)
    assert [each.verdict for each in found] == ["ok", verdict, "ok", verdict, "ok"]
    assert {each.message for each in found if each.verdict == verdict} == {message}


def test_one_that_takes_its_time_holds_nobody_up(
    clock: RunnersTime, hang: Callable[[], NoReturn], tmp_path: Path
) -> None:
    """Checks after it run in other children. Its own result comes from its first child, once."""
    note = tmp_path / "slow"

    def slow() -> Finding:
        waits = clock.note()
        note.symlink_to(waits)
        waits.touch()
        until(lambda: not waits.exists())  # until the check after it has run
        return fine()

    def wakes_it() -> Finding:
        note.resolve().unlink(missing_ok=True)
        return fine()

    looks = {"hung": hang, "fine": wakes_it, "slow": slow}  # the last one runs first
    hung, waited, late = run(*(Looks(name, look, quick=True) for name, look in looks.items()), deadline_s=6.0)
    assert [each.verdict for each in (hung, waited, late)] == ["timeout", "ok", "ok"]
    assert waited.message != late.message
    assert late.seconds >= PATIENCE_S


def test_the_names_of_hosts_wait_for_nobody_and_nobody_for_them() -> None:
    """A name server may be slow: `dns` is the last in its shared child."""
    shared = [[check.item for check in row] for row in _group(prechecks.CHECKS) if len(row) > 1]
    assert [row[-1] for row in shared] == ["dns"]


@pytest.mark.parametrize("how", ["hang", "deaf"])
def test_a_check_that_hangs(request: pytest.FixtureRequest, clock: RunnersTime, how: str) -> None:
    """It is abandoned at the deadline. The others' results remain."""
    hung, other = run(Looks("hung", request.getfixturevalue(how)), Looks("other", fine), deadline_s=0.5)
    assert clock.passed == pytest.approx(0.5)
    assert hung[:4] == ("hung", "timeout", "node_problem", "no answer within 0.5 s")
    assert other.verdict == "ok"


def test_a_check_that_hangs_says_where(hang: Callable[[], NoReturn]) -> None:
    """The message has its last reported activity; a check that ends has none."""

    def look(places: str, end: Callable[[], Finding]) -> Check:
        def places_then_end() -> Finding:
            for place in places.split():
                check.doing(place)
            return end()

        check = Looks(f"a{places}", places_then_end)
        return check

    checks = (look("/a /b", hang), look("/a", fine), look("", hang))
    one, two, three = run(*checks, deadline_s=1.0)
    assert (one.verdict, one.message) == ("timeout", "no answer within 1 s: /b")
    assert two.verdict == "ok"
    assert (three.verdict, three.message) == ("timeout", "no answer within 1 s")
    assert [check.listener for check in checks] == [None] * 3


@pytest.mark.parametrize("forked", [True, False])
def test_a_check_that_raises(forked: bool) -> None:
    """It says nothing about the node. Its text is one line."""
    (verdict,) = run(Looks("one", raise_it, forked=forked))
    assert verdict[:4] == ("one", "error", "node_problem", "PermissionError: no way")


@pytest.mark.parametrize(
    ("look", "message"),
    [(kill_it, "the check was killed by signal 9"), (leave, "the check ended without a result")],
)
def test_a_check_that_dies(look: Callable[[], Finding], message: str) -> None:
    """As by the OOM killer: unknown."""
    (verdict,) = run(Looks("one", look))
    assert verdict[:4] == ("one", "error", "node_problem", message)


def test_all_at_once(tmp_path: Path) -> None:
    """Each of twenty checks ends only when all have started. The order is the registry's."""
    begun = tmp_path / "begun"
    begun.mkdir()

    def meet() -> Finding:
        (begun / f"{os.getpid()}").touch()
        until(lambda: len(list(begun.iterdir())) == 20)
        return fine()

    verdicts = run(*(Looks(f"check{number}", meet) for number in range(20)))
    assert [verdict.item for verdict in verdicts] == [f"check{number}" for number in range(20)]
    assert {verdict.verdict for verdict in verdicts} == {"ok"}


def test_many_that_hang(clock: RunnersTime, hang: Callable[[], NoReturn]) -> None:
    """One deadline for all of them."""
    verdicts = run(*(Looks(f"check{number}", hang) for number in range(20)), deadline_s=1.5)
    assert clock.passed == pytest.approx(1.5)
    assert {verdict.verdict for verdict in verdicts} == {"timeout"}


def test_a_long_result_arrives_whole() -> None:
    """It exceeds a pipe's buffer."""
    (verdict,) = run(Looks("one", lambda: Finding("ok", "x" * 300_000)))
    assert verdict.message == "x" * 197 + "..."


def test_a_check_that_does_not_apply() -> None:
    """It is skipped, says why, and is not run."""
    (verdict,) = run(Looks("one", kill_it, wanted=False))
    assert verdict == Verdict("one", "skipped", "node_problem", "not wanted")


def test_settings_that_lack_a_part_break_one_check_only() -> None:
    """Our own fault is an `error` of that check, not an exception in a prolog."""

    class Lacking(Looks):
        def applies(self, context: Context, settings: Mapping[str, Any]) -> bool:
            return bool(settings["one"])

    broken, other = run(Lacking("one", fine), Looks("other", fine))
    assert broken[:4] == ("one", "error", "node_problem", "KeyError: 'one'")
    assert other.verdict == "ok"


def test_items() -> None:
    """Only the requested ones, in the registry's order. An unknown id is an error with the ids."""
    checks = (Looks("a", fine), Looks("b", kill_it), Looks("c", fine))
    verdicts = prechecks.run(CONTEXT, {"deadline_s": HANG_S}, items=("c", "a"), checks=checks)
    assert [verdict.item for verdict in verdicts] == ["a", "c"]
    assert prechecks.run(CONTEXT, {"deadline_s": HANG_S}, items=(), checks=checks) == ()
    with pytest.raises(PrecheckError, match=r"^no check has the id 'd'; the ids are a, b, c$"):
        prechecks.run(CONTEXT, {"deadline_s": HANG_S}, items=("a", "d"), checks=checks)


def test_where_no_process_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full process table is an `error`, and leaves no descriptor."""

    def refuse() -> NoReturn:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    (verdict,) = run(Looks("one", fine))
    assert verdict[:2] == ("one", "error")


def test_the_real_checks_run_here(tmp_path: Path) -> None:
    """All of them on this machine, with thresholds that it meets."""
    (tmp_path / "gpu0").symlink_to("/dev/null")
    settings = {
        "deadline_s": HANG_S,
        "mandatory": ["ulimit"],
        "disk-size": {"root": 0, "shm": 0, "cache": None},
        "ulimit": {"open_files": 1},
        "gpu-check": {"device": f"{tmp_path}/gpu%d", "count": None},
        "dns": {"hosts_files": []},
        "nic": {"interfaces": ["lo"]},
    }
    verdicts = prechecks.run(Context("prolog", "localhost", ("localhost",), (0,)), settings)
    assert [(verdict.item, verdict.verdict) for verdict in verdicts if verdict.verdict != "skipped"] == [
        ("dns", "ok"),
        ("disk-size.root", "ok"),
        ("disk-size.shm", "ok"),
        ("ulimit", "ok"),
        ("gpu-check", "ok"),
        ("nic", "ok"),
    ]
    assert [verdict.item for verdict in verdicts] == [check.item for check in prechecks.CHECKS]
