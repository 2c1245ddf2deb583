"""A program on a part of its job's nodes: what launchers are told of it."""

import pytest

from hostfiles import HostfileError, from_lists
from slurm_plugin.job import part

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
    """What is different on these nodes."""
    found = part.environment(ENVIRON, WHOLE, part.of(WHOLE, names))
    return {name: value for name, value in found.items() if ENVIRON.get(name) != value}


def test_of() -> None:
    """The hosts as they are, in the job's order, and all that is the job's own."""
    found = part.of(WHOLE, ["n3", "n9", "n1"])
    assert found.hosts == (WHOLE.hosts[0], WHOLE.hosts[2])
    assert (found.job_id, found.step_id, found.distribution) == (7, 0, "cyclic")
    with pytest.raises(HostfileError, match="without hosts"):
        part.of(WHOLE, ["n9"])


def test_the_whole() -> None:
    """Nothing is different, a variable that is wrong included."""
    assert of("n4", "n3", "n2", "n1") == {}
    odd = {"SLURM_NNODES": "many"}
    assert part.environment(odd, WHOLE, WHOLE) == odd


def test_a_part() -> None:
    """As if the job had these nodes alone: counts in the nodes' order, unequal ones each at its place."""
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
    """Where they follow one another, and only there."""
    found = of("n4", "n2", "n1")
    assert found["SLURM_TASKS_PER_NODE"] == "4(x3)"
    assert found["SLURM_JOB_CPUS_PER_NODE"] == "8(x2),16"
    assert found["SLURM_JOB_NODELIST"] == "n[1-2,4]"
    assert of("n3")["SLURM_TASKS_PER_NODE"] == "2"


def test_what_was_not_there_is_not_made_up() -> None:
    """Launchers take their own choice where Slurm says nothing; only whose nodes these are is always said."""
    found = part.environment({"HOME": "/h"}, WHOLE, part.of(WHOLE, ["n1", "n2"]))
    assert found == {"HOME": "/h", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NODELIST": "n[1-2]"}
    found = part.environment({"SLURM_NTASKS": "14"}, WHOLE, part.of(WHOLE, ["n1", "n2"]))
    assert found == {"SLURM_NTASKS": "8", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NODELIST": "n[1-2]"}


@pytest.mark.parametrize("text", ["4(x2)", "4(x", ""])
def test_counts_that_do_not_fit(text: str) -> None:
    """They are left as they are: a guess would be no better."""
    environ = {**ENVIRON, "SLURM_JOB_CPUS_PER_NODE": text}
    found = part.environment(environ, WHOLE, part.of(WHOLE, ["n3", "n4"]))
    assert found["SLURM_JOB_CPUS_PER_NODE"] == text
    assert found["SLURM_TASKS_PER_NODE"] == "2,4"
