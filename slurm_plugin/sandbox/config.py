"""The sandbox's Slurm configuration and site file, as text."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

import prechecks
from prechecks.checks import disk
from slurm_plugin.site.configuration import LEAST_SILENCE_S, LONGEST_INTERVAL_S, SiteConfig

CPUS, MEMORY_MB = 8, 4000  # of each node; slurmd accepts them with SlurmdParameters=config_overrides
MIN_JOB_AGE_S = 3600  # users inspect jobs for longer than the default of 300 s
# The host's commands do not know the name ctl, so the storage is named by its address. Here "Pass" is munge's socket.
ACCOUNTING = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={address}
AccountingStoragePass={munge}
AccountingStorageEnforce=associations,limits,qos
PriorityType=priority/multifactor
PriorityWeightQOS=100000
{tres}"""
SCHEDULER = "batch_sched_delay=0,sched_min_interval=0,bf_interval=1"


def slurm_conf(
    directory: Path, addresses: Mapping[str, str], gpus: int, fragment: str, *, accounting: bool = False
) -> str:
    """Return slurm.conf of the sandbox, with slurm_plugin's fragment at its end."""
    nodes = {name: address for name, address in addresses.items() if name != "ctl"}
    gres = f" Gres=gpu:{gpus}" if gpus else ""
    # The weights make Slurm choose the nodes in order. Among nodes of equal weight, it prefers those that it last
    # considered for a job with GPUs.
    node_lines = "\n".join(
        f"NodeName={name} NodeAddr={address} Weight={weight}" for weight, (name, address) in enumerate(nodes.items(), 1)
    )
    own = f"""\
ClusterName=sandbox
SlurmctldHost=ctl({addresses["ctl"]})
SlurmUser=slurm
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/run/munge/socket
StateSaveLocation={directory}/state
SlurmctldPidFile={directory}/state/slurmctld.pid
SlurmctldLogFile={directory}/log/slurmctld.log
SlurmdSpoolDir=/var/spool/slurmd
SlurmdPidFile=/run/slurmd.pid
SlurmdLogFile={directory}/log/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters={SCHEDULER}
{"GresTypes=gpu" if gpus else "# no GPUs"}
ReturnToService=1
MpiDefault=none
MailProg=/bin/true
KillWait=2
MinJobAge={MIN_JOB_AGE_S}
SlurmdTimeout=10
NodeName=DEFAULT CPUs={CPUS} RealMemory={MEMORY_MB}{gres} State=UNKNOWN
{node_lines}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE OverSubscribe=NO State=UP
"""
    if accounting:
        own += ACCOUNTING.format(
            address=addresses["ctl"],
            munge=f"{directory}/run/munge/socket",
            tres="AccountingStorageTRES=gres/gpu\n" if gpus else "",
        )
    return merge(own, fragment)


def slurmdbd_conf(directory: Path, address: str) -> str:
    """Return slurmdbd.conf. MariaDB knows the user slurm by the socket, so there is no password."""
    return f"""\
DbdHost=ctl
DbdAddr={address}
SlurmUser=slurm
AuthType=auth/munge
AuthInfo=socket={directory}/run/munge/socket
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
LogFile={directory}/log/slurmdbd.log
PidFile={directory}/state/slurmdbd.pid
"""


def merge(own: str, fragment: str) -> str:
    """Append the fragment. Join its SchedulerParameters to the existing line, because Slurm accepts only one."""
    lines = own.splitlines()
    for line in fragment.splitlines():
        key, _, value = line.partition("=")
        place = next((i for i, mine in enumerate(lines) if mine.lower().startswith("schedulerparameters=")), None)
        if key.strip().lower() == "schedulerparameters" and place is not None:
            lines[place] += "," + value.strip()
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


def gres_conf(nodes: int, gpus: int) -> str:
    """Return gres.conf. The GPUs are device files that each node makes."""
    return f"NodeName=n[1-{nodes}] Name=gpu File=/dev/fakegpu[0-{gpus - 1}]\n" if gpus else ""


def cgroup_conf(version: tuple[int, int]) -> str:
    """Return a cgroup.conf that switches cgroups off. CgroupPlugin=disabled exists since 24.05.

    For older releases it names the v1 plugin, which is not used here and loads with either cgroup version. With
    `autodetect`, slurmd would exit on a v2 machine without systemd.
    """
    return "CgroupPlugin=disabled\n" if version >= (24, 5) else "CgroupPlugin=cgroup/v1\n"


def parse_version(text: str) -> tuple[int, int]:
    """Return (22, 5) for `slurm-wlm 22.05.8`. Raises ValueError if there is no version."""
    found = re.search(r"(\d+)\.(\d+)\.", text)
    if not found:
        raise ValueError(f"{text!r} holds no Slurm version")
    return int(found[1]), int(found[2])


def hosts(addresses: Mapping[str, str]) -> str:
    """Return the /etc/hosts of all machines."""
    return "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in addresses.items())


def site_yaml(gpus: int, soft_limits: Mapping[str, int], python: str) -> str:
    """Return the site file of the sandbox: the defaults, except where this machine cannot meet them.

    All nodes may be drained, however often, and the periodic check has the longest interval, so that it does not
    interfere with faults. `python`: the machines' interpreter. `soft_limits`: in the units of the site file, -1 for
    unlimited. A threshold that is not below the limit of this machine becomes half of that limit.
    """
    wanted = {name: each.default for name, each in prechecks.SECTIONS["ulimit"].items()}
    lowered = {
        name: soft_limits[name] // 2
        for name, threshold in wanted.items()
        if 0 <= soft_limits.get(name, -1) <= threshold
    }
    checks: dict[str, Any] = {
        "disk-size": {"required": list(disk.NAMES)},  # faults shrink these file systems
        "gpu-check": {"device": "/dev/fakegpu%d", "count": gpus, "tool": None},
        "infiniband": {"hooks": ["hand"]},
    }
    if lowered:
        checks["ulimit"] = lowered
    own: dict[str, Any] = {} if python == SiteConfig().python else {"python": python}
    own |= {"drain_cap": 1, "repeat_drains": 0, "periodic": {"interval": f"{LONGEST_INTERVAL_S}s"}, "prechecks": checks}
    own |= {"stage_in": {"directory": "/scratch"}, "logs": {"diagnosis": "60s"}}  # a busy machine needs more than 2 s
    own |= {"recovery": {"node_timeout": f"{LEAST_SILENCE_S}s"}}  # short, like SlurmdTimeout here
    return (
        "# Written by `slurm-plugin sandbox up`: the defaults, less what this machine cannot meet.\n"
        + yaml.safe_dump(own, sort_keys=False)
    )
