"""The container of a launch on its first node: its mounts, and missing requirements."""

import os
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.launch.container import Container
from slurm_plugin.supervisor.preparation import container_step
from tests.unit.supervisor.plans import APPTAINER, plan


def made(image: str, task_prolog: str = "", named: str = "", *, checkpoint: str = "", **more: Any) -> Container:
    """Return the container of a plan. An image with `#` is one for pyxis."""
    runtime = "pyxis" if "#" in image else "apptainer"
    given = plan(checkpoint=checkpoint, container={"image": image, "runtime": runtime, **more})
    found = container_step.job_container(given, {"PWD": named}, lambda: task_prolog)
    assert found is not None
    return found


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the job's directory, which also has another name."""
    (tmp_path / "real").mkdir()
    (tmp_path / "named").symlink_to("real")
    monkeypatch.chdir(tmp_path / "real")
    return tmp_path


def test_no_container(work: Path) -> None:
    """Nothing is made, and nothing is missing."""
    assert container_step.job_container(plan(), {}, "") is None
    assert container_step.lacking(None, {}) == ""


def test_what_the_program_has_to_see(work: Path) -> None:
    """The job's directory, under both names, and a checkpoint directory elsewhere."""
    here, named = str(work / "real"), str(work / "named")
    assert made("t.sif", named=named).mounts == (here, named)
    assert made("t.sif", named="/somewhere", checkpoint="ck").mounts == (here,)
    (work / "ck").mkdir()
    for each in ("ck", "ck/not/yet", "real/../ck"):
        assert made("t.sif", checkpoint=f"{work}/{each}").mounts == (here, str(work / "ck"))
    assert made("t.sif", checkpoint="/not-there").mounts == (here,)
    found = made("t.sif", mounts=("/data:/d:ro",), workdir="/w")
    assert (found.mounts, found.workdir) == ((here, "/data:/d:ro"), "/w")


def test_a_checkpoint_directory_that_cannot_be_read(work: Path) -> None:
    """As on a file server that is away: the nearest parent that can be read is mounted, and the job goes on."""
    (work / "ck").mkdir()
    found = made("t.sif", checkpoint=f"{work}/ck/{'x' * 300}")  # the kernel refuses this name
    assert found.mounts == (str(work / "real"), str(work / "ck"))


def test_an_image_beside_the_job(work: Path) -> None:
    """It is found from every directory. A name stays a name."""
    assert made("t.sif").image == f"{work}/real/t.sif"
    assert made("/i/t.sif").image == "/i/t.sif"
    assert made("docker://python:3.12").image == "docker://python:3.12"
    assert made("./t.sqsh", runtime="pyxis").image == f"{work}/real/t.sqsh"
    assert made("python:3.12", runtime="pyxis").image == "python:3.12"


def test_copies_of_its_data(work: Path) -> None:
    """The site's directory for them, if the job has some."""
    here = str(work / "real")
    given = plan(container=APPTAINER)
    without = container_step.job_container(given, {}, "", "/local/copies")
    found = container_step.job_container(given._replace(stage_in=("d:/data/d",)), {}, "", "/local/copies")
    assert without is not None
    assert found is not None
    assert (without.mounts, found.mounts) == ((here,), (here, "/local/copies"))


def test_task_prolog_is_where_pyxis_makes_slurm_look_for_it(work: Path) -> None:
    """Slurm runs it in the container, and starts no task without it. Apptainer starts after it."""
    here, prolog = str(work / "real"), "/etc/slurm/task_prolog"
    assert made("x#t", prolog).mounts == (here, f"{prolog}:{prolog}:ro")
    assert made("x#t", "by-name").mounts == (here,)
    assert made("t.sif", prolog).mounts == (here,)


def test_a_runtime_and_an_image_that_are_not_there(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with a message. What cannot be checked counts as present."""
    sif, remote = Container("t.sif", "apptainer"), Container("docker://python:3.12", "apptainer")
    path = {"PATH": str(work)}
    assert container_step.lacking(sif, path).startswith("apptainer was not found on the PATH of this node")
    (work / "apptainer").write_text("#!/bin/sh\n")
    (work / "apptainer").chmod(0o755)
    assert container_step.lacking(sif, path).startswith("the image t.sif was not found on this node")
    assert container_step.lacking(remote, path) == ""
    Path("t.sif").touch()
    assert container_step.lacking(sif, path) == ""

    (work / "srun").write_text('#!/bin/sh\necho "      --container-image=IMAGE  [pyxis] the image"\n')
    (work / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{work}:{os.environ['PATH']}")
    assert container_step.lacking(Container("x#t", "pyxis"), path) == ""
    assert "not found on this node" in container_step.lacking(Container("./t.sqsh", "pyxis"), path)
    (work / "srun").write_text("#!/bin/sh\necho '      --account=name'\n")
    assert container_step.lacking(Container("x#t", "pyxis"), path).startswith(
        "srun has no --container-image on this node"
    )
    (work / "srun").write_text("#!/bin/sh\nexit 1\n")
    assert container_step.lacking(Container("x#t", "pyxis"), path) == ""
