"""Alternatives of a job (`any_of`) on a real Slurm: only one runs, even if several start at the same moment."""

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.alternatives import ended, ran, starts, submitted
from tests.cluster.jobs import workdir
from tests.cluster.partition import together
from tests.waiting import until

pytestmark = pytest.mark.cluster

ROUNDS = 4  # at the same time: the nodes have CPUs for all of them


@pytest.mark.full  # 12 s
def test_the_one_that_can_start_runs(cluster: Sandbox) -> None:
    """The other alternatives need more nodes than are free, and are cancelled."""
    busy = ["sbatch", "--parsable", "--nodes=3", "--exclusive", "--time=60", "--output=/dev/null"]
    blocker = cluster.run(busy, input="#!/bin/sh\nsleep 3000\n").stdout.strip()
    try:
        until(lambda: cluster.run(["squeue", "-h", "-j", blocker, "-t", "R"]).stdout, "the start of what is in the way")
        ids = submitted(cluster, "any-one", "[{nodes: 5}, {nodes: 2}, {nodes: 4}]")
        assert ended(cluster, ids) == ["CANCELLED", "COMPLETED", "CANCELLED"]
        assert ran(cluster, "any-one") == [[str(ids[1]), "2"]]
        log = ((cluster.home("alice") / "any-one") / f"{ids[1]}.out").read_text()
        assert (
            f"[slurm_plugin] this job runs, and not those with which it was submitted (any_of): {ids[0]}, {ids[2]}"
            in log
        )
    finally:
        cluster.run(["scancel", blocker])


@pytest.mark.full  # 28 s
def test_several_that_start_in_the_same_moment(cluster: Sandbox) -> None:
    """All fit, and Slurm starts them at the same moment: the program runs once, and the others end CANCELLED."""
    names = [f"any-race-{number}" for number in range(ROUNDS)]
    with together(cluster):
        races = {name: submitted(cluster, name, "[{nodes: 2}, {nodes: 1}, {nodes: 2}]") for name in names}
    for name, ids in races.items():
        found = ended(cluster, ids)
        assert sorted(found) == ["CANCELLED", "CANCELLED", "COMPLETED"], name
        assert [job for job, _ in ran(cluster, name)] == [str(ids[found.index("COMPLETED")])], name
    assert any(starts(cluster, ids) > 1 for ids in races.values())


def test_the_one_that_runs_is_followed(cluster: Sandbox) -> None:
    """`submit --wait` follows the alternative that runs, and returns its exit code."""
    spec = "name: any-wait\nmode: script\noutput: /dev/null\ncommand: exit 3\nany_of: [{nodes: 2}, {nodes: 1}]\n"
    command = f"cd /home/alice/{workdir(cluster, 'any-wait').name} && exec slurm-plugin submit --wait --json -"
    done = cluster.run(["sh", "-c", command], input=spec, check=False)
    assert done.returncode == 1
    first, last = done.stdout.splitlines()
    assert first.startswith('{"any_of": [')
    assert '"state": "FAILED", "exit_code": 3' in last
