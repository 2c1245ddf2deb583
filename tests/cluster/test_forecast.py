"""`slurm-plugin forecast` on a real Slurm: jobs that start now, later, or not at all."""

import json
from typing import Any

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.waiting import until

pytestmark = pytest.mark.cluster

SPEC = "name: soon\nmode: single\ncommand: 'true'\n"
MANY = "name: soon\nmode: pytorch\ncommand: 'true'\n"


def forecast(box: Sandbox, spec: str, *options: str, code: int = 0) -> str:
    """Return the forecast of this spec for alice. Assert the exit code."""
    done = box.run(["sh", "-c", 'cd /home/alice && exec slurm-plugin forecast - "$@"', "sh", *options], input=spec,
                   user="alice", check=False)  # fmt: skip
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout


def told(box: Sandbox, spec: str) -> dict[str, Any]:
    """Return the forecast as JSON."""
    found: dict[str, Any] = json.loads(forecast(box, spec, "--json"))
    return found


def test_now(cluster: Sandbox) -> None:
    """The cluster is idle, and nothing is submitted."""
    assert forecast(cluster, SPEC).startswith("soon: would start now, on n")
    found = told(cluster, MANY + "nodes: 2\n")
    assert (found["starts_now"], found["nodes"], found["partition"]) == (True, "n[1-2]", "main")
    assert cluster.run(["squeue", "-h"], user="root").stdout == ""


def test_later_and_never(cluster: Sandbox) -> None:
    """A job with a time limit is before it. With a node out of service too few are left."""
    everywhere = ["sbatch", "--parsable", "--nodes=5", "--exclusive", "--time=60", "--output=/dev/null"]
    number = cluster.run(everywhere, input="#!/bin/sh\nsleep 3000\n").stdout.strip()
    try:
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
