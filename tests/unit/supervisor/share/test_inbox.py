"""Requests in a directory where other users write: what is taken, and what counts for nothing."""

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_plugin.records import requests
from slurm_plugin.supervisor.share import inbox
from tests.unit.supervisor.share.shared import BOB, DAN, EVE, STOP, TEAM, Directory


def test_requests_are_taken_once(shared: Directory) -> None:
    """The oldest of each user is taken in one look, the next one in the next look. Nothing is left."""
    shared.ask(BOB, 2)
    shared.ask(BOB, 1)
    shared.ask(DAN, 3)
    taken, dropped = inbox.look(shared.fd)
    assert [(each.name, each.uid, json.loads(each.data)) for each in taken] == [
        (f"1-{BOB}.json", BOB, STOP),
        (f"3-{DAN}.json", DAN, STOP),
    ]
    assert dropped == 0
    assert [each.name for each in inbox.look(shared.fd)[0]] == [f"2-{BOB}.json"]
    assert inbox.look(shared.fd) == ([], 0)
    assert shared.left == []


def link(path: Path, secret: Path) -> None:
    path.symlink_to(secret)


def dangling(path: Path, secret: Path) -> None:
    path.symlink_to(secret / "none")


def loop(path: Path, _secret: Path) -> None:
    path.symlink_to(path)


def hard_link(path: Path, secret: Path) -> None:
    path.hardlink_to(secret)


def fifo(path: Path, _secret: Path) -> None:
    os.mkfifo(path, 0o666)


def unix_socket(path: Path, _secret: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(path.parent)  # the name of a socket is short
        listener.bind(path.name)


def foreign(path: Path, _secret: Path) -> None:
    path.write_text(json.dumps(STOP))
    os.chown(path, EVE, TEAM)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (link, "cannot be read"),
        (dangling, "cannot be read"),
        (loop, "cannot be read"),
        (hard_link, "has other names"),
        (fifo, "no regular file"),
        (unix_socket, "cannot be read"),
        (foreign, "another user's number"),
    ],
)
def test_what_is_no_request(
    shared: Directory,
    make: Callable[[Path, Path], None],
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A link, a pipe, a socket, a file with two names or in another's name is removed without its content."""
    monkeypatch.chdir(tmp_path)
    secret = tmp_path / "secret"
    secret.write_text(json.dumps(STOP))
    os.chown(secret, BOB, TEAM)
    make(shared.box / f"1-{BOB}.json", secret)
    ((letter,), dropped) = inbox.look(shared.fd)
    assert (letter.data, dropped) == (b"", 0)
    assert why in letter.wrong
    assert shared.left == []
    assert secret.read_text() == json.dumps(STOP)


def test_other_names_and_directories_stay(shared: Directory) -> None:
    """A file that is being written is left alone. A directory with content cannot be removed, and stops nobody."""
    (shared.box / f"1-{BOB}.json").mkdir()
    (shared.box / f"1-{BOB}.json" / "content").touch()
    (shared.box / f".2-{BOB}.json.99").write_text("{")
    (shared.box / "README").touch()
    shared.ask(BOB, 5)
    assert [each.name for each in inbox.look(shared.fd)[0]] == [f"5-{BOB}.json"]
    assert shared.left == [f".2-{BOB}.json.99", f"1-{BOB}.json", "README"]


@pytest.mark.parametrize("make", [link, hard_link, fifo])
def test_a_race_between_look_and_open(
    shared: Directory, make: Callable[[Path, Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What replaces a file after it was seen, is checked in its place."""
    secret = tmp_path / "secret"
    secret.write_text(json.dumps(STOP))
    path, real = shared.ask(BOB, 1), os.rename

    def swap(*words: str, **fds: int) -> None:
        path.unlink(missing_ok=True)
        make(path, secret)
        monkeypatch.setattr(os, "rename", real)
        real(*words, **fds)

    monkeypatch.setattr(os, "rename", swap)
    ((letter,), _) = inbox.look(shared.fd)
    assert (letter.data, bool(letter.wrong)) == (b"", True)
    assert shared.left == []


def test_a_race_with_a_directory(shared: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that replaces a file is put back, with its content, and later requests are taken."""
    path, real = shared.ask(BOB, 1), os.rename

    def swap(*words: str, **fds: int) -> None:
        if path.is_file():
            path.unlink()
            path.mkdir()
            (path / "content").touch()
        real(*words, **fds)

    monkeypatch.setattr(os, "rename", swap)
    assert inbox.look(shared.fd) == ([], 0)
    assert shared.left == [path.name]
    shared.ask(BOB, 2)
    assert [each.name for each in inbox.look(shared.fd)[0]] == [f"2-{BOB}.json"]


def test_a_request_that_is_gone(shared: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that was withdrawn after it was seen is not carried out."""
    path, real = shared.ask(BOB, 1), os.rename
    monkeypatch.setattr(os, "rename", lambda *words, **fds: (path.unlink(), real(*words, **fds)))
    assert inbox.look(shared.fd) == ([], 0)


def test_a_request_that_grows(shared: Directory) -> None:
    """Its first bytes are read, and no more."""
    with shared.ask(BOB, 1).open("wb") as file:
        file.truncate(1 << 40)
    ((letter,), _) = inbox.look(shared.fd)
    assert len(letter.data) == requests.MOST_BYTES + 1


def test_ten_thousand_requests(shared: Directory) -> None:
    """One user's flood is dropped, of each look at most MOST_FILES files are opened, and others are heard."""
    for number in range(10_000):
        shared.ask(BOB, number)
    shared.ask(DAN, 5)
    heard: set[int] = set()
    looks = 0
    while shared.left:
        letters, dropped = inbox.look(shared.fd)
        assert len(letters) <= 2
        assert dropped <= inbox.MOST_FILES
        heard |= {each.uid for each in letters}
        looks += 1
        assert looks <= 10_000 / (inbox.MOST_FILES - inbox.WAITING) + 2 * inbox.WAITING
    assert heard == {BOB, DAN}


def test_files_that_cannot_be_removed(shared: Directory) -> None:
    """A user's many directories with the names of requests only delay the others."""
    for number in range(2 * inbox.MOST_FILES):
        (shared.box / f"{number}-{DAN}.json").mkdir()
    shared.ask(BOB, 99999)
    for _ in range(200):
        if letters := inbox.look(shared.fd)[0]:
            break
    assert [each.uid for each in letters] == [BOB]


def test_a_directory_that_others_replaced(shared: Directory, tmp_path: Path) -> None:
    """A `requests/` of another user, or a link in its place, has no requests; nor has a new directory of the job."""
    shared.ask(BOB, 1)
    shared.box.rename(tmp_path / "real")
    shared.box.symlink_to(tmp_path / "real")
    assert inbox.look(shared.fd) == ([], 0)
    shared.box.unlink()
    (tmp_path / "real").rename(shared.box)
    os.chown(shared.box, BOB, TEAM)
    assert inbox.look(shared.fd) == ([], 0)
    os.chown(shared.box, os.geteuid(), TEAM)
    shared.path.rename(tmp_path / "moved")
    shared.path.mkdir()
    (shared.path / requests.DIRECTORY).mkdir()
    os.chown(shared.path, BOB, TEAM)
    shared.ask(EVE, 1)
    assert [each.uid for each in inbox.look(shared.fd)[0]] == [BOB]
