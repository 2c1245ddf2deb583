"""The fabric check with a real Slurm and Open MPI: its verdicts on normal and slow links, and the job's reaction."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster import fabric
from tests.cluster.fabric import FLOOR_MBS, SLOW, WAIT, acting, end, finding, go, shaped, start
from tests.cluster.jobs import OPEN_MPI, reasons, submit, workdir
from tests.cluster.sites import edit, kept
from tests.waiting import HANG_S, until

pytestmark = pytest.mark.cluster


@pytest.mark.full  # 12 s
def test_a_whole_fabric_passes(cluster: Sandbox) -> None:
    """Four, three and two hosts are all ok, with speeds, and mpirun ends by itself. An interpreter without mpi4py is no
    fault of a host: `error` for all hosts, with its message.
    """
    jobs = {nodes: start(cluster, f"whole-{nodes}", nodes=nodes) for nodes in (4, 3, 2)}
    without = start(cluster, "no-mpi4py", "/usr/bin/python3")
    for nodes, job in jobs.items():
        found = finding(go(job))
        assert [*found.words.values()] == ["ok"] * nodes, (found, job.log)
        assert "MB/s with n2" in found.messages["n1"]
        assert found.said == []
        end(job)
    found = finding(go(without))
    assert set(found.words.values()) == {"error"}
    assert "No module named 'mpi4py'" in found.messages["n1"]
    end(without)


@pytest.mark.full  # 7 s
def test_a_host_with_a_slow_cable_is_named(cluster: Sandbox) -> None:
    """n2's traffic is slow when the ring is measured: both links of n2 are slow, and only n2 is reported."""
    job = go(start(cluster, "slow", acting(cluster, "slow", "n2", "ring-1", WAIT)))
    with shaped(cluster, "n2", f"qdisc add dev eth0 root {SLOW}") as shape:
        job.until((job.directory / "turn").exists, "n2's turn")
        shape()
        (job.directory / "go-on").touch()
        found = finding(job)
    assert found.words == {"n1": "ok", "n2": "failed", "n3": "ok", "n4": "ok"}, found
    assert found.messages["n2"].startswith("both its links are bad: ")
    assert found.said == []
    end(job)


def test_a_slow_pair_is_named(cluster: Sandbox) -> None:
    """Only the traffic from n2 to n3 is slow: the pair is reported, and counts against one of the two."""
    address = next(row.address for row in cluster.status().machines if row.name == "n3")
    lines = (
        "qdisc add dev eth0 root handle 1: htb default 1",
        "class add dev eth0 parent 1: classid 1:1 htb rate 20gbit quantum 60000",
        "class add dev eth0 parent 1: classid 1:2 htb rate 20gbit quantum 60000",
        f"qdisc add dev eth0 parent 1:2 handle 20: {SLOW}",
        f"filter add dev eth0 parent 1: protocol ip u32 match ip dst {address}/32 flowid 1:2",
    )
    job = go(start(cluster, "pair", acting(cluster, "pair", "n2", "ring-1", WAIT)))
    with shaped(cluster, "n2", *lines) as shape:
        job.until((job.directory / "turn").exists, "n2's turn")
        shape()
        (job.directory / "go-on").touch()
        found = finding(job)
    assert found.words == {"n1": "ok", "n2": "ok", "n3": "failed", "n4": "ok"}, found
    assert "n2-n3" in found.messages["n3"]
    end(job)


@pytest.mark.full  # 12 s
def test_a_job_that_asks_for_it_leaves_the_slow_host_out(cluster: Sandbox, tmp_path: Path) -> None:
    """`prechecks: [fabric]`: the log has a line for every node, and the job restarts without the slow node."""
    python = acting(cluster, "asked", "n2", "ring-1", WAIT)
    fields: dict[str, Any] = {
        "nodes": 4,
        "accelerators": {"gpu": 1},
        "prechecks": ["fabric"],
        "retries": 1,
        "env": OPEN_MPI,
    }
    command = f'{python} -c \'print("on", __import__("os").uname().nodename)\''
    with kept(cluster, tmp_path) as site, shaped(cluster, "n2", f"qdisc add dev eth0 root {SLOW}") as shape:
        judge_by_floor(site)
        job = submit(cluster, "asked", mode="pytorch", launch="task", command=command, **fields)
        job.until((job.directory / "turn").exists, "n2's turn")
        shape()
        (job.directory / "go-on").touch()
        assert job.end() == "COMPLETED", job.log
    first, _, second = job.log.partition("[slurm_plugin] attempt 1 ")
    assert "[slurm_plugin] n2 fabric: failed: both its links are bad" in first
    assert "\non n" not in first
    lines = [line.split()[1] for line in second.splitlines() if " fabric: ok: " in line]
    assert lines == ["n1", "n3", "n4", "n5"]
    assert job.nodes == {"n1", "n3", "n4", "n5"}


def judge_by_floor(site: Path) -> None:
    """Let the deployed check judge the link speeds on one busy machine as the other tests do, without a deadline."""
    share = r"share: float = [\d.]+\n( *floor_mbs: .*) = None"
    judged = rf"share: float = 0.0\n\1 = {FLOOR_MBS}"
    edit(site, "prechecks/fabric/judge.py", lambda text: re.sub(share, judged, text))
    deadline = f"\nDEADLINE_S = {fabric.DEADLINE_S}\n"
    edit(site, "slurm_plugin/supervisor/fabric.py", lambda text: re.sub(r"\nDEADLINE_S = .*\n", deadline, text))


@pytest.mark.full  # 56 s
def test_by_hand(cluster: Sandbox, tmp_path: Path) -> None:
    """`check fabric` on the login node gets exactly these nodes, names the slow one, and leaves no job. Neither does a
    check that Ctrl-C ends, nor one whose nodes are in use.
    """
    python, home = acting(cluster, "hand", "n2", "ring-1", WAIT), workdir(cluster, "hand")
    words = f"--nodes n[1-4] --interpreter {python} --least {FLOOR_MBS} --wait 3600 --json"
    check = f"cd hand && exec /etc/slurm/slurm_plugin/bin/slurm-plugin check fabric {words}"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}

    def rows(form: str) -> list[str]:
        return cluster.run(["squeue", "--noheader", "--all", f"--format={form}"]).stdout.split()

    def turn(run: "subprocess.Popen[str]") -> None:
        until(lambda: (home / "turn").exists() or run.poll() is not None)

    with kept(cluster, tmp_path) as site, shaped(cluster, "n2", f"qdisc add dev eth0 root {SLOW}") as shape:
        judge_by_floor(site)
        on_a_terminal = ["script", "--quiet", "--return", "--command", check, "/dev/null"]
        with cluster.popen(on_a_terminal, env=OPEN_MPI, **pipes) as ended:
            turn(ended)
            assert rows("%N,%j,%u") == ["n[1-4],check-fabric,alice"]
            busy = ["slurm-plugin", "check", "fabric", "--nodes=n[4-5]", "--wait=2"]
            refused = cluster.run(busy, check=False)
            assert (refused.returncode, refused.stdout) == (2, ""), refused
            assert refused.stderr.startswith("slurm-plugin: n4 is ALLOCATED; it waits up to 2 s\nsalloc: ")
            said = ended.communicate("\x03", timeout=HANG_S)
        assert ended.returncode == 130, said
        until(lambda: not rows("%i"))
        (home / "turn").unlink()
        with cluster.popen(["sh", "-c", check], env=OPEN_MPI, **pipes) as slow:
            turn(slow)
            shape()
            (home / "go-on").touch()
            out, err = slow.communicate(timeout=HANG_S)
    assert slow.returncode == 1, (out, err)
    found = json.loads(out)["nodes"]
    assert {name: row["verdict"] for name, row in found.items()} == {"n1": "ok", "n2": "failed", "n3": "ok", "n4": "ok"}
    assert found["n2"]["message"].startswith("both its links are bad: ")
    assert found["n2"]["value"] < found["n2"]["threshold"] == FLOOR_MBS
    until(lambda: not rows("%i"))
    assert not reasons(cluster)


def test_where_no_rank_can_be_started_the_job_runs_on(cluster: Sandbox) -> None:
    """No host can be reported. The log says why, and the program starts."""
    command = "bash -c 'echo started' python3.99"  # the command names an interpreter that no machine has
    job = submit(cluster, "no-rank", command=command, prechecks=["fabric"], env=OPEN_MPI)
    assert job.end() == "COMPLETED", job.log
    assert job.log.splitlines().count("started") == 2
    assert job.log.count(" fabric: error: ") == 2
