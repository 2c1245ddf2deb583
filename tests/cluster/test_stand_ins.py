"""`submit` where a site, or a user, has put programs in front of Slurm's commands."""

import json

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import workdir

pytestmark = pytest.mark.cluster

SINGLE = {"name": "a", "mode": "single", "command": "true"}
# A squeue that has forgotten the job as soon as its history has an attempt (MinJobAge).
FORGETS = """#!/bin/sh
cat "$HOME/{name}"/.slurm_plugin/*/attempts.jsonl >/dev/null 2>&1 || exec /usr/bin/squeue "$@"
echo 'slurm_load_jobs error: Invalid job id specified' >&2
exit 1
"""


def submitted(
    box: Sandbox, name: str, stand_ins: dict[str, str], options: str = "", **spec: object
) -> tuple[int, str, str]:
    """Submit a spec as alice, with these programs first on her PATH. Return the exit code and the output."""
    directory = workdir(box, name)
    (directory / "job.yaml").write_text(json.dumps({**SINGLE, **spec}), encoding="utf-8")
    for program, text in stand_ins.items():
        path = directory / program
        path.write_text(text)
        path.chmod(0o755)
    done = box.run(
        ["sh", "-c", f"cd {name} && PATH=~/{name}:$PATH exec slurm-plugin submit {options} job.yaml"], check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_a_job_that_is_forgotten_before_its_end_was_seen(cluster: Sandbox) -> None:
    """Its own history says that it has ended well."""
    name = "stand-in-forgets"
    code, _, said = submitted(cluster, name, {"squeue": FORGETS.format(name=name)}, "--wait", retries=1)
    assert code == 0, said
    assert said.endswith(": COMPLETED, as recorded: Slurm has forgotten it\n")
