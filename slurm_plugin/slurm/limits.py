"""The limits on how many jobs one user may submit, and on the size of an array.

slurm.conf has the limits of all arrays. The limits of a user are those of the association and of the QOS; slurmctld
prints them with what is used of them: `MaxSubmitJobs=10(3)`. Each task of an array counts as one job.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

_MAX_ARRAY_SIZE = "MaxArraySize"
_MAX_JOB_COUNT = "MaxJobCount"
_MAX_ARRAY_TASKS = re.compile(r"(?:^|,)\s*(max_array_tasks=([0-9]+))", re.ASCII)
_FIELD = re.compile(r"(\w+)=(\S*)", re.ASCII)
_USED_BY = re.compile(r"(\S+)=\{(.*?)\}")
_LIMITED = re.compile(r"([0-9]+)\(([0-9]+)\)", re.ASCII)
_OF_JOBS = ("MaxSubmitJobs", "MaxSubmitJobsPU", "MaxSubmitJobsPA", "GrpSubmitJobs")
_SHARE_OF_ALL_JOBS = 2  # an array takes at most this part of the jobs that slurmctld keeps for all users


class Limit(NamedTuple):
    """A limit on the number of jobs or tasks."""

    most: int  # how many may be submitted now
    text: str  # as Slurm shows it: MaxArraySize=1001


def of_arrays(settings: Mapping[str, str]) -> list[Limit]:
    """Return the limits on the number of an array's tasks in slurmctld's settings (`Slurm.config`).

    The largest index is one less than MaxArraySize, and the first is 0. slurmctld keeps at most MaxJobCount jobs, so
    an array may take half of them.
    """
    found = []
    for name, share in ((_MAX_ARRAY_SIZE, 1), (_MAX_JOB_COUNT, _SHARE_OF_ALL_JOBS)):
        if (value := settings.get(name, "")).isdecimal():
            found.append(Limit(int(value) // share, f"{name}={value}"))
    if match := _MAX_ARRAY_TASKS.search(settings.get("SchedulerParameters", "")):
        found.append(Limit(int(match[2]), f"SchedulerParameters={match[1]}"))
    return found


def of_user(text: str, user: str, account: str, qos: str) -> list[Limit]:
    """Return a user's limits from `scontrol -o show assoc_mgr`, one record a line, the associations first.

    Read the association of `account`, or the default one, and the QOS `qos`. Other records belong to other jobs. A QOS
    has the limits of each account and user with jobs at the end of its line, in braces.
    """
    found = []
    for line in text.splitlines():
        fields = dict(_FIELD.findall(_USED_BY.sub("", line)))
        if _name(fields.get("UserName", "")) == user and "Account" in fields:
            is_wanted = fields["Account"] == account if account else fields.get("DefAssoc") == "Yes"
            account = fields["Account"] if is_wanted else account
            whose = f"account {fields['Account']}"
        else:
            is_wanted = qos != "" and _name(fields.get("QOS", "")) == qos
            whose = f"QOS {qos}"
            for name, limits in _USED_BY.findall(line) if is_wanted else ():
                fields |= _FIELD.findall(limits) if name == account or name.startswith(f"{user}(") else ()
        for name in _OF_JOBS if is_wanted else ():
            if match := _LIMITED.fullmatch(fields.get(name, "")):
                most, used = int(match[1]), int(match[2])
                found.append(Limit(max(most - used, 0), f"{name}={most} of {whose}, of which {used} are used"))
    return found


def _name(text: str) -> str:
    """Return a name without the number that follows it: `alice(20001)`."""
    return text.partition("(")[0]
