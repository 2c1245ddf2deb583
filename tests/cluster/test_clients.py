"""Programs that submit to Slurm themselves, with `slurm-plugin sbatch` as their sbatch. Run by .ci/consumers."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster import clients
from tests.cluster.jobs import workdir
from tests.fetched import REASON, fetched, required
from tests.waiting import HANG_S

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(fetched() is None, reason=REASON)]

OURS = "/etc/slurm/slurm_plugin/bin/slurm-plugin"
WAYS = {"plain": (False, ""), "ours": (True, ""), "features": (True, "#PLUGIN retries=1")}
# The fields of a job's record that its submission sets. The others depend on its id, its times and its files' names.
KEPT = ("UserId", "Partition", "TimeLimit", "NumTasks", "CPUs/Task", "MinCPUsNode", "Features",
        "MinMemoryNode", "OverSubscribe", "Contiguous", "Licenses", "Network", "WorkDir", "Power", "Nice",
        "Requeue", "Comment", "Dependency", "StdIn", "TresPerNode")  # fmt: skip
REQUEST = "[sp1;retries=1;ib=auto]"
# dask-jobqueue's tests, with the fixtures that its package lacks, and a deadline that fits busy machines.
WAITS = f"""
import dask_jobqueue.tests
from distributed.utils_test import cleanup, loop, loop_in_thread

dask_jobqueue.tests.QUEUE_WAIT = {HANG_S}
"""
OWN_TESTS = "basic or adaptive or cluster_name"  # the tests that call sbatch


def python() -> str:
    """Return the interpreter that has these programs."""
    return str(required().clients_python)


def runs(box: Sandbox, name: str, *, ours: bool, words: list[str]) -> tuple[str, list[dict[str, str]]]:
    """Run alice's program in the directory `name`. Return its output and the records of the jobs that it submitted."""
    before = {*records(box)}
    path = f"{f'/home/alice/{name}/bin:' if ours else ''}/usr/local/bin:/usr/bin:/bin"
    shell = f'mkdir -p bin && ln -sf {OURS} bin/sbatch && export PATH={path} PYTHONPATH="$PWD" && exec "$@"'
    done = box.run(["sh", "-c", f"cd {name} && {shell}", "sh", python(), *words], check=False, timeout=2 * HANG_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, [fields for number, fields in sorted(records(box).items()) if number not in before]


def records(box: Sandbox) -> dict[int, dict[str, str]]:
    """Return slurmctld's record of each job."""
    found = {}
    for line in box.run(["scontrol", "-o", "show", "job"]).stdout.splitlines():
        told = re.findall(r"(?:^|\s)([A-Z][A-Za-z:/]*)=((?:(?!\s[A-Z][A-Za-z:/]*=).)*)", line)
        if told and told[0][0] == "JobId":
            found[int(told[0][1])] = dict(told)
    return found


@pytest.mark.parametrize("name", clients.CLIENTS)
def test_it_runs_alike(cluster: Sandbox, name: str) -> None:
    """With plain Slurm, with our sbatch, and with a #PLUGIN line in the script: the same answers and the same jobs."""
    directory = workdir(cluster, f"client-{name}")
    came: dict[str, Any] = {}
    jobs: dict[str, list[dict[str, str]]] = {}
    for way, (ours, line) in WAYS.items():
        for each in directory.iterdir():  # a job with retries appends to its log
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        shutil.copy(clients.__file__, directory)
        said, told = runs(cluster, directory.name, ours=ours, words=["clients.py", name, line])
        came[way] = json.loads(said.partition("CAME ")[2])
        jobs[way] = [{key: job[key].strip() for key in KEPT if key in job} for job in told]
        assert jobs[way]
    assert came["ours"] == came["plain"]
    assert jobs["ours"] == jobs["plain"]
    assert json.dumps(came["features"]).replace(" 0", " none") == json.dumps(came["plain"])
    assert all(job["Comment"] == REQUEST for job in jobs["features"])
    theirs = {"Comment", "Requeue"}  # docs/reference/sbatch.md
    alike = [{key: value for key, value in job.items() if key not in theirs} for job in jobs["features"]]
    assert alike == [{key: value for key, value in job.items() if key not in theirs} for job in jobs["plain"]]


def test_the_tests_of_dask_jobqueue(cluster: Sandbox) -> None:
    """dask-jobqueue's own tests pass on a real Slurm with our sbatch."""
    directory: Path = workdir(cluster, "client-own-tests")
    (directory / "waits.py").write_text(WAITS)
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "waits", "-k", OWN_TESTS, "--pyargs"]
    said, jobs = runs(cluster, directory.name, ours=True, words=[*words, "dask_jobqueue.tests.test_slurm"])
    assert re.search(r"^3 passed", said, re.MULTILINE), said
    assert len(jobs) >= 5
