"""Alternatives of a job (`any_of`) on a real Slurm: one of them runs, even where two start in the same second."""

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.alternatives import ended, ran, starts, submitted
from tests.cluster.jobs import workdir

pytestmark = pytest.mark.cluster

ROUNDS = 10


def test_the_one_that_can_start_runs(cluster: Sandbox) -> None:
    """Too few nodes are free for the others, which are cancelled."""
    busy = ["sbatch", "--parsable", "--nodes=3", "--exclusive", "--time=5", "--output=/dev/null"]
    blocker = cluster.run(busy, input="#!/bin/sh\nsleep 300\n").stdout.strip()
    try:
        cluster.run(["sh", "-c", f"until squeue -h -j {blocker} -t R | grep -q .; do sleep 0.2; done"])
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


def test_two_that_start_in_the_same_second(cluster: Sandbox) -> None:
    """All fit: whoever is first, the program runs once, and the others end CANCELLED. Ten times."""
    races = 0
    for number in range(ROUNDS):
        name = f"any-race-{number}"
        ids = submitted(cluster, name, "[{nodes: 2}, {nodes: 1}, {nodes: 2}]")
        found = ended(cluster, ids)
        assert sorted(found) == ["CANCELLED", "CANCELLED", "COMPLETED"]
        assert [job for job, _ in ran(cluster, name)] == [str(ids[found.index("COMPLETED")])]
        races += starts(cluster, name, ids) > 1
    assert races  # at least once two have started


def test_the_one_that_runs_is_followed(cluster: Sandbox) -> None:
    """`submit --wait` ends with it, with its exit code."""
    spec = "name: any-wait\nmode: script\noutput: /dev/null\ncommand: exit 3\nany_of: [{nodes: 2}, {nodes: 1}]\n"
    command = f"cd /home/alice/{workdir(cluster, 'any-wait').name} && exec slurm-plugin submit --wait --json -"
    done = cluster.run(["sh", "-c", command], input=spec, check=False)
    assert done.returncode == 1
    first, last = done.stdout.splitlines()
    assert first.startswith('{"any_of": [')
    assert '"state": "FAILED", "exit_code": 3' in last
