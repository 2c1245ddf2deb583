"""A program on a part of its job's nodes: what its launcher gets."""

import pytest

from hostfiles import HostfileError, from_lists
from slurm_plugin.supervisor.preparation import allocation_part

WHOLE = from_lists("n[1-4]", slots=[4, 4, 2, 4], tasks_per_node="4(x2),2,4", job_id=7, distribution="cyclic")
ENVIRON = {
    "HOME": "/h",
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "n[1-4]",
    "SLURM_NODELIST": "n[1-4]",
    "SLURM_JOB_NUM_NODES": "4",
    "SLURM_NNODES": "4",
    "SLURM_NTASKS": "14",
    "SLURM_NPROCS": "14",
    "SLURM_TASKS_PER_NODE": "4(x2),2,4",
    "SLURM_JOB_CPUS_PER_NODE": "8(x2),4,16",
}


def of(*names: str) -> dict[str, str]:
    """Return the changed variables for these nodes."""
    found = allocation_part.environment(ENVIRON, WHOLE, allocation_part.of(WHOLE, names))
    return {name: value for name, value in found.items() if ENVIRON.get(name) != value}


@pytest.mark.parametrize("again", [False, True])
def test_a_launchers_step(again: bool) -> None:
    """It requests nothing of its own, so it gets what this job has, not what another one requested. Later it shares."""
    others = {"SLURM_GPUS_PER_NODE": "1", "SLURM_MEM_PER_CPU": "50", "SLURM_TRES_PER_TASK": "cpu=2"}
    more = {"SLURM_OVERLAP": "1", "SLURM_MEM_PER_NODE": "0"} if again else {}
    given = {**ENVIRON, **others, "SLURM_GPUS_ON_NODE": "4"}
    found = allocation_part.attempt_environment(given, WHOLE, WHOLE, "openmpi", again=again)
    assert found == {**ENVIRON, "SLURM_GPUS_ON_NODE": "4", **more}
    assert allocation_part.attempt_environment(given, WHOLE, WHOLE, "single", again=again) == given


def test_of() -> None:
    """The same hosts, in the job's order, and all that belongs to the job."""
    found = allocation_part.of(WHOLE, ["n3", "n9", "n1"])
    assert found.hosts == (WHOLE.hosts[0], WHOLE.hosts[2])
    assert (found.job_id, found.step_id, found.distribution) == (7, 0, "cyclic")
    with pytest.raises(HostfileError, match="without hosts"):
        allocation_part.of(WHOLE, ["n9"])


def test_the_whole() -> None:
    """Nothing changes, not even a wrong variable."""
    assert of("n4", "n3", "n2", "n1") == {}
    odd = {"SLURM_NNODES": "many"}
    assert allocation_part.environment(odd, WHOLE, WHOLE) == odd


def test_a_part() -> None:
    """As if the job had only these nodes: counts in the nodes' order, unequal ones at their places."""
    assert of("n2", "n3", "n4") == {
        "SLURM_JOB_NODELIST": "n[2-4]",
        "SLURM_NODELIST": "n[2-4]",
        "SLURM_JOB_NUM_NODES": "3",
        "SLURM_NNODES": "3",
        "SLURM_NTASKS": "10",
        "SLURM_NPROCS": "10",
        "SLURM_TASKS_PER_NODE": "4,2,4",
        "SLURM_JOB_CPUS_PER_NODE": "8,4,16",
    }


def test_equal_counts_are_folded() -> None:
    """Only adjacent ones."""
    found = of("n4", "n2", "n1")
    assert found["SLURM_TASKS_PER_NODE"] == "4(x3)"
    assert found["SLURM_JOB_CPUS_PER_NODE"] == "8(x2),16"
    assert found["SLURM_JOB_NODELIST"] == "n[1-2,4]"
    assert of("n3")["SLURM_TASKS_PER_NODE"] == "2"


def test_what_was_not_there_is_not_made_up() -> None:
    """If Slurm sets nothing, launchers choose. Only the node list is always set."""
    found = allocation_part.environment({"HOME": "/h"}, WHOLE, allocation_part.of(WHOLE, ["n1", "n2"]))
    assert found == {"HOME": "/h", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NODELIST": "n[1-2]"}
    found = allocation_part.environment({"SLURM_NTASKS": "14"}, WHOLE, allocation_part.of(WHOLE, ["n1", "n2"]))
    assert found == {"SLURM_NTASKS": "8", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NODELIST": "n[1-2]"}


def test_counts_that_do_not_fit() -> None:
    """They do not change: a guess would not be better."""
    for text in ["4(x2)", "4(x", ""]:
        environ = {**ENVIRON, "SLURM_JOB_CPUS_PER_NODE": text}
        found = allocation_part.environment(environ, WHOLE, allocation_part.of(WHOLE, ["n3", "n4"]))
        assert found["SLURM_JOB_CPUS_PER_NODE"] == text, text
        assert found["SLURM_TASKS_PER_NODE"] == "2,4", text
