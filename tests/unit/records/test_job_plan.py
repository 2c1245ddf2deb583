"""Mirrors slurm_plugin/records/job_plan.py: a written plan is read back, and other text is refused."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from slurm_plugin.errors import UsageError
from slurm_plugin.launch.container import Container
from slurm_plugin.launch.mode import Options
from slurm_plugin.records import job_plan
from slurm_plugin.records.job_plan import JobPlan
from tests.refusals import refusal_of

CONTAINER = Container("t.sif", "apptainer", ("/d:/d:ro",), "/w", writable=True, home=False, gpu="nv", env=("A",))
FULL = JobPlan(
    mode="pytorch",
    command=("a b", "it's", "\n", "\udcff", "é"),
    slots=8,
    groups=((8, 4), (1, None)),
    retries=3,
    grace_s=60,
    prechecks=("fabric",),
    found_hooks=False,
    env_files=("/a b/c",),
    container=job_plan.changed(CONTAINER),
    messages="diagnosis",
)


def test_what_is_written_is_read() -> None:
    """One key on each line, without default values."""
    text = job_plan.text(FULL)
    assert job_plan.read(text) == FULL
    assert len(text.splitlines()) == len(json.loads(text)) + 2
    assert job_plan.text(JobPlan(mode="single", slots=1)) == '{\n  "mode": "single",\n  "slots": 1\n}'
    assert job_plan.fields(Container, FULL.container) == CONTAINER


def test_every_option_of_a_mode_is_a_key() -> None:
    """With the same default."""
    assert {name: JobPlan._field_defaults[name] for name in Options._fields} == Options._field_defaults


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{mode: single}", "it is no JSON: "),
        ("[]", "it names no mode"),
        ('{"slots": 1}', "it names no mode"),
        ('{"mode": "single", "colour": "red"}', "found 'colour', which this release does not know"),
        ('{"mode": "single", "retries": "3"}', "retries: found '3'; accepted: int"),
        ('{"mode": "single", "retries": true}', "retries: found True; accepted: int"),
        ('{"mode": "single", "before": "/a"}', "before: found '/a'; accepted: tuple"),
        ('{"mode": "single", "launch": "rank"}', "launch: found 'rank'; accepted: node, task"),
    ],
)
def test_what_is_no_plan(text: str, why: str) -> None:
    """Edited by hand, or written by another release."""
    said = refusal_of(UsageError, job_plan.read, text)
    assert said.startswith(f"the job plan in the batch script: {why}")
    assert said.endswith("; submit the job again")


@pytest.mark.parametrize("command", ["/bin/x", f"/{'long/' * 30}x"])
def test_a_batch_script_of_the_wrapper(tmp_path: Path, command: str) -> None:
    """Every shell takes the plan as comments; a plan in the user's own script below it is not read."""
    plan = FULL._replace(mark="#slurm_plugin-script-1")
    path = tmp_path / "script"
    path.write_bytes(job_plan.batch_script(command, [b"#SBATCH -N2"], plan) + b"#slurm_plugin-plan {}\necho\n")
    assert job_plan.read_batch_script(str(path)) == plan._replace(batch_script=str(path))
    assert subprocess.run(["bash", "-n", path], check=False).returncode == 0
    (tmp_path / "other").write_text("#!/bin/sh\n")
    with pytest.raises(UsageError, match="is no batch script of `slurm-plugin sbatch`"):
        job_plan.read_batch_script(str(tmp_path / "other"))


def test_a_batch_script_where_its_python_does_not_work(tmp_path: Path) -> None:
    """The node and the command are named. With a Python that has the package, the command starts."""
    path, command = tmp_path / "script", f"{tmp_path}/slurm-plugin"
    Path(command).write_text("#!/bin/sh\necho started\n")
    Path(command).chmod(0o755)
    plan = FULL._replace(mark="#slurm_plugin-script-1")
    said = f"[slurm_plugin] error,exiting: {os.uname().nodename} cannot run {command}: is its directory shared"
    for python, code, begin in (("/no python", 127, said), ("/bin/false", 127, said), ("/bin/true", 0, "started")):
        path.write_bytes(job_plan.batch_script(command, [], plan, python))
        done = subprocess.run(["bash", path], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout[: len(begin)]) == (code, begin)
