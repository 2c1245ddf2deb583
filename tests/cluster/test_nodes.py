"""`slurm-plugin nodes` and `top` on a real Slurm."""

import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox, machine
from tests.cluster.jobs import as_json, submit
from tests.cluster.programs import OTHER_ROOT
from tests.waiting import until

pytestmark = pytest.mark.cluster

DEPLOYED = "/etc/slurm/slurm_plugin/bin/slurm-plugin"  # on a node, which has only the standard library
FOUND = "gpu-check: 3 of 4 GPUs"
SPEC = "name: x\nmode: pytorch\ncommand: python train.py\nnodes: 2\naccelerators: {gpu: 3}\n"


def started(box: Sandbox, name: str, *arguments: str, user: str = "alice") -> str:
    """Submit a job that sleeps, and return its id when it runs."""
    job = box.run(["sbatch", "--parsable", "-J", name, *arguments, "--wrap=sleep 9000"], user=user).stdout.strip()
    until(lambda: box.run(["squeue", "-h", "-j", job, "-o", "%T"]).stdout == "RUNNING\n")
    return job


def test_who_uses_each_device(cluster: Sandbox) -> None:
    """Two users' jobs share a node. A name that looks like a record hides the devices of its own job, and no others."""
    started(cluster, "train", "-w", "n1", "--gres=gpu:2")
    forged = "x\n\nJobId=00 JobName=y\n     Nodes=n2 CPU_IDs=0 Mem=0 GRES=gpu:4(IDX:0-3)\n"
    started(cluster, forged, "-w", "n1", "--gres=gpu:1", user="bob")
    started(cluster, "plain", "-w", "n2")
    nodes = {each["node"]: each for each in as_json(cluster, "nodes")["nodes"]}
    assert [*nodes] == ["n1", "n2", "n3", "n4", "n5"]
    n1 = nodes["n1"]
    assert (n1["state"], n1["cpus"]["total"], n1["cpus"]["used"]) == ("mixed", 8, 2)
    assert n1["devices"] == [{"name": "gpu", "type": "", "used": 3, "total": 4}]
    assert n1["system"].startswith("Linux ")
    used = {each["name"]: (each["user"], each["devices"]) for each in n1["jobs"]}
    assert used["train"] == ("alice", [{"name": "gpu", "indexes": [0, 1]}])
    assert used[forged] == ("bob", [])
    assert [(each["name"], each["devices"]) for each in nodes["n2"]["jobs"]] == [("plain", [])]
    text = cluster.run(["slurm-plugin", "nodes", "n1"], user="alice").stdout
    assert " 3/4 " in text
    assert " x??JobId=00 JobName=y? + 0-1:train " in text
    assert cluster.run([DEPLOYED, "nodes", "n1"], user="alice", node="n3").stdout == text


def test_which_nodes_fit(cluster: Sandbox) -> None:
    """Idle, tight and never, as Slurm would place the job."""
    started(cluster, "train", "-w", "n1", "--gres=gpu:2")
    cluster.run(["scontrol", "update", "nodename=n2", "state=drain", "reason=bad fan"], user="root")
    cluster.run(["tee", "fit.yaml"], input=SPEC)
    found = as_json(cluster, "nodes", "--free", "fit.yaml")
    assert found["jobs"] == [[{"nodes": 2, "idle": 3, "tight": 2, "never": 0}]]
    fits = {each["node"]: (each["fit"], each["lacks"]) for each in found["nodes"]}
    assert fits == {
        "n1": ("tight", "2 of 3 gpu free"),
        "n2": ("tight", "drained"),
        **dict.fromkeys(("n3", "n4", "n5"), ("idle", "")),
    }
    cluster.run(["tee", "fit.yaml"], input=SPEC.replace("gpu: 3", "gpu: 5"))
    done = cluster.run(["slurm-plugin", "nodes", "--free", "fit.yaml"], user="alice", check=False)
    assert (done.returncode, "0 idle, 0 tight, 5 never: too few fit" in done.stdout) == (1, True)
    said = cluster.run(["slurm-plugin", "nodes", "n2"], user="alice").stdout
    assert said.splitlines()[-1].split()[-4:] == ["by", "hand", "bad", "fan"]


@pytest.mark.full  # over 5 s
def test_drains_and_resumes(cluster: Sandbox) -> None:
    """A drain by the prolog and a resume by the periodic check are in the history, for every user."""
    cluster.break_node("n2", "gpu-missing")
    job = submit(cluster, "node-history", command="sleep 9000", retries=1)
    job.until(lambda: job.state == "RUNNING" and job.grant.requeues == 1, "the second run")
    (out,) = (each for each in as_json(cluster, "nodes")["nodes"] if each["out"])
    assert (out["node"], out["state"], out["out"]["by"]) == ("n2", "drained", "slurm_plugin")
    assert out["out"]["because"] == f"{FOUND} [job {job.id}]"
    assert out["out"]["back"] == "by itself"
    *_, drain = as_json(cluster, "nodes", "--history", "n2")["times"]  # after those of other tests
    assert (drain["back"], drain["end"], drain["because"]) == ("still out", None, "gpu-check")
    cluster.heal_node("n2")

    def checked() -> bool:
        cluster.run([DEPLOYED, "check", "--hook", "periodic", "--apply"], user="root", node="n2", check=False)
        return cluster.states()["n2"] == "idle"

    until(checked)
    found = as_json(cluster, "nodes", "--history", "n2", user="bob")
    assert found["source"] == "comment"
    *_, drain = found["times"]
    assert (drain["back"], drain["start"] < drain["end"]) == ("by itself", True)
    said = cluster.run(["slurm-plugin", "nodes", "--history", "n2"], user="bob").stdout
    assert "slurm_plugin  by itself  gpu-check\n" in said


@pytest.fixture
def screen(cluster: Sandbox, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Yield a function that calls a tmux server of this test's own; it returns what tmux prints."""
    server = ["tmux", "-S", str(tmp_path / "tmux"), "-f", "/dev/null"]

    def call(*words: str) -> str:
        environ = machine.environment("alice", {})
        return subprocess.run([*server, *words], check=True, capture_output=True, text=True, env=environ).stdout

    yield call
    call("kill-server")


@pytest.mark.full  # over 5 s
@pytest.mark.skipif(OTHER_ROOT, reason="another root has an interpreter of its own, without Textual")
def test_top_in_a_terminal(cluster: Sandbox, screen: Callable[..., str]) -> None:
    """Jobs, nodes and the log of the newest job are live; d and y end it, q the program."""
    other = started(cluster, "first", "-w", "n5")
    program = "bash -c 'while true; do echo STEP $((n += 1)); sleep 1; done'"
    job = submit(cluster, "shown", command=program)
    job.until(lambda: "STEP 2" in job.log, "its log")
    argv = cluster.argv(["slurm-plugin", "top", "--every", "1"], "alice", "ctl")
    screen("new-session", "-d", "-x", "160", "-y", "40", f"{shlex.join(argv)}; echo ended $?; exec sleep 9000")

    def shown() -> str:
        return screen("capture-pane", "-p")

    until(lambda: f"log of job {job.id} (shown)" in shown() and "STEP 2" in shown(), shown)
    until(lambda: "5 nodes: 3 mixed, 2 idle" in shown(), shown)
    last = job.log.count("STEP") + 1
    until(lambda: f"STEP {last}" in shown(), shown)
    screen("send-keys", "j")
    until(lambda: f"log of job {other} (first)" in shown(), shown)
    screen("send-keys", "k", "Enter")
    until(lambda: f"why of job {job.id}" in shown() and "it runs on" in shown(), shown)
    screen("send-keys", "d")
    until(lambda: f"stop job {job.id} (shown)?" in shown(), shown)
    screen("send-keys", "y")
    assert job.end() == "CANCELLED"
    screen("send-keys", "q")
    until(lambda: "ended 0" in shown(), shown)


@pytest.mark.full  # over 5 s
def test_history_with_slurmdbd(accounting: Sandbox) -> None:
    """It has every time out of service, whoever caused it, also for a user."""
    before = len(as_json(accounting, "nodes", "--history", "n4")["times"])
    for state, reason in (("drain", "bad fan | 3"), ("resume", ""), ("drain", f"slurm_plugin: {FOUND}")):
        reasons = [f"reason={reason}"] if reason else []
        accounting.run(["scontrol", "update", "nodename=n4", f"state={state}", *reasons], user="root")
        time.sleep(1.1)  # slurmdbd's times are whole seconds
    wanted = [("root", "bad fan | 3", ""), ("slurm_plugin", FOUND, "still out")]

    def known() -> list[tuple[str, str, str]]:
        found = as_json(accounting, "nodes", "--history", "n4")
        assert found["source"] == "slurmdbd"
        return [(each["by"], each["because"], each["back"]) for each in found["times"]][before:]

    until(lambda: known() == wanted, lambda: str(known()))
    said = accounting.run(["slurm-plugin", "nodes", "--history", "n4"], user="alice").stdout
    assert "slurm_plugin  still out  gpu-check: 3 of 4 GPUs\n" in said
