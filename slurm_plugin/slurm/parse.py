"""Parse the output of Slurm's commands, in the same way for every release.

Users choose job names and comments, and Slurm prints them unescaped, so a newline in them could forge a row. Each call
therefore puts a nonce behind every such field, and rejects an answer in which a record lacks a field.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from slurm_plugin.slurm.model import ENDED, UNKNOWN, Forecast, Job, Node, Queueing, Request, SlurmError

# Fields of squeue. Slurm and administrators write the PLAIN fields. Users can write into the FREE fields. The width 0
# prints the whole text on every release.
PLAIN: Final = (
    "JobID", "UserName", "Partition", "State", "NodeList", "RestartCnt", "exit_code", "SubmitTime", "StartTime",
    "EndTime", "ExcNodes",
)  # fmt: skip
QUEUEING: Final = ("JobID", "TimeLimit", "MinTime", "Deadline", "Nice", "ArrayJobID", "ArrayTaskID")
TYPED: Final = ("ReqNodes",)  # behind QUEUEING: a node list as the user typed it, which may have newlines
OUTPUT: Final = ("JobID", "STDOUT", "ArrayJobID", "ArrayTaskID", "UserName", "Name")
ERRORS: Final = ("JobID", "STDERR", *OUTPUT[2:])  # as OUTPUT
MEMBERS: Final = "JobID:0|,ArrayJobID:0|,ArrayTaskID:0|,HetJobID:0|,HetJobOffset:0"
REQUEUEING: Final = "JobID:0|,BatchFlag:0|,Requeue:0|,ArrayJobID:0|,ArrayTaskID:0"
REQUEST: Final = (
    "JobID", "Partition", "Account", "QOS", "Reservation", "Feature", "MinMemory", "cpus-per-task", "Requeue",
    "tres-per-node", "tres-per-job", "tres-per-socket", "tres-per-task", "NumNodes",
)  # fmt: skip
FREE: Final = ("Reason", "Name", "Comment", "admin_comment")
# The values of squeue's State (slurm.h, enum job_states and its flags).
JOB_STATES: Final = ENDED | {
    "COMPLETING", "CONFIGURING", "EXPEDITING", "LAUNCH_FAILED", "PENDING", "POWER_UP_NODE", "RECONFIG_FAIL",
    "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESIZING", "RESV_DEL_HOLD", "REVOKED", "RUNNING", "SIGNALING",
    "SPECIAL_EXIT", "STAGE_OUT", "STOPPED", "SUSPENDED", "UPDATE_DB",
}  # fmt: skip
# Base states of nodes (slurm.h, enum node_states). Flags are not listed, because any flag is accepted.
NODE_STATES: Final = frozenset({"ALLOCATED", "DOWN", "ERROR", "FUTURE", "IDLE", "MIXED"})
NULL: Final = "(null)"
NOTHING: Final = dict.fromkeys((NULL, "N/A", "n/a", "None", "Unknown", "NONE"), "")  # squeue's texts for an empty value
# The lines of a node begin with three spaces, except for the first line and the further lines of a reason, which begin
# with ten. A comment, printed verbatim, and other fields may follow the reason (node_info.c, slurm_sprint_node_table).
# If Slurm knows when a reason was set, its author and the time are at the end of its first line.
WORDS: Final = re.compile(r"^   (?:Reason|Comment|Extra)=", re.MULTILINE)
_REASON = re.compile(r"^   Reason=(.*?)(?: \[([^\[\] ]*)@([0-9T:-]+)\])? *$", re.MULTILINE)
_COMMENT = re.compile(r"^   Comment=(.*?)(?=\n   \w+=|\s*\Z)", re.MULTILINE | re.DOTALL)
# The line of `sbatch --test-only` with slurm_submit_batch_job's answer. On 26.05 the cluster, and one more word, follow
# the time.
_FORECAST = re.compile(
    r"^sbatch: Job \d+ to start at (?P<start>\S+)(?: on cluster \S+)?(?: \w+)? using \d+ processors"
    r" on (?:nodes )?(?P<nodes>\S+)(?: in partition (?P<partition>\S+))?$",
    re.MULTILINE | re.ASCII,
)
_PATTERN = re.compile("%([0-9]{0,2})(.)", re.ASCII | re.DOTALL)
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([MGTP]?)", re.ASCII)
_STATE_WORD = re.compile(r"[A-Z_]+", re.ASCII)
_BETWEEN_NODES = re.compile(r"[,\s]+")
NONE, OPTIONAL, VALUE = "none", "optional", "value"
# Two flags that have a value, which the help does not show (opt.c: required_argument, optional_argument).
_FLAG_TAKES: Final[Mapping[str, str]] = {"container": VALUE, "get-user-env": OPTIONAL}
FLAG_NAME: Final = re.compile(r"[a-z][a-z-]*[a-z]")
# A flag begins within the first eight columns. Flags in a description are further right.
_FLAG_LINE = re.compile(rf" {{2,6}}(?:-[A-Za-z],? +)?--(?P<name>{FLAG_NAME.pattern})(?P<value>\[=|=)?")
_WAIT_STATUS_BITS = 8
_SEE = "see what runs with: squeue --me"


def form(nonce: str, plain: Sequence[str] = PLAIN, free: Sequence[str] = FREE) -> str:
    """Return the SQUEUE_FORMAT2 whose output `jobs` parses."""
    return "|,".join(f"{field}:0" for field in plain) + nonce + "".join(f",{field}:0{nonce}" for field in free)


def rows(text: str, nonce: str, fields: int) -> list[tuple[str, ...]]:
    """Return squeue's records, each with `fields` texts. A nonce ends each text.

    A record begins with the newline that ends the record before. Raise SlurmError if a record is cut off.
    """
    parts = text.split(nonce)
    if parts.pop().strip("\n") or len(parts) % fields:
        raise SlurmError("squeue's answer ends in the middle of a job\n  ask again; it may have been killed")
    return list(zip(*[iter(parts)] * fields, strict=True))


def jobs(text: str, nonce: str, lists: Mapping[str, str] | None = None) -> dict[int, Job]:
    """Return the jobs in squeue's answer.

    `lists`: job id -> ExcNodes from another answer. Omit jobs that it lacks. Raise SlurmError for a malformed record.
    """
    found: dict[int, Job] = {}
    for fixed, *free in rows(text, nonce, 1 + len(FREE)):
        plain = plain_fields(fixed, len(PLAIN))
        if lists is None or plain[0] in lists:
            made = job(plain, plain[-1] if lists is None else lists[plain[0]], free)
            found[made.id] = made
    return found


def plain_fields(fixed: str, count: int) -> list[str]:
    """Return the fields before the first nonce of a record. Raise SlurmError for a malformed record."""
    plain = fixed.lstrip("\n").split("|")
    if len(plain) != count or not plain[0].isdigit() or not plain[5].isdigit():
        raise SlurmError(f"squeue answered {fixed!r} in place of a job\n  {_SEE}")
    return plain


def job(plain: Sequence[str], leave_out: str, free: Sequence[str]) -> Job:
    """Return a job from the first ten PLAIN fields, its excluded nodes and the FREE fields."""
    number, user, partition, state, nodes, restarts, status, submit, start, end = plain[:10]
    (reason, name, comment, admin), given = free, NOTHING.get
    return Job._make(
        (
            int(number),
            user,
            state if state in JOB_STATES else UNKNOWN,
            given(reason, reason),
            given(nodes, nodes),
            node_list(leave_out),
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


def excluded(text: str, nonce: str) -> dict[str, str]:
    """Return job id -> excluded nodes, from the answer to SQUEUE_FORMAT `%A<nonce>%x<nonce>`."""
    return {number.lstrip("\n"): nodes for number, nodes in rows(text, nonce, 2)}


def states(text: str) -> dict[int, str]:
    """Return job id -> state, from the answer to `%A|%T`. Raise SlurmError for a malformed line."""
    return {
        int(number): state if state in JOB_STATES else UNKNOWN for number, state in _lines(text, 2, lambda row: row[:1])
    }


def node_list(typed: str) -> str:
    """Return a node list as the user typed it, with single commas: Slurm also takes `n1, n2`, newlines and `n1,,n2`."""
    return _BETWEEN_NODES.sub(",", NOTHING.get(typed, typed)).strip(",")


def queueing(text: str, nonce: str) -> dict[int, Queueing]:
    """Return job id -> the limits on its wait, from the answer to QUEUEING. Raise SlurmError for a malformed record."""
    found: dict[int, Queueing] = {}
    for fixed, required in rows(text, nonce, 1 + len(TYPED)):
        (row,) = _lines(fixed.lstrip("\n") + "\n", len(QUEUEING), lambda row: (row[0], row[4].lstrip("-")))
        number, limit, least, deadline, nice, array, task = row
        name = f"{array}_{task}" if task.isdigit() else ""
        times = seconds(limit), seconds(least) or 0, utc(deadline)
        found[int(number)] = Queueing(*times, int(nice), name, node_list(required))
    return found


def members(text: str) -> dict[str, int]:
    """Return name (`7_1` or `7+1`) -> job id, from the answer to MEMBERS. Raise SlurmError for a malformed line."""
    found: dict[str, int] = {}
    for number, array, task, whole, part in _lines(text, 5, lambda row: row[:1]):
        if task.isdigit():
            found[f"{array}_{task}"] = int(number)
        elif part.isdigit() and whole.isdigit() and whole != "0":
            found[f"{whole}+{part}"] = int(number)
    return dict(sorted(found.items(), key=lambda each: (len(each[0]), each[0])))  # 7_2 before 7_10


def requeueing(text: str) -> dict[int, tuple[bool, bool, str]]:
    """Return job id -> (is a batch job, may be requeued, name of an array task or ""), from the answer to REQUEUEING.

    Raise SlurmError for a malformed line.
    """
    return {
        int(number): (batch != "0", requeue != "0", f"{array}_{task}" if task.isdigit() else "")
        for number, batch, requeue, array, task in _lines(text, 5, lambda row: row[:4])
    }


def _lines(text: str, fields: int, numbers: Callable[[Sequence[str]], Sequence[str]]) -> Iterator[list[str]]:
    """Yield the fields of each line. Raise SlurmError for a cut line, or if one of `numbers` is not a number."""
    for line in text.splitlines(keepends=True):
        row = line.rstrip("\n").split("|")
        if len(row) != fields or not all(map(str.isdigit, numbers(row))) or not line.endswith("\n"):
            raise SlurmError(f"squeue answered {line!r} in place of a job\n  {_SEE}")
        yield row


def requests(text: str, nonce: str) -> dict[int, Request]:
    """Return job id -> request, from the answer to REQUEST with a nonce behind each field.

    Raise SlurmError for a malformed record.
    """
    found: dict[int, Request] = {}
    for row in rows(text, nonce, len(REQUEST)):
        number, *words = (NOTHING.get(each, each) for each in (row[0].lstrip("\n"), *row[1:]))
        partition, account, qos, reservation, constraint, memory, cpus, requeue, node, job, socket, task, nodes = words
        size = _SIZE.fullmatch(memory)
        if not number.isdigit() or not size or not requeue.isdigit():
            raise SlurmError(f"squeue answered {row!r} in place of a job\n  {_SEE}")
        per_node = [each for each in map(gres, node.split(",")) if each]
        elsewhere = any(map(gres, f"{job},{socket},{task}".split(",")))
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
            nodes=int(nodes.partition("-")[0]) if nodes.partition("-")[0].isdigit() else 0,  # squeue may print 1K
        )
    return found


def gres(text: str) -> str:
    """Return `gpu:a100:4` for `gres:gpu:a100:4` or `gres/gpu:a100=4`; "" for other resources, such as `cpu=2`."""
    found = re.fullmatch(r"gres[:/](.*)", text)
    name = found[1].replace("=", ":") if found else ""
    return name if not name or name.rpartition(":")[2].isdigit() else f"{name}:1"


def outputs(text: str, nonce: str) -> dict[int, str]:
    """Return job id -> path of its output, from the answer to OUTPUT. Raise SlurmError if a record is cut off."""
    found = rows(text, nonce, len(OUTPUT))
    return {int(row[0]): _output(row) for row in found if row[0].strip().isdigit()}


def _output(row: tuple[str, ...]) -> str:
    """Return the path with the patterns of sbatch(1) replaced. Only squeue of 22.05 has replaced them already.

    Return "" if only the job's node can replace a pattern, or if the path is not absolute.
    """
    number, path, array, task, user, name = (NOTHING.get(each, each) for each in (row[0].lstrip("\n"), *row[1:]))
    values = {"j": number, "J": number, "A": array if task.isdigit() else number, "a": task, "u": user, "x": name}
    values["%"] = "%"

    def replaced(found: re.Match[str]) -> str:
        value = values.get(found[2], "")
        return value.zfill(int(found[1])) if found[1] and value.isdigit() else value

    known = all(values.get(letter) for _, letter in _PATTERN.findall(path))
    return _PATTERN.sub(replaced, path) if known and path.startswith("/") else ""


def forecast(text: str) -> Forecast | None:
    """Parse stderr of `sbatch --test-only`, which may have lines of job_submit.lua; None if it has no time."""
    found = _FORECAST.search(text)
    if found is None:
        return None
    try:
        start = datetime.fromisoformat(found["start"]).astimezone(UTC)
    except ValueError:
        return None
    return Forecast(start, found["nodes"], found["partition"] or "")


@lru_cache(4096)  # as for `utc`
def seconds(text: str) -> int | None:
    """Return the seconds of `5:00` or `1-00:00:00`; None for 0 and for any other text."""
    days, _, clock = text.rpartition("-")
    parts = [days or "0", *["0", "0", *clock.split(":")][-3:]]
    if not all(part.isascii() and part.isdigit() for part in parts):
        return None
    day, hours, minutes, seconds = map(int, parts)
    return ((day * 24 + hours) * 60 + minutes) * 60 + seconds or None


@lru_cache(4096)  # many jobs have the same times
def utc(text: str) -> datetime | None:
    """Parse a time that a command printed with TZ=UTC; None for any other text, such as `N/A`."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        return None


@lru_cache(512)
def exit_of(status: str) -> tuple[int | None, int | None]:
    """Return exit code and signal from squeue's `exit_code`: `7:0`, or on 22.05 a wait status. One or both are None."""
    code, colon, signal = status.partition(":")
    if not code.isdigit() or (colon and not signal.isdigit()):
        return None, None
    if not colon:
        number = int(code)
        code, signal = str(number >> _WAIT_STATUS_BITS), str(number & 0x7F)
    return (None, int(signal)) if int(signal) else (int(code), None)


def nodes(text: str) -> dict[str, Node]:
    """Parse `scontrol show node`: for each node some lines and an empty line. Raise SlurmError if a node is cut off.

    With `-o` a node would be one line, in which words of a reason or a comment could look like the next fields.
    """
    _, _, rest = text.rpartition("\n\n")
    if rest.startswith("NodeName=") or not f"\n{rest}".endswith("\n"):
        raise SlurmError("scontrol's answer ends in the middle of a node\n  ask again; it may have been killed")
    found = (part for part in re.split(r"^(?=NodeName=)", text, flags=re.MULTILINE) if part.startswith("NodeName="))
    return {node.name: node for node in map(_node, found)}


def _node(text: str) -> Node:
    """Parse one node, with the first line of its reason. Only administrators write reasons and comments."""
    before, *_ = WORDS.split(text, 1)
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
        gres=tuple(filter(None, re.sub(r"\([^)]*\)", "", fields.get("Gres", "")).split(","))),
    )


def node_states(text: str) -> frozenset[str]:
    """Parse `IDLE+DRAIN` to {"IDLE", "DRAIN"}. A star means NOT_RESPONDING. UNKNOWN marks an unknown base state."""
    words = _STATE_WORD.findall(text.upper())
    known = set(words[:1]) <= NODE_STATES and words
    return frozenset(words) | ({"NOT_RESPONDING"} if "*" in text else set()) | (set() if known else {UNKNOWN})


def settings(text: str) -> Mapping[str, str]:
    """Parse `scontrol show config`: `Name    = value` lines, with `(null)` for a setting that is not set.

    A setting that slurm.conf may repeat has a number: `SlurmctldHost[0]`; from 24.05 on `Prolog[0]`, `Epilog[0]` too.
    """
    found = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name.strip(): "" if value.strip() == "(null)" else value.strip() for name, _, value in found}


def sbatch_flags(text: str) -> dict[str, str]:
    """Return flag name -> kind from `sbatch --help`. If a flag has several lines, use the first."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if match := _FLAG_LINE.match(line):
            kind = {None: NONE, "=": VALUE, "[=": OPTIONAL}[match["value"]]
            found.setdefault(match["name"], _FLAG_TAKES.get(match["name"], kind))
    return found
