"""The container of a launch on its first node: what is mounted, and what is missing for it."""

import os
from pathlib import Path

import pytest

from slurm_plugin.container import Container
from slurm_plugin.job import _parser, contained


def made(words: str, task_prolog: str = "", named: str = "") -> Container:
    """From the words behind `job supervise`."""
    options = _parser().parse_args(["supervise", "--mode=single", *words.split(), "--", "x"])
    found = contained.made(options, {"PWD": named}, task_prolog)
    assert found is not None
    return found


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The job's directory, which has another name too."""
    (tmp_path / "real").mkdir()
    (tmp_path / "named").symlink_to("real")
    monkeypatch.chdir(tmp_path / "real")
    return tmp_path


def test_no_container(work: Path) -> None:
    """Nothing to make, and nothing is missing."""
    options = _parser().parse_args(["supervise", "--mode=single", "--", "x"])
    assert contained.made(options, {}, "") is None
    assert contained.lacking(None, {}) == ""


def test_what_the_program_has_to_see(work: Path) -> None:
    """The job's directory, under both of its names, and the checkpoints where they are elsewhere."""
    here, named = str(work / "real"), str(work / "named")
    assert made("--container-image=t.sif", named=named).mounts == (here, named)
    assert made("--container-image=t.sif --checkpoint=ck", named="/somewhere").mounts == (here,)
    (work / "ck").mkdir()
    for each in ("ck", "ck/not/yet", "real/../ck"):
        assert made(f"--container-image=t.sif --checkpoint={work}/{each}").mounts == (here, str(work / "ck"))
    assert made("--container-image=t.sif --checkpoint=/not-there").mounts == (here,)
    found = made("--container-image=t.sif --container-mounts=/data:/d:ro --container-workdir=/w")
    assert (found.mounts, found.workdir) == ((here, "/data:/d:ro"), "/w")


def test_an_image_beside_the_job(work: Path) -> None:
    """Is found from everywhere; a name stays one."""
    assert made("--container-image=t.sif").image == f"{work}/real/t.sif"
    assert made("--container-image=/i/t.sif").image == "/i/t.sif"
    assert made("--container-image=docker://python:3.12").image == "docker://python:3.12"
    assert made("--container-image=./t.sqsh --container-runtime=pyxis").image == f"{work}/real/t.sqsh"
    assert made("--container-image=python:3.12 --container-runtime=pyxis").image == "python:3.12"


def test_copies_of_its_data(work: Path) -> None:
    """Where the site keeps them, for a job that has some."""
    here = str(work / "real")
    options = _parser().parse_args(["supervise", "--mode=single", "--container-image=t.sif", "--", "x"])
    without = contained.made(options, {}, "", "/local/copies")
    options.stage_in = ["d:/data/d"]
    found = contained.made(options, {}, "", "/local/copies")
    assert without is not None
    assert found is not None
    assert (without.mounts, found.mounts) == ((here,), (here, "/local/copies"))


def test_task_prolog_is_where_pyxis_makes_slurm_look_for_it(work: Path) -> None:
    """Slurm runs it in the container, and no task where it is not found; Apptainer starts behind it."""
    here, prolog = str(work / "real"), "/etc/slurm/task_prolog"
    assert made("--container-image=x#t --container-runtime=pyxis", prolog).mounts == (here, f"{prolog}:{prolog}:ro")
    assert made("--container-image=x#t --container-runtime=pyxis", "by-name").mounts == (here,)
    assert made("--container-image=t.sif", prolog).mounts == (here,)


def test_a_runtime_and_an_image_that_are_not_there(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in words; what cannot be asked counts as there."""
    sif, remote = Container("t.sif", "apptainer"), Container("docker://python:3.12", "apptainer")
    path = {"PATH": str(work)}
    assert contained.lacking(sif, path).startswith("apptainer was not found on the PATH of this node")
    (work / "apptainer").write_text("#!/bin/sh\n")
    (work / "apptainer").chmod(0o755)
    assert contained.lacking(sif, path).startswith("the image t.sif was not found on this node")
    assert contained.lacking(remote, path) == ""
    Path("t.sif").touch()
    assert contained.lacking(sif, path) == ""

    (work / "srun").write_text('#!/bin/sh\necho "      --container-image=IMAGE  [pyxis] the image"\n')
    (work / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{work}:{os.environ['PATH']}")
    assert contained.lacking(Container("x#t", "pyxis"), path) == ""
    assert "not found on this node" in contained.lacking(Container("./t.sqsh", "pyxis"), path)
    (work / "srun").write_text("#!/bin/sh\necho '      --account=name'\n")
    assert contained.lacking(Container("x#t", "pyxis"), path).startswith("srun has no --container-image on this node")
    (work / "srun").write_text("#!/bin/sh\nexit 1\n")
    assert contained.lacking(Container("x#t", "pyxis"), path) == ""
