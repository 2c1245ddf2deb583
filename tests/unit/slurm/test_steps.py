"""A step on every node: srun's arguments, and the variables that it must not get."""

import subprocess
import sys
from pathlib import Path

import pytest

from slurm_plugin.errors import MissingError
from slurm_plugin.slurm import steps
from tests.waiting import HANG_S

ROOT = Path(__file__).parents[3]
OPTIONS = (
    "--quiet --overlap --mem=0 --gres=none --kill-on-bad-exit={stop} --export=ALL"
    " --nodes={n} --ntasks={n} --ntasks-per-node=1"
)


@pytest.mark.parametrize("stop", [False, True])
def test_a_task_on_each_node(stop: bool) -> None:
    """One step with one task on each node, beside running steps. A failure ends all tasks only if requested."""
    found = steps.on_each_node(["/bin/a b", "-n", "c\nd"], ["n2", "n1", "n3"], stop=stop)
    options = OPTIONS.format(stop=int(stop), n=3).split()
    assert found == ["srun", *options, "--nodelist=n[2,1,3]", "--", "/bin/a b", "-n", "c\nd"]


def test_the_groups_of_a_heterogeneous_job() -> None:
    """Each group separately, with its nodes in the order of `hosts`. A group without a host is left out."""
    found = steps.on_each_node(["x"], ["n4", "n1", "n3"], [["n1"], ["n2"], ["n3", "n4"]])
    one, two = (OPTIONS.format(stop=0, n=n).split() for n in (1, 2))
    first = ["srun", "--het-group=0", *one, "--nodelist=n1", "--", "x"]
    assert found == [*first, ":", "--het-group=2", *two, "--nodelist=n[4,3]", "--", "x"]


def test_a_step_that_shares_the_jobs_devices() -> None:
    """Slurm gives it what the job has on each node. By default a step has none, so Slurm never refuses it."""
    found = steps.on_each_node(["x"], ["n1"], devices=True)
    assert found == [word for word in steps.on_each_node(["x"], ["n1"]) if word != "--gres=none"]


@pytest.mark.parametrize(("terminal", "more"), [(False, []), (True, ["--pty"])])
def test_a_step_beside_all_others(terminal: bool, more: list[str]) -> None:
    """On one node of a running job. Without --overlap it would wait for the program's end."""
    first = ["srun", "--jobid=7", "--overlap", "--nodes=1", "--ntasks=1", "--nodelist=n2"]
    found = steps.overlap_step(["/bin/a b", "-c"], 7, "n2", terminal=terminal)
    assert found == [*first, "--mpi=none", "--export=ALL", "--chdir=/", *more, "--", "/bin/a b", "-c"]
    found = steps.overlap_step(["x"], 7, "n2", terminal=terminal, group=1)
    assert found == [*first, "--mpi=none", "--het-group=1", "--export=ALL", "--chdir=/", *more, "--", "x"]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only directory of PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_what_would_spoil_the_answers_is_not_handed_to_srun(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """srun gets the caller's environment without variables that change its input and output. `text` is its stdin."""
    spoils = (
        "LABELIO",
        "UNBUFFEREDIO",
        "STDINMODE",
        "STDOUTMODE",
        "STDERRMODE",
        "SRUN_MULTI",
        "PLUGIN_LAUNCH",
        "MPI_TYPE",
        "CPU_BIND",
    )
    for name in (*spoils, "JOB_ID", "PLUGIN_PORT"):
        monkeypatch.setenv(f"SLURM_{name}", "7")
    (path / "srun").write_text('#!/bin/sh\nexport -p\nread line; echo "got $line"\n')
    (path / "srun").chmod(0o755)
    said = steps.one_task_a_node(["x"], ["n1"], "words\n", HANG_S)
    found = {line.split()[1].partition("=")[0] for line in said.out.splitlines() if " SLURM_" in line}
    assert found >= {"SLURM_JOB_ID", "SLURM_PLUGIN_PORT"}
    assert not found & {f"SLURM_{name}" for name in spoils}
    assert said.out.endswith("got words\n")


def test_what_another_job_has_requested_is_not_handed_to_srun() -> None:
    """Its devices, memory and CPUs, and its groups, in a job that was submitted inside it."""
    kept = {"SLURM_JOB_ID": "8", "SLURM_JOB_NODELIST": "n[1-2]", "HOME": "/h", "MY_HET_GROUP_0": "x"}
    others = ("GPUS", "GPUS_PER_NODE", "GPUS_PER_TASK", "GPUS_PER_SOCKET", "GRES", "NTASKS_PER_GPU", "CPUS_PER_GPU")
    others += ("MEM_PER_NODE", "MEM_PER_CPU", "MEM_PER_GPU", "TRES_PER_TASK", "TRES_BIND", "CPU_BIND_LIST", "JOB_GPUS")
    groups = {"SLURM_HET_SIZE": "1", "SLURM_JOB_ID_HET_GROUP_0": "7", "SLURM_JOB_NODELIST_PACK_GROUP_0": "n4"}
    groups["SLURM_PACK_SIZE"] = "1"
    assert steps.answering_environment({**kept, **groups, **{f"SLURM_{name}": "1" for name in others}}) == kept
    own = {**groups, "SLURM_JOB_ID": "7"}
    assert steps.answering_environment(own) == own


def test_without_srun(path: Path) -> None:
    """One error that names what is missing, and where."""
    assert not any(path.iterdir())
    with pytest.raises(MissingError, match=r"^srun was not found on the PATH of the batch script$"):
        steps.one_task_a_node(["x"], ["n1"], "", 10.0)


def test_going_on_as_a_step(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """srun replaces this process, without the variables of an outer job's steps. The variables of Slurm itself stay,
    and given ones are added.
    """
    (path / "srun").write_text("#!/bin/sh\n/usr/bin/env\necho words $*\nexit 9\n")
    (path / "srun").chmod(0o755)
    code = "from slurm_plugin.slurm import steps; steps.become(['srun', 'a', 'b'], steps.REFUSED)"
    environ = {"PATH": str(path), "SLURM_JOB_ID": "7", "SLURM_CONF": "/x", "TERM": "xterm", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 9
    assert {"words a b", "TERM=xterm", "SLURM_CONF=/x", "SLURM_EXIT_IMMEDIATE=2"} <= set(done.stdout.splitlines())
    assert "SLURM_JOB_ID" not in done.stdout
    (path / "srun").unlink()
    with pytest.raises(MissingError, match="srun was not found on the PATH"):
        steps.become(["srun"])
