"""`slurm-plugin why` and `check` as users and admins call them, on a real Slurm with a missing GPU."""

import json

import pytest

from slurm_plugin.sandbox import Sandbox, config
from tests.cluster.jobs import as_json, submit
from tests.waiting import until

pytestmark = pytest.mark.cluster

FAULT = "gpu-missing"
FOUND = "gpu-check: 3 of 4 GPUs"
DEPLOYED = "/etc/slurm/slurm_plugin/bin/slurm-plugin"  # on a node, which has only the standard library
WANTS_GPUS = ("--gres=gpu:4", "--comment=[sp1;retries=1;ib=auto]")


def why(box: Sandbox, name: str | int, *, code: int = 0, user: str = "alice", program: str = "slurm-plugin") -> str:
    """Return its output, stdout or stderr. Assert the exit code."""
    done = box.run([program, "why", str(name)], user=user, check=False)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout + done.stderr


@pytest.mark.full  # 6 s
def test_a_job_that_was_restarted_because_of_a_node(cluster: Sandbox) -> None:
    """Its owner learns the node and the cause, others why the node is drained; also without the package."""
    cluster.break_node("n2", FAULT)
    job = submit(cluster, "why-restarted", command="sleep 9000", retries=2)
    job.until(lambda: job.state == "RUNNING" and job.grant.requeues == 1, "the second run")
    found = as_json(cluster, "why", job.id)
    assert (found["job"], found["state"], found["next"]) == (job.id, "RUNNING", ["slurm-plugin why n2"])
    assert f"restart 1 of 2 was needed because of n2: {FOUND}" in found["lines"]
    assert "it leaves out n2" in found["lines"]
    said = why(cluster, "n2")
    assert said.startswith("node n2: IDLE+DRAIN\n")
    assert f"\n    {FOUND}\n  found for job {job.id}\n" in said
    assert "on n2: slurm-plugin check gpu-check\n  scontrol update nodename=n2 state=resume\n" in said
    assert why(cluster, "n2", user="root", program=DEPLOYED) == said
    assert "nothing keeps jobs away from it" in why(cluster, "n5")


@pytest.mark.full  # 8 s
def test_a_job_that_failed_after_a_restart(cluster: Sandbox) -> None:
    """Both attempts are read from its directory, wherever the command runs. Root can read them, too."""
    program = """bash -c '[ "$SLURM_PLUGIN_ATTEMPT" = 1 ] && exit 7; while [ -c /dev/fakegpu3 ]; do \
sleep 0.1; done; exit 5'"""
    job = submit(cluster, "why-failed", command=program, retries=1)
    job.until(lambda: job.state == "RUNNING" and "launch: " in job.log, "the first run")
    cluster.break_node("n2", FAULT)
    assert job.end() == "FAILED"
    for user in ("alice", "root"):
        said = why(cluster, job.id, user=user)
        assert "  it failed: the program failed with exit code 7; its nodes are fine\n" in said
        assert f"  slurm-plugin logs {job.id}\n" in said
        assert f": the program failed with exit code 5, and n2 {FOUND}; then it was requeued\n" in said


def test_an_interactive_job_whose_prolog_failed(cluster: Sandbox) -> None:
    """srun prints the cause. The job is CANCELLED without a reason, but the drained node still has it."""
    cluster.break_node("n2", FAULT)
    failed = cluster.run(["srun", "-N1", "-w", "n2", *WANTS_GPUS, "true"], check=False)
    assert failed.returncode != 0
    assert f"slurm_plugin: n2: {FOUND}" in failed.stderr
    job_id = cluster.run(["squeue", "-h", "-t", "all", "--sort=-i", "-o", "%A"]).stdout.split()[0]
    until(lambda: cluster.run(["squeue", "-h", "-t", "all", "-j", job_id, "-o", "%T"]).stdout == "CANCELLED\n")
    said = why(cluster, job_id)
    assert "a node of it failed its checks before it started" in said
    assert f"  n2 is out: {FOUND}\n" in said


def test_jobs_that_wait_and_names_that_are_none(cluster: Sandbox) -> None:
    """Slurm's reason, explained. Exit 1 for unknown names, 2 for what can be neither job nor node."""
    held = cluster.run(["sbatch", "--parsable", "--hold", "--wrap=true"]).stdout.strip()
    assert "JobHeldUser: its owner holds it\ntry next\n  scontrol release" in why(cluster, held)
    said = why(cluster, 999999, code=1)
    assert f"Slurm does not know job 999999: it forgets a job {config.MIN_JOB_AGE_S} s after its end" in said
    assert "Slurm has no node n55; did you mean n5?" in why(cluster, "n55", code=1)
    assert "is no job and no node" in why(cluster, "n[1-2]", code=2)


def test_a_check_by_hand_finds_the_broken_item(cluster: Sandbox) -> None:
    """In a step as the job's user, and on the node outside any job, also with the deployed copy."""
    cluster.break_node("n2", FAULT)
    step = ["srun", "-N1", "-w", "n2", "--gres=gpu:4", "slurm-plugin", "check", "--json"]
    done = cluster.run(step, check=False)
    report = json.loads(done.stdout)
    assert (done.returncode, report["node"], report["hook"]) == (1, "n2", "hand")
    assert report["job"]
    failed = [(item["item"], item["message"]) for item in report["items"] if item["verdict"] == "failed"]
    assert failed == [("gpu-check", "3 of 4 GPUs")]
    for program, user in (("slurm-plugin", "alice"), (DEPLOYED, "root")):
        done = cluster.run([program, "check"], user=user, node="n2", check=False)
        assert (done.returncode, "n2: 1 failed (gpu-check)" in done.stdout) == (1, True), done.stdout + done.stderr
        assert cluster.run([program, "check"], user=user, node="n3", check=False).returncode == 0
    assert cluster.states()["n2"] == "idle"  # a check by hand changes nothing


def test_the_list_names_the_sites_file(cluster: Sandbox) -> None:
    """For a setting of the sandbox's site it names the deployed file."""
    found = json.loads(cluster.run([DEPLOYED, "check", "--list", "--json", "gpu-check"], node="n1").stdout)
    (only,) = found["checks"]
    assert {value["name"]: value["source"] for value in only["settings"]}["count"] == found["source"]
    assert found["source"] == "/etc/slurm/slurm_plugin/compiled.json"


@pytest.mark.full  # 8 s
def test_history(cluster: Sandbox) -> None:
    """Both attempts of a restarted job, inside its directory and elsewhere."""
    cluster.break_node("n2", "gpu-missing")
    job = submit(cluster, "history", nodes=2, retries=1, command="bash -c 'exit 5'")
    assert job.end() == "FAILED"
    lines = cluster.run(["slurm-plugin", "history", str(job.id)]).stdout.splitlines()
    assert lines[0].startswith("ATTEMPT  START")
    rows = [line for line in lines[1:] if line[0] != " "]
    assert rows[-1].split()[0] == "1"
    assert "failed" in rows[-1]
    assert [attempt["n"] for attempt in job.attempts] == [int(row.split()[0]) for row in rows]
