"""The sandbox's slurm.conf and its companions, compared whole."""

from pathlib import Path

import pytest
import yaml

from slurm_plugin.sandbox import config

FRAGMENT = """\
# ours
PrologFlags=Alloc,DeferBatch
Prolog=/etc/slurm/slurm_plugin/hooks/prolog
SchedulerParameters=nohold_on_prolog_fail
"""


def test_slurm_conf() -> None:
    """The whole file for two nodes, our lines at its end and the scheduler's parameters on one line."""
    addresses = {"ctl": "10.77.0.1", "n1": "10.77.0.11", "n2": "10.77.0.12"}
    assert (
        config.slurm_conf(Path("/box"), addresses, 4, FRAGMENT)
        == """\
ClusterName=sandbox
SlurmctldHost=ctl(10.77.0.1)
SlurmUser=slurm
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=/box/run/munge/socket
StateSaveLocation=/box/state
SlurmctldPidFile=/box/state/slurmctld.pid
SlurmctldLogFile=/box/log/slurmctld.log
SlurmdSpoolDir=/var/spool/slurmd
SlurmdPidFile=/run/slurmd.pid
SlurmdLogFile=/box/log/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1,nohold_on_prolog_fail
GresTypes=gpu
ReturnToService=1
MpiDefault=none
MailProg=/bin/true
KillWait=2
MinJobAge=3600
SlurmdTimeout=10
NodeName=DEFAULT CPUs=8 RealMemory=4000 Gres=gpu:4 State=UNKNOWN
NodeName=n1 NodeAddr=10.77.0.11 Weight=1
NodeName=n2 NodeAddr=10.77.0.12 Weight=2
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE OverSubscribe=NO State=UP
# ours
PrologFlags=Alloc,DeferBatch
Prolog=/etc/slurm/slurm_plugin/hooks/prolog
"""
    )


def test_accounting() -> None:
    """The lines for slurmdbd precede ours, and slurmdbd needs no password."""
    addresses = {"ctl": "10.77.0.1", "n1": "10.77.0.11"}
    text = config.slurm_conf(Path("/box"), addresses, 4, FRAGMENT, accounting=True)
    plain = config.slurm_conf(Path("/box"), addresses, 4, FRAGMENT)
    assert (
        text.replace(plain.partition("# ours")[0], "").partition("# ours")[0]
        == """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=10.77.0.1
AccountingStoragePass=/box/run/munge/socket
AccountingStorageEnforce=associations,limits,qos
PriorityType=priority/multifactor
PriorityWeightQOS=100000
AccountingStorageTRES=gres/gpu
"""
    )
    assert "AccountingStorageTRES" not in config.slurm_conf(Path("/box"), addresses, 0, "", accounting=True)
    assert (
        config.slurmdbd_conf(Path("/box"), "10.77.0.1")
        == """\
DbdHost=ctl
DbdAddr=10.77.0.1
SlurmUser=slurm
AuthType=auth/munge
AuthInfo=socket=/box/run/munge/socket
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
LogFile=/box/log/slurmdbd.log
PidFile=/box/state/slurmdbd.pid
"""
    )


def test_without_gpus_slurm_hears_of_none() -> None:
    """No GresTypes, no Gres, an empty gres.conf."""
    text = config.slurm_conf(Path("/box"), {"ctl": "10.77.0.1", "n1": "10.77.0.11"}, 0, "")
    assert [line for line in text.splitlines() if "res=" in line or "GresTypes" in line] == []
    assert config.gres_conf(2, 0) == ""
    assert config.gres_conf(2, 4) == "NodeName=n[1-2] Name=gpu File=/dev/fakegpu[0-3]\n"


def test_merge_appends_what_it_cannot_join() -> None:
    """Without a line of that name, the fragment's own stays; names of keys know no case."""
    assert config.merge("A=1\n", "SchedulerParameters=x\nB=2\n") == "A=1\nSchedulerParameters=x\nB=2\n"
    assert config.merge("schedulerparameters=y\n", "SchedulerParameters=x\n") == "schedulerparameters=y,x\n"


def test_cgroup_conf_follows_the_version() -> None:
    """No release is left to detect cgroups: 22.05 would end on a machine without systemd."""
    cases = [
        ("slurm-wlm 22.05.8\n", (22, 5), "CgroupPlugin=cgroup/v1\n"),
        ("slurm 23.11.10", (23, 11), "CgroupPlugin=cgroup/v1\n"),
        ("slurm 24.05.1", (24, 5), "CgroupPlugin=disabled\n"),
        ("slurm-wlm 24.11.5\n", (24, 11), "CgroupPlugin=disabled\n"),
    ]
    for said, version, text in cases:
        assert config.parse_version(said) == version, said
        assert config.cgroup_conf(version) == text, said


def test_a_version_that_is_none_is_refused() -> None:
    """Other texts are refused."""
    with pytest.raises(ValueError, match="no Slurm version"):
        config.parse_version("slurmctld: error")


def test_only_thresholds_that_this_machine_misses_are_lowered() -> None:
    """A limit above the default keeps the default, unlimited too; one at or below becomes half of what there is."""
    soft = {"max_locked_memory_kb": 8192, "open_files": 1000000, "stack_size_kb": 8192, "max_user_processes": -1}
    assert yaml.safe_load(config.site_yaml(4, soft, "/usr/bin/python3")) == {
        "drain_cap": 1,
        "repeat_drains": 0,
        "periodic": {"interval": "65535s"},
        "stage_in": {"directory": "/scratch"},
        "logs": {"diagnosis": "60s"},
        "recovery": {"node_timeout": "12s"},
        "prechecks": {
            "disk-size": {"required": ["root", "shm", "cache"]},
            "gpu-check": {"device": "/dev/fakegpu%d", "count": 4, "tool": None},
            "infiniband": {"hooks": ["hand"]},
            "ulimit": {"max_locked_memory_kb": 4096, "open_files": 500000},
        },
    }


def test_a_machine_that_meets_all_gets_the_defaults() -> None:
    """No ulimit section at all."""
    soft = dict.fromkeys(("max_locked_memory_kb", "open_files", "stack_size_kb", "max_user_processes"), -1)
    assert yaml.safe_load(config.site_yaml(4, soft, "/opt/pyslurm/bin/python3"))["python"] == "/opt/pyslurm/bin/python3"
    assert "ulimit" not in yaml.safe_load(config.site_yaml(4, soft, "/usr/bin/python3"))["prechecks"]


def test_hosts() -> None:
    """Every machine knows every other by name."""
    assert config.hosts({"ctl": "10.77.0.1", "n1": "10.77.0.11"}) == (
        "127.0.0.1 localhost\n10.77.0.1 ctl\n10.77.0.11 n1\n"
    )
