"""A fake pyslurm, copied to DIRECTORY/pyslurm.py. It records each call in `calls`, and follows `plan.json`.

The plan has jobs and nodes by name. Under the name of a call it has the faults of that call: see `act`.
"""

import ctypes
import json
import os
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
__version__ = "25.5.0"
ESLURM_INVALID_JOB_ID = 2017
SLURM_UNEXPECTED_MSG_ERROR = 1000
SLURM_COMMUNICATIONS_CONNECTION_ERROR = 1001
SLURM_PROTOCOL_SOCKET_IMPL_TIMEOUT = 5004
SLURMCTLD_COMMUNICATIONS_CONNECTION_ERROR = 1800
SLURMCTLD_COMMUNICATIONS_RECEIVE_ERROR = 1802


class RPCError(Exception):
    """Slurm's errno and message."""

    def __init__(self, errno, words):
        super().__init__(words)
        self.errno = errno


def plan(name):
    """Return a part of the test's plan."""
    return json.loads((HERE / "plan.json").read_text()).get(name)


def act(name, *arguments):
    """Record a call, then print, hang, exit or raise as planned."""
    with (HERE / "calls").open("a") as file:
        file.write(json.dumps([name, *arguments]) + "\n")
    todo = plan(name) or {}
    if "print" in todo:  # as a C library does: on descriptor 1
        ctypes.CDLL(None).puts(todo["print"].encode())
        ctypes.CDLL(None).fflush(None)
    if "stderr" in todo:
        sys.stderr.write(todo["stderr"])
        sys.stderr.flush()
    if "half" in todo:
        os.write(answers(), todo["half"].encode())
    if "deaf" in todo:  # keep running, but read requests from a pipe that gets none
        asked, (nobody, _) = pipes("r"), os.pipe()
        for number in asked:
            os.dup2(nobody, number)
    if "exit" in todo:
        os._exit(todo["exit"])
    if "hang" in todo:
        time.sleep(3600)
    if "errno" in todo:
        raise RPCError(todo["errno"], todo["words"])
    if "raise" in todo:
        raise ValueError(todo["raise"])


def pipes(way):
    """Return this process's pipes that can be read (`r`) or written (`w`)."""
    found = []
    for path in Path("/proc/self/fd").iterdir():
        try:
            flags = int((Path("/proc/self/fdinfo") / path.name).read_text().split("flags:")[1].split()[0], 8)
            if str(path.readlink()).startswith("pipe:") and (flags & os.O_WRONLY == os.O_WRONLY) == (way == "w"):
                found.append(int(path.name))
        except OSError:  # the descriptor of the listing itself
            continue
    return found


def answers():
    """Return the pipe for answers."""
    (number,) = pipes("w")
    return number


class Record:
    """Attributes from the plan. {"hex": ...} stands for bytes. As in pyslurm, reading the attribute decodes them."""

    def __init__(self, values):
        self._values = values

    def __getattr__(self, name):
        value = self._values[name]
        return bytes.fromhex(value["hex"]).decode() if isinstance(value, dict) and "hex" in value else value


class JobSubmitDescription:
    """The changes of a job."""

    def __init__(self, **changes):
        self.changes = changes


class Job:
    """A job by its id."""

    def __init__(self, job_id):
        self.id = job_id

    @staticmethod
    def load(job_id):
        act("Job.load", job_id)
        if str(job_id) not in plan("jobs"):
            raise RPCError(ESLURM_INVALID_JOB_ID, "Invalid job id specified")
        return Record(plan("jobs")[str(job_id)])

    def modify(self, changes):
        act("modify", self.id, changes.changes)

    def requeue(self):
        act("requeue", self.id)

    def hold(self):
        act("hold", self.id)

    def release(self):
        act("release", self.id)

    def send_signal(self, name, steps="children"):
        act("send_signal", self.id, name, steps)

    def cancel(self):
        act("cancel", self.id)


class Node:
    """A node, or the changes of a node."""

    def __init__(self, name=None, **changes):
        self.name, self.changes = name, changes

    def modify(self, changes):
        act("Node.modify", self.name, changes.changes)


class Nodes(dict):
    """Nodes by name."""

    @staticmethod
    def load():
        act("Nodes.load")
        return Nodes({name: Record(values) for name, values in plan("nodes").items()})


class slurmctld:  # noqa: N801 - a module of pyslurm's
    """The controllers."""

    @staticmethod
    def ping_all():
        act("ping_all")
        return [Record({"is_responding": up}) for up in plan("up")]


def slurm_init():
    """Do nothing. The real function reads slurm.conf."""
    act("slurm_init", os.environ.get("PYSLURM_DISABLE_AUTO_INIT"), os.environ.get("TZ"), str(Path.cwd()), sys.path)


act("import", os.getpid())
