"""The fabric check on a real Slurm with a real Open MPI: what it says of whole, stopped, slow and cut hosts."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import Job, workdir
from tests.cluster.test_launch import OPEN_MPI, PYTHON, program

pytestmark = pytest.mark.cluster

DEADLINE_S = 20.0
# Runs on the deployed copy, as the supervisor does; what it found goes to a file, with the steps that are left.
DRIVER = """
import json, os, sys, time
sys.path.insert(0, "/etc/slurm/slurm_plugin/lib")
from slurm_plugin.job import fabric
from hostfiles import from_slurm

python, deadline_s = sys.argv[1], float(sys.argv[2])
hosts = from_slurm(os.environ, 1).names
started, said = time.monotonic(), []
found = fabric.check(hosts, launcher=fabric.open_mpi(hosts), python=python, environ=os.environ,
                     deadline_s=deadline_s, say=said.append)
found = {"took": time.monotonic() - started, "said": said, "verdicts": {name: list(v) for name, v in found.items()}}
with open("found.new", "w") as file:
    json.dump(found, file)
os.rename("found.new", "found.json")
time.sleep(float(sys.argv[3]))
"""
# The program's python; on n3 somebody stops it, after AFTER seconds or where the program has come to a certain place.
STOPPED = f"""#!/bin/bash
[ "$(hostname)" = n3 ] && (sleep AFTER; kill -STOP $$) &
exec {PYTHON} "$@"
"""
IN_THE_RING = """
import os, runpy, signal, sys
sys.argv.pop(0)
write = os.write
def stop_in(file, text):
    done = write(file, text)
    if text == b"PHASE\\n" and os.uname().nodename == "n3":
        os.kill(os.getpid(), signal.SIGSTOP)
    return done
os.write = stop_in
sys.path.insert(0, "")
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@dataclass(frozen=True, slots=True)
class Found:
    """What the check said in a job that goes on for a while."""

    job: Job
    took: float
    said: list[str]
    words: dict[str, str]  # host -> verdict
    messages: dict[str, str]


def check(box: Sandbox, name: str, python: str = PYTHON, nodes: int = 4, stay_s: int = 0) -> Found:
    """Run it as alice, in a plain batch job."""
    driver = program(box, "fabric.py", DRIVER)
    directory = workdir(box, name)
    words = ["sbatch", "--parsable", f"--nodes={nodes}", f"--chdir=/home/alice/{name}", "--output=job.out"]
    script = f"#!/bin/bash\nexec /usr/bin/python3 -I -S {driver} {python} {DEADLINE_S} {stay_s}\n"
    job = Job(box, int(box.run(words, input=script, env=OPEN_MPI).stdout), directory)
    job.until((directory / "found.json").exists, "the verdicts")
    found = json.loads((directory / "found.json").read_text())
    verdicts = found["verdicts"]
    return Found(
        job,
        found["took"],
        found["said"],
        {host: verdict[1] for host, verdict in verdicts.items()},
        {host: verdict[3] for host, verdict in verdicts.items()},
    )


def executable(box: Sandbox, name: str, text: str) -> str:
    """A program of alice's that can be called."""
    path = program(box, name, text)
    (box.home("alice") / name).chmod(0o755)
    return path


def steps(job: Job) -> list[str]:
    """The job's steps that Slurm knows of, the batch script's own left out; up to 5 s for it to hear of their end."""
    end = time.monotonic() + 5
    while True:
        out = job.box.run(["squeue", "-h", "-s", "-j", str(job.id), "-o", "%i"]).stdout.split()
        left = [step for step in out if not step.endswith((".batch", ".extern"))]
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.2)


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
        found.job.end()


def test_a_stopped_rank_is_named(cluster: Sandbox) -> None:
    """SIGSTOP before MPI_Init: n3 is named, the others are held up, and no step is left."""
    python = executable(cluster, "stopped", STOPPED.replace("AFTER", "0"))
    found = check(cluster, "stopped-early", python, stay_s=30)
    left, running = steps(found.job), ranks(cluster)
    assert found.words == {"n1": "timeout", "n2": "timeout", "n3": "failed", "n4": "timeout"}, found
    assert "n3" in found.messages["n1"]
    assert (left, running) == ([], [])


@pytest.mark.parametrize("phase", ["barrier", "ring-1", "ring-2", "end"])
def test_a_rank_that_stops_on_its_way_is_named(cluster: Sandbox, phase: str) -> None:
    """SIGSTOP in the middle: the healthy ranks do not hang, n3 is named, and no step is left."""
    wrapper = program(cluster, f"in-{phase}.py", IN_THE_RING.replace("PHASE", phase))
    python = executable(cluster, f"stops-{phase}", f'#!/bin/sh\nexec {PYTHON} {wrapper} "$@"\n')
    found = check(cluster, f"stopped-{phase}", python, stay_s=30)
    left, running = steps(found.job), ranks(cluster)
    assert [host for host, word in found.words.items() if word == "failed"] == ["n3"], (found, found.job.log)
    assert f"phase {phase}" in found.messages["n3"]
    assert found.took < DEADLINE_S + 4
    assert (left, running) == ([], [])


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


def test_a_host_that_is_cut_off_is_named_or_nothing_is_said(cluster: Sandbox) -> None:
    """eth0 of n3 goes down before the launch: mpirun starts no rank anywhere, which speaks against nobody."""
    found = check(cluster, "no-mpi4py", "/usr/bin/python3")
    assert set(found.words.values()) == {"error"}
    assert "No module named 'mpi4py'" in found.messages["n1"]
