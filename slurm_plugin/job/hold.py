"""A hold: after its command has failed for good, a job keeps its nodes for a while, so that somebody can look.

The supervisor waits in `keep`. What it waits for is a word in `hold.request`, which `slurm-plugin rerun` and `release`
write; what it does stands in `hold.json`, for them and for `why`. Both are in the job's own directory. The request's
file stands there from the start, and is opened at each look: so a file server is asked anew, and gives no old answer.
"""

import errno
import json
import os
import stat
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from hostfiles import HostfileError
from slurm_plugin.decide import Action, Attempt, Phase, Wish, decide
from slurm_plugin.errors import SlurmPluginError
from slurm_plugin.history import took
from slurm_plugin.hooks import notify
from slurm_plugin.job import files, taskfile
from slurm_plugin.job.launch import Launcher
from slurm_plugin.job.log import say
from slurm_plugin.job.run import Run
from slurm_plugin.modes import Launch
from slurm_plugin.slurm import Job, Slurm, SlurmError

STATE: Final = "hold.json"
REQUEST: Final = "hold.request"
RERUN: Final = "rerun"
RELEASE: Final = "release"
REQUESTS: Final = (RERUN, RELEASE)
HELD, RUNNING, OVER = "held", "running", "over"  # `state` in hold.json
REASON: Final = "it was run again by hand"
LOOK_EVERY_S: Final = 1.0
BEFORE_THE_LIMIT_S: Final = 10.0  # so the job ends with the program's exit code, and not by its time limit
LOOK_AT_LIMIT_S: Final = 30.0  # before that: it may have been raised. Nobody of ours asks the controller more often
LONGEST_COMMAND: Final = 300  # characters of it in a line of the log


class Terms(NamedTuple):
    """When a hold ends (seconds of the epoch), and what made it shorter than was asked for, in words."""

    until: float
    shorter: str


def most(site: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[float, str]:
    """How long the site lets a job be held, and which word of the site file says so: `max_hold`, or a rule's name.

    `environ` is the batch step's: Slurm says there whose job it is, and where it runs.
    """
    found = [(float(site.get("max_hold_s", 0)), "max_hold")]
    for rule in site.get("hold_rules", ()):
        if all(_said(environ, field) & {*names} for field, names in rule["when"].items()):
            found.append((float(rule["hold_s"]), f"rule {rule['name']}"))
    return min(found, key=lambda each: each[0])


def _said(environ: Mapping[str, str], field: str) -> set[str]:
    """What Slurm says of the job: of each group of a heterogeneous one, too."""
    name = f"SLURM_JOB_{field.upper()}"
    found = {text for each, text in environ.items() if each == name or each.startswith(f"{name}_HET_GROUP_")}
    return {text.lower() for text in found} if field in ("account", "qos") else found


def terms(asked_s: float, most_s: float, now: float, limit: float | None, whose: str = "max_hold") -> Terms | None:
    """How long a hold is kept that begins now; None for not at all. `limit`: when Slurm ends the job, None: unknown.

    `whose`: what of the site file says `most_s`.
    """
    if asked_s <= 0 or most_s <= 0:
        return None
    until, shorter = now + asked_s, ""
    if most_s < asked_s:
        until, shorter = now + most_s, f"the site allows {took(most_s)} ({whose})"
    if limit is not None and limit - BEFORE_THE_LIMIT_S < until:
        until, shorter = limit - BEFORE_THE_LIMIT_S, f"its time limit ends the job at {utc(limit)}"
    return Terms(until, shorter) if until > now else None


def applies(phase: Phase, action: Action) -> bool:
    """Whether such an end is one to be looked at: the command, or a hook beside it, has failed and nothing follows."""
    return action.kind == "fail" and phase != "precheck"


class Hold:
    """What a hold knows of its job."""

    def __init__(
        self, asked_s: float, run: Run, *, directory: Path, site: Mapping[str, Any], door: Slurm, cluster: str = ""
    ) -> None:
        self._asked_s, self._job_id, self._restart = asked_s, run.job_id, run.restart
        self._directory, self._site, self._door, self._cluster = directory, site, door, cluster
        self._most_s, self._whose = most(site, os.environ)
        self._number = 0  # of the hold that it is in
        self._began = self._asked_at = 0.0  # when that began, and when the controller was last asked for the limit

    def keep(
        self,
        attempt: Attempt,
        action: Action,
        started: float,
        *,
        record: Callable[[Attempt, Action, float, str], None],
        again: Callable[[], tuple[Phase, int]],
        words: tuple[str, ...],
        launcher: Launcher,
    ) -> Action:
        """Record how an attempt ended, and hold the job where it failed; the action that ends the job at last.

        `again` launches once more and says how that ended: an attempt of its own, held anew where it fails.
        """
        while True:
            found = self._terms() if applies(attempt.phase, action) else None
            record(attempt, action, started, "hold" if found else action.kind)
            if found is None:
                return action
            self._number += 1
            self._begin(found, action, words)
            request, found = self._wait(found, action, launcher)
            if request != RERUN:
                self._note(OVER, found, action)
                say(f"the hold is over: {self._why_over(request, launcher)}")
                return action
            self._note(RUNNING, found, action)
            say(f"the command is run again by hand: {_shown(words)}")
            started = time.time()
            try:
                phase, code = again()
            except (OSError, HostfileError, SlurmPluginError) as error:
                say(f"it could not be run again: {error}")
                phase, code = "program", action.code
            attempt = Attempt(phase, code, {}, launcher.told_to_end)
            action = decide(attempt, 0, Wish(1, 1))
            if not applies(phase, action):
                self._note(OVER, found, action)

    def _terms(self) -> Terms | None:
        """The terms of a hold that begins now."""
        if self._asked_s > 0 and self._most_s <= 0:
            say(f"no hold: the site's settings allow none ({self._whose})")
        if min(self._asked_s, self._most_s) <= 0:
            return None
        try:
            limit = self._limit()
        except SlurmError as error:
            say(f"could not read the job's time limit, which may end the hold early: {error.one_line}")
            limit = None
        self._began = time.time()
        found = self._reckoned(limit)
        if found is None:
            say(f"no hold: the job's time limit ends it at {utc(limit or self._began)}")
        elif found.shorter:
            asked, given = took(self._asked_s), took(found.until - self._began)
            say(f"hold_on_failure asked for {asked}, the hold lasts {given}: {found.shorter}")
        return found

    def _limit(self) -> float | None:
        """When Slurm ends the job, None where it does not. Raises SlurmError where that cannot be read."""
        self._asked_at = time.time()
        end = self._door.job(self._job_id).end_time
        return end.timestamp() if end else None

    def _reckoned(self, limit: float | None) -> Terms | None:
        """The terms of the hold that it is in."""
        return terms(self._asked_s, self._most_s, self._began, limit, self._whose)

    def _renewed(self, found: Terms, action: Action) -> Terms:
        """The terms of a hold that its time limit is about to end: that may have been raised since."""
        try:
            fresh = self._reckoned(self._limit())
        except SlurmError as error:
            say(f"could not read whether the job's time limit was raised: {error.one_line}")
            return found
        if fresh is None or fresh.until <= found.until:
            return found
        self._note(HELD, fresh, action)
        say(f"the job's time limit was raised: it is held until {utc(fresh.until)}")
        return fresh

    def _begin(self, found: Terms, action: Action, words: tuple[str, ...]) -> None:
        commands = ", ".join(f"slurm-plugin {verb} {self._job_id}" for verb in ("shell", *REQUESTS))
        told = f"{action.reason}; exit code {action.code}; the command: {_shown(words)}"
        try:  # before anybody can see that the job is held: what is asked from then on counts
            taskfile.write(str(self._directory), REQUEST, "")
        except OSError as error:
            say(f"{REQUEST}: {error.strerror}: neither rerun nor release will work; to end the hold: scancel")
        self._note(HELD, found, action)
        say(f"held for debugging until {utc(found.until)}: {told}; try: {commands}")
        if self._number == 1:  # whoever has it run again looks at it
            what = f"held for debugging until {utc(found.until)}: {action.reason}; try: {commands}"
            notify.of_job(self._site.get("notify", ""), "hold", self._job_id, what)

    def _note(self, state: str, found: Terms, action: Action) -> None:
        """What the hold has come to, for other commands."""
        fields = {
            "v": 1,
            "cluster": self._cluster,
            "restart": self._restart,
            "number": self._number,
            "state": state,
            "until": datetime.fromtimestamp(found.until, UTC).isoformat(timespec="seconds"),
            "code": action.code,
            "cause": action.reason,
        }
        try:
            files.write(self._directory / STATE, json.dumps(fields))
        except OSError as error:
            say(f"{STATE}: {error.strerror}; slurm-plugin why does not know of the hold")

    def _wait(self, found: Terms, action: Action, launcher: Launcher) -> tuple[str, Terms]:
        """The request that came, empty where the time is over or somebody ends the job; and the terms by then."""
        whole = self._reckoned(None) or found
        while not launcher.told_to_end and (left := found.until - time.time()) > 0:
            if request := requested(self._directory):
                return request, found
            ends = left <= LOOK_AT_LIMIT_S and found.until < whole.until
            if ends and time.time() - self._asked_at >= LOOK_AT_LIMIT_S:
                found = self._renewed(found, action)
                continue
            launcher.pause(min(LOOK_EVERY_S, left))
        return "", found

    def _why_over(self, request: str, launcher: Launcher) -> str:
        if request:
            return f"it was released with slurm-plugin {RELEASE}"
        return "the job was told to end" if launcher.told_to_end else "its time is up"


def requested(directory: Path) -> str:
    """The request in the job's directory, of REQUESTS; empty without one, or where the file is another user's."""
    try:
        fd = os.open(directory / REQUEST, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            return ""
        word = os.read(fd, 64).decode("ascii", errors="replace").strip()
    except OSError:
        return ""
    finally:
        os.close(fd)
    return word if word in REQUESTS else ""


def request(directory: Path, word: str) -> None:
    """Put a request before a held job's supervisor. Raises OSError: FileNotFoundError where none is held there.

    Root may do so as well, in a directory of the user's: nothing but a plain file that stands there alone is written.
    """
    path = directory / REQUEST
    fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            raise OSError(errno.EINVAL, "not as we made it", str(path))
        os.ftruncate(fd, 0)
        os.write(fd, f"{word}\n".encode())
    finally:
        os.close(fd)


def now(job: Job, directory: Path, cluster: str = "") -> dict[str, Any] | None:
    """What the supervisor of a job of this cluster noted of the hold that it is in; None where it is in none."""
    found = files.read_object(directory / STATE)
    if found is None or files.theirs(found.get("cluster"), cluster):
        return None
    holds = found.get("restart") == job.restarts and found.get("state") == HELD
    return found if holds and job.state == "RUNNING" else None


def utc(seconds: float) -> str:
    """A time for people."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _shown(words: tuple[str, ...]) -> str:
    line = Launch(words, "").shown
    return line if len(line) <= LONGEST_COMMAND else f"{line[:LONGEST_COMMAND]}..."
