"""Slurm's variables in a batch script, a step and a heterogeneous job, as captured from 22.05.8."""

import re

import pytest

from hostfiles import Allocation, Host, HostfileError, from_slurm
from hostfiles.allocation import groups, step_id
from tests.refusals import refusal_of

STEP = {
    "SLURM_JOB_ID": "1",
    "SLURM_JOB_NODELIST": "n[1-3]",
    "SLURM_TASKS_PER_NODE": "2,1",
    "SLURM_GPUS_ON_NODE": "2",
    "SLURM_STEP_ID": "3",
    "SLURM_STEP_NODELIST": "n[2-3]",
    "SLURM_STEP_TASKS_PER_NODE": "2,1",
    "SLURM_DISTRIBUTION": "cyclic",
}
HET = {
    "SLURM_JOB_ID": "2",
    "SLURM_JOB_NODELIST": "n1",
    "SLURM_TASKS_PER_NODE": "2",
    "SLURM_GPUS_ON_NODE": "2",
    "SLURM_HET_SIZE": "2",
    "SLURM_JOB_NODELIST_HET_GROUP_0": "n1",
    "SLURM_JOB_NODELIST_HET_GROUP_1": "n[2-3]",
    "SLURM_TASKS_PER_NODE_HET_GROUP_0": "2",
    "SLURM_TASKS_PER_NODE_HET_GROUP_1": "2,1",
    "SLURM_GPUS_PER_NODE_HET_GROUP_0": "2",
    "SLURM_GPUS_PER_NODE_HET_GROUP_1": "gpu:1",
}
HET_STEP = {
    **HET,
    "SLURM_STEP_ID": "1",
    "SLURM_JOB_NODELIST": "n[2-3]",
    "SLURM_STEP_NODELIST": "n[2-3]",
    "SLURM_STEP_TASKS_PER_NODE": "2,1",
    "SLURM_GPUS_ON_NODE": "1",
}


# Of the job that submitted this one, as a batch script on 22.05 and 24.11 inherits them. On 26.05 SLURM_STEP_ID is -5.
OUTER_STEP = {
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "n1",
    "SLURM_STEP_NUM_NODES": "1",
    "SLURM_STEP_NUM_TASKS": "1",
    "SLURM_STEP_TASKS_PER_NODE": "1",
}
OUTER_GROUPS = {
    "SLURM_HET_SIZE": "2",
    "SLURM_JOB_ID_HET_GROUP_0": "6",
    "SLURM_JOB_ID_HET_GROUP_1": "7",
    "SLURM_JOB_NODELIST_HET_GROUP_0": "n1",
    "SLURM_JOB_NODELIST_HET_GROUP_1": "n4",
    "SLURM_TASKS_PER_NODE_HET_GROUP_0": "1",
    "SLURM_TASKS_PER_NODE_HET_GROUP_1": "1",
}
INNER = {
    "SLURM_JOB_ID": "8",
    "SLURM_JOB_NODELIST": "n[2-3]",
    "SLURM_NNODES": "2",
    "SLURM_TASKS_PER_NODE": "2,1",
}


def without(variables: dict[str, str], *prefixes: str) -> dict[str, str]:
    """Return the variables without these."""
    return {name: value for name, value in variables.items() if not name.startswith(prefixes)}


def test_a_step_on_a_subset_is_the_steps_own_nodes() -> None:
    """The job's node list does not change in a step, and would not fit the step's task counts."""
    assert from_slurm(STEP) == Allocation((Host("n2", 2, 2), Host("n3", 2, 1)), 1, 3, "cyclic")


def test_an_interactive_or_batch_step_is_the_whole_job() -> None:
    """salloc's shell may be a step on the first node alone (use_interactive_step)."""
    for step in ["4294967290", "4294967291", "4294967292", "-5", "-6"]:
        shell = {**STEP, "SLURM_STEP_ID": step, "SLURM_STEP_NODELIST": "n1", "SLURM_TASKS_PER_NODE": "1(x3)"}
        assert step_id(shell) is None, step
        assert from_slurm(shell).names == ("n1", "n2", "n3"), step


def test_a_job_that_was_submitted_inside_another_one_is_its_own_nodes() -> None:
    """The variables of the other job's step and groups do not count, also if its nodes are among this job's."""
    step_on_two = {"SLURM_STEP_NODELIST": "n[2-3]", "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_TASKS_PER_NODE": "4(x2)"}
    of_step = ["SLURM_STEP_ID", "SLURM_STEP_NODELIST"]  # all that some launchers pass on
    inherited = [
        OUTER_STEP,
        {name: OUTER_STEP[name] for name in of_step},
        {**OUTER_STEP, "SLURM_STEP_NODELIST": "n2"},
        {**OUTER_STEP, **step_on_two},
        {**OUTER_STEP, "SLURM_STEP_ID": "-5"},
        OUTER_GROUPS,
        {**OUTER_GROUPS, **OUTER_STEP},
    ]
    for variables in inherited:
        environ = {**INNER, **variables}
        assert from_slurm(environ) == Allocation((Host("n2", 1, 2), Host("n3", 1, 1)), 8), variables
        assert (step_id(environ), groups(environ)) == (None, ()), variables


def test_a_step_of_a_job_that_was_submitted_inside_another_one() -> None:
    """srun replaces the variables of the step, and those of its job that describe it. It keeps those of groups."""
    step = {**OUTER_GROUPS, **OUTER_STEP, "SLURM_STEP_NODELIST": "n3", "SLURM_NNODES": "1", "SLURM_TASKS_PER_NODE": "1"}
    assert from_slurm({**INNER, **step}) == Allocation((Host("n3", 1, 1),), 8, 0)
    assert step_id({**INNER, **step}) == 0


def test_a_heterogeneous_job_is_all_its_groups_in_order() -> None:
    """Each with its own tasks and GPUs."""
    assert from_slurm(HET) == Allocation((Host("n1", 2, 2), Host("n2", 1, 2), Host("n3", 1, 1)), 2)
    assert [host.slots for host in from_slurm(HET, 8).hosts] == [8, 8, 8]


def test_a_step_of_one_group_is_that_group() -> None:
    """srun --het-group=1: the same result on each of its nodes."""
    assert from_slurm(HET_STEP) == Allocation((Host("n2", 1, 2), Host("n3", 1, 1)), 2, 1)


def test_a_heterogeneous_job_without_accelerators() -> None:
    """One slot on each node."""
    assert [host.slots for host in from_slurm(without(HET, "SLURM_GPUS")).hosts] == [1, 1, 1]


def test_plane_has_its_size_in_a_variable_of_its_own() -> None:
    """SLURM_DISTRIBUTION contains only `plane`."""
    variables = {**STEP, "SLURM_DISTRIBUTION": "plane", "SLURM_DIST_PLANESIZE": "2"}
    assert from_slurm(variables).places == ((0, 0), (0, 1), (1, 0))


def test_contradictions() -> None:
    """One clear line, not a guess."""
    cases = [
        (
            without(HET, "SLURM_GPUS_PER_NODE"),
            "a heterogeneous job whose groups have no SLURM_GPUS_PER_NODE_HET_GROUP_n",
        ),
        (
            without(HET, "SLURM_JOB_NODELIST_HET_GROUP_1"),
            "SLURM_HET_SIZE is 2, and SLURM_JOB_NODELIST_HET_GROUP_1 is not",
        ),
        (
            without(HET, "SLURM_TASKS_PER_NODE_HET_GROUP_0"),
            "SLURM_HET_SIZE is 2, and SLURM_TASKS_PER_NODE_HET_GROUP_0 is",
        ),
        ({**HET, "SLURM_JOB_NODELIST_HET_GROUP_1": "n1"}, "the host n1 appears twice|3 nodes in|2 nodes in 'n1,n1'"),
        ({**HET, "SLURM_HET_SIZE": "x"}, "SLURM_HET_SIZE is 'x'; a whole number is wanted"),
        ({**HET, "SLURM_GPUS_PER_NODE_HET_GROUP_1": "a100"}, "SLURM_GPUS_PER_NODE_HET_GROUP_1 is 'a100'"),
        ({**STEP, "SLURM_STEP_TASKS_PER_NODE": "1"}, r"2 nodes in 'n\[2-3\]', and 1 task counts in '1'"),
        (
            {**STEP, "SLURM_DISTRIBUTION": "arbitrary"},
            "the distribution 'arbitrary'; block, cyclic and plane=N are known",
        ),
        ({**STEP, "SLURM_DISTRIBUTION": "plane"}, "the distribution 'plane='; block, cyclic and plane=N are known"),
    ]
    for environ, message in cases:
        assert re.search(f"^(?:{message})", refusal_of(HostfileError, from_slurm, environ)), environ


def test_groups() -> None:
    """The nodes of each group, in a batch script and in a step; none in other jobs."""
    environ = {
        "SLURM_HET_SIZE": "2",
        "SLURM_JOB_NODELIST_HET_GROUP_0": "n1",
        "SLURM_JOB_NODELIST_HET_GROUP_1": "n[2-3]",
    }
    assert groups(environ) == (("n1",), ("n2", "n3"))
    assert groups({"SLURM_JOB_NODELIST": "n1"}) == ()
    with pytest.raises(HostfileError, match=r"^SLURM_HET_SIZE is 3, and SLURM_JOB_NODELIST_HET_GROUP_2 is not set; "):
        groups({**environ, "SLURM_HET_SIZE": "3"})
