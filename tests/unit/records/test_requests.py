"""Requests about a job by other users, and the answers: the wire forms, and what hostile users write."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.records import job_directory, requests
from slurm_plugin.records.requests import Answer, Request

STOP = {"v": 1, "verb": "stop", "arguments": {}, "job": 7, "restart": 0, "cluster": "ours"}
ANSWER = Answer("1-20002.json", 20002, "bob", "stop", done=True, said="done")


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """A request has its own file, which everybody may read, and no other file is left beside it."""
    (tmp_path / requests.DIRECTORY).mkdir()
    asked = Request("time", {"to": "+2h"}, 7, 1, "ours")
    name = requests.write(tmp_path, asked)
    file = tmp_path / requests.DIRECTORY / name
    assert requests.parse(file.read_bytes()) == asked
    assert requests.asker(name) == os.geteuid()
    assert file.stat().st_mode & 0o777 == 0o644
    assert [each.name for each in (tmp_path / requests.DIRECTORY).iterdir()] == [name]
    assert requests.withdraw(tmp_path, name)
    assert not requests.withdraw(tmp_path, name)


def test_a_request_is_written_through_no_link(tmp_path: Path) -> None:
    """The job's owner cannot make another user write elsewhere."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / requests.DIRECTORY).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        requests.write(tmp_path, Request("stop", {}, 7, 0))
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"v": 2}, "version 1"),
        ({"v": True}, "version 1"),
        ({"v": 1.0}, "version 1"),
        ({"v": None}, "version 1"),
        ({"verb": "cancel"}, "verb"),
        ({"verb": ["stop"]}, "verb"),
        ({"verb": {"stop": 1}}, "verb"),
        ({"verb": None}, "verb"),
        ({"arguments": None}, "arguments"),
        ({"arguments": []}, "arguments"),
        ({"arguments": {"to": "2h"}}, "arguments"),
        ({"verb": "time"}, "arguments"),
        ({"verb": "time", "arguments": {"to": "2h", "job": "8"}}, "arguments"),
        ({"verb": "time", "arguments": {"to": 2}}, "no short word"),
        ({"verb": "time", "arguments": {"to": ["2h"]}}, "no short word"),
        ({"verb": "time", "arguments": {"to": ""}}, "no short word"),
        ({"verb": "time", "arguments": {"to": "2h\n"}}, "no short word"),
        ({"verb": "time", "arguments": {"to": "2h; reboot"}}, "no short word"),
        ({"verb": "time", "arguments": {"to": "TimeLimit=1 UserId=0"}}, "no short word"),
        ({"verb": "priority", "arguments": {"to": "\ud800"}}, "no short word"),
        ({"verb": "priority", "arguments": {"to": "\x1b[2J"}}, "no short word"),
        ({"verb": "priority", "arguments": {"to": "x" * 65}}, "no short word"),
        ({"job": "7"}, "job and run"),
        ({"job": 7.0}, "job and run"),
        ({"job": True}, "job and run"),
        ({"restart": None}, "job and run"),
        ({"cluster": ["ours"]}, "job and run"),
    ],
)
def test_hostile_fields(changed: dict[str, Any], why: str) -> None:
    """A field of another type or value is refused, with the reason and without the value."""
    with pytest.raises(ValueError, match=why):
        requests.parse(json.dumps({**STOP, **changed}).encode())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"null",
        b"[]",
        b"7",
        b"[" * 4000,
        b'{"v":' * 800,
        b'{"v": NaN}',
        b'{"v": 1, "verb": "stop", "arguments": {}, "job": Infinity, "restart": 0, "cluster": ""}',
        b'{"v": 1, "verb": "stop", "arguments": {}, "job": 7e999, "restart": 0, "cluster": ""}',
        b'{"v": 1, "job": ' + b"9" * 4050 + b"}",
        json.dumps({**STOP, "more": "x" * 4096}).encode(),
        b" " * 4097,
    ],
)
def test_hostile_json(data: bytes) -> None:
    """No text that is not a request ends the reader."""
    with pytest.raises(ValueError, match=r"^it"):
        requests.parse(data)


def test_names() -> None:
    """Only `<unix ns>-<uid>.json` is a request."""
    assert requests.asker("1700000000000000000-20002.json") == 20002
    for name in (
        ".1-2.json.77",
        "1-2.json\n",
        "1-2",
        "x-2.json",
        "-1-2.json",
        "1-2.json.tmp",
        "1-²2.json",
        f"{'1' * 99}-2.json",
    ):
        assert requests.asker(name) is None, name


def test_a_site_allows_at_most() -> None:
    """A job gives what it asks for, and not more than the site allows."""
    assert requests.at_most("read-write", "read-only") == "read-only"
    assert requests.at_most("read-only", "read-write") == "read-only"
    assert requests.at_most("none", "read-write") == "none"
    assert requests.at_most("read-write", "none") == "none"


def test_answers_are_bounded(tmp_path: Path) -> None:
    """The last hundred are kept, each with a bounded text. The group of the directory may read them."""
    for number in range(requests.ANSWERS_KEPT + 5):
        requests.answer(tmp_path, ANSWER._replace(request=f"{number}-20002.json", said="x" * 9000))
    found = requests.answers(tmp_path, os.geteuid())
    assert len(found) == requests.ANSWERS_KEPT
    assert found[-1] == ANSWER._replace(request="104-20002.json", said="x" * requests.LONGEST_TEXT)
    assert (tmp_path / requests.ANSWERS).stat().st_mode & 0o777 == 0o640
    assert job_directory.is_ours(requests.ANSWERS)
    assert job_directory.is_ours(requests.DIRECTORY)
    assert job_directory.is_ours(".requests.12345")


def test_malformed_answers(tmp_path: Path) -> None:
    """Lines of another form are skipped; a file of another user's has no answers."""
    requests.answer(tmp_path, ANSWER)
    with (tmp_path / requests.ANSWERS).open("a") as file:
        for line in (
            "",
            "{",
            "[]",
            "null",
            '{"request": 1}',
            json.dumps({**ANSWER._asdict(), "done": "yes"}),
            "[" * 9999,
        ):
            file.write(f"{line}\n")
    assert requests.answers(tmp_path) == [ANSWER]
    assert requests.answers(tmp_path, os.geteuid() + 1) == []
