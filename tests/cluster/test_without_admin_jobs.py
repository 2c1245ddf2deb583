"""A Slurm without anything of slurm_plugin: every kind of job restarts itself, and every command knows it."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from slurm_plugin.sandbox import Sandbox
from tests.cluster import jobs
from tests.cluster.alone import PATH, ours, own_settings, submit
from tests.cluster.jobs import workdir
from tests.waiting import until

pytestmark = pytest.mark.cluster

OVER = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"}
FAILS = "bash -c 'echo run $SLURM_PLUGIN_ATTEMPT; [ -e mended ] || exit 5'"
SEVERAL: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "array": ({"array": "0-1", "command": "bash -c 'echo $SLURM_ARRAY_TASK_ID >>../alone-array/ran'"}, "01"),
    "tasks": ({"tasks": ["bash -c 'echo 0 >>../alone-tasks/ran'", "bash -c 'echo 1 >>../alone-tasks/ran'"]}, "01"),
    "any_of": ({"any_of": [{"nodes": 1}, {"nodes": 1}], "command": "bash -c 'echo x >>../alone-any_of/ran'"}, "x"),
}


def states(box: Sandbox, ids: str) -> dict[str, int]:
    """Return how many jobs or tasks are in each state; none as long as one is not over."""
    found = box.run(["squeue", "-h", "-r", "-t", "all", "-j", ids, "-o", "%T"]).stdout.split()
    return {each: found.count(each) for each in found} if found and {*found} <= OVER else {}


@pytest.mark.full  # 20 s each
@pytest.mark.parametrize("name", SEVERAL)
def test_several_jobs_of_one_spec(alice: Sandbox, name: str) -> None:
    """Each that gets a bad node restarts itself without that node; the program runs once for each."""
    for node in ("n1", "n2"):
        alice.break_node(node, "gpu-missing")
    fields, ran = SEVERAL[name]
    spec = {"mode": "single", "nodes": None, "accelerators": {"gpu": 4}, "output": None, "retries": 3, **fields}
    directory = jobs.written(alice, f"alone-{name}", **{"command": None, **spec})
    ids = ",".join(ours(alice, "submit job.yaml", directory.name).split())
    ended = until(lambda: states(alice, ids), lambda: alice.run(["squeue", "-r", "-t", "all", "-j", ids]).stdout)
    assert ended == {"COMPLETED": len(ran), **({"CANCELLED": 1} if name == "any_of" else {})}
    assert sorted((directory / "ran").read_text().split()) == [*ran]
    lines = [
        json.loads(line)
        for path in directory.glob(".slurm_plugin/*/attempts.jsonl")
        for line in path.read_text().splitlines()
    ]
    moved = [line for line in lines if line["action"] == "requeue"]
    assert moved
    assert {node for line in moved for node in line["verdicts"]} <= {"n1", "n2"}


@pytest.mark.full  # 30 s
def test_a_hold_and_the_commands(alice: Sandbox) -> None:
    """A held job runs again by hand. Each command about it finds what it needs; `clean` removes its records.

    Her own `notify` gets the hold's message.
    """
    told = alice.home("alice") / "told"
    told.unlink(missing_ok=True)
    with own_settings(alice, notify="/home/alice/tell"):
        (alice.home("alice") / "tell").write_text('#!/bin/sh\necho "$1 $2" >>/home/alice/told\n')
        (alice.home("alice") / "tell").chmod(0o755)
        job = submit(alice, "alone-hold", command=FAILS, hold_on_failure="1h", retries=1)
        job.until(lambda: "held for debugging until " in job.log, "the hold")
        until(lambda: told.exists() and told.read_text(), "the notice")
    assert told.read_text() == f"hold {job.id}\n"
    said = {verb: ours(alice, f"{verb} {job.id}", "alone-hold") for verb in ("why", "history", "logs")}
    assert "it restarts itself, without an installation of slurm_plugin: 0 of its 1 restart used" in said["why"]
    assert "held for debugging until " in said["history"]
    assert "run 0" in said["logs"]
    diagnosis = alice.run(["sh", "-c", f"{PATH}; exec slurm-plugin diagnose {job.id}"], check=False)
    assert "likely cause: " in diagnosis.stdout
    (job.directory / "mended").touch()
    ours(alice, f"rerun {job.id}", "alone-hold")
    assert job.end() == "COMPLETED", job.log
    assert "; then it was held" in ours(alice, f"why {job.id}", "alone-hold")
    records = job.directory / ".slurm_plugin" / str(job.id)
    assert records.exists()
    until(lambda: not ours(alice, "clean --older 1s", "alone-hold") or not records.exists(), "the removal")
    assert not records.exists()


@pytest.mark.full  # 30 s
def test_an_experiment(alice: Sandbox) -> None:
    """The trials of the example run, and a bad node costs a restart of its task, not a trial."""
    alice.break_node("n1", "gpu-missing")
    home = workdir(alice, "alone-search")
    ours(alice, "example search.py > search.py", home.name)
    spec = yaml.safe_load(ours(alice, "example search"))
    spec["search"] |= {"trials": 4, "concurrent": 2}
    (home / "search.yaml").write_text(yaml.safe_dump({**spec, "accelerators": {"gpu": 4}, "retries": 2}))
    ours(alice, "experiment submit search.yaml", home.name)

    def status() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(ours(alice, "experiment status search --json", home.name))
        return found

    until(lambda: status()["state"] == "finished", lambda: str(status()))
    assert status()["counts"]["completed"] == 4
