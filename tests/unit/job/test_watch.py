"""What ends a program that runs: every reason, and what is no reason."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slurm_plugin.decide import Health
from slurm_plugin.job import progress
from slurm_plugin.job.progress import Newest
from slurm_plugin.job.watch import EARLY_S, Interruption, Watcher
from tests.fake_slurm import FakeClock

WHY = "slurm_plugin: gpu-check: 3 of 4 GPUs"


class FakeGuards:
    """What guards have told so far."""

    def __init__(self) -> None:
        self.turn_lost = self.isolated = False
        self.alive = True
        self.drained: dict[str, str] = {"n1": "", "n2": "", "n3": ""}
        self.quiet: tuple[str, ...] = ()

    def silent(self) -> tuple[str, ...]:
        return self.quiet


class Scene:
    """A program on n1 and n2 of a job that has n3 to spare, and its watcher."""

    def __init__(self, **fields: Any) -> None:
        self.guards, self.clock = FakeGuards(), FakeClock()
        self.launcher = SimpleNamespace(told_to_end=False, told_to_save=0.0)
        self.there: tuple[str, ...] = ()
        self.standing: tuple[str, ...] = ("n1", "n2", "n3")
        self.left_s = float("inf")
        self.asked: list[tuple[str, tuple[str, ...]]] = []
        given: Mapping[str, Any] = {"grace_s": 60.0, "hang_s": 0.0, "places": (), **fields}
        self.watcher = Watcher(
            self.guards,  # type: ignore[arg-type]
            self.launcher,  # type: ignore[arg-type]
            ("n1", "n2"),
            time_left=self._left,
            reachable=lambda names: self._ask("reachable", names, self.there),
            drained=lambda names: self._ask("drained", names, self.standing),
            clock=self.clock.now,
            **given,
        )
        self.clock.sleep(1000.0)

    def _left(self) -> float:
        self.asked.append(("time", ()))
        return self.left_s

    def _ask(self, what: str, names: tuple[str, ...], known: tuple[str, ...]) -> tuple[str, ...]:
        self.asked.append((what, names))
        return tuple(name for name in names if name in known)

    def found(self) -> Interruption | None:
        """What one more look finds."""
        assert self.watcher.look() == (self.watcher.found is not None)
        return self.watcher.found


def test_all_is_well() -> None:
    """And nobody is asked."""
    scene = Scene()
    assert scene.found() is None
    assert scene.asked == []


def test_a_later_run_has_begun() -> None:
    """The program may not go on, and this run not either: nothing of it is decided here any more."""
    scene = Scene()
    scene.guards.turn_lost = True
    assert scene.found() == Interruption("nodes", "a later run of this job has begun")
    assert scene.launcher.told_to_end


def test_the_guards_have_ended() -> None:
    """Nothing is known of any node."""
    scene = Scene()
    scene.guards.alive, scene.guards.quiet = False, ("n1", "n2", "n3")
    assert scene.found() == Interruption("nodes", "the guards' step has ended")
    assert not scene.launcher.told_to_end


def test_no_other_node_answers() -> None:
    """It is ours that is cut off."""
    scene = Scene()
    scene.guards.isolated, scene.guards.quiet = True, ("n2", "n3")
    assert scene.found() == Interruption("nodes", "no other node of the job answers")
    assert scene.asked == []


def test_nodes_are_lost() -> None:
    """Those that do not answer guards of their own either; at once, with no time to save."""
    scene = Scene()
    scene.guards.quiet, scene.there = ("n1", "n2"), ("n1",)
    lost = {"n2": Health("unreachable", "does not answer")}
    assert scene.found() == Interruption("nodes", "nodes were lost", lost)
    assert scene.asked == [("reachable", ("n1", "n2"))]


def test_guards_are_lost() -> None:
    """Their nodes are there: no node is to blame, but nobody holds their leases."""
    scene = Scene()
    scene.guards.quiet = scene.there = ("n2",)
    assert scene.found() == Interruption("nodes", "guards were lost")


def test_a_drained_node() -> None:
    """The program may save before it is ended; each reason is asked of Slurm once."""
    scene = Scene()
    scene.guards.drained["n2"] = WHY
    health = {"n2": Health("node_problem", WHY)}
    assert scene.found() == Interruption("nodes", "nodes were drained under it", health, save=True)
    assert scene.asked == [("drained", ("n2",))]


def test_a_drain_that_is_over() -> None:
    """An admin has resumed the node: what it wrote down counts for nothing, until there is another reason."""
    scene = Scene()
    scene.standing = ()
    scene.guards.drained["n2"] = WHY
    assert scene.found() is scene.found() is None
    assert scene.asked == [("drained", ("n2",))]
    scene.guards.drained["n2"], scene.standing = "slurm_plugin: dns: no", ("n2",)
    assert scene.found() is not None


def test_what_becomes_of_a_spare_node() -> None:
    """Is none of the program's business: it does not run there."""
    scene = Scene()
    scene.guards.quiet = ("n3",)
    scene.guards.drained["n3"] = WHY
    assert scene.found() is None
    assert scene.asked == []


def test_without_grace() -> None:
    """Neither drains nor the time limit are looked for; a node that is lost is."""
    scene = Scene(grace_s=0.0)
    scene.guards.drained["n2"] = WHY
    scene.launcher.told_to_save, scene.left_s = 999.0, 1.0
    assert scene.found() is None
    scene.guards.quiet = ("n2",)
    assert scene.found() is not None
    assert scene.asked == [("reachable", ("n2",))]


def test_the_time_limit() -> None:
    """Slurm's signal has told the program to save, and when; from then on it has its grace."""
    scene = Scene()
    scene.launcher.told_to_save, scene.left_s = 990.0, 60.0 + EARLY_S
    assert scene.found() == Interruption("time", "its time limit is near", {}, save=True, saving_since=990.0)


def test_a_program_that_saves_and_ends_before_the_next_look() -> None:
    """It was told to, and did: its end is not its own fault. Without the signal it is."""
    scene = Scene()
    scene.watcher.ended()
    assert scene.watcher.found is None
    scene.launcher.told_to_save, scene.left_s = 999.5, 60.0
    scene.watcher.ended()
    assert scene.watcher.found == Interruption("time", "its time limit is near", {}, save=True, saving_since=999.5)


def test_somebody_elses_signal() -> None:
    """A user asked for a checkpoint, long before the limit; each signal is asked about once."""
    scene = Scene()
    scene.launcher.told_to_save, scene.left_s = 990.0, 60.0 + EARLY_S + 1
    assert scene.found() is scene.found() is None
    assert scene.asked == [("time", ())]
    scene.launcher.told_to_save, scene.left_s = 1000.0, 100.0
    found = scene.found()
    assert found
    assert (found.cause, found.saving_since) == ("time", 1000.0)


def test_a_signal_before_the_first_look_on_a_lost_node() -> None:
    """The nodes come first: nothing can be saved without them."""
    scene = Scene()
    scene.launcher.told_to_save, scene.left_s, scene.guards.alive = 990.0, 1.0, False
    found = scene.found()
    assert found
    assert found.cause == "nodes"


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The lengths of the program's output."""
    lengths: list[tuple[int, ...]] = [(10, 0)]
    monkeypatch.setattr(progress, "written", lambda: lengths[-1])
    return lengths


def looked(scene: Scene, seconds: float) -> Interruption | None:
    """What the looks of so many seconds find."""
    for _ in range(int(seconds)):
        scene.clock.sleep(1.0)
        if found := scene.found():
            return found
    return None


def test_a_hang(log: list[tuple[int, ...]]) -> None:
    """Nothing written for as long as asked, from when the program began or last wrote."""
    scene = Scene(hang_s=100.0)
    assert looked(scene, 95) is None
    log.append((11, 0))
    assert looked(scene, 95) is None
    log.append((11, 1))
    assert looked(scene, 95) is None
    assert looked(scene, 30) == Interruption("hang", "it has written nothing for 100 s")


def test_a_checkpoint_is_no_hang(log: list[tuple[int, ...]], tmp_path: Path) -> None:
    """A program that only saves gets on."""
    scene = Scene(hang_s=100.0, places=(str(tmp_path),))
    assert looked(scene, 95) is None
    (tmp_path / "model").touch()
    assert looked(scene, 95) is None
    assert looked(scene, 30) is not None


AWAY = Newest(away=frozenset({"ck"}))
SLOW = Newest(slow=True)


def test_a_task_that_writes_into_its_own_log_does_not_hang(log: list[tuple[int, ...]], tmp_path: Path) -> None:
    """Beside checkpoints, and where the job's log is no file."""
    (tmp_path / "ck").mkdir()
    (tmp_path / "logs").mkdir()
    log.append(())  # no files
    scene = Scene(hang_s=100.0, places=(str(tmp_path / "ck"), str(tmp_path / "logs")))
    assert looked(scene, 95) is None
    (tmp_path / "logs/rank-1.log").write_text("step 1")
    assert looked(scene, 95) is None
    assert looked(scene, 30) is not None


@pytest.fixture
def checkpoint(monkeypatch: pytest.MonkeyPatch) -> list[Newest]:
    """What is seen of the checkpoints."""
    looks = [Newest(1000.0)]
    monkeypatch.setattr(progress, "newest", lambda _path: looks[-1])
    return looks


def test_a_server_that_is_away(
    log: list[tuple[int, ...]], checkpoint: list[Newest], capsys: pytest.CaptureFixture[str]
) -> None:
    """Is no hang by itself; what came before and after that is one together. The log says so once."""
    scene = Scene(hang_s=100.0, places=("ck",))
    assert looked(scene, 75) is None
    assert capsys.readouterr().out == ""
    checkpoint.append(AWAY)
    assert looked(scene, 250) is None
    said = "[slurm_plugin] ck cannot be read, its server does not answer: 300 s without a word are no hang now\n"
    assert capsys.readouterr().out == said
    checkpoint.append(Newest(1000.0))
    assert looked(scene, 10) is None
    found = looked(scene, 40)
    assert found
    assert found.cause == "hang"


def test_a_server_that_is_away_for_ever(log: list[tuple[int, ...]], checkpoint: list[Newest]) -> None:
    """Excuses nobody for ever; a program that has written since is excused anew."""
    checkpoint.append(AWAY)
    scene = Scene(hang_s=100.0, places=("ck",))
    assert looked(scene, 380) is None
    log.append((11, 0))
    assert looked(scene, 380) is None
    assert looked(scene, 40) == Interruption("hang", "it has written nothing for 400 s")


def test_one_bad_place_beside_the_checkpoints(log: list[tuple[int, ...]], checkpoint: list[Newest]) -> None:
    """A new file beside it is a sign of life; that it is seen no more is none."""
    bad = frozenset({"ck/lost"})
    scene = Scene(hang_s=100.0, places=("ck",))
    for number in range(8):
        checkpoint.append(Newest(1001.0 + number, bad))
        assert looked(scene, 380) is None
    checkpoint.append(Newest(999.0, bad))
    assert looked(scene, 40) is not None


def test_a_checkpoint_directory_that_answers_now_and_then(log: list[tuple[int, ...]], checkpoint: list[Newest]) -> None:
    """Is no sign of life: a program that hangs is found, only later."""
    scene = Scene(hang_s=100.0, places=("ck",))
    for _ in range(10):
        assert looked(scene, 10) is None
        checkpoint.append(AWAY)
        assert looked(scene, 10) is None
        checkpoint.append(Newest(1000.0))
    assert looked(scene, 30) is not None


def test_a_log_that_grows_while_checkpoints_cannot_be_read(
    log: list[tuple[int, ...]], checkpoint: list[Newest]
) -> None:
    """Is a sign of life; and a program of which nothing was known at first may hang later."""
    checkpoint.append(AWAY)
    scene = Scene(hang_s=100.0, places=("ck",))
    assert looked(scene, 300) is None
    log.append((11, 0))
    checkpoint.append(Newest(1000.0))
    assert looked(scene, 95) is None
    assert looked(scene, 30) is not None


def test_more_checkpoints_than_can_be_looked_at_in_time(
    log: list[tuple[int, ...]], checkpoint: list[Newest], capsys: pytest.CaptureFixture[str]
) -> None:
    """Excuse nobody: the log alone tells then, and what was seen in time. That is said once."""
    checkpoint.append(SLOW)
    scene = Scene(hang_s=100.0, places=("ck",))
    assert looked(scene, 95) is None
    log.append((11, 0))
    assert looked(scene, 95) is None
    checkpoint.append(SLOW._replace(at=2000.0))
    assert looked(scene, 95) is None
    assert looked(scene, 30) == Interruption("hang", "it has written nothing for 100 s")
    said = "ck could not be looked through in 5 s, and only its log tells whether the program hangs"
    assert capsys.readouterr().out == f"[slurm_plugin] {said}\n"


def test_more_than_can_be_looked_at_and_no_log(
    log: list[tuple[int, ...]], checkpoint: list[Newest], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody could tell, and somebody is told so; where the directory gets smaller it can be told again."""
    log.append(())
    checkpoint.append(SLOW)
    scene = Scene(hang_s=100.0, places=("ck",))
    assert looked(scene, 1000) is None
    said = "ck could not be looked through in 5 s, and its log is no file: no hang can be seen"
    assert capsys.readouterr().out == f"[slurm_plugin] {said}\n"
    checkpoint.append(Newest())
    assert looked(scene, 120) is not None


def test_no_hang_is_looked_for(log: list[tuple[int, ...]]) -> None:
    """Unless it was asked for."""
    assert looked(Scene(hang_s=0.0), 1000) is None


def test_nothing_to_look_at(log: list[tuple[int, ...]], tmp_path: Path) -> None:
    """An output that is no file, and no checkpoints: nobody can tell whether it hangs. With checkpoints one can."""
    log.append(())
    assert looked(Scene(hang_s=100.0), 1000) is None
    assert looked(Scene(hang_s=100.0, places=(str(tmp_path),)), 150) is not None


def test_before_the_program_only_its_nodes_count() -> None:
    """What copies data or sets up nodes writes no checkpoint, and is told no time."""
    scene = Scene(hang_s=1.0)
    scene.launcher.told_to_save = scene.clock.now()
    assert not scene.watcher.look_at_nodes()
    assert scene.asked == []
    scene.guards.quiet = ("n2",)
    assert scene.watcher.look_at_nodes()
    assert scene.watcher.found == Interruption(
        "nodes", "nodes were lost", {"n2": Health("unreachable", "does not answer")}
    )


def test_a_node_that_does_not_answer_now_is_seen_without_a_question() -> None:
    """A spare one is none of the program's."""
    scene = Scene()
    assert not scene.watcher.lost
    scene.guards.quiet = ("n3",)
    assert not scene.watcher.lost
    scene.guards.quiet = ("n3", "n1")
    assert scene.watcher.lost
    assert scene.asked == []
