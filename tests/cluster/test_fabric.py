"""The fabric check on a real Slurm with a real Open MPI: what it says of whole, stopped, slow and cut hosts."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import Job, submit, workdir
from tests.cluster.test_launch import OPEN_MPI, PYTHON, program

pytestmark = pytest.mark.cluster

DEADLINE_S = 20.0
# Runs on the deployed copy, as the supervisor does; what it found goes to a file, with the steps that are left.
# Four hosts share this machine, with whatever else it does: here a link is slow below a twentieth of the usual speed.
DRIVER = """
import json, os, sys, time
sys.path.insert(0, "/etc/slurm/slurm_plugin/slurm_plugin.pyz")
from slurm_plugin.job import fabric
from prechecks.fabric.judge import Thresholds
from hostfiles import from_slurm

python, deadline_s = sys.argv[1], float(sys.argv[2])
hosts = from_slurm(os.environ, 1).names
started, said = time.monotonic(), []
found = fabric.check(hosts, launcher=fabric.open_mpi(hosts), python=python, environ=os.environ,
                     deadline_s=deadline_s, thresholds=Thresholds(share=0.05), say=said.append)
found = {"took": time.monotonic() - started, "said": said, "verdicts": {name: list(v) for name, v in found.items()}}
with open("found.new", "w") as file:
    json.dump(found, file)
os.rename("found.new", "found.json")
time.sleep(float(sys.argv[3]))
"""
# The program's python; on n3 somebody stops it, after AFTER seconds or where the program has come to a certain phase.
STOPPED = f"""#!/bin/bash
[ "$(hostname)" = n3 ] && (sleep AFTER; kill -STOP $$) &
exec {PYTHON} "$@"
"""
AT_A_PHASE = """
import os, signal, sys, time
sys.argv.pop(0)  # -c is next, then the code
write = os.write
def watched(file, text):
    done = write(file, text)
    if text == b"PHASE\\n" and os.uname().nodename == "n3":
        ACT
    return done
os.write = watched
exec(sys.argv.pop(1))
"""
STOP = "os.kill(os.getpid(), signal.SIGSTOP)"
UNTIL_CUT = """open("/home/alice/in-the-ring", "w").close()
        while "up" in open("/sys/class/net/eth0/operstate").read(): time.sleep(0.05)"""


@dataclass(frozen=True, slots=True)
class Found:
    """What the check said in a job that goes on for a while."""

    job: Job
    took: float
    said: list[str]
    words: dict[str, str]  # host -> verdict
    messages: dict[str, str]


def start(box: Sandbox, name: str, python: str = PYTHON, nodes: int = 4, stay_s: int = 0, *, go: bool = True) -> Job:
    """A plain batch job of alice's that runs the check (now, or once there is a file `go`), then stays for a while."""
    driver = program(box, "fabric.py", DRIVER)
    directory = workdir(box, name)
    words = ["sbatch", "--parsable", f"--nodes={nodes}", f"--chdir=/home/alice/{name}", "--output=job.out"]
    wait = "touch runs; until [ -e go ]; do sleep 0.1; done"
    script = f"#!/bin/bash\n{wait}\nexec /usr/bin/python3 -I -S {driver} {python} {DEADLINE_S} {stay_s}\n"
    job = Job(box, int(box.run(words, input=script, env=OPEN_MPI).stdout), directory)
    job.until((directory / "runs").exists, "the job's start")
    if go:
        (directory / "go").touch()
    return job


def finding(job: Job) -> Found:
    """What it found."""
    job.until((job.directory / "found.json").exists, "the verdicts")
    found = json.loads((job.directory / "found.json").read_text())
    words = {host: verdict[1] for host, verdict in found["verdicts"].items()}
    return Found(job, found["took"], found["said"], words, {h: verdict[3] for h, verdict in found["verdicts"].items()})


def check(box: Sandbox, name: str, python: str = PYTHON, nodes: int = 4) -> Found:
    """Run it in a job that ends."""
    found = finding(start(box, name, python, nodes))
    found.job.end()
    return found


def executable(box: Sandbox, name: str, text: str) -> str:
    """A program of alice's that can be called."""
    path = program(box, name, text)
    (box.home("alice") / name).chmod(0o755)
    return path


def steps(job: Job) -> list[str]:
    """The job's steps that Slurm knows of, the batch script's own left out."""
    out = job.box.run(["squeue", "-h", "-s", "-j", str(job.id), "-o", "%i"]).stdout.split()
    return [step for step in out if not step.endswith((".batch", ".extern"))]


def ranks(box: Sandbox) -> list[str]:
    """The nodes on which something of the check still runs."""
    seen = []
    for node in ("n1", "n2", "n3", "n4"):
        found = box.run(["pgrep", "-u", "alice", "-f", "fabric/program.py|orted"], user="root", node=node, check=False)
        seen += [node] if found.stdout else []
    return seen


@contextmanager
def shaped(box: Sandbox, node: str, *lines: str) -> Iterator[None]:
    """A slow cable: what leaves `node` through eth0 goes through these queues of tc."""
    pid = next(row.pid for row in box.status().machines if row.name == node)

    def tc(*words: str) -> None:
        argv = ["nsenter", "--target", str(pid), "--net", "--", "tc", *words]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
        assert done.returncode == 0, done.stderr

    tc("qdisc", "add", "dev", "eth0", "root", *lines[0].split())
    try:
        for line in lines[1:]:
            tc(*line.split())
        yield
    finally:
        tc("qdisc", "del", "dev", "eth0", "root")


def test_a_whole_fabric_passes(cluster: Sandbox) -> None:
    """Four hosts, all ok, with speeds, far below the deadline; three and two hosts as well."""
    for nodes in (4, 3, 2):
        found = check(cluster, f"whole-{nodes}", nodes=nodes)
        assert list(found.words.values()) == ["ok"] * nodes, (found, found.job.log)
        assert "MB/s with n2" in found.messages["n1"]
        assert found.took < DEADLINE_S / 2
        assert found.said == []


def left_nothing(found: Found) -> None:
    """No step of the job is left, and none of its processes, while the job itself goes on."""
    found.job.until(lambda: not steps(found.job), "the end of mpirun's steps")
    assert ranks(found.job.box) == []
    assert found.job.state == "RUNNING"
    assert found.took < DEADLINE_S + 4


def test_a_stopped_rank_is_named(cluster: Sandbox) -> None:
    """SIGSTOP before the program begins: n3 is named, the others are held up in MPI_Init, and no step is left."""
    python = executable(cluster, "stopped", STOPPED.replace("AFTER", "0"))
    job = start(cluster, "stopped-early", python, stay_s=60)
    job.until(lambda: bool(steps(job) and ranks(cluster)), "a step of mpirun's")
    found = finding(job)
    assert found.words == {"n1": "timeout", "n2": "timeout", "n3": "failed", "n4": "timeout"}, found
    assert found.messages["n1"] == "not measured, held up by n3"
    left_nothing(found)


@pytest.mark.parametrize("phase", ["barrier", "ring-1", "ring-2", "end"])
def test_a_rank_that_stops_on_its_way_is_named(cluster: Sandbox, phase: str) -> None:
    """SIGSTOP in the middle: the healthy ranks do not hang, n3 is named, and no step is left."""
    wrapper = program(cluster, f"in-{phase}.py", AT_A_PHASE.replace("PHASE", phase).replace("ACT", STOP))
    python = executable(cluster, f"stops-{phase}", f'#!/bin/sh\nexec {PYTHON} {wrapper} "$@"\n')
    found = finding(start(cluster, f"stopped-{phase}", python, stay_s=60))
    words = {"n1": "ok", "n2": "ok", "n3": "failed", "n4": "ok"}
    assert (found.words, found.messages["n3"]) == (words, f"its rank is stopped, in phase {phase}"), found
    left_nothing(found)


def test_a_host_that_is_cut_off_is_named(cluster: Sandbox) -> None:
    """eth0 of n3 goes down while it is in the ring: the others do not hang, and n3 is named."""
    wrapper = program(cluster, "in-cut.py", AT_A_PHASE.replace("PHASE", "ring-1").replace("ACT", UNTIL_CUT))
    python = executable(cluster, "cut", f'#!/bin/sh\nexec {PYTHON} {wrapper} "$@"\n')
    job = start(cluster, "cut-off", python, stay_s=60)
    job.until((cluster.home("alice") / "in-the-ring").exists, "n3's turn")
    cluster.break_node("n3", "network-cut")
    found = finding(job)
    assert found.words == {"n1": "ok", "n2": "ok", "n3": "failed", "n4": "ok"}, found
    assert found.took < DEADLINE_S + 8
    cluster.heal_node("n3")
    job.until(lambda: not steps(job), "the end of mpirun's steps")
    assert ranks(cluster) == []


def test_a_host_with_a_slow_cable_is_named(cluster: Sandbox) -> None:
    """20 Mbit/s out of n2: both its links are slow, and it alone is named; healed, all pass."""
    with shaped(cluster, "n2", "tbf rate 20mbit burst 32k latency 50ms"):
        found = check(cluster, "slow")
    assert found.words == {"n1": "ok", "n2": "failed", "n3": "ok", "n4": "ok"}, found
    assert found.messages["n2"].startswith("both its links are bad: ")
    assert found.took < DEADLINE_S
    assert set(check(cluster, "healed").words.values()) == {"ok"}


def test_a_slow_pair_is_named(cluster: Sandbox) -> None:
    """Only what n2 sends to n3 is slow: the pair is named, and counts against one of the two."""
    address = next(row.address for row in cluster.status().machines if row.name == "n3")
    lines = (
        "htb default 1",
        "class add dev eth0 parent HANDLE classid HANDLE1 htb rate 20gbit quantum 60000",
        "class add dev eth0 parent HANDLE classid HANDLE2 htb rate 20mbit",
        f"filter add dev eth0 parent HANDLE protocol ip u32 match ip dst {address}/32 flowid HANDLE2",
    )
    with shaped(cluster, "n2", "handle 1: htb default 1", *(line.replace("HANDLE", "1:") for line in lines[1:])):
        found = check(cluster, "pair")
    assert found.words == {"n1": "ok", "n2": "ok", "n3": "failed", "n4": "ok"}, found
    assert "n2-n3" in found.messages["n3"]


def test_without_mpi4py_nothing_is_known(cluster: Sandbox) -> None:
    """An interpreter without mpi4py is no host's fault: `error` for all, with its words."""
    found = check(cluster, "no-mpi4py", "/usr/bin/python3")
    assert set(found.words.values()) == {"error"}
    assert "No module named 'mpi4py'" in found.messages["n1"]


def test_a_launcher_that_starts_nothing(cluster: Sandbox) -> None:
    """n3 is cut off before: mpirun waits for its daemon there and starts no rank. That speaks against nobody."""
    job = start(cluster, "cut-before", stay_s=60, go=False)
    cluster.break_node("n3", "network-cut")
    (job.directory / "go").touch()
    found = finding(job)
    assert set(found.words.values()) == {"error"}, found
    # In Open MPI's own words: its daemon never came, or came and was lost before it had started a rank.
    never = found.messages["n1"].startswith("no rank was started: An ORTE daemon has unexpectedly failed")
    assert never or found.messages["n1"].startswith(
        "no rank was started: ORTE has lost communication with a remote daemon"
    )
    assert not never or any("mpirun did not end in 20 s" in line for line in found.said)
    assert found.took < DEADLINE_S + 8


def test_a_job_that_asks_for_it_leaves_the_slow_host_out(cluster: Sandbox) -> None:
    """`prechecks: [fabric]`: a line for every node before the program, and a restart without the one to blame."""
    fields = {"nodes": 4, "accelerators": {"gpu": 1}, "prechecks": ["fabric"], "retries": 1, "env": OPEN_MPI}
    with shaped(cluster, "n2", "tbf rate 20mbit burst 32kbit latency 400ms"):
        command = f'{PYTHON} -c \'print("on", __import__("os").uname().nodename)\''
        job = submit(cluster, "asked", mode="pytorch", launch="task", command=command, **fields)
        assert job.end() == "COMPLETED", job.log
    first, _, second = job.log.partition("[slurm_plugin] attempt 1 ")
    assert "[slurm_plugin] n2 fabric: failed: both its links are bad" in first
    assert "\non n" not in first
    lines = [line.split()[1] for line in second.splitlines() if " fabric: ok: " in line]
    assert lines == ["n1", "n3", "n4", "n5"]
    assert job.nodes == {"n1", "n3", "n4", "n5"}


def test_where_no_rank_can_be_started_the_job_runs_on(cluster: Sandbox) -> None:
    """Nobody can be named: the log says why, and the program starts."""
    command = "bash -c 'echo started' python3.99"  # the interpreter that the command names, and nobody has
    job = submit(cluster, "no-rank", command=command, prechecks=["fabric"], env=OPEN_MPI)
    assert job.end() == "COMPLETED", job.log
    assert job.log.splitlines().count("started") == 2
    assert job.log.count(" fabric: error: ") == 2
