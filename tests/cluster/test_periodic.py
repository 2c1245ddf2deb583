"""The periodic check on a real Slurm: called by slurmd, and by hand as slurmd calls it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox, daemons, machine
from tests.cluster import controller
from tests.cluster.etc import Etc
from tests.cluster.jobs import reasons, submit
from tests.cluster.looks import PASSES, forget, look, look_until
from tests.cluster.plain import release_of
from tests.cluster.syslog import Syslog
from tests.waiting import until

pytestmark = pytest.mark.cluster

NO_REASON = ("", "Not responding")  # Slurm replaces these by its next reason
LOST_GPU = "slurm_plugin: gpu-check: 3 of 4 GPUs"


@pytest.fixture
def clean(cluster: Sandbox) -> Iterator[Sandbox]:
    """Remove the state of all nodes before and after the test."""
    forget(cluster)
    yield cluster
    forget(cluster)


def reason(box: Sandbox, node: str) -> str:
    """Return Slurm's reason of a node, drained or not."""
    out = box.run(["scontrol", "-o", "show", "node", node]).stdout
    return out.partition(" Reason=")[2].partition(" [")[0].rstrip()


def syslog(box: Sandbox, node: str) -> str:
    return (box.directory / f"log/{node}.syslog").read_text()


def test_slurmd_runs_it(clean: Sandbox, tmp_path: Path) -> None:
    """A node that loses a GPU is drained, and only that node. It is resumed after several good checks."""
    etc = Etc(clean, tmp_path / "etc")
    etc.settings(HealthCheckInterval="2", HealthCheckNodeState="ANY")  # 1 is too short for 22.05 to ping
    etc.reconfigure()
    try:
        clean.break_node("n2", "gpu-missing")
        until(lambda: reasons(clean) == {"n2": LOST_GPU})
        clean.heal_node("n2")
        until(lambda: reasons(clean) == {})
        assert reason(clean, "n2") in NO_REASON
    finally:
        etc.put_back()
    said = "resumed n2; it was drained for: slurm_plugin: gpu-check: 3 of 4 GPUs"
    until(lambda: said in syslog(clean, "n2"))


def test_a_fault_that_comes_and_goes(clean: Sandbox) -> None:
    """No flapping: a failed check restarts the count of passes, and the node stays drained."""
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
    """Neither our drain, nor a failure, nor several good checks change it."""
    clean.run(["scontrol", "update", "nodename=n3", "state=drain", "reason=new disk"], user="root")
    clean.break_node("n3", "gpu-missing")
    look(clean, "n3", 2)
    clean.heal_node("n3")
    look(clean, "n3", PASSES + 1)
    assert reasons(clean) == {"n3": "new disk"}
    assert "n3 keeps its own reason; found: slurm_plugin: gpu-check" in syslog(clean, "n3")


@pytest.mark.full  # 8 s
def test_what_a_prolog_found(clean: Sandbox) -> None:
    """The job restarts elsewhere. The repaired node is resumed, and its reason is removed."""
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
    """The node takes no other job, and the running one goes on. Resuming a busy node leaves no reason."""
    job = submit(clean, "busy", nodes=1, command="sleep 9000")
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
    """Shared causes drain only after several failures in a row, on a node whose name has resolved."""
    look(clean, "n4")
    clean.break_node("n4", "dns")
    look(clean, "n4", 2)
    assert reasons(clean) == {}
    look(clean, "n4")
    assert reasons(clean)["n4"].startswith("slurm_plugin: dns: ")
    clean.heal_node("n4")
    look(clean, "n4", PASSES)
    assert reasons(clean) == {}


def test_without_a_controller(clean: Sandbox, tmp_path: Path) -> None:
    """As if slurmd starts first: the hook ends, logs why it could not drain, and drains at the next check."""
    etc = Etc(clean, tmp_path / "etc")
    look(clean, "n5", 2)
    clean.break_node("n5", "gpu-missing")
    conf = clean.directory / "etc/slurm/slurm.conf"
    whole = conf.read_text()
    etc.settings(SlurmctldHost="ctl(127.0.0.1)")  # no process listens there
    try:
        look(clean, "n5")
    finally:
        conf.write_text(whole)
    assert reasons(clean) == {}
    assert f"could not drain n5 ({LOST_GPU})" in syslog(clean, "n5")
    look(clean, "n5")
    assert reasons(clean) == {"n5": LOST_GPU}


def test_a_report_for_everybody(clean: Sandbox) -> None:
    """Users may read the results of the last check."""
    look(clean, "n1")
    text = clean.run(["cat", "/run/slurm_plugin/report.json"], node="n1").stdout
    items = {item["item"]: item["verdict"] for item in json.loads(text)["items"]}
    assert items["gpu-check"] == items["dns"] == "ok"


def test_a_dry_run_only_comments(clean: Sandbox) -> None:
    """The node stays in service. Its comment shows why it would be drained, until a check passes."""
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


@pytest.mark.full  # over 5 s
def test_a_reboot_by_slurm(clean: Sandbox, tmp_path: Path) -> None:
    """`scontrol reboot` keeps our drain and appends words to the reason. Good checks after it resume the node."""
    etc = Etc(clean, tmp_path / "etc")
    program = clean.directory / "etc/slurm/reboot"
    program.write_text("#!/bin/sh\ntouch /run/rebooted\n")
    program.chmod(0o755)
    etc.settings(RebootProgram="/etc/slurm/reboot")
    etc.reconfigure()
    try:
        clean.break_node("n2", "gpu-missing")
        job = submit(clean, "rebooted", nodes=2, retries=1, nodelist="n[1-2]", command="true")
        until(lambda: reasons(clean) == {"n2": f"{LOST_GPU} [job {job.id}]"})
        clean.run(["scancel", str(job.id)])
        clean.run(["scontrol", "reboot", "n2"], user="root")
        until(lambda: clean.run(["ls", "/run/rebooted"], node="n2", check=False).returncode == 0, "the reboot")
        clean.heal_node("n2")
        forget(clean)
        daemons.stop(machine.find(clean.directory)["n2"], "slurmd")
        clean.run(["slurmd", "-b"], user="root", node="n2")  # tells slurmctld that the node has booted
        until(lambda: clean.states()["n2"] == "drained", lambda: str(clean.states()))
        assert reasons(clean)["n2"].startswith(f"{LOST_GPU} [job {job.id}] : reboot")
        look(clean, "n2", PASSES + 2)
        assert reasons(clean) == {}
    finally:
        clean.run(["rm", "-f", "/run/rebooted"], user="root", node="n2")
        etc.put_back()


@pytest.mark.full  # over 5 s
def test_slurmd_starts_while_slurmctld_hangs(clean: Sandbox) -> None:
    """slurmd runs the check before it registers. The check of a bad node gives up asking, and the node registers."""
    log = Syslog(clean)
    clean.break_node("n2", "gpu-missing")
    with controller.stopped(clean):
        daemons.stop(machine.find(clean.directory)["n2"], "slurmd")
        clean.run(["slurmd"], user="root", node="n2")
        until(lambda: f"could not drain n2 ({LOST_GPU})" in log.of("n2"), lambda: log.of("n2"))
    look_until(clean, "n2", lambda: reasons(clean) == {"n2": LOST_GPU})
    clean.heal_node("n2")
    clean.restart(["n2"])  # a slurmd that started while a GPU was missing does not name that GPU to later steps
    look(clean, "n2", PASSES)
    until(lambda: clean.states()["n2"] == "idle", lambda: str(clean.states()))


def test_release_keeps_a_reason(clean: Sandbox) -> None:
    """On some releases a resume keeps the reason, so we set it to a space. On others Slurm removes it."""
    found = release_of(clean)
    clean.break_node("n2", "gpu-missing")
    look(clean, "n2")
    clean.heal_node("n2", resume=True)
    kept = reason(clean, "n2")
    assert kept == ("" if found.resume_clears_reason else LOST_GPU)
    look(clean, "n2")  # the old reason must not count as a drain
    assert reasons(clean) == {}


def test_by_hand(clean: Sandbox) -> None:
    """It prints what it would do, also to users. Root can let it act, and later good checks undo that."""
    words = ["/etc/slurm/slurm_plugin/bin/slurm-plugin", "check", "--hook", "periodic"]
    clean.break_node("n2", "gpu-missing")
    said = clean.run(words, node="n2", check=False)
    assert (said.returncode, reasons(clean)) == (1, {})
    assert f"the periodic check would drain n2: {LOST_GPU}" in said.stdout
    refused = clean.run([*words, "--apply"], node="n2", check=False)
    assert (refused.returncode, "run it as root" in refused.stderr, reasons(clean)) == (2, True, {})
    done = clean.run([*words, "--apply"], user="root", node="n2", check=False)
    assert done.returncode == 1
    assert f"n2 is drained: {LOST_GPU}; good looks in a row: 0 of {PASSES}" in done.stdout
    assert reasons(clean) == {"n2": LOST_GPU}
    clean.heal_node("n2")
    for _ in range(PASSES):
        done = clean.run([*words, "--apply"], user="root", node="n2")
    assert "n2 is not out by our doing" in done.stdout
    assert reasons(clean) == {}
    bare = clean.run(["env", "-i", "/etc/slurm/slurm_plugin/hooks/periodic"], user="root", node="n2")
    assert "by hand: slurm-plugin check --hook periodic --apply" in bare.stderr
