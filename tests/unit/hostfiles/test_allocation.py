"""The allocation: invariants, and the variables of a batch script or step."""

import re

from hostfiles import Allocation, Device, Host, HostfileError, from_lists, from_slurm
from tests.refusals import refusal_of

HETEROGENEOUS = {
    "SLURM_JOB_ID": "123",
    "SLURM_JOB_NODELIST": "n[1-2],gpu7",
    "SLURM_TASKS_PER_NODE": "4(x2),2",
    "SLURM_GPUS_ON_NODE": "4",
}


def test_from_slurm_keeps_the_order_of_nodes_and_counts() -> None:
    """Task counts belong to the nodes in the list's own order."""
    allocation = from_slurm(HETEROGENEOUS)
    assert allocation == Allocation((Host("n1", 4, 4), Host("n2", 4, 4), Host("gpu7", 4, 2)), job_id=123)
    assert allocation.tasks == 10
    assert allocation.names == ("n1", "n2", "gpu7")
    assert allocation.nodelist == "n[1-2],gpu7"


def test_from_slurm_reads_the_old_name_of_the_node_list() -> None:
    """Slurm 22.05 gives a prolog only SLURM_NODELIST. Without counts every node has one task."""
    assert from_slurm({"SLURM_NODELIST": "n[1-2]"}) == Allocation((Host("n1"), Host("n2")))


def test_slots_are_the_accelerators_of_a_node() -> None:
    """On a CPU-only node 1."""
    cases = [
        ({}, 1),
        ({"SLURM_GPUS_ON_NODE": "8", "SLURM_JOB_GPUS": "0,1"}, 8),
        ({"SLURM_JOB_GPUS": "0,1,3"}, 3),
        ({"SLURM_JOB_GPUS": "0-3"}, 4),
        ({"SLURM_GPUS_ON_NODE": "0"}, 1),
        ({"SLURM_GPUS_ON_NODE": "", "SLURM_JOB_GPUS": ""}, 1),
    ]
    for variables, slots in cases:
        assert from_slurm({"SLURM_JOB_NODELIST": "n1", **variables}).hosts[0].slots == slots, variables


def test_given_slots_win() -> None:
    """The caller's slots override Slurm's."""
    assert [host.slots for host in from_slurm(HETEROGENEOUS, 2).hosts] == [2, 2, 2]


def test_from_slurm_refuses() -> None:
    """Outside a job, or with contradictory variables: one clear line."""
    cases = [
        (
            {},
            "neither SLURM_JOB_NODELIST nor SLURM_NODELIST is set; run this inside a job, or give --nodelist",
        ),
        (
            {"SLURM_JOB_NODELIST": "n[1-3]", "SLURM_TASKS_PER_NODE": "4(x2)"},
            "3 nodes in 'n[1-3]', and 2 task counts in '4(x2)'",
        ),
        (
            {"SLURM_JOB_NODELIST": "n1", "SLURM_JOB_ID": "12_3"},
            "SLURM_JOB_ID is '12_3'; a whole number is wanted; run this inside a job, or give --nodelist",
        ),
        (
            {"SLURM_JOB_NODELIST": "tux[2,1-2]"},
            "the host tux2 appears twice in an allocation; each is there once",
        ),
    ]
    for environ, message in cases:
        caught = refusal_of(HostfileError, from_slurm, environ)
        assert caught == message, environ


def test_from_lists() -> None:
    """The same outside a job, from a user's options."""
    assert from_lists("a,b", slots=2, tasks_per_node="2,1", job_id=7) == Allocation(
        (Host("a", 2, 2), Host("b", 2, 1)), job_id=7
    )


def test_a_host_is_valid_or_not_made() -> None:
    """An invalid name or number never reaches a hostfile."""
    for name, slots, tasks in [("", 1, 1), ("a b", 1, 1), ("-a", 1, 1), ("a", 0, 1), ("a", 1, 0)]:
        refusal_of(HostfileError, Host, name, slots, tasks)


def test_an_allocation_is_valid_or_not_made() -> None:
    """It has a host, and no negative id."""
    for hosts, job_id, step_id in [((), 0, 0), (("a",), -1, 0), (("a",), 0, -1)]:
        refusal_of(HostfileError, Allocation, tuple(map(Host, hosts)), job_id, step_id)


def test_a_device_a_slot() -> None:
    """Each device once, and as many devices as slots."""
    for ids in [(0,), (0, 1, 2), (0, 0), (0, 0, 1)]:
        assert Host("n1", 2, 2, "10.0.0.1", (Device(0), Device(1))).slots == 2, ids
        assert re.search(
            "n1: 2 slots, and devices", refusal_of(HostfileError, Host, "n1", 2, 2, "10.0.0.1", tuple(map(Device, ids)))
        ), ids
