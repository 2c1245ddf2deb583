"""Disk space that jobs use, on a real Slurm: checked jobs avoid the node, jobs there go on, and files are removed."""

import json
import os
from collections.abc import Iterator

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import ALICE_UID, reasons, submit, workdir
from tests.cluster.looks import PASSES, forget, look, look_until
from tests.cluster.plain import sbatch
from tests.waiting import until

pytestmark = pytest.mark.cluster

FILL = "head -c 1200M /dev/zero > /dev/shm/$SLURM_JOB_ID; touch full"
FILES = ["sh", "-c", "ls -A /dev/shm"]


@pytest.fixture
def clean(cluster: Sandbox) -> Iterator[Sandbox]:
    """Remove the state of all nodes before and after the test."""
    forget(cluster)
    yield cluster
    forget(cluster)


@pytest.mark.full  # over 5 s
def test_a_job_that_fills_its_node(clean: Sandbox) -> None:
    """Neither the periodic check nor another job's prolog drains the node; the job goes on."""
    job = sbatch(clean, "fills", "--nodelist=n2", "--comment=[sp1;retries=3]", script=f"{FILL}; exec sleep 9000")
    job.until((job.directory / "full").exists, "the full /dev/shm")
    look(clean, "n2", PASSES + 1)
    report = 'cat "/run/slurm_plugin/jobs/$SLURM_JOB_ID.0.0/report.json"'
    other = sbatch(clean, "beside", "--nodelist=n2", "--comment=[sp1;retries=3]", script=report)
    assert other.end() == "COMPLETED"
    (found,) = (item for item in json.loads(other.log)["items"] if item["item"] == "disk-size.shm")
    assert (found["verdict"], found["problem"]) == ("failed", "job_problem")
    assert (job.state, reasons(clean)) == ("RUNNING", {})
    clean.run(["scancel", str(job.id)])
    until(lambda: clean.states()["n2"] == "idle")
    assert clean.run(FILES, user="root", node="n2").stdout == ""


@pytest.mark.full  # over 5 s
def test_what_a_job_left_behind(clean: Sandbox) -> None:
    """It is removed before a drain, when no user is on the node. Root's files there drain the node while they exist."""
    job = sbatch(clean, "leaves", "--nodelist=n2", script=FILL)
    assert job.end() == "COMPLETED"
    until(lambda: clean.states()["n2"] == "idle")
    assert clean.run(FILES, user="root", node="n2").stdout == f"{job.id}\n"
    look_until(clean, "n2", lambda: not clean.run(FILES, user="root", node="n2").stdout)
    assert reasons(clean) == {}
    clean.run(["sh", "-c", "head -c 1200M /dev/zero > /dev/shm/root"], user="root", node="n2")
    look_until(clean, "n2", lambda: list(reasons(clean)) == ["n2"])
    clean.run(["rm", "/dev/shm/root"], user="root", node="n2")
    look_until(clean, "n2", lambda: reasons(clean) == {})


def test_what_a_job_has_staged(clean: Sandbox) -> None:
    """Its copy fills the file system, and the job is COMPLETED. The copy is removed before its node is drained."""
    compiled = clean.directory / "etc/slurm/slurm_plugin/compiled.json"
    before = compiled.read_text()
    settings = json.loads(before)
    settings["stage_in"]["directory"], settings["clean"] = "/dev/shm", []  # it is small, and its space is checked
    compiled.write_text(json.dumps(settings))
    try:
        directory = workdir(clean, "room-stages")
        (directory / "set").mkdir()
        with (directory / "set/a").open("wb") as file:
            file.truncate(1200 << 20)
        os.chown(directory / "set", ALICE_UID, ALICE_UID)
        spec = {"command": "true", "nodes": 1, "retries": 1, "accelerators": {"gpu": 0}, "stage_in": [{"from": "set"}]}
        job = submit(clean, "room-stages", made=True, nodelist="n2", **spec)
        assert job.end() == "COMPLETED", job.log
        until(lambda: clean.states()["n2"] == "idle")
        copied = ["ls", f"/dev/shm/{ALICE_UID}"]
        assert clean.run(copied, user="root", node="n2").stdout
        look_until(clean, "n2", lambda: not clean.run(copied, user="root", node="n2", check=False).stdout)
        assert reasons(clean) == {}
    finally:
        compiled.write_text(before)
        clean.run(["rm", "-rf", f"/dev/shm/{ALICE_UID}"], user="root", node="n2")
