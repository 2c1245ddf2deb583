"""Every format as whole texts: one node, four nodes, unequal task counts, CPU-only."""

import re

from hostfiles import FORMATS, Allocation, Host, HostfileError, from_lists, mpi, pytorch
from tests.refusals import refusal_of

ONE = from_lists("n1", slots=4, tasks_per_node="4", job_id=5)
FOUR = from_lists("n[08-11]", slots=8, tasks_per_node="8(x4)")
UNEQUAL = from_lists("b2,a[1-2]", slots=4, tasks_per_node="4(x2),2")
CPU_ONLY = from_lists("n[1-2]")


def test_openmpi() -> None:
    """One line `host slots=N` for each host, in the order of the allocation. Port and task change nothing."""
    cases = [
        (ONE, "n1 slots=4\n"),
        (FOUR, "n08 slots=8\nn09 slots=8\nn10 slots=8\nn11 slots=8\n"),
        (UNEQUAL, "b2 slots=4\na1 slots=4\na2 slots=4\n"),
        (CPU_ONLY, "n1 slots=1\nn2 slots=1\n"),
        (Allocation((Host("n1", 2), Host("n2", 4))), "n1 slots=2\nn2 slots=4\n"),
    ]
    for allocation, text in cases:
        assert mpi.openmpi(allocation) == text, allocation
        assert FORMATS["openmpi"](allocation, 61000, None) == text, allocation


def test_openmpi_variables() -> None:
    """Open MPI 4 and 5 each find the hostfile by their own name."""
    assert mpi.openmpi_variables("/scratch/hosts") == {
        "OMPI_MCA_orte_default_hostfile": "/scratch/hosts",
        "PRTE_MCA_prte_default_hostfile": "/scratch/hosts",
    }


def test_pytorch_for_a_launcher() -> None:
    """Without a task WORLD_SIZE and RANK count nodes, here the first."""
    for allocation, address, world, slots in [
        (ONE, "n1", 1, 4),
        (FOUR, "n08", 4, 8),
        (UNEQUAL, "b2", 3, 4),
        (CPU_ONLY, "n1", 2, 1),
    ]:
        assert FORMATS["pytorch"](allocation, 61005, None) == (
            f"export MASTER_ADDR={address}\n"
            "export MASTER_PORT=61005\n"
            f"export WORLD_SIZE={world}\n"
            "export RANK=0\n"
            f"export SLOTS={slots}\n"
        ), allocation


def test_pytorch_launcher_of_a_later_node() -> None:
    """RANK is the node's index. The others do not change."""
    assert pytorch.node_variables(UNEQUAL, 2, 61005) == {
        "MASTER_ADDR": "b2",
        "MASTER_PORT": "61005",
        "WORLD_SIZE": "3",
        "RANK": "2",
        "SLOTS": "4",
    }


def test_pytorch_for_a_rank() -> None:
    """With a task the same names count ranks: task 9 of 4+4+2 is the second on the third node."""
    assert FORMATS["pytorch"](UNEQUAL, 61005, 9) == (
        "export MASTER_ADDR=b2\n"
        "export MASTER_PORT=61005\n"
        "export WORLD_SIZE=10\n"
        "export ROLE_WORLD_SIZE=10\n"
        "export GROUP_WORLD_SIZE=3\n"
        "export RANK=9\n"
        "export ROLE_RANK=9\n"
        "export LOCAL_RANK=1\n"
        "export LOCAL_WORLD_SIZE=2\n"
        "export GROUP_RANK=2\n"
    )


def test_pytorch_ranks_are_a_partition() -> None:
    """Each rank once, and on each node local ranks from 0 to the number of its tasks."""
    ranks = [pytorch.rank_variables(UNEQUAL, task, 61005) for task in range(10)]
    places = [(rank["GROUP_RANK"], rank["LOCAL_RANK"], rank["LOCAL_WORLD_SIZE"]) for rank in ranks]
    assert places == [(str(node), str(local), str(n)) for node, n in enumerate((4, 4, 2)) for local in range(n)]
    sizes = {(rank["WORLD_SIZE"], rank["ROLE_WORLD_SIZE"], rank["GROUP_WORLD_SIZE"]) for rank in ranks}
    assert sizes == {("10", "10", "3")}


def test_pytorch_refuses_a_task_that_is_not_there() -> None:
    """A rank outside the world would wait forever."""
    for task in [-1, 10]:
        assert re.search(
            f"^task {task} of 10; tasks count from 0$",
            refusal_of(HostfileError, pytorch.rank_variables, UNEQUAL, task, 61005),
        ), task


def test_pytorch_refuses_a_node_that_is_not_there() -> None:
    """The same for a launcher."""
    for node in [-1, 3]:
        assert re.search(
            f"^node {node} of 3; nodes count from 0$",
            refusal_of(HostfileError, pytorch.node_variables, UNEQUAL, node, 61005),
        ), node


def test_pytorch_refuses_what_is_no_port() -> None:
    """Port 0 would be a different port on every node."""
    for port in [0, 65536]:
        refusal_of(HostfileError, pytorch.node_variables, ONE, 0, port)
