"""The sandbox's Slurm configuration and site file, as text."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

import prechecks
from slurm_plugin.siteconfig import LEAST_SILENCE_S, LONGEST_INTERVAL_S, SiteConfig

CPUS, MEMORY_MB = 8, 4000  # of each node; SlurmdParameters=config_overrides makes slurmd believe them
SCHEDULER = "batch_sched_delay=0,sched_min_interval=0,bf_interval=1"


def slurm_conf(directory: Path, addresses: Mapping[str, str], gpus: int, fragment: str) -> str:
    """slurm.conf of the sandbox, ending with the lines that an admin would add for us."""
    nodes = {name: address for name, address in addresses.items() if name != "ctl"}
    gres = f" Gres=gpu:{gpus}" if gpus else ""
    node_lines = "\n".join(f"NodeName={name} NodeAddr={address}" for name, address in nodes.items())
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
SlurmdTimeout=10
NodeName=DEFAULT CPUs={CPUS} RealMemory={MEMORY_MB}{gres} State=UNKNOWN
{node_lines}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE OverSubscribe=NO State=UP
"""
    return merge(own, fragment)


def merge(own: str, fragment: str) -> str:
    """Append the fragment; Slurm takes one SchedulerParameters line, so that of the fragment joins ours."""
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
    """gres.conf: the GPUs are device files that every node makes for itself."""
    return f"NodeName=n[1-{nodes}] Name=gpu File=/dev/fakegpu[0-{gpus - 1}]\n" if gpus else ""


def cgroup_conf(version: tuple[int, int]) -> str:
    """cgroup.conf: no cgroup is used. CgroupPlugin=disabled exists from 24.05.

    Before, the v1 plugin is named: nothing here asks it for anything, and it starts on machines of either cgroup
    version, where `autodetect` ends slurmd on a v2 machine without systemd.
    """
    return "CgroupPlugin=disabled\n" if version >= (24, 5) else "CgroupPlugin=cgroup/v1\n"


def parse_version(text: str) -> tuple[int, int]:
    """(22, 5) of `slurm-wlm 22.05.8`. Raises ValueError where there is no version."""
    found = re.search(r"(\d+)\.(\d+)\.", text)
    if not found:
        raise ValueError(f"{text!r} holds no Slurm version")
    return int(found[1]), int(found[2])


def hosts(addresses: Mapping[str, str]) -> str:
    """/etc/hosts of every machine."""
    return "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in addresses.items())


def site_yaml(gpus: int, soft_limits: Mapping[str, int], python: str) -> str:
    """The sandbox's site file: the defaults, less what this machine cannot meet; no cap on its few nodes, and
    a periodic check that does not come between a fault and what somebody tries with it.

    `python` is the machines' interpreter. `soft_limits` are in the units of the site file, -1 for unlimited. A
    threshold that this machine's own limit does not exceed becomes half of that limit.
    """
    wanted = {name: each.default for name, each in prechecks.SECTIONS["ulimit"].items()}
    lowered = {
        name: soft_limits[name] // 2
        for name, threshold in wanted.items()
        if 0 <= soft_limits.get(name, -1) <= threshold
    }
    checks: dict[str, Any] = {
        "gpu-check": {"device": "/dev/fakegpu%d", "count": gpus, "tool": None},
        "infiniband": {"hooks": ["hand"]},
    }
    if lowered:
        checks["ulimit"] = lowered
    own: dict[str, Any] = {} if python == SiteConfig().python else {"python": python}
    own |= {"drain_cap": 1, "periodic": {"interval": f"{LONGEST_INTERVAL_S}s"}, "prechecks": checks}
    own |= {"stage_in": {"directory": "/scratch"}}
    own |= {"recovery": {"node_timeout": f"{LEAST_SILENCE_S}s"}}  # as Slurm, which waits 10 s here
    return (
        "# Written by `slurm-plugin sandbox up`: the defaults, less what this machine cannot meet.\n"
        + yaml.safe_dump(own, sort_keys=False)
    )
