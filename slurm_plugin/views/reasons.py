"""Tables that explain Slurm's reasons for jobs and nodes, each with the next command.

Sources: slurm.h and src/common/job_state_reason.c, squeue(1) JOB REASON CODES, scontrol(1). A key matches every reason
that begins with it. The longest matching key is used. Callers replace `{job}`, `{user}`, `{partition}` and `{node}`.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from slurm_plugin.records.history import STATES
from slurm_plugin.slurm.resources import Partition


class Known(NamedTuple):
    """The meaning of a reason in one line, and the command to try next; "" if there is none."""

    says: str
    then: str = ""


_START: Final = "squeue --start -j {job}"
_PARTITION: Final = "scontrol show partition {partition}"
_LIMITS: Final = "scontrol show assoc_mgr users={user} flags=assoc"
_QOS: Final = "scontrol show assoc_mgr users={user} flags=qos"
_SHOW: Final = "scontrol show job {job}"
_RELEASE: Final = "scontrol release {job}"

PENDING: Final[Mapping[str, Known]] = {
    "Resources": Known("it is first in the queue and waits until nodes are free", _START),
    "Priority": Known("jobs with a higher priority are before it in the queue", _START),
    "BeginTime": Known("it may not start before the time that was asked for", _SHOW),
    "JobHeldUser": Known("its owner holds it", _RELEASE),
    "JobHeldAdmin": Known("an administrator holds it, and has to release it", _SHOW),
    "launch failure limit exceeded requeued held": Known(
        "Slurm holds it: its start failed five times (MaxBatchRequeue). A job of ours with restarts left is released "
        "by itself; for any other an administrator does it",
        _RELEASE,
    ),
    "launch failed requeued held": Known(
        "Slurm holds it after a failed prolog: slurm.conf lacks SchedulerParameters=nohold_on_prolog_fail", _RELEASE
    ),
    "user env retrieval failed requeued held": Known(
        "Slurm holds it: its first node could not read its user's login environment, which --export=NONE and "
        "--get-user-env ask for",
        _RELEASE,
    ),
    "job requeued in held state": Known("it was requeued and is held, by its exit code or by hand", _RELEASE),
    "job requeued in special exit state": Known("it is held because of its exit code (RequeueExitHold)", _RELEASE),
    "JobHoldMaxRequeue": Known("Slurm holds it: it was requeued too often (MaxBatchRequeue)", _RELEASE),
    "ReqNodeNotAvail": Known("a node that it asked for is down, drained or reserved", "sinfo -R"),
    "Nodes required for job are DOWN, DRAINED or reserved": Known(
        "too few of the nodes that it may use are in service and free of reservations", "sinfo -R"
    ),
    "NodeDown": Known("a node that it needs is down", "sinfo -R"),
    "BadConstraints": Known("no node has what it asks for, so it never starts", _SHOW),
    "Dependency": Known("it waits for another job", "squeue -j {job} -o '%i waits for %E'"),
    "DependencyNeverSatisfied": Known(
        "the job that it waits for did not end as it has to, so it never starts", "scancel {job}"
    ),
    "AssocGrp": Known("its account has used up a limit that all of its jobs share", _LIMITS),
    "AssocMax": Known("it, or its user's jobs together, are more than the account lets one have", _LIMITS),
    "Assoc": Known("a limit of its account keeps it waiting", _LIMITS),
    "QOSGrp": Known("its QOS has used up a limit that all of its jobs share", _QOS),
    "QOSMax": Known("it, or its user's jobs together, are more than the QOS lets one have", _QOS),
    "QOSMin": Known("it asks for less than the QOS wants a job to have", _QOS),
    "QOS": Known("a limit of its QOS keeps it waiting", _QOS),
    "InvalidQOS": Known("its QOS does not exist any more, so it never starts", _SHOW),
    "InvalidAccount": Known("its account does not exist any more, so it never starts", _SHOW),
    "AccountNotAllowed": Known("its account may not use this partition", _PARTITION),
    "PartitionTimeLimit": Known("its time limit is more than the partition lets a job have", _PARTITION),
    "PartitionNodeLimit": Known("it asks for more, or fewer, nodes than the partition lets a job have", _PARTITION),
    "PartitionConfig": Known("its partition does not have what it asks for, so it never starts", _PARTITION),
    "PartitionDown": Known("its partition starts no job now", _PARTITION),
    "PartitionInactive": Known("its partition takes no job now", _PARTITION),
    "Reservation": Known("it waits for its reservation", "scontrol show reservation"),
    "ReservationDeleted": Known("its reservation was deleted, so it never starts", "scancel {job}"),
    "Licenses": Known("it waits for a licence", "scontrol show license"),
    "JobArrayTaskLimit": Known("as many tasks of its array run as it allows at once", _SHOW),
    "BurstBuffer": Known("it waits for its burst buffer", "scontrol show burst"),
    "Cleaning": Known("Slurm still clears up its last run", _SHOW),
    "Prolog": Known("its prolog still runs", _SHOW),
    "": Known("Slurm has not looked at it yet", _START),
}

_AFTER: Final = {  # the next command to try
    "TIMEOUT": "scontrol show job {job} | grep TimeLimit",
    "NODE_FAIL": "sinfo -R",
    "BOOT_FAIL": "sinfo -R",
    **dict.fromkeys(("OUT_OF_MEMORY", "PREEMPTED", "DEADLINE"), _SHOW),
}
ENDED: Final[Mapping[str, Known]] = {state: Known(says, _AFTER.get(state, "")) for state, says in STATES.items()}

# States of a job after waiting and before its end.
BETWEEN: Final[Mapping[str, Known]] = {
    "RUNNING": Known("it runs"),
    "CONFIGURING": Known("its nodes boot, or their prologs run", _SHOW),
    "COMPLETING": Known("its run has ended; its nodes clear up, or one does not answer", _SHOW),
    "SUSPENDED": Known("it is suspended: an administrator or a preemption stopped it for a while", _SHOW),
    "EXPEDITING": Known("Slurm starts it again at once (--requeue=expedite)"),
    "STAGE_OUT": Known("its data is staged out", _SHOW),
}

# Reasons that remain even if other jobs end.
HOPELESS: Final = frozenset({
    "BadConstraints", "DependencyNeverSatisfied", "InvalidAccount", "InvalidQOS", "PartitionConfig",
    "ReservationDeleted",
})  # fmt: skip
# Likewise if the job has only one partition: with several, the reason is that of the last one that Slurm tried.
HOPELESS_THERE: Final = frozenset({"AccountNotAllowed", "PartitionTimeLimit", "QOSNotAllowed"})
# Limits that the job alone exceeds: QOSMaxWallDurationPerJobLimit, AssocMaxGRESPerJob, QOSMinCpuNotSatisfied.
_ALONE: Final = re.compile(r"(Assoc|QOS)Max\w+Per(Job|Node)|QOSMin")

# How the reasons begin that a reservation may cause, and those that also have other causes.
RESERVED: Final = ("ReqNodeNotAvail", "Nodes required for job are DOWN, DRAINED or reserved", "Resources")

# 22.05 uses this reason in two cases: for MaxNodes and MinNodes of the partition, and if the partition is too small.
NODE_LIMIT: Final = "PartitionNodeLimit"

# Reasons for a node's state that slurmctld and slurmd write.
NODE_REASONS: Final[Mapping[str, Known]] = {
    "Prolog error": Known(
        "a prolog failed there, and not one of our checks: ours write what they found",
        "on {node}: journalctl -u slurmd | tail; slurm-plugin doctor",
    ),
    "Epilog error": Known("an epilog failed there", "on {node}: journalctl -u slurmd | tail"),
    "Not responding": Known(
        "its slurmd did not answer for SlurmdTimeout", "ping {node}; on it: systemctl status slurmd"
    ),
    "Kill task failed": Known(
        "a job's processes could not be killed there: they hang in the kernel, on a file system or a device",
        "on {node}: ps -eo pid,stat,wchan:30,args | grep ' D'; reboot it if they stay",
    ),
    "batch job complete failure": Known(
        "its slurmd could not end a batch job as it should", "on {node}: journalctl -u slurmd | tail"
    ),
    "Node unexpectedly rebooted": Known("it rebooted without being asked to", "on {node}: journalctl --boot -1 | tail"),
    "Low ": Known("it has less than slurm.conf says", "on {node}: slurmd -C"),
    "gres/": Known("it has fewer devices than slurm.conf says", "on {node}: slurm-plugin check gpu-check"),
    "Duplicate jobid": Known("its slurmd already had a job with this number", "on {node}: journalctl -u slurmd | tail"),
    "Reboot": Known("a reboot was asked for", "scontrol show node {node}"),
    "ResumeTimeout reached": Known("it was to be powered up and did not come", "scontrol show node {node}"),
}

# Base states and flags of a node that keep jobs away, the most informative first.
NODE_STATES: Final[Mapping[str, str]] = {
    "UNKNOWN": "Slurm does not know its state",
    "DOWN": "it is down",
    "NOT_RESPONDING": "its slurmd does not answer",
    "FAIL": "it is to be replaced: it takes no more jobs",
    "DRAIN": "it is drained: it takes no more jobs, those on it go on",
    "INVALID_REG": "its slurmd registered with less than slurm.conf says",
    "REBOOT_ISSUED": "it reboots",
    "REBOOT_REQUESTED": "it reboots when its jobs have ended",
    "MAINTENANCE": "it is reserved for maintenance",
    "RESERVED": "it is reserved: only jobs of the reservation start there",
    "POWERED_DOWN": "it is powered down; Slurm powers it up when a job needs it",
    "POWERING_DOWN": "it is being powered down",
    "POWERING_UP": "it is being powered up",
    "FUTURE": "it is not there yet (State=FUTURE in slurm.conf)",
    "PLANNED": "it is kept free for a larger job that is first in the queue",
    "COMPLETING": "a job that ended there is still being cleared up",
}


def is_hopeless(reason: str, partitions: str) -> bool:
    """Return whether a job with this reason cannot start until a user changes the job or an admin changes a limit."""
    there = reason in HOPELESS_THERE and "," not in partitions
    return reason in HOPELESS or there or bool(_ALONE.match(reason))


def says(reason: str) -> str:
    """Return the meaning of a pending job's reason in one line; "" for an unknown one."""
    row = row_of(PENDING, reason)
    return row.says if row else ""


def wrong_number(wanted: int, names: str, partitions: Iterable[Partition]) -> str:
    """Return a text that says that none of a job's partitions starts a job of so many nodes; "" if one does.

    `names`: the job's partitions, separated by commas. `partitions`: all of the cluster.
    """
    known = {each.name: each for each in partitions}
    found = [_refuses(known[name], wanted) for name in names.split(",") if name in known]
    if not found or not all(found):
        return ""
    return f"it asks for {wanted} nodes, and {' and '.join(found)}, so it never starts"


def _refuses(partition: Partition, wanted: int) -> str:
    """Return why a partition starts no job of so many nodes; "" if it does."""
    if wanted > partition.nodes:
        return f"partition {partition.name} has {partition.nodes}"
    if partition.most is not None and wanted > partition.most:
        return f"partition {partition.name} allows at most {partition.most} (MaxNodes)"
    if wanted < partition.least:
        return f"partition {partition.name} allows no fewer than {partition.least} (MinNodes)"
    return ""


def row_of(table: Mapping[str, Known], words: str) -> Known | None:
    """Return the row of the longest key with which `words` begins. The empty key matches only empty `words`."""
    found = [key for key in table if key and words.startswith(key)]
    if found:
        return table[max(found, key=len)]
    return table.get("") if not words else None
