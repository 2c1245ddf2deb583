"""What Slurm's commands print, read: pure, and the same for every release.

Users choose job names and comments, and Slurm prints them unescaped: a newline in one forges a row. Every such field
is therefore followed by a nonce chosen for the call, and an answer counts only where all fields of all records are
there.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from slurm_plugin import durations
from slurm_plugin.slurm import ENDED, UNKNOWN, Forecast, Job, Node, Queueing, Request, SlurmError

# Fields of squeue, the ones that Slurm and its administrators write, and the ones that hold users' words. The width 0
# means the whole text, on every release.
PLAIN: Final = (
    "JobID", "UserName", "Partition", "State", "NodeList", "RestartCnt", "exit_code", "SubmitTime", "StartTime",
    "EndTime", "ExcNodes",
)  # fmt: skip
QUEUEING: Final = "JobID:0|,TimeLimit:0|,MinTime:0|,Deadline:0|,Nice:0|,ArrayJobID:0|,ArrayTaskID:0"
REQUEUEING: Final = "JobID:0|,BatchFlag:0|,Requeue:0|,ArrayJobID:0|,ArrayTaskID:0"
REQUEST: Final = (
    "JobID", "Partition", "Account", "QOS", "Reservation", "Feature", "MinMemory", "cpus-per-task", "Requeue",
    "tres-per-node", "tres-per-job", "tres-per-socket", "tres-per-task",
)  # fmt: skip
FREE: Final = ("Reason", "Name", "Comment", "admin_comment")
# What squeue prints as State (slurm.h, enum job_states and its flags).
JOB_STATES: Final = ENDED | {
    "COMPLETING", "CONFIGURING", "EXPEDITING", "LAUNCH_FAILED", "PENDING", "POWER_UP_NODE", "RECONFIG_FAIL",
    "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESIZING", "RESV_DEL_HOLD", "REVOKED", "RUNNING", "SIGNALING",
    "SPECIAL_EXIT", "STAGE_OUT", "STOPPED", "SUSPENDED", "UPDATE_DB",
}  # fmt: skip
# Base states of nodes (slurm.h, enum node_states). Flags are not listed: one that we do not know changes nothing.
NODE_STATES: Final = frozenset({"ALLOCATED", "DOWN", "ERROR", "FUTURE", "IDLE", "MIXED"})
NULL: Final = "(null)"
NOTHING: Final = dict.fromkeys((NULL, "N/A", "n/a", "None", "Unknown", "NONE"), "")  # squeue's words for it
# A node's lines but the first begin with three spaces, a reason's further ones with ten; behind its reason a node may
# have a comment, which is printed as it is, and more (node_info.c, slurm_sprint_node_table). The author ends a reason's
# first line, where Slurm knows when it was given.
_WORDS = re.compile(r"^   (?:Reason|Comment|Extra)=", re.MULTILINE)
_REASON = re.compile(r"^   Reason=(.*?)(?: \[([^\[\] ]*)@([0-9T:-]+)\])? *$", re.MULTILINE)
_COMMENT = re.compile(r"^   Comment=(.*?)(?=\n   \w+=|\s*\Z)", re.MULTILINE | re.DOTALL)
# slurm_submit_batch_job's answer as sbatch prints it for --test-only; 26.05 has a word more behind the time.
_FORECAST = re.compile(
    r"^sbatch: Job \d+ to start at (?P<start>\S+)(?: \w+)? using \d+ processors on (?:nodes )?(?P<nodes>\S+)"
    r"(?: in partition (?P<partition>\S+))?$",
    re.MULTILINE | re.ASCII,
)
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([MGTP]?)", re.ASCII)
_STATE_WORD = re.compile(r"[A-Z_]+", re.ASCII)
_WAIT_STATUS_BITS = 8


def form(nonce: str) -> str:
    """SQUEUE_FORMAT2 for `jobs`."""
    return "|,".join(f"{field}:0" for field in PLAIN) + nonce + "".join(f",{field}:0{nonce}" for field in FREE)


def rows(text: str, nonce: str, fields: int) -> list[tuple[str, ...]]:
    """squeue's records, each of `fields` texts that end with the nonce, the first with the end of the line before it.

    Raises SlurmError where the last one is not whole.
    """
    parts = text.split(nonce)
    if parts.pop().strip("\n") or len(parts) % fields:
        raise SlurmError("squeue's answer ends in the middle of a job\n  ask again; it may have been killed")
    return list(zip(*[iter(parts)] * fields, strict=True))


def jobs(text: str, nonce: str, lists: Mapping[str, str] | None = None) -> dict[int, Job]:
    """The jobs in squeue's answer. `lists`: their ExcNodes where they come from elsewhere; jobs not in it are left out.

    Raises SlurmError for what is no record.
    """
    found: dict[int, Job] = {}
    given, make = NOTHING.get, Job._make
    for fixed, reason, name, comment, admin in rows(text, nonce, 1 + len(FREE)):
        plain = fixed.lstrip("\n").split("|")
        if len(plain) != len(PLAIN) or not plain[0].isdigit() or not plain[5].isdigit():
            raise SlurmError(f"squeue answered {fixed!r} in place of a job\n  see what runs with: squeue --me")
        number, user, partition, state, nodes, restarts, status, submit, start, end, leave_out = plain
        if lists is not None:
            if number not in lists:
                continue
            leave_out = lists[number]
        job_id = int(number)
        found[job_id] = make(
            (
                job_id,
                user,
                state if state in JOB_STATES else UNKNOWN,
                given(reason, reason),
                given(nodes, nodes),
                given(leave_out, leave_out),
                int(restarts),
                "" if comment == NULL else comment,
                "" if admin == NULL else admin,
                *exit_of(status),
                name,
                given(partition, partition),
                utc(submit),
                utc(start),
                utc(end),
            )
        )
    return found


def excluded(text: str, nonce: str) -> dict[str, str]:
    """Job id -> excluded nodes, from the answer to SQUEUE_FORMAT `%A<nonce>%x<nonce>`."""
    return {number.lstrip("\n"): nodes for number, nodes in rows(text, nonce, 2)}


def states(text: str) -> dict[int, str]:
    """Job id -> state, from the answer to `%A|%T`. Raises SlurmError for what is no record."""
    found: dict[int, str] = {}
    for line in text.splitlines(keepends=True):
        number, _, state = line.partition("|")
        if not number.isdigit() or not state.endswith("\n"):
            raise SlurmError(f"squeue answered {line!r} in place of a job\n  see what runs with: squeue --me")
        found[int(number)] = state[:-1] if state[:-1] in JOB_STATES else UNKNOWN
    return found


def queueing(text: str) -> dict[int, Queueing]:
    """Job id -> what its wait goes by, from the answer to QUEUEING. Raises SlurmError for what is no record."""
    found: dict[int, Queueing] = {}
    for line in text.splitlines(keepends=True):
        number, *fields = line.rstrip("\n").split("|")
        if not number.isdigit() or len(fields) != 6 or not fields[3].lstrip("-").isdigit() or not line.endswith("\n"):
            raise SlurmError(f"squeue answered {line!r} in place of a job\n  see what runs with: squeue --me")
        limit, least, deadline, nice, array, task = fields
        name = f"{array}_{task}" if task.isdigit() else ""
        found[int(number)] = Queueing(_seconds(limit), _seconds(least) or 0, utc(deadline), int(nice), name)
    return found


def requeueing(text: str) -> dict[int, tuple[bool, bool, str]]:
    """Job id -> whether it is a batch job, whether it may be requeued, its name where it is a task of an array; from
    the answer to REQUEUEING. Raises SlurmError for what is no record."""
    found: dict[int, tuple[bool, bool, str]] = {}
    for line in text.splitlines(keepends=True):
        fields = line.rstrip("\n").split("|")
        if len(fields) != 5 or not all(map(str.isdigit, fields[:4])) or not line.endswith("\n"):
            raise SlurmError(f"squeue answered {line!r} in place of a job\n  see what runs with: squeue --me")
        number, batch, requeue, array, task = fields
        found[int(number)] = batch != "0", requeue != "0", f"{array}_{task}" if task.isdigit() else ""
    return found


def requests(text: str, nonce: str) -> dict[int, Request]:
    """Job id -> what it was given, from the answer to REQUEST with a nonce behind each field.

    Raises SlurmError for what is no record.
    """
    found: dict[int, Request] = {}
    for row in rows(text, nonce, len(REQUEST)):
        number, *words = (NOTHING.get(each, each) for each in (row[0].lstrip("\n"), *row[1:]))
        partition, account, qos, reservation, constraint, memory, cpus, requeue, node, job, socket, task = words
        size = _SIZE.fullmatch(memory)
        if not number.isdigit() or not size or not requeue.isdigit():
            raise SlurmError(f"squeue answered {row!r} in place of a job\n  see what runs with: squeue --me")
        per_node = [each for each in map(_gres, node.split(",")) if each]
        elsewhere = any(map(_gres, f"{job},{socket},{task}".split(",")))
        found[int(number)] = Request(
            partition,
            account,
            qos,
            reservation,
            constraint,
            memory_mb=int(float(size[1]) * 1024 ** "MGTP".index(size[2] or "M")),
            cpus=int(cpus) if cpus.isdigit() else 1,
            gres=None if elsewhere else tuple(per_node),
            requeue=requeue != "0",
        )
    return found


def _gres(text: str) -> str:
    """`gpu:a100:4` of `gres:gpu:a100:4`, `gres/gpu:a100=4`; empty for what is none, such as `cpu=2`."""
    found = re.fullmatch(r"gres[:/](.*)", text)
    name = found[1].replace("=", ":") if found else ""
    return name if not name or name.rpartition(":")[2].isdigit() else f"{name}:1"


def forecast(text: str) -> Forecast | None:
    """What `sbatch --test-only` says on stderr, behind whatever job_submit.lua has said; None where it says no time."""
    found = _FORECAST.search(text)
    if found is None:
        return None
    try:
        start = datetime.fromisoformat(found["start"]).astimezone(UTC)
    except ValueError:
        return None
    return Forecast(start, found["nodes"], found["partition"] or "")


def _seconds(text: str) -> int | None:
    """Seconds of `5:00` or `1-00:00:00`; None for squeue's words, and for no time at all."""
    try:
        return durations.seconds(text)
    except ValueError:
        return None


@lru_cache(4096)  # jobs share their times, by the second
def utc(text: str) -> datetime | None:
    """A time that a command printed with TZ=UTC; None for its words for nothing."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        return None


@lru_cache(512)
def exit_of(status: str) -> tuple[int | None, int | None]:
    """Exit code and signal of squeue's `exit_code`: `7:0` on 24.11 and 26.05, a wait status (wait(2)) on 22.05."""
    code, colon, signal = status.partition(":")
    if not code.isdigit() or (colon and not signal.isdigit()):
        return None, None
    if not colon:
        number = int(code)
        code, signal = str(number >> _WAIT_STATUS_BITS), str(number & 0x7F)
    return (None, int(signal)) if int(signal) else (int(code), None)


def nodes(text: str) -> dict[str, Node]:
    """Nodes from `scontrol show node`, each of several lines and an empty one. Raises SlurmError where that is missing.

    With `-o` all would be on one line, where words of a reason or a comment can look like what stands behind them.
    """
    _, _, rest = text.rpartition("\n\n")
    if rest.startswith("NodeName=") or not f"\n{rest}".endswith("\n"):
        raise SlurmError("scontrol's answer ends in the middle of a node\n  ask again; it may have been killed")
    found = (part for part in re.split(r"^(?=NodeName=)", text, flags=re.MULTILINE) if part.startswith("NodeName="))
    return {node.name: node for node in map(_node, found)}


def _node(text: str) -> Node:
    """A node: only administrators choose what stands there, a reason and a comment of several lines included."""
    before, *_ = _WORDS.split(text, 1)
    fields = dict(part.split("=", 1) for part in before.split() if "=" in part)
    reason, comment = _REASON.search(text), _COMMENT.search(text)
    return Node(
        name=fields["NodeName"],
        states=node_states(fields.get("State", "")),
        reason=reason[1] if reason else "",
        reason_user=reason[2] or "" if reason else "",
        reason_time=utc(reason[3] or "") if reason else None,
        partitions=tuple(filter(None, fields.get("Partitions", "").split(","))),
        comment=comment[1] if comment else "",
    )


def node_states(text: str) -> frozenset[str]:
    """`IDLE+DRAIN` -> {"IDLE", "DRAIN"}; a star means that the node does not respond. UNKNOWN is in it where the base
    state is none that we know."""
    words = _STATE_WORD.findall(text.upper())
    known = set(words[:1]) <= NODE_STATES and words
    return frozenset(words) | ({"NOT_RESPONDING"} if "*" in text else set()) | (set() if known else {UNKNOWN})


def settings(text: str) -> Mapping[str, str]:
    """The settings in `scontrol show config`: `Name    = value` lines, `(null)` for what is not set.

    What may be given more than once has a number: `SlurmctldHost[0]`; from 24.05 on `Prolog[0]`, `Epilog[0]` too.
    """
    found = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name.strip(): "" if value.strip() == "(null)" else value.strip() for name, _, value in found}
