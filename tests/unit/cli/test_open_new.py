"""`slurm-plugin open --new`: the spec without its command."""

from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.cli import open_new, specs
from slurm_plugin.cli.nodeside import job_lookup, spec_file
from slurm_plugin.errors import SlurmPluginError, UsageError
from slurm_plugin.slurm import own_name
from slurm_plugin.spec import submit_config
from slurm_plugin.submit import render
from tests.fakes import FakeSlurm
from tests.unit.cli.nodeside.test_open import runs

SPEC = """
name: train
mode: pytorch
nodes: 2
accelerators: {gpu: 4}
time: 2h
modules: [cuda]
env: {A: b}
container: {image: /i.sif}
hooks: {before: prepare.sh}
checkpoint: saved
"""
LEFT_OUT = """
command: python train.py
retries: 5
spares: 1
min_nodes: 1
grace: 5m
hang_timeout: 10m
hold_on_failure: yes
unconditional: yes
dependency: afterok:1
logs: {per: rank}
"""


def spec(text: str) -> Any:
    """Return the spec of a text."""
    return spec_file.load_specs(text.encode(), "job.yaml", submit_config.SubmitConfig(), specs.flags_if_it_can_say)[0]


@pytest.mark.parametrize("more", [LEFT_OUT, "array: 1-3\ncommand: python train.py\n", "tasks: [a b, c d]\n"])
def test_the_environment_alone(more: str) -> None:
    """What a spec says about its program and its restarts changes nothing; the rest stays."""
    site = render.Site("/work", "/opt/slurm-plugin")
    plain = render.script(spec(f"{SPEC}\ncommand: {open_new.IDLE}\n"), site)
    assert render.script(open_new.idle(spec(SPEC + more)), site) == plain
    assert f"\n    -- {open_new.IDLE} || {{\n" in plain


def test_a_search(tmp_path: Path) -> None:
    """It has no single environment."""
    (tmp_path / "job.yaml").write_text(f"{SPEC}\nsearch: {{}}\n")
    with pytest.raises(UsageError, match="found a search; accepted: the spec of one job"):
        open_new.submit(str(tmp_path / "job.yaml"))


def test_the_spec_of_a_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is read from the job's directory. A job of a batch script has none. A file may have a number as its name."""
    door = FakeSlurm()
    monkeypatch.setattr(job_lookup, "connect", lambda **_: door)
    monkeypatch.chdir(tmp_path)
    work = tmp_path / "work"
    own = runs(door, work)
    door.known_jobs[7] = door.known_jobs[7]._replace(user=own_name())
    (own / "job.yaml").write_text(SPEC)
    assert open_new._read("7") == ("job 7", SPEC.encode(), str(work))
    (own / "job.yaml").unlink()
    (own / "job.sh").write_text("#!/bin/sh\n")
    with pytest.raises(UsageError, match="job 7 was submitted as a batch script; accepted: a spec, or a job"):
        open_new._read("7")
    (tmp_path / "7").write_text("name: x\n")
    assert open_new._read("7") == ("7", b"name: x\n", "")


def test_it_waits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Until the command of this run was launched; a launch of an earlier run, or a hook's, is not enough."""
    door = FakeSlurm()
    monkeypatch.setattr(open_new, "connect", lambda **_: door)
    runs(door, tmp_path, phase="hook")
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        runs(door, tmp_path, phase="program", restart=1 if len(naps) == 1 else 0)

    monkeypatch.setattr(open_new.time, "sleep", nap)
    open_new._wait(7)
    assert len(naps) == 2
    assert capsys.readouterr().err == "job 7: RUNNING on n[1-2]\n"
    monkeypatch.setattr(open_new.time, "sleep", naps.append)
    runs(door, tmp_path, state="FAILED", phase="hook")
    with pytest.raises(SlurmPluginError, match="job 7 has ended: it is FAILED\n  try: slurm-plugin why 7"):
        open_new._wait(7)
