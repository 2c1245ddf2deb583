"""State that a node keeps until its next boot: real files, and what attackers or crashes leave in their place."""

import json
import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from prechecks import Finding, boot_state
from prechecks.child import Child
from prechecks.measure import growth
from tests.unit.prechecks.pace import at_once
from tests.waiting import HANG_S

USER = 20001
LINK = "mlx5_0/1: link_downed"


@pytest.fixture
def state(tmp_path: Path) -> str:
    """Return the state directory. As after a boot, neither it nor the run directory exists."""
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.geteuid() and not parent.stat().st_mode & 0o001:
            parent.chmod(0o755)  # pytest's directory: users must be able to enter it
    return str(tmp_path / "run" / "state")


def look(state: str, value: int | None, limit: int = 0) -> Finding:
    """Return the counter's growth since the last checks, with a window so short that the last check is before it."""
    return growth.look(state, "infiniband", {LINK: value}, {"link_downed": limit}, window_s=1e-6)


def file(state: str) -> Path:
    return Path(state, "infiniband.json")


def spoil(state: str, **fields: Any) -> None:
    """Replace these fields of the file."""
    file(state).write_text(json.dumps({**json.loads(file(state).read_text()), **fields}))


def test_the_first_look_passes_and_the_next_ones_compare(state: str) -> None:
    """Each check compares with the one before it, not with the first: an old error is over."""
    assert look(state, 7).verdict == "ok"
    found = look(state, 10, limit=0)
    assert (found.verdict, at_once(found.message)) == ("failed", f"{LINK} +3 in 0 s > 0 in 0 s")
    assert look(state, 10).verdict == "ok"


def test_a_window_holds_what_happened_in_it(state: str) -> None:
    """Checks at short intervals are not all written, but an error between them is not lost."""
    for value, verdict in ((7, "ok"), (8, "ok"), (9, "ok"), (10, "failed"), (10, "failed")):
        found = growth.look(state, "infiniband", {LINK: value}, {"link_downed": 2}, window_s=3600.0)
        assert found.verdict == verdict
    ((_, counters),) = boot_state.load(state, "infiniband")["samples"]
    assert counters == {LINK: 7}


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_modes(state: str, umask: int) -> None:
    """Whatever the umask: users can pass the run directory and read, only root writes. No other file is left."""
    old = os.umask(umask)
    try:
        look(state, 1)
    finally:
        os.umask(old)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (Path(state).parent, Path(state), file(state))]
    assert modes == [0o755, 0o755, 0o644]
    assert [path.name for path in Path(state).iterdir()] == ["infiniband.json"]


def as_user(state: str, value: int) -> str:
    """Return the verdict of a check by the job's user."""

    def work(_say: object) -> bytes:
        os.setgroups([])
        os.setgid(USER)
        os.setuid(USER)
        return look(state, value).verdict.encode()

    child = Child(work)
    while child.read():
        pass
    child.wait(time.monotonic() + HANG_S)
    child.close()
    return child.output.decode()


def test_a_user_compares_but_does_not_write(state: str) -> None:
    """In the barrier a check runs as the job's user: unknown before root's first check, and it writes nothing."""
    assert as_user(state, 7) == "ok"
    assert not Path(state).exists()
    look(state, 7)
    before = file(state).read_text()
    assert as_user(state, 7) == "ok"
    assert as_user(state, 8) == "failed"
    assert file(state).read_text() == before


def test_another_boot(state: str) -> None:
    """Its counters began at 0, and so did its clock."""
    look(state, 7)
    spoil(state, boot="4d2c1c9e-8a2d-4b0f-9a07-3c3d5a0f6f11")
    assert look(state, 9).verdict == "ok"
    assert look(state, 10).verdict == "failed"


def test_counters_that_go_backwards(state: str) -> None:
    """After a reset, or a reload of the driver, the new value counts."""
    look(state, 200)
    assert look(state, 0).verdict == "ok"
    look(state, 200)
    assert look(state, 3).message.startswith(f"{LINK} +3 in ")


def test_samples_of_the_future_and_in_disorder(state: str) -> None:
    """A migrated container may have another clock."""
    look(state, 7)
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    spoil(state, values={"samples": [[now + 1000, {LINK: 0}], [2.0, {LINK: 5}], [1.0, {LINK: 9}]]})
    assert growth.parse(boot_state.load(state, "infiniband"), now) == [(1.0, {LINK: 9}), (2.0, {LINK: 5})]


def test_a_file_that_is_cut_short(state: str) -> None:
    """At any byte: it counts as missing, and the next check writes it again."""
    look(state, 7)
    whole = file(state).read_text()
    for length in range(len(whole)):
        file(state).write_text(whole[:length])
        assert look(state, 9).verdict == "ok", length
        assert look(state, 10).verdict == "failed", length


SAMPLES = ("3", "[[1]]", "[[{}, {}]]", '[[1, {"a": "x"}]]', '[[1, {"a": 1e999}]]', "[[NaN, {}]]", "null")
OTHER_FORMS = (
    *("null", "[]", '{"boot": "BOOT"}', '{"boot": "BOOT", "values": 3}', '{"values": {}}', "\0", "1e999"),
    *(f'{{"boot": "BOOT", "values": {{"samples": {samples}}}}}' for samples in SAMPLES),
)


def test_a_file_of_another_form(state: str) -> None:
    """It counts as missing, and nothing fails."""
    look(state, 7)
    for text in OTHER_FORMS:
        file(state).write_text(text.replace("BOOT", boot_state.boot_id()))
        assert growth.parse(boot_state.load(state, "infiniband"), 9.0) == [], text


def test_a_planted_link_in_the_place_of_the_directory(state: str, tmp_path: Path) -> None:
    """It is refused, and nothing is written to its target."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    Path(state).parent.mkdir()
    Path(state).symlink_to(elsewhere)
    with pytest.raises(OSError, match="Not a directory"):
        look(state, 7)
    assert not any(elsewhere.iterdir())


def test_a_planted_link_in_the_place_of_the_file(state: str, tmp_path: Path) -> None:
    """It is replaced, without reading or writing its target."""
    look(state, 7)
    victim = tmp_path / "victim"
    file(state).rename(victim)
    before = victim.read_text()
    file(state).symlink_to(victim)
    assert look(state, 9).verdict == "ok"
    assert victim.read_text() == before
    assert not file(state).is_symlink()


def test_a_planted_link_in_the_place_of_the_fresh_file(state: str, tmp_path: Path) -> None:
    """A temporary file from a killed check with the same pid, or from a user, is not written to."""
    look(state, 7)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    Path(state, f".infiniband.json.{os.getpid()}").symlink_to(victim)
    look(state, 7)
    assert victim.read_text() == "mine"
    assert [path.name for path in Path(state).iterdir()] == ["infiniband.json"]


@pytest.mark.parametrize("planted", ["run", "state"])
def test_a_directory_that_is_not_roots(state: str, planted: str) -> None:
    """Its owner could hide a bad link."""
    look(state, 7)
    os.chown(state if planted == "state" else Path(state).parent, USER, USER)
    with pytest.raises(PermissionError, match=f"/{planted}: not owned by root; remove it"):
        look(state, 7)


def test_a_file_that_is_not_roots(state: str) -> None:
    """It is ignored, and replaced."""
    look(state, 7)
    os.chown(file(state), USER, USER)
    assert look(state, 9).verdict == "ok"
    assert file(state).stat().st_uid == 0


def test_a_fifo_in_the_place_of_the_file_holds_nobody_up(state: str) -> None:
    """It is ignored without blocking."""
    look(state, 7)
    file(state).unlink()
    os.mkfifo(file(state))
    assert look(state, 9).verdict == "ok"
    assert file(state).is_file()


def test_several_at_once(state: str) -> None:
    """Prologs of jobs that share the node: the file is complete at any time."""

    def work(_say: object) -> bytes:
        for value in range(200):
            look(state, value, limit=10**6)
        return b"done"

    children = [Child(work) for _ in range(4)]
    while any(child.open for child in children):
        for child in children:
            if child.open:
                child.read()
        if file(state).exists():
            assert set(json.loads(file(state).read_text())) == {"boot", "values"}
    assert [child.output for child in children] == [b"done"] * 4
    for child in children:
        child.wait(time.monotonic() + HANG_S)
        child.close()
    assert [path.name for path in Path(state).iterdir()] == ["infiniband.json"]
