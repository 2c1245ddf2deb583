"""`slurm-plugin forecast` on a real Slurm: now, later, never as things are."""

import json
from typing import Any

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.command import until

pytestmark = pytest.mark.cluster

SPEC = "name: soon\nmode: single\ncommand: 'true'\n"
MANY = "name: soon\nmode: pytorch\ncommand: 'true'\n"


def forecast(box: Sandbox, spec: str, *options: str, code: int = 0) -> str:
    """What alice is told of this spec, with this exit code."""
    done = box.run(["sh", "-c", 'cd /home/alice && exec slurm-plugin forecast - "$@"', "sh", *options], input=spec,
                   user="alice", check=False)  # fmt: skip
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout


def told(box: Sandbox, spec: str) -> dict[str, Any]:
    """The same as JSON."""
    found: dict[str, Any] = json.loads(forecast(box, spec, "--json"))
    return found


def test_now(cluster: Sandbox) -> None:
    """An idle cluster; and nothing is submitted."""
    assert forecast(cluster, SPEC).startswith("soon: would start now, on n1, partition main")
    found = told(cluster, MANY + "nodes: 2\n")
    assert (found["starts_now"], found["nodes"], found["partition"]) == (True, "n[1-2]", "main")
    assert cluster.run(["squeue", "-h"], user="root").stdout == ""


def test_later_and_never(cluster: Sandbox) -> None:
    """A job with a limit is before it; a node that is out leaves too few."""
    everywhere = ["sbatch", "--parsable", "--nodes=5", "--exclusive", "--time=10", "--output=/dev/null"]
    number = cluster.run(everywhere, input="#!/bin/sh\nsleep 300\n").stdout.strip()
    try:
        cluster.run(["sh", "-c", f"until squeue -h -j {number} -t R | grep -q .; do sleep 0.2; done"])
        until(lambda: len(told(cluster, MANY + "nodes: 3\ntime: 5m\n")["states"]["in use"]) == 5)
        assert told(cluster, MANY + "nodes: 3\ntime: 5m\n")["starts_now"] is False
        said = forecast(cluster, MANY + "nodes: 3\ntime: 5m\n")
        assert "soon: would start at " in said
        assert "asked for: 3 node(s); in main: 5 in use" in said
        cluster.run(["scontrol", "update", "nodename=n2", "state=drain", "reason=slurm_plugin: dns: x"], user="root")
        said = forecast(cluster, MANY + "nodes: 5\n", code=1)
        assert "would not start as things are; Slurm says:\n  allocation failure: " in said
        assert "    n2: slurm_plugin: dns: x\n  why a node is out: slurm-plugin why n2\n" in said
    finally:
        cluster.run(["scancel", number])
