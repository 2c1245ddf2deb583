"""A fake Slurm with jobs of two users, for tests of `slurm-plugin jobs`."""

import os
import pwd
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.cli.nodeside import job_lookup, jobs
from slurm_plugin.slurm import Job, Listed
from tests.fakes import FakeSlurm

ME = pwd.getpwuid(os.geteuid()).pw_name
NOW = datetime.now(UTC)
Run = Callable[..., tuple[int, str, str]]


def listed(number: int, state: str = "RUNNING", directory: str = "", name: str = "", **fields: Any) -> Listed:
    """Return a job of the test's user on n1; a pending one has no nodes."""
    nodes = "" if state == "PENDING" else "n1"
    has = {"name": f"train-{number}", "partition": "main", "end_time": NOW, **fields}
    job = Job(number, ME, state, "", nodes, "", 0, "[sp1;retries=1;ib=auto]", "")._replace(**has)
    return Listed(job, name or str(number), 1, 4, None if state == "PENDING" else 700, 3600, directory)


def door(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeSlurm:
    """Return a door with jobs of two users. The current directory has no jobs."""
    fake = FakeSlurm()
    fake.users = {os.geteuid(): ME, 20002: "bob"}
    bobs = listed(3, name="3_1")
    fake.listed = [
        listed(1, directory=str(tmp_path / "work")),
        listed(2, "PENDING", reason="Priority"),
        bobs._replace(job=bobs.job._replace(user="bob", partition="debug", nodes="n[2-3]")),
        listed(4, "PENDING", name="4_[5-8:2,11%2]"),
    ]
    fake.known_jobs = {each.job.id: each.job for each in fake.listed}
    for module in (jobs, job_lookup):
        monkeypatch.setattr(module, "connect", lambda **_: fake)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return fake


def runner(capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs the command."""

    def call(*words: str) -> tuple[int, str, str]:
        return main(["jobs", *words]), *capsys.readouterr()

    return call


def ids(out: str) -> list[str]:
    """Return the first column of a table, without its head."""
    return [line.split()[0] for line in out.splitlines()[1:]]
