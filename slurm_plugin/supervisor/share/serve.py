"""Share a job while it runs: `slurm-plugin job share`, a process of its own beside the supervisor.

It opens the job's records to the group, and carries out the requests of the group's members as the job's user. A file
server or a directory of users that hangs stops only this process. It ends when its stdin ends: the supervisor has the
other end of that pipe.
"""

import argparse
import grp
import os
import pwd
import select
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from prechecks.measure import proc
from slurm_plugin.errors import SlurmPluginError, printable
from slurm_plugin.records import durations, grant, job_directory, requests, site_settings
from slurm_plugin.records.requests import Answer, Request
from slurm_plugin.slurm import changes, connect
from slurm_plugin.supervisor import hold
from slurm_plugin.supervisor.log import say
from slurm_plugin.supervisor.share import access, inbox

LOOK_EVERY_S: Final = 1.0
FILES_EVERY_S: Final = 10.0  # how often new records and logs get their modes
BUSY: Final = 5  # after a slow round, pause for this many times its length
MOST_LINES: Final = 50  # lines in the job's log about requests: members must not fill the disk of the job's user
ENDING: Final = "it is told to save if it has `grace`, then it is cancelled"
HELD: Final[Mapping[str, str]] = {
    hold.RERUN: "its command runs again",
    hold.RELEASE: "its hold is over",
}


class RefusedError(SlurmPluginError):
    """A request is not carried out."""


Settings = Callable[[], Mapping[str, Any]]


class Shared(NamedTuple):
    """The run of a job, and with whom it is shared."""

    job_id: int
    restart: int  # Slurm's restart count
    cluster: str  # empty: unknown
    supervisor: int  # its pid
    gid: int | None  # the group's number; None: not shared


def main(options: argparse.Namespace, default_settings: Settings) -> int:
    """Share the job until stdin ends. `default_settings`: those of a site without a site directory."""

    def settings() -> Mapping[str, Any]:
        deployed = site_settings.deployed()
        return site_settings.read(site_settings.site_root()) if deployed else default_settings()

    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)  # a signal to the whole batch step is for the program
    try:
        with access.opened(options.directory) as job:
            gid = None if options.access == requests.NONE else group_id(options.group)
            access.set_directory(job, gid)
            access.set_requests(job, gid if options.access == requests.WRITE else None)
            _set_array(Path(options.directory), gid)
            say(f"shared with group {options.group}: {options.access}" if gid is not None else "shared with nobody")
            run = Shared(options.job, options.restart, options.cluster, options.supervisor, gid)
            _serve(job, run, options.access, settings)
    except (OSError, RefusedError) as error:
        say(f"the job is not shared: {error}")
    return 0


def _set_array(directory: Path, gid: int | None) -> None:
    """For the task of an array, do the same with the directory of the array's id, which has the spec."""
    if array := os.environ.get("SLURM_ARRAY_JOB_ID"):
        with suppress(OSError), access.opened(directory.with_name(array)) as whole:
            access.set_directory(whole, gid)
            access.set_files(whole, int(array), gid)


def group_id(name: str) -> int | None:
    """Return the number of a group of this user; None for an empty name. Raise RefusedError for any other group."""
    if not name:
        return None
    try:
        gid = grp.getgrnam(name).gr_gid
    except KeyError:
        raise RefusedError(f"this node knows no group {name!r}; see: getent group {name}") from None
    if gid not in (os.getegid(), *os.getgroups()):
        raise RefusedError(f"its user is not in group {name}; see: id")
    return gid


def is_member(uid: int, gid: int) -> bool:
    """Return whether a user is in a group now, as this machine knows it."""
    try:
        user = pwd.getpwuid(uid)
    except KeyError:
        return False
    return gid in os.getgrouplist(user.pw_name, user.pw_gid)


def _serve(job: int, run: Shared, given: str, settings: Settings) -> None:
    """Look for requests and new files until stdin ends. `given`: the access."""
    desk, files_at = Desk(job, run, settings), 0.0
    while True:
        began = time.monotonic()
        if began >= files_at:
            access.set_files(job, run.job_id, run.gid)
            files_at = began + FILES_EVERY_S
        if given == requests.WRITE:
            desk.look()
        took_s = time.monotonic() - began
        if select.select((0,), (), (), max(LOOK_EVERY_S, BUSY * took_s))[0]:
            access.set_files(job, run.job_id, run.gid)
            inbox.clear(job)
            return


class Desk:
    """Checks requests about one run of a job, carries them out and answers them."""

    def __init__(
        self, job: int, shared: Shared, settings: Settings, member: Callable[[int, int], bool] = is_member
    ) -> None:
        """`job`: the job's open directory. `settings`: reads those of the site."""
        self._job, self._shared, self._settings, self._member = job, shared, settings, member
        self._directory = Path(f"/proc/self/fd/{job}")
        self._lines = 0

    def look(self) -> None:
        """Take the waiting requests, and carry out what members of the group ask for."""
        letters, dropped = inbox.look(self._job)
        for letter in letters:
            verb = ""
            try:
                request = self._checked(letter)
                verb = request.verb
                said, done = self._carry_out(request), True
            except (SlurmPluginError, OSError, ValueError) as error:
                said, done = " ".join(str(error).split()), False
            self._answer(Answer(letter.name, letter.uid, printable(proc.user(letter.uid)), verb, done, said))
        if dropped:
            self._say(f"{dropped} requests were dropped: at most {inbox.WAITING} of one user wait")

    def _checked(self, letter: inbox.Letter) -> Request:
        """Return the request in a file. Raise RefusedError if it is not valid."""
        shared = self._shared
        if letter.wrong:
            raise RefusedError(letter.wrong)
        if shared.gid is None or letter.uid == os.geteuid() or not self._member(letter.uid, shared.gid):
            raise RefusedError("its owner is not one of those with whom the job is shared")
        try:
            request = requests.parse(letter.data)
        except ValueError as error:
            raise RefusedError(str(error)) from error
        meant = (request.job, request.restart) == (shared.job_id, shared.restart)
        if not meant or job_directory.theirs(request.cluster, shared.cluster):
            raise RefusedError("it is about another job, or another run of this job")
        return request

    def _carry_out(self, request: Request) -> str:
        """Carry out a request. Return the text of the answer. Raise SlurmPluginError."""
        if request.verb == "stop":
            if os.getppid() != self._shared.supervisor:
                raise RefusedError("its supervisor has ended")
            os.kill(os.getppid(), signal.SIGINT)
            return ENDING
        if request.verb in hold.REQUESTS:
            self._to_hold(request.verb)
            return HELD[request.verb]
        return self._adjust(request)

    def _adjust(self, request: Request) -> str:
        """Change the job's time limit or its priority. Raise SlurmPluginError."""
        job_id, settings = self._shared.job_id, self._settings()
        door = connect(directory=settings.get("slurm_bin", ""), say=say, in_job=True)
        to = request.arguments["to"]
        if request.verb == "priority":
            return changes.change_priority(door, job_id, to, settings.get("priorities", {}))
        try:
            seconds, longer = durations.change(to)
        except ValueError as error:
            raise RefusedError(f"found {to!r}; accepted: {error}") from error
        limit = door.queueing([job_id]).get(job_id)
        most_s = grant.longest_s(door.job(job_id), limit and limit.time_limit_s, int(settings.get("extend_time_s", 0)))
        return changes.change_time_limit(door, job_id, seconds, longer=longer, most_s=most_s)

    def _to_hold(self, verb: str) -> None:
        """Pass a request on to the hold. Raise RefusedError if the job is not held."""
        found: dict[str, Any] = job_directory.read_object(self._directory / hold.STATE) or {}
        if (found.get("restart"), found.get("state")) != (self._shared.restart, hold.HELD):
            raise RefusedError("the job is not held: its command runs")
        try:
            hold.request(self._directory, verb)
        except OSError as error:
            raise RefusedError(f"{hold.REQUEST}: {error.strerror}") from error

    def _answer(self, answer: Answer) -> None:
        """Write the answer, and a line in the job's log."""
        what = f"{answer.verb or 'a request'} (asked by {answer.user})"
        self._say(f"{what}: {answer.said if answer.done else f'not done: {answer.said}'}")
        try:
            requests.answer(self._directory, answer)
        except OSError as error:
            self._say(f"{requests.ANSWERS}: {error.strerror}")

    def _say(self, text: str) -> None:
        """Write one of the MOST_LINES lines into the job's log."""
        self._lines += 1
        if self._lines <= MOST_LINES:
            say(text)
        if self._lines == MOST_LINES:
            say(f"no further lines about requests; all answers: {requests.ANSWERS}")
