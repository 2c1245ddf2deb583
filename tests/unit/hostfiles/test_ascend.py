"""The variables of one Ascend process, with a rank table and without."""

import json
import re

import pytest

from hostfiles import Allocation, Device, Host, HostfileError, ascend, ranktable, ranktable_read
from hostfiles.allocation import exports
from hostfiles.ranktable import Server
from tests.ascend import allocation
from tests.refusals import refusal_of

PATH = "/scratch/alice/.slurm_plugin/7/jobstart_hccl.json"
TWO = allocation(2, 2)


def test_with_a_table() -> None:
    """RANK_ID is the task's, the device's number is logical, and the driver gets the physical ids."""
    part = Allocation((Host("n1", 2, 2, "10.0.0.1", (Device(7), Device(4))),))
    assert ascend.table_variables(part, 1, PATH) == {
        "RANK_TABLE_FILE": PATH,
        "RANK_ID": "1",
        "RANK_SIZE": "2",
        "ASCEND_DEVICE_ID": "1",
        "DEVICE_ID": "1",
        "ASCEND_RT_VISIBLE_DEVICES": "4,7",
    }


def test_a_single_card() -> None:
    """Its logical id is always 0, whichever device it is."""
    card = Allocation((Host("n1", 1, 1, "10.0.0.1", (Device(5),)),))
    variables = ascend.table_variables(card, 0, PATH)
    assert (variables["ASCEND_DEVICE_ID"], variables["RANK_ID"], variables["RANK_SIZE"]) == ("0", "0", "1")


def test_ranks_are_those_of_the_table() -> None:
    """The table gives this rank a device. The logical id is its place among the visible devices."""
    for task in range(12):
        hosts = allocation(4, 4, 4)
        servers = json.loads(ranktable.version_1_0(hosts))["server_list"]
        (device,) = [d["device_id"] for server in servers for d in server["device"] if d["rank_id"] == str(task)]
        variables = ascend.table_variables(hosts, task, PATH)
        assert variables["ASCEND_RT_VISIBLE_DEVICES"].split(",")[int(variables["ASCEND_DEVICE_ID"])] == device, task
        assert variables["RANK_ID"] == str(task), task


def test_without_a_table() -> None:
    """A worker of MindSpore's cluster. The scheduler runs on the first host."""
    assert ascend.cluster_variables(TWO, 3, 61000) == {
        "MS_ROLE": "MS_WORKER",
        "MS_SCHED_HOST": "10.0.0.9",
        "MS_SCHED_PORT": "61000",
        "MS_WORKER_NUM": "4",
        "MS_NODE_ID": "3",
        "RANK_ID": "3",
        "RANK_SIZE": "4",
        "ASCEND_DEVICE_ID": "1",
        "DEVICE_ID": "1",
        "ASCEND_RT_VISIBLE_DEVICES": "0,1",
    }


def test_the_scheduler() -> None:
    """One more process, without rank and device."""
    assert ascend.scheduler_variables(TWO, 61000) == {
        "MS_ROLE": "MS_SCHED",
        "MS_SCHED_HOST": "10.0.0.9",
        "MS_SCHED_PORT": "61000",
        "MS_WORKER_NUM": "4",
    }


def test_ipv6() -> None:
    """It is refused: each process would have to give its own address."""
    two = Allocation((Host("a", address="fd00::1"), Host("b", address="fd00::2")))
    assert ascend.scheduler_variables(two, 61000)["MS_WORKER_IP"] == "fd00::1"
    assert ascend.cluster_variables(two, 1, 61000)["MS_WORKER_IP"] == "fd00::2"


def test_text() -> None:
    """Lines of shell: a worker's, and without a task the scheduler's."""
    assert ascend.text(TWO, 61000) == (
        "export MS_ROLE=MS_SCHED\nexport MS_SCHED_HOST=10.0.0.9\nexport MS_SCHED_PORT=61000\nexport MS_WORKER_NUM=4\n"
    )
    assert ascend.text(TWO, 61000, 0).startswith("export MS_ROLE=MS_WORKER\n")
    assert exports(ascend.table_variables(TWO, 0, "/a b/x.json")).startswith("export RANK_TABLE_FILE='/a b/x.json'\n")


def test_paths_that_hccl_does_not_open() -> None:
    """HCCL looks for the first `.json`, which must be at the end. A relative path depends on the directory."""
    for path in ["", "table.json", "/a/table", "/a/table.json.old", "/a.json/table.json", "/a/t.JSON"]:
        assert re.search(
            r"; its path is absolute and has \.json once, at its end$",
            refusal_of(HostfileError, ascend.table_variables, TWO, 0, path),
        ), path


def test_a_task_that_is_not_there() -> None:
    """No rank outside the world."""
    for task in [-1, 4]:
        assert re.search(
            f"^task {task} of 4; tasks count from 0$",
            refusal_of(HostfileError, ascend.table_variables, TWO, task, PATH),
        ), task


def test_one_task_a_device() -> None:
    """Two processes on one device, or a device without one, are no ranks of HCCL."""
    with pytest.raises(HostfileError, match=r"^n1: 1 tasks and 2 devices; one task a device$"):
        ascend.table_variables(allocation(2, tasks=False), 0, PATH)


def test_ports() -> None:
    """MindSpore's own limits."""
    for port in [1023, 65536]:
        assert re.search(
            f"^port {port}; MS_SCHED_PORT is 1024 to 65535$",
            refusal_of(HostfileError, ascend.scheduler_variables, TWO, port),
        ), port


def test_names_are_no_addresses() -> None:
    """MS_SCHED_HOST must be an address."""
    with pytest.raises(HostfileError, match=r"^n1: '' is no address; MindSpore's cluster takes no names$"):
        ascend.scheduler_variables(Allocation((Host("n1"),)), 61000)


def test_the_rank_in_a_table() -> None:
    """That of the task's device, whatever the order of the table's servers and of Slurm's tasks."""
    for make in [ranktable.version_1_0, ranktable.template_2]:
        for distribution in ["block", "cyclic", "plane=3"]:
            job = allocation(4, 4, 4)._replace(distribution=distribution)
            servers = ranktable_read.parse(make(job)).servers
            ranked = [(server.id, device.id) for server in servers for device in server.devices]
            for task, (index, local) in enumerate(job.places):
                host = job.hosts[index]
                rank = ascend.rank_in_table(servers, job, task, ("10.9.9.9", host.address))
                assert ranked[rank] == (host.address, local), make
                variables = ascend.table_variables(ascend.of_table(servers), rank, PATH)
                assert (variables["RANK_ID"], variables["ASCEND_DEVICE_ID"]) == (str(rank), str(local)), make


def test_under_another_distribution() -> None:
    """Task 1 is the first on the second host: rank 2 of a table that counts host by host, and MindSpore's node 1."""
    for distribution in ["cyclic", "plane=1"]:
        two = TWO._replace(distribution=distribution)
        variables = ascend.table_variables(two, 1, PATH)
        assert (variables["RANK_ID"], variables["ASCEND_DEVICE_ID"]) == ("2", "0"), distribution
        variables = ascend.cluster_variables(two, 1, 61000)
        assert (variables["MS_NODE_ID"], variables["RANK_ID"], variables["ASCEND_DEVICE_ID"]) == ("1", "1", "0"), (
            distribution
        )


def test_an_address_of_a_table_in_another_form() -> None:
    """fd00:0::1 equals fd00::1."""
    servers = (Server("fd00:0::1", (Device(0),), ""),)
    assert ascend.rank_in_table(servers, Allocation((Host("a"),)), 0, ("fd00::1",)) == 0


def test_a_host_that_is_no_server() -> None:
    """The error names it with its address, and some of the table's servers."""
    servers = tuple(Server(f"10.0.0.{place}", (Device(0),), "") for place in range(5))
    five = Allocation(tuple(Host(f"n{place}") for place in range(5)))
    assert refusal_of(HostfileError, ascend.rank_in_table, servers, five, 1, ("10.0.0.9",)) == (
        "n1 is 10.0.0.9 here, and no server of the rank table, which has 10.0.0.0, 10.0.0.1, 10.0.0.2, …"
    )


def test_a_table_whose_ranks_do_not_follow_its_devices() -> None:
    """It is refused: a rank's logical id would be wrong."""
    said = refusal_of(HostfileError, ascend.of_table, [Server("10.0.0.1", (Device(1), Device(0)), "")])
    assert said == "server 10.0.0.1: its ranks are devices [1, 0]; they have to follow the device ids"


def test_a_table_has_no_scheduler() -> None:
    """A task must be given."""
    with pytest.raises(HostfileError, match=r"^a rank table has no scheduler; say for which rank with --task, or ask "):
        ascend.text(TWO, 61000, table=PATH)
    assert ascend.text(TWO, 61000, 1, table=PATH) == exports(ascend.table_variables(TWO, 1, PATH))
