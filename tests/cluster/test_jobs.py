"""`slurm-plugin jobs` on a real Slurm, with and without slurmdbd: jobs of all states, and what the list costs."""

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.sandbox import Sandbox
from slurm_plugin.views import states
from tests.cluster.doors import BACKENDS, connecting
from tests.cluster.etc import Etc
from tests.cluster.jobs import as_json, submit
from tests.cluster.test_holds import held
from tests.cluster.test_undisturbed import asked
from tests.waiting import until

pytestmark = pytest.mark.cluster
BOB_UID = 20002
SLEEP = "exec sleep 9000"
ENDED = ("good", "bad", "stopped", "expired")


@pytest.fixture(params=["cluster", "accounting"])
def box(request: pytest.FixtureRequest) -> Sandbox:
    """Return a sandbox without and with slurmdbd. Only the latter has `gres/gpu` in the TRES of its jobs."""
    found: Sandbox = request.getfixturevalue(request.param)
    return found


def sbatch(box: Sandbox, name: str, *options: str, script: str = SLEEP, user: str = "alice") -> str:
    """Submit a script without slurm_plugin, and return the id."""
    words = ["sbatch", "--parsable", f"--job-name={name}", "--output=/dev/null", "--chdir=/tmp", *options]
    return box.run(words, user, input=f"#!/bin/sh\n{script}\n").stdout.strip()


def accounts(box: Sandbox) -> bool:
    """Return whether the sandbox has slurmdbd."""
    return box.run(["sacct", "--noheader"], check=False).returncode == 0


def listed(box: Sandbox, *words: str, user: str = "alice", since: str = "") -> dict[str, dict[str, Any]]:
    """Return the jobs of `slurm-plugin jobs --json` by name; those of an array or a heterogeneous job by id.

    `since`: leave out jobs that were submitted before.
    """
    found = as_json(box, "jobs", *words, user=user)
    assert found["problems"] == []
    fresh = [each for each in found["jobs"] if (each["submitted"] or since) >= since]
    return {each["name"] if each["id"].isdecimal() else each["id"]: each for each in fresh}


def twelve(box: Sandbox, name: str) -> Mapping[str, tuple[object, ...]]:
    """Start jobs of all states. Return what the list shows of each: word, Slurm's state, nodes, GPUs and restarts."""
    expired = sbatch(box, "expired", "--time=1", "--nodelist=n5")
    run = submit(box, f"{name}-run", command="sleep 9000", accelerators={"gpu": 2}, exclude=["n[3-5]"], retries=1)
    debug = held(box, f"{name}-debug", nodes=1, accelerators={"gpu": 1}, exclude=["n[1-2]"])
    array = sbatch(box, "array", "--array=1-5%1", "--nodelist=n5")
    het = box.run(
        ["sbatch", "--parsable", "--job-name=het", "-wn5", ":", "-wn4", "--gres=gpu:1"], input=f"#!/bin/sh\n{SLEEP}\n"
    ).stdout.strip()
    sbatch(box, "bobs", "--gres=gpu:2", "--nodelist=n4", user="bob")
    sbatch(box, "held", "--hold", "--gpus=3")
    sbatch(box, "queued", "--nodes=5", "--exclusive")
    requeued = sbatch(box, "requeued", "--requeue", "--nodelist=n5")
    sbatch(box, "good", "--nodelist=n5", "--gres=gpu:1", script="true")
    sbatch(box, "bad", "--nodelist=n5", script="exit 7")
    stopped = sbatch(box, "stopped", "--nodelist=n5")
    until(lambda: listed(box)["stopped"]["state"] == listed(box)["requeued"]["state"] == "running", "both to run")
    box.run(["scancel", stopped])
    run.until_state("RUNNING")
    until(lambda: listed(box, "--all")["bobs"]["state"] == "running", "bob's job")
    until(lambda: listed(box, expired)["expired"]["state"] == "expired", "the end of a time limit")
    box.run(["scontrol", "requeue", requeued])  # late: it may start again 121 s later
    until(lambda: listed(box, requeued)["requeued"]["slurm_state"] == "PENDING", "the requeue")
    line = json.dumps({"v": 1, "t": time.time(), "attempt": 0, "step": 12, "of": 100})
    own = f"/home/alice/{run.directory.name}/.slurm_plugin/{run.id}/progress.jsonl"
    box.run(["sh", "-c", f"cat >{own}"], input=f"{line}\n")
    assert debug.state == "RUNNING"
    return {
        f"{name}-run": ("running", "RUNNING", 2, 4, 0),
        f"{name}-debug": ("held", "RUNNING", 1, 1, 0),
        f"{array}_1": ("running", "RUNNING", 1, 0, 0),
        f"{array}_[2-5%1]": ("queued", "PENDING", 1, 0, 0),
        f"{het}+0": ("running", "RUNNING", 1, 0, 0),
        f"{het}+1": ("running", "RUNNING", 1, 1, 0),
        "bobs": ("running", "RUNNING", 1, 2, 0),
        "held": ("held", "PENDING", 1, 3, 0),
        "queued": ("queued", "PENDING", 5, 0, 0),
        "requeued": ("restarting", "PENDING", 1, 0, 1),
        "good": ("succeeded", "COMPLETED", 1, 1, 0),
        "bad": ("error", "FAILED", 1, 0, 0),
        "stopped": ("stopped", "CANCELLED", 1, 0, 0),
        "expired": ("expired", "TIMEOUT", 1, 0, 0),
    }


@pytest.mark.full  # 25 s
def test_jobs_of_all_states(box: Sandbox, tmp_path: Path) -> None:
    """Each has its word, nodes, GPUs and restarts. Filters find them."""
    begin = datetime.now(UTC).replace(microsecond=0)
    since, name = begin.isoformat(), f"jobs-{tmp_path.name}"
    wanted = twelve(box, name)
    found = listed(box, "--all", since=since)
    fields = ("state", "slurm_state", "nodes", "gpus", "restarts")
    assert {key: tuple(each[field] for field in fields) for key, each in found.items()} == wanted
    assert {each["state"] for each in found.values()} == set(states.WORDS)
    assert found["queued"]["reason"] in ("Resources", "Priority")
    assert (found["bad"]["exit_code"], found["expired"]["limit_s"]) == (7, 60)
    assert (found[f"{name}-run"]["step"], found[f"{name}-run"]["of"]) == (12, 100)

    assert set(listed(box, since=since)) == {*wanted} - {"bobs"}
    assert set(listed(box, user="bob", since=since)) == {"bobs"}
    assert set(listed(box, "--all", "--node", "n4", "--state", "running", "--name", "b*")) == {"bobs"}
    task = next(key for key in wanted if key.endswith("_1"))
    assert set(listed(box, task)) == {task}

    lines = box.run(["slurm-plugin", "jobs", "--all", "--state", "held"]).stdout.splitlines()
    assert {line.split()[1] for line in lines[1:]} >= {f"{name}-debug", "held"}

    with connecting(box, "cli") as connect:
        ended = connect().ended(begin)
    assert (ended is None) is (not accounts(box))
    rows = {each.job.name: (each.job.state, each.nodes, each.gpus) for each in ended or () if each.job.name in wanted}
    assert rows == {key: wanted[key][1:4] for key in ENDED if ended is not None}


@pytest.mark.full  # over 5 s
@pytest.mark.parametrize(("ours", "squeues"), [(("--all",), ("--states=all",)), ((), ("--user=bob", "--states=all"))])
def test_the_cost_of_a_list(cluster: Sandbox, ours: tuple[str, ...], squeues: tuple[str, ...]) -> None:
    """slurmctld gets as many requests as from one squeue, and those of one user's list ask for his jobs only."""
    sbatch(cluster, "held", "--hold", user="bob")  # he has no other process
    before = asked(cluster, BOB_UID)
    cluster.run(["squeue", "--noheader", *squeues], "bob")
    one = asked(cluster, BOB_UID)
    cluster.run(["slurm-plugin", "jobs", *ours], "bob")
    assert asked(cluster, BOB_UID) - one == one - before


@pytest.mark.full  # over 5 s
def test_jobs_that_slurm_has_forgotten(box: Sandbox, tmp_path: Path) -> None:
    """slurmdbd has them all; without it, the list finds those of slurm_plugin in their working directories."""
    etc = Etc(box, tmp_path / "etc")
    name = f"past-{tmp_path.name}"
    good = submit(box, f"{name}-good", nodes=1, command="true")
    bad = submit(box, f"{name}-bad", nodes=1, command="bash -c 'exit 7'")
    plain = sbatch(box, f"{name}-plain", script="exit 3")
    good.end()
    bad.end()
    until(lambda: listed(box, plain)[f"{name}-plain"]["state"] == "error", "the end of a plain job")
    etc.settings(MinJobAge="2")
    etc.reconfigure()
    try:
        until(lambda: not listed(box, "--name", f"{name}-*"), "Slurm to forget the jobs")
        found = listed(box, "--since", "1h", "--name", f"{name}-*")
        got = {key: (each["state"], each["exit_code"], each["restarts"]) for key, each in found.items()}
        ours = {f"{name}-good": ("succeeded", 0, 0), f"{name}-bad": ("error", 7, 0)}
        theirs = {f"{name}-plain": ("error", 3, 0)} if accounts(box) else {}
        assert got == {**ours, **theirs}
        assert set(listed(box, str(bad.id))) == {f"{name}-bad"}
    finally:
        etc.put_back()


def test_rename(cluster: Sandbox, tmp_path: Path) -> None:
    """A task of an array is renamed alone; another user's job is refused."""
    array = sbatch(cluster, "array", "--array=1-2")
    until(lambda: {f"{array}_1", f"{array}_2"} <= set(listed(cluster)), "both tasks")
    one, two = f"{array}_1", f"{array}_2"
    done = cluster.run(["slurm-plugin", "jobs", "--rename", "other name", two])
    assert done.stdout == f"job {two}: renamed from array to other name\n"
    found = listed(cluster, array)
    assert (found[one]["name"], found[two]["name"]) == ("array", "other name")
    refused = cluster.run(["slurm-plugin", "jobs", "--rename", "mine", one], user="bob", check=False)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert listed(cluster, array)[one]["name"] == "array"


@pytest.mark.parametrize("backend", BACKENDS)
def test_both_back_ends_list_the_same(cluster: Sandbox, backend: str) -> None:
    """The list does not depend on pyslurm."""
    number = sbatch(cluster, "listed", "--hold", "--gpus=3", "--time=90")
    with connecting(cluster, backend) as connect:
        (found,) = connect().listing(job_ids=[int(number)])
        assert found[1:] == (number, 1, 3, None, 5400, "/tmp")
        assert (found.job.user, found.job.name, found.job.state) == ("alice", "listed", "PENDING")
        assert number in {each.name for each in connect().listing(user="alice")}
        assert number not in {each.name for each in connect().listing(user="bob")}
