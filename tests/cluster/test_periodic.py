"""The periodic check on a real Slurm: called by slurmd, and by hand as slurmd calls it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox
from slurm_plugin.slurm import releases
from tests.cluster.command import until
from tests.cluster.etc import Etc
from tests.cluster.jobs import reasons, submit
from tests.cluster.looks import PASSES, forget, look

pytestmark = pytest.mark.cluster

NO_REASON = ("", "Not responding")  # what Slurm itself replaces by its next reason
LOST_GPU = "slurm_plugin: gpu-check: 3 of 4 GPUs"


@pytest.fixture
def clean(cluster: Sandbox) -> Iterator[Sandbox]:
    """Nodes that remember nothing, before and after."""
    forget(cluster)
    yield cluster
    forget(cluster)


def reason(box: Sandbox, node: str) -> str:
    """What Slurm has of it, drained or not."""
    out = box.run(["scontrol", "-o", "show", "node", node]).stdout
    return out.partition(" Reason=")[2].partition(" [")[0].rstrip()


def syslog(box: Sandbox, node: str) -> str:
    return (box.directory / f"log/{node}.syslog").read_text()


def test_slurmd_runs_it(clean: Sandbox, tmp_path: Path) -> None:
    """A node that loses a GPU is drained, that node alone, and is back when it has passed often enough."""
    etc = Etc(clean, tmp_path / "etc")
    etc.settings(HealthCheckInterval="1", HealthCheckNodeState="ANY")
    etc.reconfigure()
    try:
        clean.break_node("n2", "gpu-missing")
        until(lambda: reasons(clean) == {"n2": LOST_GPU}, 30)
        clean.heal_node("n2")
        until(lambda: reasons(clean) == {}, 30)
        assert reason(clean, "n2") in NO_REASON
    finally:
        etc.put_back()
    assert "resumed n2; it was drained for: slurm_plugin: gpu-check: 3 of 4 GPUs" in syslog(clean, "n2")


def test_a_fault_that_comes_and_goes(clean: Sandbox) -> None:
    """No flapping: a look that fails begins the row anew, and the node stays out meanwhile."""
    clean.break_node("n2", "gpu-missing")
    look(clean, "n2")
    assert reasons(clean) == {"n2": LOST_GPU}
    for _ in range(2):
        clean.heal_node("n2")
        look(clean, "n2", PASSES - 1)
        clean.break_node("n2", "gpu-missing")
        look(clean, "n2")
    assert reasons(clean) == {"n2": LOST_GPU}
    clean.heal_node("n2")
    look(clean, "n2", PASSES)
    assert reasons(clean) == {}
    until(lambda: clean.states()["n2"] == "idle")


def test_an_administrators_reason_survives(clean: Sandbox) -> None:
    """A drain of ours, a failure and a row of good looks change nothing of it."""
    clean.run(["scontrol", "update", "nodename=n3", "state=drain", "reason=new disk"], user="root")
    clean.break_node("n3", "gpu-missing")
    look(clean, "n3", 2)
    clean.heal_node("n3")
    look(clean, "n3", PASSES + 1)
    assert reasons(clean) == {"n3": "new disk"}
    assert "n3 keeps its own reason; found: slurm_plugin: gpu-check" in syslog(clean, "n3")


def test_what_a_prolog_found(clean: Sandbox) -> None:
    """A job restarts elsewhere; its node comes back when it is repaired, and its reason is gone."""
    clean.break_node("n1", "gpu-missing")
    job = submit(clean, "found", nodes=2, retries=1, command="sleep 1")
    assert job.end() == "COMPLETED"
    assert reasons(clean) == {"n1": f"{LOST_GPU} [job {job.id}]"}
    look(clean, "n1", PASSES)
    assert reasons(clean) == {"n1": f"{LOST_GPU} [job {job.id}]"}
    clean.heal_node("n1")
    look(clean, "n1", PASSES)
    assert reasons(clean) == {}
    assert reason(clean, "n1") in NO_REASON


def test_under_a_running_job(clean: Sandbox) -> None:
    """The node takes no other job, and the running one goes on; a resume of the busy node leaves no reason behind."""
    job = submit(clean, "busy", nodes=1, command="sleep 300")
    job.until(lambda: "attempt 0" in job.log and job.state == "RUNNING", "its start")
    (node,) = job.nodes
    clean.break_node(node, "gpu-missing")
    look(clean, node)
    assert reasons(clean) == {node: LOST_GPU}
    assert job.state == "RUNNING"
    clean.heal_node(node)
    look(clean, node, PASSES)
    assert reasons(clean) == {}
    assert reason(clean, node) in NO_REASON
    assert job.state == "RUNNING"
    clean.run(["scancel", str(job.id)])


def test_a_name_server_that_is_gone_everywhere(clean: Sandbox) -> None:
    """Shared causes drain only after several looks in a row."""
    clean.break_node("n4", "dns")
    look(clean, "n4", 2)
    assert reasons(clean) == {}
    look(clean, "n4")
    assert reasons(clean)["n4"].startswith("slurm_plugin: dns: ")
    clean.heal_node("n4")
    look(clean, "n4", PASSES)
    assert reasons(clean) == {}


def test_without_a_controller(clean: Sandbox, tmp_path: Path) -> None:
    """As when slurmd starts first: the hook ends, says why it could not drain, and drains at the next look."""
    etc = Etc(clean, tmp_path / "etc")
    look(clean, "n5", 2)
    clean.break_node("n5", "gpu-missing")
    conf = clean.directory / "etc/slurm/slurm.conf"
    whole = conf.read_text()
    etc.settings(SlurmctldHost="ctl(127.0.0.1)")  # where nobody listens
    try:
        look(clean, "n5")
    finally:
        conf.write_text(whole)
    assert reasons(clean) == {}
    assert f"could not drain n5 ({LOST_GPU})" in syslog(clean, "n5")
    look(clean, "n5")
    assert reasons(clean) == {"n5": LOST_GPU}


def test_a_report_for_everybody(clean: Sandbox) -> None:
    """Users may read what the last look found."""
    look(clean, "n1")
    text = clean.run(["cat", "/run/slurm_plugin/report.json"], node="n1").stdout
    items = {item["item"]: item["verdict"] for item in json.loads(text)["items"]}
    assert items["gpu-check"] == items["dns"] == "ok"


def test_a_dry_run_only_comments(clean: Sandbox) -> None:
    """The node stays in service; people see why it would not in its comment, until a look is healthy."""
    settings = clean.directory / "etc/slurm/slurm_plugin/compiled.json"
    whole = settings.read_text()
    sinfo = ["sinfo", "-h", "-n", "n5", "-O", "Comment:300"]
    clean.run(["scontrol", "update", "nodename=n5", "comment=rack 7"], user="root")
    settings.write_text(json.dumps({**json.loads(whole), "dry_run": True}))
    clean.break_node("n5", "gpu-missing")
    try:
        look(clean, "n5", 2)
        said = {line.strip() for line in clean.run(sinfo).stdout.splitlines()}
        assert said == {"rack 7 [slurm_plugin: would be drained: gpu-check: 3 of 4 GPUs]"}
        assert reasons(clean) == {}
        clean.heal_node("n5")
        look(clean, "n5")
        assert {line.strip() for line in clean.run(sinfo).stdout.splitlines()} == {"rack 7"}
    finally:
        settings.write_text(whole)
        clean.heal_node("n5")
        clean.run(["scontrol", "update", "nodename=n5", "comment="], user="root")


def test_release_keeps_a_reason(clean: Sandbox) -> None:
    """What made us write a space: where Slurm takes the reason away itself, it is gone at once."""
    found = releases.of(clean.run(["sinfo", "--version"]).stdout.split()[-1])
    assert found
    clean.break_node("n2", "gpu-missing")
    look(clean, "n2")
    clean.heal_node("n2", resume=True)
    kept = reason(clean, "n2")
    assert kept == ("" if found.resume_clears_reason else LOST_GPU)
    look(clean, "n2")  # and the node does not take the reason that was left for a drain
    assert reasons(clean) == {}
