"""A job with logs in real files, and a stand-in for the door: for tests of `slurm-plugin logs`."""

from pathlib import Path

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.cli.nodeside import job_lookup
from slurm_plugin.records import job_directory, log_files
from tests.fakes import FakeSlurm, job
from tests.unit.records.test_history import FIRST

LOG = """\
[slurm_plugin] attempt 0 of job 7 on n[1-2]
0:  50%|# | 1/2\r0: 100%|##| 2/2
1: \x1b[31mred\x1b[0m
slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED ***
[slurm_plugin] attempt 1 of job 7 on n[1-2]: restarted because x
KeyError: 'tokens'
"""


ALL = [line.rpartition("\r")[2].replace("\x1b[31m", "").replace("\x1b[0m", "") for line in LOG.split("\n")[:-1]]


def job_with_logs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeSlurm:
    """Return a door that knows job 7, whose directory is `work`, where it has a log. That is the current directory."""
    fake = FakeSlurm([job(state="COMPLETED", nodes="n[1-2]")])
    fake.directories[7] = str(tmp_path / "work")
    monkeypatch.setattr(job_lookup, "connect", lambda **_: fake)
    record(tmp_path / "work", 7)
    (tmp_path / "work" / "out").write_text(LOG)
    monkeypatch.chdir(tmp_path / "work")
    return fake


def record(work: Path, job_id: int, per: str = "job", **more: str) -> Path:
    work.mkdir(exist_ok=True)
    own = job_directory.directory(work, job_id)
    directory = "" if per == "job" else str(work / "logs")
    log_files.write_output(own, log_files.Output("train", str(work / "out"), "", directory, per, **more))
    return own


def rank_files(tmp_path: Path) -> Path:
    """Give job 7 a file for each of two ranks, in attempts 0 and 1, and for each node. Return their directory."""
    own = record(tmp_path / "work", 7, per="both")
    job_directory.record(own, {**FIRST, "n": 0, "nodes": "n[1-2]", "start": "2026-03-01T00:00:00+00:00"})
    directory = tmp_path / "work" / "logs"
    directory.mkdir()
    for attempt in (0, 1):
        begins = log_files.stem("train", 7, attempt)
        for number in (0, 1):
            text = f"2026-03-01T0{attempt}:00:0{number}Z attempt {attempt} of rank {number}\n"
            (directory / f"{begins}{log_files.of_rank(number, number)}").write_text(text)
            (directory / f"{begins}{log_files.of_worker(number)}").write_text(f"attempt {attempt}, node {number}\n")
    return directory


def shown(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> list[str]:
    """What `logs` prints."""
    assert main(["logs", *words]) == code
    return capsys.readouterr().out.splitlines()
