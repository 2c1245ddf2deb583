"""The allocation: invariants, and what the variables of a batch script or step say."""

import pytest

from hostfiles import Allocation, Device, Host, HostfileError, from_lists, from_slurm

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
    assert (allocation.world_size, allocation.tasks) == (12, 10)
    assert allocation.names == ("n1", "n2", "gpu7")
    assert allocation.nodelist == "n[1-2],gpu7"


def test_from_slurm_reads_the_old_name_of_the_node_list() -> None:
    """Slurm 22.05 gives a prolog SLURM_NODELIST alone; without counts every node has one task."""
    assert from_slurm({"SLURM_NODELIST": "n[1-2]"}) == Allocation((Host("n1"), Host("n2")))


@pytest.mark.parametrize(
    ("variables", "slots"),
    [
        ({}, 1),
        ({"SLURM_GPUS_ON_NODE": "8", "SLURM_JOB_GPUS": "0,1"}, 8),
        ({"SLURM_JOB_GPUS": "0,1,3"}, 3),
        ({"SLURM_JOB_GPUS": "0-3"}, 4),
        ({"SLURM_GPUS_ON_NODE": "0"}, 1),
        ({"SLURM_GPUS_ON_NODE": "", "SLURM_JOB_GPUS": ""}, 1),
    ],
)
def test_slots_are_the_accelerators_of_a_node(variables: dict[str, str], slots: int) -> None:
    """And 1 on a CPU-only node."""
    assert from_slurm({"SLURM_JOB_NODELIST": "n1", **variables}).hosts[0].slots == slots


def test_given_slots_win() -> None:
    """What the caller says stands above what Slurm says."""
    assert from_slurm(HETEROGENEOUS, 2).world_size == 6


@pytest.mark.parametrize(
    ("environ", "message"),
    [
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
            "the host tux2 stands twice in an allocation; each is there once",
        ),
    ],
)
def test_from_slurm_refuses(environ: dict[str, str], message: str) -> None:
    """Outside a job, and where the variables contradict each other: one clear line."""
    with pytest.raises(HostfileError) as caught:
        from_slurm(environ)
    assert str(caught.value) == message


def test_from_lists() -> None:
    """The same outside a job, from what a user types."""
    assert from_lists("a,b", slots=2, tasks_per_node="2,1", job_id=7) == Allocation(
        (Host("a", 2, 2), Host("b", 2, 1)), job_id=7
    )


@pytest.mark.parametrize(
    ("name", "slots", "tasks"), [("", 1, 1), ("a b", 1, 1), ("-a", 1, 1), ("a", 0, 1), ("a", 1, 0)]
)
def test_a_host_is_valid_or_not_made(name: str, slots: int, tasks: int) -> None:
    """No hostfile line can come from a name or a number that is not one."""
    with pytest.raises(HostfileError):
        Host(name, slots, tasks)


@pytest.mark.parametrize(("hosts", "job_id", "step_id"), [((), 0, 0), (("a",), -1, 0), (("a",), 0, -1)])
def test_an_allocation_is_valid_or_not_made(hosts: tuple[str, ...], job_id: int, step_id: int) -> None:
    """It has a host, and ids that are not negative."""
    with pytest.raises(HostfileError):
        Allocation(tuple(map(Host, hosts)), job_id, step_id)


@pytest.mark.parametrize("ids", [(0,), (0, 1, 2), (0, 0), (0, 0, 1)])
def test_a_device_a_slot(ids: tuple[int, ...]) -> None:
    """Each device once, and as many as there are slots."""
    assert Host("n1", 2, 2, "10.0.0.1", (Device(0), Device(1))).slots == 2
    with pytest.raises(HostfileError, match="n1: 2 slots, and devices"):
        Host("n1", 2, 2, "10.0.0.1", tuple(map(Device, ids)))
