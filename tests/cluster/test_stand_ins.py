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


BANNER = """#!/bin/sh
case "$*" in *--help*) ;; *) printf '%s\\n' '-----' '  Welcome to Example3' '--> Verifying valid jobname...OK' ;; esac
"""
# An sbatch that prints a banner, and one that prints no id and fails after the submission.
SBATCHES = {
    "banner": BANNER + 'exec /usr/bin/sbatch "$@"\n',
    "lost": BANNER
    + 'case "$*" in *--help*) exec /usr/bin/sbatch "$@" ;; esac\n/usr/bin/sbatch "$@" >/dev/null; exit 3\n',
}


@pytest.mark.parametrize("kind", SBATCHES)
def test_an_sbatch_that_prints_more_or_less_than_the_id(cluster: Sandbox, kind: str) -> None:
    """The job is known, of alternatives too: none is left behind."""
    sbatch = {"sbatch": SBATCHES[kind]}
    code, out, said = submitted(cluster, f"stand-in-{kind}", sbatch, command="sleep 300")
    assert (code, "although" in said) == (0, kind == "lost"), said
    code, more, said = submitted(
        cluster, f"stand-in-any-{kind}", sbatch, command="sleep 300", any_of=[{}, {"nodes": 1}]
    )
    assert code == 0, said
    there = set(cluster.run(["squeue", "-h", "-o", "%i"], user="root").stdout.split())
    assert there <= {*out.split(), *more.split()}
    assert (len(out.split()), len(more.split())) == (1, 2)


# An sbatch that submits to another cluster, and says so.
BETA = """#!/bin/sh
case "$*" in *--help*) exec /usr/bin/sbatch "$@" ;; esac
cat >/dev/null
echo '{number};beta'
"""


def test_a_job_on_another_cluster(cluster: Sandbox) -> None:
    """The local job with its id is neither followed nor cancelled. Without slurmdbd, no other cluster is known."""
    number = cluster.run(["sbatch", "--parsable", "-o", "/dev/null", "--wrap", "sleep 300"]).stdout.strip()
    sbatch = {"sbatch": BETA.format(number=number)}
    assert submitted(cluster, "stand-in-beta", sbatch)[:2] == (0, f"{number};beta\n")
    code, _, said = submitted(cluster, "stand-in-beta-wait", sbatch, "--wait")
    assert code == 1
    assert f"--wait cannot follow {number};beta on cluster beta: could not read the jobs" in said
    assert f"cancel it: scancel --clusters=beta {number}\n" in said
    code, _, said = submitted(cluster, "stand-in-beta-any", sbatch, any_of=[{}, {"nodes": 1}])
    assert code == 1
    assert said.count(f"job {number};beta is left: could not cancel job {number}") == 2
    assert cluster.run(["squeue", "-h", "-j", number, "-o", "%T"]).stdout.strip() in ("PENDING", "RUNNING")
