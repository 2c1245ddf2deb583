"""A run's directory on a node: the owners of its parts, and users' files in it that have no effect."""

import os
import stat
from pathlib import Path

import pytest

from slurm_plugin.records import node_directory
from tests.waiting import HANG_S

USER, GROUP = 20001, 20002


@pytest.fixture
def run_directory(tmp_path: Path) -> str:
    """Not there yet, as after a reboot."""
    return str(tmp_path / "run")


def owners(directory: str | Path) -> dict[str, tuple[int, int, int]]:
    """Mode, user and group of everything in a directory."""
    found = {str(path.relative_to(directory)): path.lstat() for path in Path(directory).rglob("*")}
    return {name: (stat.S_IMODE(each.st_mode), each.st_uid, each.st_gid) for name, each in found.items()}


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_modes_and_owners(run_directory: str, umask: int) -> None:
    """Whatever the umask: root writes, the job's group reads the report, the user has a part of its own."""
    old = os.umask(umask)
    try:
        node_directory.create(run_directory, "7.0.0", uid=USER, gid=GROUP)
        node_directory.write(run_directory, "7.0.0", "report.json", "{}\n", gid=GROUP)
    finally:
        os.umask(old)
    assert stat.S_IMODE(Path(run_directory).stat().st_mode) == 0o755
    assert owners(run_directory) == {
        "jobs": (0o755, 0, 0),
        "jobs/7.0.0": (0o750, 0, GROUP),
        "jobs/7.0.0/owner": (0o777, 0, 0),
        "jobs/7.0.0/user": (0o700, USER, GROUP),
        "jobs/7.0.0/report.json": (0o640, 0, GROUP),
    }


def test_again(run_directory: str) -> None:
    """A second prolog of the same run keeps existing files; a file is replaced as a whole."""
    for text in ("first", "second"):
        node_directory.create(run_directory, "7.0.0", uid=USER, gid=GROUP)
        node_directory.write(run_directory, "7.0.0", "report.json", text, gid=GROUP)
    directory = Path(run_directory, "jobs", "7.0.0")
    assert sorted(path.name for path in directory.iterdir()) == ["owner", "report.json", "user"]
    assert (directory / "report.json").read_text() == "second"


@pytest.mark.parametrize("planted", ["jobs", "jobs/7.0.0"])
def test_planted_link(run_directory: str, tmp_path: Path, planted: str) -> None:
    """A link in place of a directory is refused, and nothing is written to its target."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link = Path(run_directory, planted)
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    with pytest.raises(OSError, match="Not a directory"):
        node_directory.create(run_directory, "7.0.0", uid=USER, gid=GROUP)
    assert not any(elsewhere.iterdir())
    assert elsewhere.stat().st_uid == 0


def test_planted_file(run_directory: str, tmp_path: Path) -> None:
    """A link in place of a file is replaced, not written through."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    node_directory.create(run_directory, "7.0.0", uid=USER, gid=GROUP)
    Path(run_directory, "jobs/7.0.0/report.json").symlink_to(victim)
    node_directory.write(run_directory, "7.0.0", "report.json", "{}", gid=GROUP)
    assert victim.read_text() == "mine"
    assert not Path(run_directory, "jobs/7.0.0/report.json").is_symlink()


def test_planted_user_link(run_directory: str, tmp_path: Path) -> None:
    """The target of a link named `user` is not given to the job's user."""
    victim = tmp_path / "victim"
    victim.mkdir()
    Path(run_directory, "jobs/7.0.0").mkdir(parents=True)
    Path(run_directory, "jobs/7.0.0/user").symlink_to(victim)
    node_directory.create(run_directory, "7.0.0", uid=USER, gid=GROUP)
    assert victim.stat().st_uid == 0


@pytest.mark.parametrize("part", ["", "jobs", "jobs/7.0.0"])
def test_not_roots_own(run_directory: str, part: str) -> None:
    """A directory of another owner, at any level, is refused with the remedy."""
    Path(run_directory, "jobs", "7.0.0").mkdir(parents=True)
    os.chown(Path(run_directory, part), USER, USER)
    with pytest.raises(PermissionError, match="not owned by root; remove it"):
        node_directory.create(run_directory, "7.0.0", uid=USER, gid=GROUP)
    with pytest.raises(PermissionError, match="not owned by root; remove it"):
        node_directory.write(run_directory, "7.0.0", "report.json", "{}", gid=GROUP)
    assert "jobs/7.0.0/user" not in owners(run_directory)
    assert "jobs/7.0.0/report.json" not in owners(run_directory)


def test_owner(run_directory: str) -> None:
    """The first write counts; None for a missing or malformed link."""
    for uid in (USER, USER + 1):
        node_directory.create(run_directory, "7.0.0", uid=uid, gid=GROUP)
    assert node_directory.owner(run_directory, "7.0.0") == USER
    Path(run_directory, "jobs/8.0.0").mkdir()
    assert node_directory.owner(run_directory, "8.0.0") is None
    Path(run_directory, "jobs/8.0.0/owner").symlink_to("alice")
    assert node_directory.owner(run_directory, "8.0.0") is None


def test_of_job(run_directory: str) -> None:
    """The job's runs, oldest first by number; other names and other owners are ignored."""
    jobs = Path(run_directory, "jobs")
    mine = ["7.0.0", "7.2.0", "7.2.3", "7.10.0"]
    strangers = ["70.0.0", "17.0.0", "7.0", "7.0.0.0", "7.x.0", "7..0", "7.0.", "7.-1.0", "..7", "7", "x", ".7.0.0"]
    for name in [*reversed(mine), *strangers]:
        (jobs / name).mkdir(parents=True)
    (jobs / "7.3.0").write_text("a file")
    (jobs / "7.4.0").symlink_to(jobs / "7.0.0")
    assert node_directory.of_job(run_directory, 7) == mine


def test_of_job_not_roots_own(run_directory: str) -> None:
    """A directory of another owner is no run: root reads nothing in it, where a file may be a pipe or a link."""
    for name in ("7.0.0", "7.1.0"):
        Path(run_directory, "jobs", name).mkdir(parents=True)
    os.chown(Path(run_directory, "jobs", "7.1.0"), USER, USER)
    assert node_directory.of_job(run_directory, 7) == ["7.0.0"]


def test_of_job_beside_an_epilog(run_directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An epilog removes another job's directory while this process lists them: the others are still found."""
    for name in ("6.0.0", "7.0.0", "8.0.0"):
        node_directory.create(run_directory, name, uid=USER, gid=GROUP)
    real = os.scandir

    def listed(path: str) -> list[os.DirEntry[str]]:
        found = list(real(path))
        assert node_directory.remove(run_directory, "6.0.0")
        return found

    monkeypatch.setattr(os, "scandir", listed)
    assert node_directory.all_runs(run_directory) == ["7.0.0", "8.0.0"]


def test_of_job_before_any(run_directory: str) -> None:
    """Before the first job there is nothing, and no error."""
    assert node_directory.of_job(run_directory, 7) == []


def test_remove(run_directory: str, tmp_path: Path) -> None:
    """A run's directory is removed with its user's files; targets of links and other runs stay."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("mine")
    for name in ("7.0.0", "7.1.0"):
        node_directory.create(run_directory, name, uid=USER, gid=GROUP)
    user = Path(run_directory, "jobs/7.0.0/user")
    (user / "link").symlink_to(victim)
    (user / "file").symlink_to(victim / "file")
    (user / "-rf").mkdir()
    (user / "new\nline").write_text("")
    node_directory.remove(run_directory, "7.0.0")
    assert set(owners(run_directory)) == {"jobs", "jobs/7.1.0", "jobs/7.1.0/owner", "jobs/7.1.0/user"}
    assert (victim / "file").read_text() == "mine"


def test_remove_a_link(run_directory: str, tmp_path: Path) -> None:
    """The target of a link in a run directory's place stays."""
    (tmp_path / "victim" / "below").mkdir(parents=True)
    jobs = Path(run_directory, "jobs")
    jobs.mkdir(parents=True)
    (jobs / "7.0.0").symlink_to(tmp_path / "victim")
    node_directory.remove(run_directory, "7.0.0")
    assert (tmp_path / "victim" / "below").is_dir()


def test_remove_what_is_gone(run_directory: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing to remove is no error."""
    node_directory.remove(run_directory, "7.0.0")
    assert capfd.readouterr() == ("", "")


def test_remove_depth(run_directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user cannot keep its directory on the node by nesting more of them than Python can recurse into."""
    monkeypatch.setattr(node_directory, "REMOVE_S", HANG_S)
    node_directory.create(run_directory, "7.0.0", uid=USER, gid=GROUP)
    fd = os.open(Path(run_directory, "jobs/7.0.0/user"), os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    node_directory.remove(run_directory, "7.0.0")
    assert set(owners(run_directory)) == {"jobs"}
