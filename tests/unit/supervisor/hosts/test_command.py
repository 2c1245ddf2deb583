"""What all verbs of `slurm-plugin hosts` find in their environment."""

import os
import subprocess

import pytest

from slurm_plugin.supervisor.hosts import command

INNER = {"SLURM_JOB_ID": "8", "SLURM_JOB_NODELIST": "n2", "SLURM_NNODES": "1", "SLURM_TASKS_PER_NODE": "4"}
# As many nodes as this job has: only the process above tells whose step it is.
STEP = {
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "n2",
    "SLURM_STEP_NUM_NODES": "1",
    "SLURM_STEP_TASKS_PER_NODE": "1",
    "SLURM_STEP_GPUS": "3",
}
GROUPS = {"SLURM_HET_SIZE": "2", **{f"SLURM_JOB_NODELIST_HET_GROUP_{group}": f"n{group + 2}" for group in (0, 1)}}
IDS = {"SLURM_JOB_ID_HET_GROUP_0": "8", "SLURM_JOB_ID_HET_GROUP_1": "9"}


@pytest.mark.parametrize("above", [("8", "batch"), ("6", "0"), ("8", "1"), ("8", "interactive")])
def test_another_jobs_step(above: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In a batch script, in salloc's command, and in a step of this job whose program set an older number."""
    monkeypatch.setattr(command, "step_above", lambda _pid: above)
    assert command.own_environment({**INNER, **STEP}) == INNER
    assert command.own_environment(INNER) == INNER


@pytest.mark.parametrize("above", [("8", "0"), ("9", "0")])
def test_own_step(above: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with --preserve-env, which leaves the job's counts in two variables, and in the second group of a job."""
    monkeypatch.setattr(command, "step_above", lambda _pid: above)
    environ = {**INNER, **GROUPS, **IDS, **STEP}
    assert command.own_environment(environ) == {**environ, "SLURM_TASKS_PER_NODE": "1"}


def test_groups_of_another_job_are_no_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """salloc's command in a step of a heterogeneous job: the step has the id of the other job's group."""
    monkeypatch.setattr(command, "step_above", lambda _pid: ("7", "0"))
    others = {**GROUPS, "SLURM_JOB_ID_HET_GROUP_0": "6", "SLURM_JOB_ID_HET_GROUP_1": "7"}
    assert command.own_environment({**INNER, **others, **STEP}) == INNER


def test_no_slurmstepd_in_sight(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables stay, and decide by themselves."""
    monkeypatch.setattr(command, "step_above", lambda _pid: None)
    assert command.own_environment({**INNER, **STEP}) == {**INNER, **STEP}


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("slurmstepd: [7.0]", ("7", "0")),
        ("slurmstepd: [7.batch]", ("7", "batch")),
        ("slurmstepd: [7.extern] x", ("7", "extern")),
        ("not slurmstepd: [7.0]", None),
        ("slurmstepd: [x.0]", None),
    ],
)
def test_step_above(title: str, expected: tuple[str, str] | None) -> None:
    """The nearest slurmstepd above a process, by its title."""
    program = [title, "-c", "sleep 3000 & echo $!; wait"]
    with subprocess.Popen(program, executable="/bin/sh", stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout
        child = int(shell.stdout.readline())
        try:
            assert command.step_above(child) == (expected or command.step_above(os.getpid()))
        finally:
            os.kill(child, 9)
    assert command.step_above(child) is None
