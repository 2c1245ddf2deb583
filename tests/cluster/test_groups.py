"""Jobs on nodes of several kinds, on a real Slurm: ranks over all groups, exit codes, holds, and a group that fails."""

import json

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import Job, reasons, submit

pytestmark = pytest.mark.cluster

GROUPS = [{"nodes": 1, "cpus": 2}, {"nodes": 2, "accelerators": {"gpu": 2}, "cpus": 1}]
TOLD = ["RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURMD_NODENAME"]
TELL = f"bash -c 'echo told {' '.join(f'${name}' for name in TOLD)}'"
SCRIPT = """
srun --het-group=0,1 bash -c 'eval "$(slurm-plugin hosts pytorch --task $SLURM_PROCID)";
  echo task $SLURM_PROCID $RANK $LOCAL_WORLD_SIZE'
sed 's/^/hostfile /' $SLURM_PLUGIN_HOSTFILE
"""


def started(cluster: Sandbox, name: str, command: str, **spec: object) -> Job:
    """Submit a job of one node without GPUs and two nodes with two GPUs."""
    fields = {"nodes": None, "accelerators": None, "groups": GROUPS, "time": "5m", "launch": "task", **spec}
    return submit(cluster, f"groups-{name}", command=command, **fields)


def test_ranks_go_over_all_groups(cluster: Sandbox) -> None:
    """In order, each rank with the values of its node. A script's own srun gets the same."""
    job = started(cluster, "ranks", TELL)
    assert job.end() == "COMPLETED", job.log
    told = sorted(line.split()[1:] for line in job.log.splitlines() if line.startswith("told "))
    first, *nodes = sorted({line[-1] for line in told}, key=lambda node: next(t for t in told if t[-1] == node))
    expected = [["0", "0", "1", "0", "5", "0", first]]
    for place, node in enumerate(nodes, 1):
        ranks = [2 * place - 1, 2 * place]
        expected += [[str(rank), str(local), "2", str(place), "5", str(rank), node] for local, rank in enumerate(ranks)]
    assert told == expected
    groups = [{"nodes": 1}, {"nodes": 2, "accelerators": {"gpu": 2}}]  # srun divides the CPUs differently
    job = started(cluster, "script", SCRIPT, mode="script", launch="node", groups=groups)
    assert job.end() == "COMPLETED", job.log
    tasks = sorted(line for line in job.log.splitlines() if line.startswith("task "))
    assert tasks == ["task 0 0 1", *(f"task {rank} {rank} 2" for rank in range(1, 5))]
    assert [line.split()[2] for line in job.log.splitlines() if line.startswith("hostfile ")] == [
        "slots=1",
        "slots=2",
        "slots=2",
    ]


def test_a_failure_of_one_group_is_the_jobs(cluster: Sandbox) -> None:
    """Its exit code ends all tasks. The job is held, a shell reaches the other group, and a rerun runs the program."""
    command = "bash -c '[ -e fixed ] || { [ $RANK != 4 ] || exit 7; sleep 3000; }'"
    job = started(cluster, "held", command, hold_on_failure="1h", time="2h")
    job.until(lambda: "held for debugging" in job.log, "the hold")
    assert "the program failed with exit code 7; its nodes are fine" in job.log
    said = cluster.run(["sh", "-c", f"echo 'echo shell $RANK $(hostname)' | slurm-plugin shell {job.id} worker-2"])
    where = json.loads((job.directory / f".slurm_plugin/{job.id}/launch.json").read_text())["nodes"][2]
    assert f"shell 3 {where}" in said.stdout
    (job.directory / "fixed").touch()
    cluster.run(["slurm-plugin", "rerun", str(job.id)])
    assert job.end() == "COMPLETED"


def test_a_node_of_the_second_group_is_bad(cluster: Sandbox) -> None:
    """Its prolog drains it. On no release does the program run, and no other node is drained."""
    box = cluster
    job = started(box, "refused", "bash -c 'echo told'", sbatch={"hold": "yes"})
    nodes = "n2"
    box.break_node(nodes, "gpu-missing")
    try:
        for number in (job.id, job.id + 1):
            comment = "Comment=[sp1;retries=1;ib=auto]"  # requests the prolog's checks, which need a token
            box.run(["scontrol", "update", f"JobId={number}", comment])
        box.run(["scontrol", "update", f"JobId={job.id + 1}", f"ReqNodeList={nodes}"])
        box.run(["scontrol", "release", str(job.id)])
        assert job.end() in ("CANCELLED", "FAILED"), job.log
        assert "told" not in job.log.splitlines()
        found = reasons(box)
        assert list(found) == [nodes]
        assert f"[job {job.id + 1}]" in found[nodes]
    finally:
        box.heal_node(nodes, resume=True)


def test_slurm_takes_what_is_refused_before(cluster: Sandbox) -> None:
    """No restart is granted that Slurm would not make. The forecast is Slurm's own."""
    inside = "cd /home/alice && printf '%s\\n' 'name: a' 'mode: pytorch' 'command: ./a.out' 'groups: [{}, {nodes: 2}]'"
    said = cluster.run(["sh", "-c", f"{inside} | slurm-plugin forecast -"])
    assert "would start" in said.stdout
    said = cluster.run(["sh", "-c", f"{{ {inside}; echo 'retries: 1'; }} | slurm-plugin submit -"], check=False)
    assert (said.returncode, "retries: found it with `groups`" in said.stderr) == (2, True)
