"""The site's own command, called when we drain a node, bring one back or may not drain one: `COMMAND EVENT NODE WORDS`.

EVENT is `drained`, `resumed` or `not-drained`. No hook waits for it: it runs in a session of its own, without standard
files, and is killed after LIMIT_S. When a job is held it is called as `COMMAND hold JOB WORDS`, as the job's user; a
site without a command has a mail sent to that user, where the node has a program for that.
"""

from __future__ import annotations

import os
import syslog

LIMIT_S = 60
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
MAIL = "/usr/bin/mail"  # mail -s SUBJECT USER, the text on stdin
SENDMAIL = "/usr/sbin/sendmail"  # sendmail USER, subject and text on stdin


def tell(command: str, event: str, about: str, words: str) -> None:
    """Start the command, if the site has one; what keeps it from starting is logged. `about`: a node, or a job."""
    if command:
        _start([command, event, about, words])


def of_job(command: str, event: str, job_id: int, words: str) -> None:
    """The same from a job's supervisor; where the site has no command, by mail to its user."""
    if command:
        tell(command, event, str(job_id), words)
        return
    import pwd  # noqa: PLC0415 - no hook needs it

    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return
    subject = f"job {job_id}: {event}"
    if os.access(MAIL, os.X_OK):
        _start([MAIL, "-s", subject, user], f"job {job_id}: {words}\n")
    elif os.access(SENDMAIL, os.X_OK):
        _start([SENDMAIL, user], f"Subject: {subject}\nTo: {user}\n\njob {job_id}: {words}\n")


def _start(argv: list[str], text: str = "") -> None:
    try:
        middle = os.fork()
    except OSError as error:
        syslog.syslog(syslog.LOG_ERR, f"could not notify {' '.join(argv[:3])}: {error}")
        return
    if middle:
        os.waitpid(middle, 0)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            _run(argv, text)
    finally:
        os._exit(0)


def _run(argv: list[str], text: str) -> None:
    """Become a watcher of the command: it has a group of its own, and so long. `text` is its stdin, empty: none."""
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    if text:
        stdin, fill = os.pipe()
        os.write(fill, text.encode(errors="replace")[:4096])  # which a pipe holds, whether it is read or not
        os.dup2(stdin, 0)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    import signal  # noqa: PLC0415 - as in prechecks.child: needed only here
    import time  # noqa: PLC0415

    os.chdir("/")
    try:
        pid = os.posix_spawn(argv[0], argv, ENVIRONMENT, setpgroup=0)
    except OSError as error:
        syslog.syslog(syslog.LOG_ERR, f"could not notify {' '.join(argv[:3])}: {error}")
        return
    end = time.monotonic() + LIMIT_S
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            os.killpg(pid, signal.SIGKILL)
            syslog.syslog(syslog.LOG_ERR, f"{' '.join(argv[:3])}: killed after {LIMIT_S} s")
            return
        time.sleep(0.1)
