"""A user can fill the run directory; every check still runs."""

import errno
import os
from pathlib import Path
from typing import Any, NoReturn

import pytest

import prechecks
from prechecks import FAILED, NODE_PROBLEM, Context, Verdict, files
from prechecks.measure import growth
from slurm_plugin.node import draining, job_end, prolog
from slurm_plugin.node.hook import NODE_IS_BAD
from slurm_plugin.records import node_directory
from tests.unit.node.bad_node import default_site

LOST = Verdict("gpu-check", FAILED, NODE_PROBLEM, "3 of 4 GPUs")
JOB = {
    "SLURM_JOB_ID": "7", "SLURM_JOB_UID": "20001", "SLURM_JOB_GID": "20001", "SLURMD_NODENAME": "n1",
    "SLURM_JOB_NODELIST": "n1", "SLURM_JOB_COMMENT": "[sp1;retries=1]",
}  # fmt: skip


def full(*_: object, **__: object) -> NoReturn:
    """Make the kernel report a full file system there."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_prolog_finds_a_lost_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot make the job's directory nor write its report, and drains the node all the same."""
    reasons: list[str] = []

    def drain(_door: object, _site: object, _context: Context, reason: str) -> bool:
        reasons.append(reason)
        return True

    for name, value in JOB.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(prolog.site_settings, "read", lambda _: default_site(tmp_path))
    monkeypatch.setattr(prechecks, "run", lambda *_, **__: (LOST,))
    monkeypatch.setattr(node_directory, "create", full)
    monkeypatch.setattr(node_directory, "write", full)
    monkeypatch.setattr("slurm_plugin.slurm.connect", lambda *_, **__: None)
    monkeypatch.setattr(draining, "drain", drain)
    monkeypatch.setattr(job_end, "end_job", lambda *_: False)
    assert prolog.main() == NODE_IS_BAD
    assert reasons == ["slurm_plugin: gpu-check: 3 of 4 GPUs [job 7]"]


def test_growth_that_cannot_be_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check still finds it."""
    kwargs: dict[str, Any] = {"window_s": 60.0}
    state, limits = str(tmp_path / "run/state"), {"errors": 3}
    assert growth.look(state, "x", {"a: errors": 0}, limits, **kwargs).verdict == "ok"
    monkeypatch.setattr(files, "replace", full)
    assert growth.look(state, "x", {"a: errors": 9}, limits, **kwargs).verdict == FAILED
