"""What tests of a job share: its directory, its preparation, a hold, and this machine as a node."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import hostfiles
from hostfiles import nodelist
from slurm_plugin.hooks import node_directory
from slurm_plugin.job import _parser, files
from slurm_plugin.job.prepare import Preparation
from slurm_plugin.job.run import Run
from tests.guarded import Machine
from tests.unit.job.held import Held
from tests.unit.job.preparing import Prepare


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The job's working directory; `../run` is the run directory, in which root's Prolog made job 7's."""
    workdir = tmp_path / "work"
    workdir.mkdir()
    monkeypatch.chdir(workdir)
    node_directory.create(str(tmp_path / "run"), "7.0.0", uid=os.getuid(), gid=os.getgid())
    return workdir


@pytest.fixture
def said() -> list[str]:
    """What went into the job's log."""
    return []


@pytest.fixture
def prepare(place: Path, said: list[str]) -> Prepare:
    """Makes one from the words that follow `job supervise`."""

    def make(
        words: str,
        *,
        environ: Mapping[str, str] | None = None,
        nodes: str = "n[1-2]",
        restart: int = 0,
        above: tuple[str, ...] = (),
        **site: Any,
    ) -> Preparation:
        before, _, command = words.partition(" -- ")
        options = _parser().parse_args(["supervise", *before.split(), "--", *command.split()])
        tasks = str(options.slots if options.mode == "ascend" or options.launch == "task" else 1)
        counts = ",".join([tasks] * len(nodelist.expand(nodes)))
        allocation = hostfiles.from_lists(nodes, slots=options.slots, tasks_per_node=counts, job_id=7)
        settings = {
            "run_directory": str(place.parent / "run"),
            "infiniband_partitions": ["ib"],
            "prechecks": {"deadline_s": 10.0},
            **site,
        }
        return Preparation(
            options, Run(7, restart, "ib", allocation, restart), settings, environ or {}, said.append, above=above
        )

    return make


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    """A job in a hold; all that was to happen in it has happened."""
    found = Held(files.directory(tmp_path, 7), monkeypatch)
    yield found
    assert not found.pauses
    assert not found.codes


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """This machine, as a node of a job of its own."""
    machine = Machine(tmp_path)
    yield machine
    machine.close()
