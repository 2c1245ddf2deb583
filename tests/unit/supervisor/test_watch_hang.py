"""A program that hangs: its output, its files, and places that cannot be checked."""

from pathlib import Path

import pytest

from slurm_plugin.supervisor import progress
from slurm_plugin.supervisor.progress import Newest
from slurm_plugin.supervisor.watch import Interruption
from tests.guarded import AGES
from tests.unit.supervisor.watched import Scene


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Return the lengths of the program's output."""
    lengths: list[tuple[int, ...]] = [(10, 0)]
    monkeypatch.setattr(progress, "written", lambda: lengths[-1])
    return lengths


def looked(scene: Scene, seconds: float) -> Interruption | None:
    """Return the results of checks at these seconds."""
    for _ in range(int(seconds)):
        scene.clock.sleep(1.0)
        if found := scene.found():
            return found
    return None


def test_a_hang(log: list[tuple[int, ...]]) -> None:
    """Nothing was written for the requested time, since the program began or last wrote."""
    scene = Scene(hang_s=100.0)
    assert looked(scene, 95) is None
    log.append((11, 0))
    assert looked(scene, 95) is None
    log.append((11, 1))
    assert looked(scene, 95) is None
    assert looked(scene, 30) == Interruption("hang", "it has written nothing for 100 s")


def test_a_checkpoint_is_no_hang(log: list[tuple[int, ...]], tmp_path: Path) -> None:
    """A program that only saves makes progress."""
    scene = Scene(hang_s=100.0, checkpoint=str(tmp_path))
    assert looked(scene, 95) is None
    (tmp_path / "model").touch()
    assert looked(scene, 95) is None
    assert looked(scene, 30) is not None


AWAY = Newest(away=frozenset({"ck"}))
SLOW = Newest(slow=True)


@pytest.fixture(autouse=True)
def ages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at checkpoints may take its time."""
    monkeypatch.setattr(progress.newest, "__defaults__", (AGES,))


def test_a_task_that_writes_into_its_own_log_does_not_hang(log: list[tuple[int, ...]], tmp_path: Path) -> None:
    """Beside checkpoints, and if the job's log is no file."""
    (tmp_path / "ck").mkdir()
    (tmp_path / "logs").mkdir()
    log.append(())  # no files
    scene = Scene(hang_s=100.0, checkpoint=str(tmp_path))
    assert looked(scene, 95) is None
    (tmp_path / "logs/rank-1.log").write_text("step 1")
    assert looked(scene, 95) is None
    assert looked(scene, 30) is not None


@pytest.fixture
def checkpoint(monkeypatch: pytest.MonkeyPatch) -> list[Newest]:
    """Set the state of the checkpoints."""
    looks = [Newest(1000.0)]
    monkeypatch.setattr(progress, "newest", lambda _path: looks[-1])
    return looks


def test_a_server_that_is_away(
    log: list[tuple[int, ...]], checkpoint: list[Newest], capsys: pytest.CaptureFixture[str]
) -> None:
    """It is no hang by itself. The times before and after it count together. The log has one line."""
    scene = Scene(hang_s=100.0, checkpoint="ck")
    assert looked(scene, 75) is None
    assert capsys.readouterr().out == ""
    checkpoint.append(AWAY)
    assert looked(scene, 250) is None
    said = "[slurm_plugin] ck cannot be read, its server does not answer: 300 s without output are no hang now\n"
    assert capsys.readouterr().out == said
    checkpoint.append(Newest(1000.0))
    assert looked(scene, 10) is None
    found = looked(scene, 40)
    assert found
    assert found.cause == "hang"


def test_a_server_that_is_away_for_ever(log: list[tuple[int, ...]], checkpoint: list[Newest]) -> None:
    """It does not excuse a program forever. If the program writes again, it is excused again."""
    checkpoint.append(AWAY)
    scene = Scene(hang_s=100.0, checkpoint="ck")
    assert looked(scene, 380) is None
    log.append((11, 0))
    assert looked(scene, 380) is None
    assert looked(scene, 40) == Interruption("hang", "it has written nothing for 400 s")


def test_one_bad_place_beside_the_checkpoints(log: list[tuple[int, ...]], checkpoint: list[Newest]) -> None:
    """A new file beside it is progress. That it is no longer visible is not."""
    bad = frozenset({"ck/lost"})
    scene = Scene(hang_s=100.0, checkpoint="ck")
    for number in range(8):
        checkpoint.append(Newest(1001.0 + number, bad))
        assert looked(scene, 380) is None
    checkpoint.append(Newest(999.0, bad))
    assert looked(scene, 40) is not None


def test_a_checkpoint_directory_that_answers_now_and_then(log: list[tuple[int, ...]], checkpoint: list[Newest]) -> None:
    """That is no progress: a hanging program is found, only later."""
    scene = Scene(hang_s=100.0, checkpoint="ck")
    for _ in range(10):
        assert looked(scene, 10) is None
        checkpoint.append(AWAY)
        assert looked(scene, 10) is None
        checkpoint.append(Newest(1000.0))
    assert looked(scene, 30) is not None


def test_a_log_that_grows_while_checkpoints_cannot_be_read(
    log: list[tuple[int, ...]], checkpoint: list[Newest]
) -> None:
    """It is progress. A program that was unknown at first may hang later."""
    checkpoint.append(AWAY)
    scene = Scene(hang_s=100.0, checkpoint="ck")
    assert looked(scene, 300) is None
    log.append((11, 0))
    checkpoint.append(Newest(1000.0))
    assert looked(scene, 95) is None
    assert looked(scene, 30) is not None


def test_more_checkpoints_than_can_be_looked_at_in_time(
    log: list[tuple[int, ...]], checkpoint: list[Newest], capsys: pytest.CaptureFixture[str]
) -> None:
    """They are no excuse: the log counts, and files seen in time. The log says so once."""
    checkpoint.append(SLOW)
    scene = Scene(hang_s=100.0, checkpoint="ck")
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
    """A hang cannot be detected, and the log says so. If the directory shrinks, it can be again."""
    log.append(())
    checkpoint.append(SLOW)
    scene = Scene(hang_s=100.0, checkpoint="ck")
    assert looked(scene, 1000) is None
    said = "ck could not be looked through in 5 s, and its log is no file: no hang can be seen"
    assert capsys.readouterr().out == f"[slurm_plugin] {said}\n"
    checkpoint.append(Newest())
    assert looked(scene, 120) is not None


@pytest.mark.parametrize("with_log", [True, False])
def test_more_files_than_are_looked_at(
    log: list[tuple[int, ...]], checkpoint: list[Newest], capsys: pytest.CaptureFixture[str], *, with_log: bool
) -> None:
    """Without a log, a program that adds no file among those that are looked at may go on."""
    log.append((10,) if with_log else ())
    checkpoint.append(Newest(1000.0, cut=True))
    scene = Scene(hang_s=100.0, checkpoint="ck")
    assert (looked(scene, 1000) is not None) == with_log
    assert capsys.readouterr().out.startswith("[slurm_plugin] ck could not be looked through with its over 20000 files")


def test_no_hang_is_looked_for(log: list[tuple[int, ...]]) -> None:
    """Unless it was requested."""
    assert looked(Scene(hang_s=0.0), 1000) is None


def test_nothing_to_look_at(log: list[tuple[int, ...]], tmp_path: Path) -> None:
    """If the output is no file, and there are no checkpoints, a hang cannot be detected. With checkpoints it can."""
    log.append(())
    assert looked(Scene(hang_s=100.0), 1000) is None
    assert looked(Scene(hang_s=100.0, checkpoint=str(tmp_path)), 150) is not None
