"""Reports of nodes, and a request to one node with its answer."""

import json
import os
from dataclasses import replace
from typing import Any

import pytest

from prechecks import Report, Verdict
from slurm_plugin.records import node_directory
from slurm_plugin.supervisor.guard.barrier import Request, answer, parse_line
from tests.guarded import AGES

SETTINGS = {
    "deadline_s": AGES,
    "mandatory": [],
    "disk-size": {"root": 0, "shm": 0, "cache": 0},
    "ulimit": {"max_locked_memory_kb": 0, "open_files": 0, "stack_size_kb": 0, "max_user_processes": 0},
    "gpu-check": {"device": "/dev/null%d", "count": None},
    "dns": {"hosts_files": []},
}


def verdict(item: str, found: str, problem: str = "node_problem", message: str = "m") -> Verdict:
    """Return a verdict without measured values."""
    return Verdict(item, found, problem, message)


def report(*items: Verdict, node: str = "n1") -> Report:
    """Return a node's report."""
    return Report(node, 7, "barrier", 0.0, items)


BAD_GPU = verdict("gpu-check", "failed", message="3 of 4 GPUs")
BAD_DNS = verdict("dns", "failed", "job_problem", "n9 is not known")


def question(**fields: object) -> Request:
    """Return a request of job 7 to the node that answers."""
    plain = Request("barrier", 7, "7.0.0", "/run", "localhost", infiniband=False, check=True, settings=SETTINGS)
    return replace(plain, **fields)  # type: ignore[arg-type]


def raw(request: Request, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return the fields of a node's answer."""
    answer(request, 5)
    parts = [found for line in capsys.readouterr().out.splitlines() if (found := parse_line(line))]
    assert {found[:2] for found in parts} == {(5, "n1")}
    return dict(json.loads("".join(found[4] for found in parts)))


def answered(request: Request, capsys: pytest.CaptureFixture[str]) -> Report:
    """Return a node's answer as the sender of the request reads it."""
    found = Report.from_json(json.dumps(raw(request, capsys)))
    assert (found.node, found.job, found.hook) == ("n1", 7, request.hook)
    return found


def publish(request: Request, owner: int) -> None:
    """Write a report to the place where root's prolog writes it."""
    text = report(BAD_GPU, verdict("ulimit", "skipped")).to_json()
    node_directory.write(request.run_directory, "7.0.0", "report.json", text, gid=0)
    os.chown(f"{request.run_directory}/jobs/7.0.0/report.json", owner, 0)
