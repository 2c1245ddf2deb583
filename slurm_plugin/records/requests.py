"""Requests about a job by other users with whom it is shared, and the answers to them. Standard library only.

Each request is a file in `requests/` of the job's directory, `<unix ns>-<uid>.json`. The owner of the file makes the
request: the content names no user. The job's supervisor carries it out and writes the answer to `answers.jsonl`. The
content names the job and its run, so that a request that was moved or left behind is invalid elsewhere.
"""

import json
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from slurm_plugin.records import job_directory, job_plan

DIRECTORY: Final = "requests"
ANSWERS: Final = "answers.jsonl"
VERSION: Final = 1
MOST_BYTES: Final = 4096  # of a request
ANSWERS_KEPT: Final = 100
LONGEST_TEXT: Final = 500  # characters of an answer
NONE, READ, WRITE = job_plan.ACCESS
# Verb -> its arguments, each a text.
VERBS: Final[Mapping[str, tuple[str, ...]]] = {
    "stop": (),
    "time": ("to",),
    "priority": ("to",),
    "release": (),
    "rerun": (),
}
_NAME = re.compile(r"[0-9]{1,20}-([0-9]{1,10})\.json", re.ASCII)
_ARGUMENT = re.compile(r"[A-Za-z0-9+:._-]{1,64}", re.ASCII)


class Request(NamedTuple):
    """A request: a verb, its arguments, and the job."""

    verb: str
    arguments: Mapping[str, str]
    job: int
    restart: int  # the run that is meant: Slurm's restart count
    cluster: str = ""  # empty: unknown


class Answer(NamedTuple):
    """What the supervisor did with a request."""

    request: str  # the name of the file
    uid: int
    user: str
    verb: str
    done: bool
    said: str


def asker(name: str) -> int | None:
    """Return the uid in the name of a request's file; None for any other name. Compare it with the owner."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else None


def at_most(asked: str, site: str) -> str:
    """Return the access that a job gives: the requested one, but at most what the site allows."""
    return min(asked, site, key=job_plan.ACCESS.index)


def closed_to(gid: int, path: Path) -> Path | None:
    """Return the first directory from the root down to `path` that the group cannot enter; None if it can enter all.

    A directory with an access control list counts as open: only its mode is read here.
    """
    for each in (*reversed(path.parents), path):
        try:
            found = each.stat()
            listed = "system.posix_acl_access" in os.listxattr(each)
        except OSError:
            continue
        if not listed and not found.st_mode & (0o010 if found.st_gid == gid else 0o001):
            return each
    return None


def write(directory: Path, request: Request) -> str:
    """Write a request into a job's directory and return its name. Raise OSError.

    Another user owns the directory: open it without following a link, and write only a new file.
    """
    from prechecks import files  # noqa: PLC0415 - a submission needs only `at_most` and `closed_to`

    name = f"{time.time_ns()}-{os.geteuid()}.json"
    fields = {"v": VERSION, **request._asdict(), "arguments": dict(request.arguments)}
    with files.Opened(os.open(directory / DIRECTORY, files.DIRECTORY | os.O_PATH)) as fd:
        files.replace(name, json.dumps(fields) + "\n", mode=0o644, directory=fd)
    return name


def withdraw(directory: Path, name: str) -> bool:
    """Remove a request that the supervisor has not taken. Return whether it was still there."""
    try:
        (directory / DIRECTORY / name).unlink()
    except OSError:
        return False
    return True


def parse(data: bytes) -> Request:
    """Read a request. Raise ValueError with the reason for anything else: another user wrote it."""
    if len(data) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES} bytes")
    try:
        found = json.loads(data.decode(), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise ValueError("it is no JSON") from error
    if not isinstance(found, dict) or type(found.get("v")) is not int or found["v"] != VERSION:
        raise ValueError(f"it is no request of version {VERSION}")
    verb, arguments = found.get("verb"), found.get("arguments")
    if not isinstance(verb, str) or verb not in VERBS:
        raise ValueError(f"its verb is none of {', '.join(VERBS)}")
    if not isinstance(arguments, dict) or {*arguments} != {*VERBS[verb]}:
        raise ValueError(f"{verb} takes other arguments: {', '.join(VERBS[verb]) or 'none'}")
    if not all(isinstance(value, str) and _ARGUMENT.fullmatch(value) for value in arguments.values()):
        raise ValueError(f"an argument of {verb} is no short word")
    job, restart, cluster = found.get("job"), found.get("restart"), found.get("cluster")
    if type(job) is not int or type(restart) is not int or not isinstance(cluster, str):
        raise ValueError("it names no job and run")
    return Request(verb, arguments, job, restart, cluster)


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number")


def answers(directory: Path, owner: int | None = None) -> list[Answer]:
    """Return the last answers, oldest first. Skip malformed lines. `owner`: the required uid of the file."""
    found = []
    for line in (job_directory.read(directory / ANSWERS, owner) or "").splitlines():
        with suppress(ValueError, RecursionError, LookupError, TypeError):
            fields = json.loads(line)
            answer = Answer(*(fields[name] for name in Answer._fields))
            if all(isinstance(value, Answer.__annotations__[name]) for name, value in answer._asdict().items()):
                found.append(answer)
    return found


def answer(directory: Path, new: Answer) -> None:
    """Add an answer to the file, which the group of the directory may read. Raise OSError."""
    from prechecks import files  # noqa: PLC0415 - as above

    new = new._replace(said=new.said[:LONGEST_TEXT])
    kept = [*answers(directory, os.geteuid())[1 - ANSWERS_KEPT :], new]
    lines = "".join(json.dumps({"v": VERSION, **each._asdict()}) + "\n" for each in kept)
    files.replace(directory / ANSWERS, lines, mode=0o640, gid=directory.stat().st_gid)
