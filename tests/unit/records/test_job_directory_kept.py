"""`job.yaml` and `job.sh` in a job's directory."""

import os
import stat
from pathlib import Path

import pytest

from slurm_plugin.records import job_directory


def test_what_was_kept_is_read_again(tmp_path: Path) -> None:
    """Byte for byte, readable only for the job's user."""
    spec, script = b"name: a\n# \xc3\xa9\n", "#!/bin/bash\necho \udcff\n"
    job_directory.keep(tmp_path, 7, spec=spec, script=script)
    directory = tmp_path / ".slurm_plugin/7"
    assert job_directory.kept(directory, job_directory.SPEC) == spec
    assert job_directory.kept(directory, job_directory.SCRIPT) == b"#!/bin/bash\necho \xff\n"
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}
    assert all(job_directory.is_ours(path.name) for path in directory.iterdir())


def test_only_what_is_given_is_written(tmp_path: Path) -> None:
    """A later call replaces one of the two files."""
    job_directory.keep(tmp_path, 7, spec=b"name: a\n")
    job_directory.keep(tmp_path, 7, script=b"#!/bin/sh\n")
    job_directory.keep(tmp_path, 7, spec=b"name: b\n")
    directory = tmp_path / ".slurm_plugin/7"
    assert job_directory.kept(directory, job_directory.SPEC) == b"name: b\n"
    assert job_directory.kept(directory, job_directory.SCRIPT) == b"#!/bin/sh\n"


@pytest.mark.parametrize("hostile", ["missing", "a file", "another's"])
def test_a_directory_that_cannot_be_written_is_ignored(hostile: str, tmp_path: Path) -> None:
    """The workdir may be missing on this machine, or another user may own the job's directory."""
    workdir = tmp_path / "runs"
    if hostile == "a file":
        workdir.mkdir()
        (workdir / ".slurm_plugin").write_text("")
    elif hostile == "another's":
        (workdir / ".slurm_plugin/7").mkdir(parents=True)
        if os.geteuid() == 0:
            os.chown(workdir / ".slurm_plugin/7", 20001, 20001)
        else:
            pytest.skip("only root can make another user's directory")
    job_directory.keep(workdir, 7, spec=b"name: a\n")
    assert job_directory.kept(workdir / ".slurm_plugin/7", job_directory.SPEC) is None
    assert workdir.exists() == (hostile != "missing")


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_only_a_regular_file_is_read(kind: str, tmp_path: Path) -> None:
    """A link or a pipe of another user neither leads elsewhere nor blocks."""
    path = tmp_path / job_directory.SPEC
    if kind == "link":
        (tmp_path / "secret").write_text("x")
        path.symlink_to(tmp_path / "secret")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    assert job_directory.kept(tmp_path, job_directory.SPEC) is None
