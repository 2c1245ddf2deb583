"""Fixtures of the supervisor's tests: a job's directory, its preparation, a hold, an srun."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import hostfiles
from hostfiles import nodelist
from slurm_plugin.records import job_directory, node_directory
from slurm_plugin.records.job_plan import JobPlan
from slurm_plugin.supervisor.preparation.prepare import Preparation
from slurm_plugin.supervisor.run import Run
from tests.unit.supervisor.held import Held
from tests.unit.supervisor.preparing import Prepare
from tests.unit.supervisor.supervised import JOB, SRUN


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the job's working directory. `../run` has the directory that root's prolog makes for job 7."""
    workdir = tmp_path / "work"
    workdir.mkdir()
    monkeypatch.chdir(workdir)
    node_directory.create(str(tmp_path / "run"), "7.0.0", uid=os.getuid(), gid=os.getgid())
    return workdir


@pytest.fixture
def said() -> list[str]:
    """Return the lines of the job's log."""
    return []


@pytest.fixture
def prepare(place: Path, said: list[str]) -> Prepare:
    """Return a function that makes a preparation from a job plan."""

    def make(
        plan: JobPlan,
        *,
        environ: Mapping[str, str] | None = None,
        nodes: str = "n[1-2]",
        restart: int = 0,
        above: tuple[str, ...] = (),
        **site: Any,
    ) -> Preparation:
        tasks = str(plan.slots if plan.mode == "ascend" or plan.launch == "task" else 1)
        counts = ",".join([tasks] * len(nodelist.expand(nodes)))
        allocation = hostfiles.from_lists(nodes, slots=plan.slots, tasks_per_node=counts, job_id=7)
        settings = {
            "run_directory": str(place.parent / "run"),
            "infiniband_partitions": ["ib"],
            "prechecks": {"deadline_s": 10.0},
            **site,
        }
        return Preparation(
            plan, Run(7, restart, "ib", allocation, restart), settings, environ or {}, said.append, above=above
        )

    return make


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    """Yield a job in a hold. At the end, assert that all planned pauses have happened."""
    found = Held(job_directory.directory(tmp_path, 7), monkeypatch)
    yield found
    assert not found.pauses
    assert not found.codes


@pytest.fixture
def srun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of srun. `work` in it is the job's working directory."""
    (tmp_path / "srun").write_text(SRUN.replace("{directory}", str(tmp_path)).replace("{job}", str(JOB)))
    (tmp_path / "srun").chmod(0o755)
    (tmp_path / f"run/jobs/{JOB}.0.0/user").mkdir(parents=True)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    return tmp_path
