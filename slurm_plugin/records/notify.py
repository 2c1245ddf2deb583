"""Call the site's command when the plugin drains a node, resumes it, or may not drain it: `COMMAND EVENT NODE WORDS`.

EVENT is `drained`, `resumed`, `not-drained`, `repair` or `report` (no repair has helped). The command's stdin has the
same as JSON, one object per line. No hook waits for the command. It runs in a separate session, and is killed after
LIMIT_S. When a job is held or slow, its own process calls `COMMAND hold JOB WORDS` or `COMMAND slow JOB WORDS`; without
a command it sends the user a mail, if the node has a mail program.

The first event of a node is passed on immediately. Those of the next GROUP_S wait in QUEUE, and one call passes them
all. Each event's process adds its line to the queue, and then wants to send: the lock NEXT admits one process that
waits, the lock SENDING is held while the command runs and until GROUP_S after its start. A process that finds NEXT
taken ends: the process that holds it reads the queue later.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from prechecks import boot_state, files
from prechecks.child import detach
from prechecks.report import JOBS, reason_parts
from slurm_plugin.records import syslog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Event = Mapping[str, Any]

VERSION = 1
LIMIT_S, GROUP_S = 60, 30
MAX_WORDS = 4096  # characters of an argument, which the kernel limits; stdin has everything
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
MAIL = "/usr/bin/mail"  # mail -s SUBJECT USER, the text on stdin
SENDMAIL = "/usr/sbin/sendmail"  # sendmail USER, subject and text on stdin
QUEUE, NEXT, SENDING = "notices.jsonl", "notify-next.lock", "notify.lock"  # in the state directory
# The suggested actions, the strongest first. A check names its own (prechecks.check).
NONE, REBOOT, INSPECT, REPLACE, USER = "none", "reboot", "inspect", "replace", "user"
_STRENGTH = (REPLACE, INSPECT, REBOOT, NONE)


def tell(site: Mapping[str, Any], event: str, node: str, words: str, reason: str = "") -> None:
    """Pass on an event of a node, if the site has a command. Only log an error.

    `reason`: the drain reason that names the items and the job, if it is not `words`.
    """
    if site["notify"]:
        found = _of_node(event, node, words, reason or words)
        _start(site["notify"], lambda: _send(site["notify"], site["prechecks"]["state"], found))


def of_job(command: str, event: str, job_id: int, words: str) -> None:
    """Start the command from a job's supervisor; without a command, send a mail to the job's user."""
    if command:
        found = {"v": VERSION, "time": int(time.time()), "event": event, "node": None, "job": job_id}
        found |= {"items": [], "words": words, "action": USER}
        _start(command, lambda: _run([command, event, str(job_id), words], _lines([found])))
        return
    import pwd  # noqa: PLC0415 - no hook needs it

    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return
    subject = f"job {job_id}: {event}"
    if os.access(MAIL, os.X_OK):
        _start(MAIL, lambda: _run([MAIL, "-s", subject, user], f"job {job_id}: {words}\n"))
    elif os.access(SENDMAIL, os.X_OK):
        text = f"Subject: {subject}\nTo: {user}\n\njob {job_id}: {words}\n"
        _start(SENDMAIL, lambda: _run([SENDMAIL, user], text))


def _of_node(event: str, node: str, words: str, reason: str) -> Event:
    """Return the JSON object of an event."""
    from prechecks import CHECKS  # noqa: PLC0415 - a job's supervisor does not need it

    actions = {check.item.replace(".", " "): check.action for check in CHECKS}
    items, jobs = list(reason_parts(reason)), JOBS.findall(reason)
    wanted = {actions.get(item, INSPECT) for item in items} or {INSPECT}
    if event in ("resumed", "repair"):
        wanted = {NONE}
    elif event == "report":  # a reboot has not helped
        wanted.add(INSPECT)
    return {
        "v": VERSION,
        "time": int(time.time()),
        "event": event,
        "node": node,
        "job": int(jobs[-1].strip(" []").removeprefix("job ")) if jobs else None,
        "items": items,
        "words": words,
        "action": min(wanted, key=_STRENGTH.index),
    }


def _start(program: str, work: Callable[[], None]) -> None:
    """Run `work`, which calls this program, in another process, and do not wait for its end."""
    try:
        detach(work)
    except OSError as error:
        syslog.syslog(syslog.LOG_ERR, f"could not notify {program}: {error}")


def _send(command: str, state: str, event: Event) -> None:
    """Send this event, with others of the last GROUP_S. If the queue cannot be used, send it alone."""
    try:
        directory = boot_state.open_directory(state, make=True)
        _queue(directory, event)
    except OSError as error:
        syslog.syslog(syslog.LOG_WARNING, f"{state}: the notices cannot be grouped: {error}")
        _call(command, [event])
        return
    try:
        following = files.lock(directory, NEXT, 0)
        sending = files.lock(directory, SENDING, GROUP_S + 2 * LIMIT_S)
    except OSError:  # another process sends the event
        return
    os.close(following)
    end = time.monotonic() + GROUP_S
    if events := _taken(directory):
        _call(command, events)
        time.sleep(max(0.0, end - time.monotonic()))
    os.close(sending)


def _queue(directory: int, event: Event) -> None:
    """Add an event to the queue. Raise OSError."""
    line = _lines([event]).encode()
    with files.Opened(files.lock(directory, QUEUE, LIMIT_S)) as queue:
        size = os.lseek(queue, 0, os.SEEK_END)
        if os.write(queue, line) < len(line):
            os.ftruncate(queue, size)
            raise OSError("the disk is full")


def _taken(directory: int) -> list[Event]:
    """Return the events of the queue, the oldest first, and empty it."""
    with os.fdopen(files.lock(directory, QUEUE, LIMIT_S), "r+", encoding="utf-8") as file:
        found = []
        for line in file:
            with suppress(ValueError):  # a process was killed while it wrote this
                found.append(json.loads(line))
        file.truncate(0)
    return found


def _call(command: str, events: Sequence[Event]) -> None:
    """Run the site's command for these events. Its arguments are the newest event, with the words of all."""
    last = events[-1]
    words = last["words"] if len(events) == 1 else "\n".join(f"{each['event']}: {each['words']}" for each in events)
    _run([command, last["event"], last["node"], words[:MAX_WORDS]], _lines(events))


def _lines(events: Sequence[Event]) -> str:
    return "".join(f"{json.dumps(event)}\n" for event in events)


def _run(argv: list[str], text: str) -> None:
    """Run the program in a separate process group, `text` on its stdin; kill it after LIMIT_S."""
    stdin = os.memfd_create("notice")  # a pipe would block if the program does not read
    os.write(stdin, text.encode(errors="replace"))
    os.lseek(stdin, 0, os.SEEK_SET)
    os.dup2(stdin, 0)
    os.close(stdin)
    os.chdir("/")
    try:
        pid = os.posix_spawn(argv[0], argv, ENVIRONMENT, setpgroup=0)
    except OSError as error:
        syslog.syslog(syslog.LOG_ERR, f"could not notify {' '.join(argv[:3])}: {error}")
        return
    end = time.monotonic() + LIMIT_S
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            os.killpg(pid, 9)
            syslog.syslog(syslog.LOG_ERR, f"{' '.join(argv[:3])}: killed after {LIMIT_S} s")
            return
        time.sleep(0.1)
