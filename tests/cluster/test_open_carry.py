"""`slurm-plugin open` on a real Slurm, with small programs in place of sshd and Jupyter."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.sandbox import Sandbox
from slurm_plugin.supervisor.sessions import relay
from tests.cluster.jobs import ALICE_UID, Job, submit, workdir
from tests.waiting import until

pytestmark = pytest.mark.cluster

# In place of sshd: all bytes come back.
SSHD = "#!/bin/sh\nexec cat\n"
# In place of Jupyter: all bytes come back, over each connection to the socket of its configuration.
JUPYTER = """#!/usr/bin/python3
import json, socketserver, sys

class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)

with open(sys.argv[1].partition("=")[2]) as file:
    path = json.load(file)["ServerApp"]["sock"]
with socketserver.ThreadingUnixStreamServer(path, Handler) as server:
    server.serve_forever()
"""
BYTES = bytes(range(256)) * 4096


def running(box: Sandbox, name: str, **spec: Any) -> Job:
    """Return a job of alice's whose program runs, with these programs on its PATH."""
    directory = workdir(box, name)
    (directory / "bin").mkdir()
    for program, text in (("sshd", SSHD), ("jupyter-lab", JUPYTER)):
        (directory / "bin" / program).write_text(text, encoding="utf-8")
        (directory / "bin" / program).chmod(0o755)
    env = {"PATH": f"/home/alice/{name}/bin:/usr/bin:/bin"}
    command = "bash -c 'exit 5'" if "hold_on_failure" in spec else "sleep 9000"
    job = submit(box, name, made=True, **{"nodes": 2, "command": command, "env": env, **spec})
    (launch,) = until(lambda: list((directory / ".slurm_plugin").glob("*/launch.json")), lambda: job.log)
    wanted = "failed" if "hold_on_failure" in spec else "running"
    until(lambda: json.loads(launch.read_text(encoding="utf-8"))["state"] == wanted, lambda: job.log)
    return job


def carries(box: Sandbox, job: Job, *words: str) -> bytes:
    """Send BYTES through a carrier and return what comes back."""
    (job.directory / "sent").write_bytes(BYTES)
    name = job.directory.name
    shell = f"slurm-plugin open {job.id} {' '.join(words)} --carry <{name}/sent >{name}/received"
    box.run(["sh", "-c", shell])
    return (job.directory / "received").read_bytes()


@pytest.mark.full  # over 5 s
def test_ssh(cluster: Sandbox) -> None:
    """Every byte passes, in both directions, to the worker that was named; also in a hold."""
    job = running(cluster, "carry", hold_on_failure="1h")
    said = cluster.run(["slurm-plugin", "open", str(job.id), "code", "--worker=n2"]).stdout
    assert f"  Host job-{job.id}-worker-1\n" in said
    assert f" open {job.id} code --carry --worker=worker-1\n" in said
    assert carries(cluster, job, "code", "--worker=n2") == BYTES
    find = ["find", "/run/slurm_plugin/jobs", "-name", "sshd_config", "-printf", "%m %u\n"]
    assert cluster.run(find, user="root", node="n2").stdout == "600 alice\n"
    shell = cluster.run(["slurm-plugin", "open", str(job.id), "shell", "--worker=n2"], input="hostname; echo $RANK\n")
    assert shell.stdout == "n2\n1\n"
    words = ["slurm-plugin", "open", str(job.id), "jupyter", "--json"]
    form = cluster.run(words).stdout
    assert cluster.run(["slurm-plugin", "rerun", str(job.id)]).returncode == 0
    job.until(lambda: job.log.count("held for debugging until") == 2, "the second hold")
    assert cluster.run(words).stdout == form  # the same one: it outlives an attempt
    assert job.state == "RUNNING"


@pytest.mark.full  # over 5 s
def test_a_program_on_a_socket(cluster: Sandbox) -> None:
    """It runs when `open` has returned, and ends with its step. The relay carries it. Others cannot open it."""
    job = running(cluster, "relay")
    words = ["slurm-plugin", "open", str(job.id), "jupyter", "--worker=n2", "--json"]
    form = json.loads(cluster.run(words).stdout)
    assert form["node"] == "n2"
    shown = cluster.run(["stat", "-c", "%a %U", str(Path(form["socket"]).parent), form["socket"]], node="n2").stdout
    assert shown == "700 alice\n600 alice\n"
    assert json.loads(cluster.run(words).stdout) == form
    bobs = cluster.run(words, user="bob", check=False)
    assert (bobs.returncode, bobs.stdout) == (1, "")
    path = f"/tmp/slurm_plugin-{ALICE_UID}/{job.id}.jupyter.sock"
    client = (
        "import socket, sys, threading\n"
        f"client, data = socket.socket(socket.AF_UNIX), bytes(range(256)) * 4096\nclient.connect({path!r})\n"
        "threading.Thread(target=lambda: (client.sendall(data), client.shutdown(1))).start()\n"
        "sys.exit(b''.join(iter(lambda: client.recv(65536), b'')) != data)\n"
    )
    argv = ["slurm-plugin", "open", str(job.id), "jupyter", "--worker=n2", "--carry"]
    with cluster.popen(argv, "alice", "ctl", stdin=subprocess.PIPE) as process:
        try:
            until(lambda: cluster.run(["test", "-S", path], check=False).returncode == 0)
            both = f"python3 -c '{client.replace(chr(39), chr(34))}' & python3 -c '{client.replace(chr(39), chr(34))}'"
            assert cluster.run(["sh", "-c", f"{both} && wait $!"]).returncode == 0
            process.stdin.close()
            until(lambda: process.poll() is not None)
        finally:
            process.kill()
    cluster.run(["scancel", form["step"]])
    until(lambda: not cluster.run(["pgrep", "-f", "jupyter-lab"], node="n2", check=False).stdout)
    again = json.loads(cluster.run(words).stdout)
    assert again["step"] != form["step"]
    assert job.state == "RUNNING"
    assert len(BYTES) > relay.WINDOW


@pytest.mark.full  # over 5 s
def test_the_environment_of_a_job_that_ended(cluster: Sandbox) -> None:
    """A new job has its nodes, directory and variables, and runs no command."""
    spec = {"mode": "single", "nodes": 1, "retries": 2, "env": {"FROM": "spec"}, "command": "touch began"}
    job = submit(cluster, "again", **spec)
    assert job.end() == "COMPLETED"
    (job.directory / "began").unlink()
    shell = "echo $FROM $SLURM_JOB_ID; pwd; ls\n"
    done = cluster.run(["slurm-plugin", "open", "--new", str(job.id), "shell"], input=shell)
    first, directory, *found = done.stdout.splitlines()
    assert directory == "/home/alice/again"
    assert "began" not in found
    name, number = first.split()
    assert (name, int(number) > job.id) == ("spec", True)
    assert f"job {number}: RUNNING on n" in done.stderr
    fresh = Job(cluster, int(number), job.directory)
    assert fresh.state == "RUNNING"
    assert cluster.run(["slurm-plugin", "stop", number]).returncode == 0
    assert fresh.end() == "CANCELLED"
