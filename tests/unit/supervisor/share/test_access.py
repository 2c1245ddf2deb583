"""The modes of a shared job's directory, records and logs."""

import os
import stat
from pathlib import Path

import pytest

from slurm_plugin.records import job_directory, log_files, requests
from slurm_plugin.records.log_files import Output
from slurm_plugin.supervisor.share import access
from tests.unit.supervisor.share.shared import BOB, TEAM, Directory


def modes(directory: Path, *names: str) -> list[tuple[int, str]]:
    """Return the group and the mode of files."""
    found = [(directory / name).stat() for name in names]
    return [(each.st_gid, oct(stat.S_IMODE(each.st_mode))) for each in found]


@pytest.mark.parametrize(
    ("given", "own", "box"),
    [
        (requests.WRITE, (TEAM, "0o2750"), (TEAM, "0o3730")),
        (requests.READ, (TEAM, "0o2750"), None),
        (requests.NONE, (0, "0o700"), None),
    ],
)
def test_directories(tmp_path: Path, given: str, own: tuple[int, str], box: tuple[int, str] | None) -> None:
    """Members may enter and list the job's directory, and write requests without seeing those of others."""
    umask = os.umask(0o077)
    try:
        directory = job_directory.directory(tmp_path, 7)
    finally:
        os.umask(umask)
    with access.opened(directory) as fd:
        for _ in range(2):  # a later run, too
            access.set_directory(fd, None if given == requests.NONE else TEAM)
            access.set_requests(fd, TEAM if given == requests.WRITE else None)
    assert modes(directory, ".") == [own]
    assert (modes(directory, requests.DIRECTORY) if box else None) == (box and [box])
    assert modes(directory, "..")[0][1] == ("0o700" if given == requests.NONE else "0o711")
    assert modes(tmp_path, ".")[0][1] == "0o700"


def test_who_could_replace_the_directory(tmp_path: Path) -> None:
    """In a `.slurm_plugin` where others may write, they can no longer rename it. Another user's is refused."""
    directory = job_directory.directory(tmp_path, 7)
    directory.parent.chmod(0o770)
    with access.opened(directory) as fd:
        access.set_directory(fd, TEAM)
        assert modes(directory, "..") == [(0, "0o1771")]
        directory.chmod(0o755)
        os.chown(directory.parent, BOB, BOB)
        with pytest.raises(PermissionError, match=rf"{directory.parent} belongs to another user"):
            access.set_directory(fd, TEAM)
    assert modes(directory, ".")[0][1] == "0o755"


def test_less_access_in_a_later_run(shared: Directory) -> None:
    """Members may no longer write requests."""
    access.set_requests(shared.fd, None)
    assert modes(shared.path, requests.DIRECTORY) == [(TEAM, "0o700")]


def test_requests_that_is_a_link(tmp_path: Path) -> None:
    """Nothing behind a link is opened to the group."""
    directory = job_directory.directory(tmp_path, 7)
    (tmp_path / "private").mkdir(mode=0o700)
    (directory / requests.DIRECTORY).symlink_to(tmp_path / "private")
    with access.opened(directory) as fd, pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        access.set_requests(fd, TEAM)
    assert modes(tmp_path, "private") == [(0, "0o700")]


def test_records_and_logs(shared: Directory, tmp_path: Path) -> None:
    """Members may read the records and the logs; the environment of the program and the hold's request stay private."""
    records = ["job.yaml", "attempts.jsonl", "usage.jsonl", "progress.jsonl", "slow.jsonl", "diagnosis.json", "log"]
    records.append("hold.json")
    private = ["launch.json", "hold.request", "slurm_script.0"]
    for name in (*records, *private):
        (shared.path / name).touch(mode=0o600)
    logs = tmp_path / "logs"
    logs.mkdir()
    names = ["train-7-worker-0.log", "train-7-proc-rank-0-device-0.txt"]
    for name in (*names, "train-8-worker-0.log", "notes.txt"):
        (logs / name).touch(mode=0o600)
    log_files.write_output(shared.path, Output("train", directory=str(logs)))
    access.set_files(shared.fd, 7, TEAM)
    assert {*modes(shared.path, *records, log_files.FILE)} == {(TEAM, "0o640")}
    assert {*modes(shared.path, *private)} == {(TEAM, "0o600")}
    assert modes(logs, *names) == [(TEAM, "0o640")] * 2
    assert modes(logs, "train-8-worker-0.log", "notes.txt") == [(0, "0o600")] * 2
    access.set_files(shared.fd, 7, None)
    assert {mode for _, mode in modes(shared.path, *records)} == {"0o600"}


def test_the_jobs_log(shared: Directory, tmp_path: Path) -> None:
    """The log is what this process writes into. Its other bits for others go, and those of its user stay."""
    log, saved = tmp_path / "train.out", os.dup(1)
    log.touch(mode=0o644)
    fd = os.open(log, os.O_WRONLY)
    os.dup2(fd, 1)
    try:
        access.set_files(shared.fd, 7, TEAM)
    finally:
        os.dup2(saved, 1)
        os.close(saved)
        os.close(fd)
    assert modes(tmp_path, "train.out") == [(TEAM, "0o640")]


def test_files_of_others_and_links(shared: Directory, tmp_path: Path) -> None:
    """What another user has put in the place of a record stays as it is, and so does what it leads to."""
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    (shared.path / "job.yaml").symlink_to(secret)
    (shared.path / "attempts.jsonl").hardlink_to(secret)
    os.mkfifo(shared.path / "usage.jsonl", 0o600)
    (shared.path / "progress.jsonl").touch(mode=0o600)
    os.chown(shared.path / "progress.jsonl", BOB, BOB)
    access.set_files(shared.fd, 7, TEAM)
    assert modes(tmp_path, "secret") == [(0, "0o600")]
    assert modes(shared.path, "usage.jsonl", "progress.jsonl") == [(TEAM, "0o600"), (BOB, "0o600")]
