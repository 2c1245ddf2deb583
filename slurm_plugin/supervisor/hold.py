"""A hold: a job whose command has failed for good keeps its nodes for a while, so that a user can debug the job.

`slurm-plugin rerun` and `release` write a request to `hold.request`, and the supervisor waits for it in `keep`. The
supervisor writes the state of the hold to `hold.json`, which `rerun`, `release` and `why` read. Both files are in the
job's directory. The supervisor creates `hold.request` when a hold begins and opens it for each check. A file server
then gives no outdated answer.
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
from prechecks import files
from slurm_plugin.errors import SlurmPluginError
from slurm_plugin.launch import Launch
from slurm_plugin.records import job_directory, notify
from slurm_plugin.records.history import duration
from slurm_plugin.slurm import Job, Slurm, SlurmError
from slurm_plugin.supervisor.decide import Action, Attempt, Phase, Wish, decide
from slurm_plugin.supervisor.launcher import Launcher
from slurm_plugin.supervisor.log import say
from slurm_plugin.supervisor.run import Run, own_variables

STATE: Final = "hold.json"
REQUEST: Final = "hold.request"
RERUN: Final = "rerun"
RELEASE: Final = "release"
REQUESTS: Final = (RERUN, RELEASE)
HELD, RUNNING, OVER = "held", "running", "over"  # `state` in hold.json
REASON: Final = "it was run again by hand"
LOOK_EVERY_S: Final = 1.0
BEFORE_THE_LIMIT_S: Final = 10.0  # so the job ends with the program's exit code, not by its time limit
LOOK_AT_LIMIT_S: Final = 30.0  # read the limit again this long before it, and at most this often: it may be raised
LONGEST_COMMAND: Final = 300  # characters of the command in a line of the log


class Terms(NamedTuple):
    """When a hold ends (seconds since the epoch), and a text that says why it is shorter than requested."""

    until: float
    shorter: str


def most(site: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[float, str]:
    """Return the site's limit for a hold in seconds, and its name in the site file: `max_hold` or `rule NAME`.

    `environ` is the batch step's environment. It has the job's account, QOS and partition.
    """
    found = [(float(site.get("max_hold_s", 0)), "max_hold")]
    for rule in site.get("hold_rules", ()):
        if all(_values_of(environ, field) & {*names} for field, names in rule["when"].items()):
            found.append((float(rule["hold_s"]), f"rule {rule['name']}"))
    return min(found, key=lambda each: each[0])


def _values_of(environ: Mapping[str, str], field: str) -> set[str]:
    """Return the values of a field in Slurm's variables of the job and of each heterogeneous group."""
    name = f"SLURM_JOB_{field.upper()}"
    found = {text for each, text in environ.items() if each == name or each.startswith(f"{name}_HET_GROUP_")}
    return {text.lower() for text in found} if field in ("account", "qos") else found


def terms(asked_s: float, most_s: float, now: float, limit: float | None, whose: str = "max_hold") -> Terms | None:
    """Return the terms of a hold that begins now; None if the job is not held.

    `limit`: when Slurm ends the job; None if unknown. `whose`: the part of the site file that sets `most_s`.
    """
    if asked_s <= 0 or most_s <= 0:
        return None
    until, shorter = now + asked_s, ""
    if most_s < asked_s:
        until, shorter = now + most_s, f"the site allows {duration(most_s)} ({whose})"
    if limit is not None and limit - BEFORE_THE_LIMIT_S < until:
        until, shorter = limit - BEFORE_THE_LIMIT_S, f"its time limit ends the job at {utc(limit)}"
    return Terms(until, shorter) if until > now else None


def applies(phase: Phase, action: Action) -> bool:
    """Return whether to hold the job: its command or a hook has failed, and no further attempt follows."""
    return action.kind == "fail" and phase != "precheck"


class Hold:
    """The holds of one run of a job."""

    def __init__(
        self,
        asked_s: float,
        run: Run,
        *,
        directory: Path,
        site: Mapping[str, Any],
        door: Slurm,
        cluster: str = "",
        began: Callable[[str, str], None] = lambda _reason, _until: None,
    ) -> None:
        """`began`: called when the first hold has begun, with its reason and its end."""
        self._asked_s, self._job_id, self._restart = asked_s, run.job_id, run.restart
        self._directory, self._site, self._door, self._cluster = directory, site, door, cluster
        self._most_s, self._whose = most(site, own_variables(os.environ))
        self._tell = began
        self._number = 0  # the number of the current hold
        self._asks = True  # whether REQUEST is the current hold's; else it may still have the last one's request
        self._began = self._asked_at = 0.0  # when the hold began, and when the time limit was last read

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
        """Record how an attempt ended, and hold the job if it failed. Return the action that ends the job.

        `again` launches the command once more and returns how it ended. This is a new attempt, with a new hold.
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
        """Return the terms of a hold that begins now; None if the job is not held. Log any limit that applies."""
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
        found = self._terms_with(limit)
        if found is None:
            say(f"no hold: the job's time limit ends it at {utc(limit or self._began)}")
        elif found.shorter:
            asked, given = duration(self._asked_s), duration(found.until - self._began)
            say(f"hold_on_failure asked for {asked}, the hold lasts {given}: {found.shorter}")
        return found

    def _limit(self) -> float | None:
        """Return when Slurm ends the job; None without a time limit. Raise SlurmError if Slurm does not answer."""
        self._asked_at = time.time()
        end = self._door.job(self._job_id).end_time
        return end.timestamp() if end else None

    def _terms_with(self, limit: float | None) -> Terms | None:
        """Return the terms of the current hold for this time limit."""
        return terms(self._asked_s, self._most_s, self._began, limit, self._whose)

    def _renewed(self, found: Terms, action: Action) -> Terms:
        """Read the time limit again, because someone may have raised it. Return the new terms of the hold."""
        try:
            fresh = self._terms_with(self._limit())
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
        try:  # do this before other commands see the hold, or a request could be lost
            files.replace(self._directory / REQUEST, "", mode=0o600)
            self._asks = True
        except OSError as error:
            self._asks = False
            say(f"{REQUEST}: {error.strerror}: neither rerun nor release will work; to end the hold: scancel")
        self._note(HELD, found, action)
        say(f"held for debugging until {utc(found.until)}: {told}; try: {commands}")
        if self._number == 1:  # a user who ran the command again is watching the job
            what = f"held for debugging until {utc(found.until)}: {action.reason}; try: {commands}"
            notify.of_job(self._site.get("notify", ""), "hold", self._job_id, what)
            self._tell(action.reason, utc(found.until))

    def _note(self, state: str, found: Terms, action: Action) -> None:
        """Write the state of the hold to `hold.json` for other commands."""
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
            job_directory.write(self._directory / STATE, json.dumps(fields))
        except OSError as error:
            say(f"{STATE}: {error.strerror}; slurm-plugin why does not know of the hold")

    def _wait(self, found: Terms, action: Action, launcher: Launcher) -> tuple[str, Terms]:
        """Wait for a request. Return the request, empty if the hold or the job ends, and the current terms."""
        whole = self._terms_with(None) or found
        while not launcher.told_to_end and (left := found.until - time.time()) > 0:
            if self._asks and (request := requested(self._directory)):
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
    """Return the request in the job's directory, one of REQUESTS; empty if missing or in another user's file."""
    word = (job_directory.read(directory / REQUEST, os.geteuid()) or "").strip()
    return word if word in REQUESTS else ""


def request(directory: Path, word: str) -> None:
    """Write a request for a held job's supervisor. Raise OSError: FileNotFoundError if no job is held there.

    Root may run this in a user's directory, so write only to a regular file without other links.
    """
    path = directory / REQUEST
    with files.Opened(os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)) as fd:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            raise OSError(errno.EINVAL, "not as we made it", str(path))
        os.ftruncate(fd, 0)
        os.write(fd, f"{word}\n".encode())


def now(job: Job, directory: Path, cluster: str = "") -> dict[str, Any] | None:
    """Return the supervisor's record of the current hold of a job of this cluster; None if the job is not held."""
    found = job_directory.read_object(directory / STATE)
    if found is None or job_directory.theirs(found.get("cluster"), cluster):
        return None
    holds = found.get("restart") == job.restarts and found.get("state") == HELD
    return found if holds and job.state == "RUNNING" else None


def utc(seconds: float) -> str:
    """Return a time in UTC as text for people."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _shown(words: tuple[str, ...]) -> str:
    line = Launch(words, "").shown
    return line if len(line) <= LONGEST_COMMAND else f"{line[:LONGEST_COMMAND]}..."
