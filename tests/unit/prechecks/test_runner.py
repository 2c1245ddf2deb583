"""The runner: whatever a check does, there is an answer in time, and nothing is left behind."""

import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest

import prechecks
from prechecks import Check, Context, Finding, PrecheckError, Verdict
from prechecks.child import Child
from prechecks.runner import _shared

CONTEXT = Context("prolog", "n1")
WIDE = 20.0  # seconds; how much later than its deadline a run may end on a busy machine


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was killed is waited for longer here: a busy machine takes its time to end twenty processes."""
    monkeypatch.setattr("prechecks.child.REAP_S", WIDE)
    until = time.monotonic() + WIDE
    with suppress(ChildProcessError):  # nor is a child that a test before left behind one of these tests'
        while time.monotonic() < until:
            os.waitpid(-1, os.WNOHANG)
            time.sleep(0.001)


class Looks(Check):
    """A check that does what it is told."""

    problem = "node_problem"
    condition = "not wanted"

    def __init__(
        self, item: str, look: Callable[[], Finding], *, forked: bool = True, wanted: bool = True, quick: bool = False
    ) -> None:
        self.item, self.does, self.forked, self.wanted, self.quick = item, look, forked, wanted, quick

    def applies(self, context: Context, settings: Mapping[str, Any]) -> bool:
        return self.wanted

    def look(self, context: Context, settings: Mapping[str, Any]) -> Finding:
        return self.does()


def fine() -> Finding:
    return Finding("ok", f"process {os.getpid()}", 1, 2)


def hang() -> NoReturn:
    while True:
        time.sleep(60)


def hang_and_ignore_everything() -> NoReturn:
    for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    hang()


def raise_it() -> NoReturn:
    raise PermissionError("no\nway")


def kill_it() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def leave() -> NoReturn:
    os._exit(0)


def descriptors() -> dict[int, str]:
    """What this process has open."""
    found: dict[int, str] = {}
    for number in range(4096):
        with suppress(FileNotFoundError):
            found[number] = str(Path(f"/proc/self/fd/{number}").readlink())
    return found


def run(*checks: Check, deadline_s: float = 30.0, **settings: Any) -> tuple[Verdict, ...]:
    """Run these checks; afterwards no child and no descriptor may be left."""
    before = descriptors()
    verdicts = prechecks.run(CONTEXT, {"deadline_s": deadline_s, **settings}, checks=checks)
    assert descriptors() == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
    return verdicts


def test_a_check_that_passes() -> None:
    """Its finding becomes the verdict; it ran in a process of its own."""
    (verdict,) = run(Looks("one.two", fine))
    assert verdict[:3] == ("one.two", "ok", "node_problem")
    assert (verdict.value, verdict.threshold, verdict.keyword) == (1, 2, "one two")
    assert verdict.message.startswith("process ")
    assert verdict.message != f"process {os.getpid()}"
    assert 0 < verdict.seconds < 30


def test_a_check_that_cannot_hang_runs_here() -> None:
    """Without the price of a process."""
    (verdict,) = run(Looks("one", fine, forked=False))
    assert verdict.message == f"process {os.getpid()}"


def test_quick_checks_share_a_child() -> None:
    """One process for all of them; another check beside them has its own."""
    first, other, last = run(Looks("a", fine, quick=True), Looks("b", fine), Looks("c", fine, quick=True))
    assert first.message == last.message != other.message


@pytest.mark.parametrize(
    ("look", "verdict", "message"),
    [
        (hang, "timeout", "no answer within 3 s"),
        (hang_and_ignore_everything, "timeout", "no answer within 3 s"),
        (kill_it, "error", "the check was killed by signal 9"),
        (leave, "error", "the check ended without a result"),
        (raise_it, "error", "PermissionError: no way"),
        (lambda: Finding("ok", "", object()), "error", "the check ended without a result"),  # type: ignore[arg-type]
    ],
)
def test_one_that_is_broken_takes_nobody_with_it(look: Callable[[], Finding], verdict: str, message: str) -> None:
    """Whatever one of those that share a child does there, the others before and behind it have their answers."""
    looks = (fine, look, fine, look, fine)
    found = run(*(Looks(f"check{number}", each, quick=True) for number, each in enumerate(looks)), deadline_s=3.0)
    assert [each.verdict for each in found] == ["ok", verdict, "ok", verdict, "ok"]
    assert {each.message for each in found if each.verdict == verdict} == {message}


def test_one_that_takes_its_time_holds_nobody_up() -> None:
    """Who waits behind it is looked at alone; its own answer comes from the child it began in, once."""

    def slow() -> Finding:
        time.sleep(1.0)
        return fine()

    looks = {"hung": hang, "fine": fine, "slow": slow}  # the last is looked at first
    hung, waited, late = run(*(Looks(name, look, quick=True) for name, look in looks.items()), deadline_s=6.0)
    assert [each.verdict for each in (hung, waited, late)] == ["timeout", "ok", "ok"]
    assert waited.message != late.message
    assert late.seconds > 0.9


def test_the_names_of_hosts_wait_for_nobody_and_nobody_for_them() -> None:
    """A name server may take its time: `dns` comes last in the child that it shares."""
    shared = [[check.item for check in row] for row in _shared(prechecks.CHECKS) if len(row) > 1]
    assert [row[-1] for row in shared] == ["dns"]


@pytest.mark.parametrize("look", [hang, hang_and_ignore_everything])
def test_a_check_that_hangs(look: Callable[[], Finding]) -> None:
    """It is given up at the deadline; what the others found stays."""
    start = time.monotonic()
    hung, other = run(Looks("hung", look), Looks("other", fine), deadline_s=0.5)
    assert 0.5 <= time.monotonic() - start < 0.5 + WIDE
    assert hung[:4] == ("hung", "timeout", "node_problem", "no answer within 0.5 s")
    assert other.verdict == "ok"


def test_a_check_that_hangs_says_where() -> None:
    """The last of what it said that it was doing; a check that ends says nothing of it."""

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
    """It says nothing about the node; its text is one line."""
    (verdict,) = run(Looks("one", raise_it, forked=forked))
    assert verdict[:4] == ("one", "error", "node_problem", "PermissionError: no way")


@pytest.mark.parametrize(
    ("look", "message"),
    [(kill_it, "the check was killed by signal 9"), (leave, "the check ended without a result")],
)
def test_a_check_that_dies(look: Callable[[], Finding], message: str) -> None:
    """As by the OOM killer: nothing is known."""
    (verdict,) = run(Looks("one", look))
    assert verdict[:4] == ("one", "error", "node_problem", message)


def test_all_at_once() -> None:
    """Twenty checks of two seconds take far less than forty; the order is the registry's."""

    def nap() -> Finding:
        time.sleep(2)
        return fine()

    start = time.monotonic()
    verdicts = run(*(Looks(f"check{number}", nap) for number in range(20)))
    assert time.monotonic() - start < WIDE
    assert [verdict.item for verdict in verdicts] == [f"check{number}" for number in range(20)]
    assert {verdict.verdict for verdict in verdicts} == {"ok"}


def test_many_that_hang() -> None:
    """One deadline for all of them together."""
    start = time.monotonic()
    verdicts = run(*(Looks(f"check{number}", hang) for number in range(20)), deadline_s=1.5)
    assert time.monotonic() - start < 1.5 + WIDE
    assert {verdict.verdict for verdict in verdicts} == {"timeout"}


def test_a_long_result_arrives_whole() -> None:
    """More than a pipe holds at once."""
    (verdict,) = run(Looks("one", lambda: Finding("ok", "x" * 300_000)))
    assert verdict.message == "x" * 197 + "..."


def test_a_check_that_does_not_apply() -> None:
    """It is skipped, says why, and is not run."""
    (verdict,) = run(Looks("one", hang, wanted=False))
    assert verdict == Verdict("one", "skipped", "node_problem", "not wanted")


def test_settings_that_lack_a_part_break_one_check_only() -> None:
    """A fault of ours is an `error` of that check, not an exception in a prolog."""
    broken, other = run(prechecks.CHECKS[1], Looks("other", fine))
    assert broken[:4] == ("disk-size.root", "error", "node_problem", "KeyError: 'disk-size'")
    assert other.verdict == "ok"


def test_items() -> None:
    """Only those asked for, in the registry's order; an id that no check has is an error with the ids."""
    checks = (Looks("a", fine), Looks("b", hang), Looks("c", fine))
    verdicts = prechecks.run(CONTEXT, {"deadline_s": 30.0}, items=("c", "a"), checks=checks)
    assert [verdict.item for verdict in verdicts] == ["a", "c"]
    assert prechecks.run(CONTEXT, {"deadline_s": 30.0}, items=(), checks=checks) == ()
    with pytest.raises(PrecheckError, match=r"^no check has the id 'd'; the ids are a, b, c$"):
        prechecks.run(CONTEXT, {"deadline_s": 30.0}, items=("a", "d"), checks=checks)


def test_a_child_holds_nothing_of_its_parent(tmp_path: Path) -> None:
    """Own session, /dev/null for stdio, the pipe, and no other descriptor, whatever the parent has open."""

    def look(_: Callable[[bytes], None]) -> bytes:
        files = [f"{number} {path.partition(':')[0]}" for number, path in descriptors().items()]
        return f"{os.getsid(0) == os.getpid()} {files}".encode()

    held = os.open(tmp_path / "held", os.O_CREAT | os.O_RDWR)
    os.set_inheritable(held, True)  # noqa: FBT003 - its only form
    child = Child(look)
    while child.read():
        pass
    assert child.wait(time.monotonic() + WIDE) == 0
    child.close()
    os.close(held)
    assert child.output == b"True ['0 /dev/null', '1 /dev/null', '2 /dev/null', '3 pipe']"


def test_a_child_keeps_what_python_imports_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deployed hook imports from an open zip: a check may do so in its child."""
    held, zipped = os.open(tmp_path, os.O_RDONLY), os.open(tmp_path, os.O_RDONLY)
    monkeypatch.setattr("sys.path", [f"/proc/self/fd/{zipped}"])
    child = Child(lambda _: " ".join(path for path in descriptors().values()).encode())
    while child.read():
        pass
    child.wait(time.monotonic() + WIDE)
    child.close()
    os.close(held)
    os.close(zipped)
    assert child.output.decode().partition("pipe")[0] == "/dev/null /dev/null /dev/null "
    assert child.output.decode().endswith(f"] {tmp_path}")


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
        "deadline_s": 30.0,
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
