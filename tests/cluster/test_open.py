"""`slurm-plugin open` on a real Slurm, with the real Jupyter, TensorBoard, ssh and sshd. Run by .ci/consumers."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import ALICE_UID, Job, as_json, submit, workdir
from tests.fetched import REASON, Consumers, fetched, required
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(fetched() is None, reason=REASON)]

PLAIN = "/usr/local/bin:/usr/bin:/bin"
# Prints the processes that have the text of stdin in their words or variables.
HAVE = """
import glob, sys
text = sys.stdin.read().encode()
for path in glob.glob("/proc/[0-9]*/cmdline") + glob.glob("/proc/[0-9]*/environ"):
    try:
        with open(path, "rb") as file:
            if text in file.read():
                print(path)
    except OSError:
        pass
"""
# A login node in one file: the ssh client runs it in place of a connection to port 22 of ctl.
LOGIN = """HostKey /home/alice/.ssh/login_key
AuthorizedKeysFile /home/alice/.ssh/id_ed25519.pub
StrictModes no
PidFile none
"""
# Writes three values into each of these directories, as training programs do.
EVENTS = """
import sys
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

for directory in sys.argv[1:]:
    writer = EventFileWriter(directory)
    for step in range(3):
        value = Summary.Value(tag="loss", simple_value=1.0 / (step + 1))
        writer.add_event(Event(wall_time=1e9 + step, step=step, summary=Summary(value=[value])))
    writer.close()
"""


@pytest.fixture(scope="module")
def programs() -> Consumers:
    """Return what .ci/consumers fetched."""
    return required()


def running(box: Sandbox, name: str, path: str, **spec: Any) -> Job:
    """Return a job of alice's whose program runs, with this PATH."""
    command = "bash -c 'echo runs; sleep 9000'"
    job = submit(box, name, **{"nodes": 1, "command": command, "env": {"PATH": path}, **spec})
    job.until(lambda: "runs\n" in job.log, "the program")
    return job


@contextmanager
def process(box: Sandbox, argv: list[str]) -> "Iterator[subprocess.Popen[bytes]]":
    """Run a program of alice's on the login node for the time of the block."""
    with box.popen(argv, "alice", "ctl", stdin=subprocess.PIPE) as started:
        try:
            yield started
        finally:
            started.kill()


def got(box: Sandbox, *words: str) -> str:
    """Return what curl prints on the login node, once it succeeds; `words` are its arguments."""
    argv = ["curl", "--silent", "--fail-with-body", *words]

    def answer() -> str:
        done = box.run(argv, check=False)
        return "" if done.returncode else done.stdout

    return until(answer, str(words))


@pytest.fixture
def login(cluster: Sandbox, programs: Consumers) -> Path:
    """Make alice a key, and a login node that her ssh reaches. Return her home."""
    home = cluster.home("alice")
    shutil.rmtree(home / ".ssh", ignore_errors=True)
    (home / ".ssh").mkdir(mode=0o700)
    for name in ("id_ed25519", "login_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", home / ".ssh" / name], check=True)
    (home / ".ssh/login").write_text(LOGIN, encoding="utf-8")
    proxy = f"{programs.sshd} -i -f /home/alice/.ssh/login"
    config = f"Host ctl\n ProxyCommand {proxy}\n StrictHostKeyChecking no\n LogLevel ERROR\n"
    (home / ".ssh/config").write_text(config, encoding="utf-8")
    for each in (home / ".ssh", *(home / ".ssh").iterdir()):
        shutil.chown(each, ALICE_UID, ALICE_UID)
        each.chmod(0o700 if each.is_dir() else 0o600)
    return home


def test_jupyter_through_ssh(cluster: Sandbox, programs: Consumers, login: Path) -> None:
    """The printed line and URL work. No port and no token can be seen on the node, and other users cannot enter."""
    job = running(cluster, "open-jupyter", f"{programs.jupyter_python.parent}:{programs.sshd.parent}:{PLAIN}")
    before = cluster.run(["ss", "-ltn"], node="n1").stdout
    form = as_json(cluster, "open", job.id, "jupyter", "--port=8899")
    assert cluster.run(["ss", "-ltn"], node="n1").stdout == before
    token = form["url"].partition("token=")[2]
    assert len(token) == 32
    assert cluster.run(["python3", "-c", HAVE], user="root", node="n1", input=token).stdout == ""
    assert cluster.run(["python3", "-c", HAVE], user="root", node="n1", input="jupyter-lab").stdout
    folder = str(Path(form["socket"]).parent)
    shown = cluster.run(["stat", "-c", "%a %U", folder, form["socket"]], node="n1").stdout
    assert shown == "700 alice\n600 alice\n"
    assert cluster.run(["ls", folder], user="bob", node="n1", check=False).returncode != 0
    again = as_json(cluster, "open", job.id, "jupyter", "--port=8899")
    assert again == form
    with process(cluster, ["sh", "-c", f"exec {form['ssh']}"]):
        url = form["url"]
        assert "JupyterLab" in got(cluster, "--location", "--cookie-jar", "/dev/null", url)
        assert cluster.run(["curl", "-sf", "http://localhost:8899/api/contents"], check=False).returncode != 0
        program = Path(__file__).with_name("jupyter_client.py").read_text(encoding="utf-8")
        argv = [str(programs.jupyter_python), "-c", program, "localhost:8899", token, "import os; print(os.uname()[1])"]
        assert cluster.run(argv).stdout == "n1\n"
    cluster.run(["scancel", form["step"]])
    asks = ["curl", "--silent", "--unix-socket", form["socket"], "http://localhost/"]
    until(lambda: cluster.run(asks, node="n1", check=False).returncode)
    assert job.state == "RUNNING"


def test_an_editor_through_ssh(cluster: Sandbox, programs: Consumers, login: Path) -> None:
    """The printed host has all that an editor needs: commands, a shell on stdin, files, forwarding of ports."""
    job = running(cluster, "open-code", f"{programs.sshd.parent}:{PLAIN}", nodes=2)
    said = cluster.run(["slurm-plugin", "open", str(job.id), "code", "--worker=worker-1"]).stdout.splitlines()
    first = said.index(f"  Host job-{job.id}-worker-1")
    block = [line for line in said[first:] if line.startswith("  ")]
    with (login / ".ssh/config").open("a", encoding="utf-8") as file:
        file.write("\n".join(block) + "\n")
    host = f"job-{job.id}-worker-1"
    done = cluster.run(["ssh", host, "hostname; echo $RANK $SLURM_PLUGIN_ATTEMPT; exit 7"], check=False)
    assert (done.returncode, done.stdout) == (7, "n2\n1 0\n"), done.stderr
    script = cluster.run(["ssh", "-T", "-D", "8877", host, "sh"], input="cd /tmp && pwd\nuname -n\n")
    assert script.stdout == "/tmp\nn2\n"
    cluster.run(["sh", "-c", f"echo text >sent && scp -q sent {host}:received && ssh {host} cat received"])
    serves = "python3 -m http.server --bind 127.0.0.1 8866"
    with (
        process(cluster, ["ssh", "-L", "8867:localhost:8866", host, serves]),
        process(cluster, ["ssh", "-N", "-R", "8855:localhost:1", "-o", "ExitOnForwardFailure=yes", host]) as reverse,
    ):
        assert "Directory listing" in got(cluster, "http://localhost:8867/")
        assert until(lambda: reverse.poll() is not None)  # a port of the node stays closed
    assert job.state == "RUNNING"


def test_tensorboard_of_a_batch_without_an_ssh_server(cluster: Sandbox, programs: Consumers) -> None:
    """It shows all tasks, and the relay of the printed line carries it. The experiment's trials are found by name."""
    directory = workdir(cluster, "open-batch")
    (directory / "events.py").write_text(EVENTS, encoding="utf-8")
    task = "bash -c 'python3 events.py $SLURM_PLUGIN_TASK_DIRECTORY; echo runs; sleep 9000'"
    path = f"{programs.jupyter_python.parent}:{PLAIN}"
    spec = {"name": "sizes", "mode": "single", "tasks": [task, task], "env": {"PATH": path}}
    (directory / "job.yaml").write_text(json.dumps(spec), encoding="utf-8")
    array = json.loads(cluster.run(["sh", "-c", "cd open-batch && slurm-plugin submit --json job.yaml"]).stdout)["job"]
    until(lambda: len([each for each in directory.glob("sizes-*/*.out") if "runs\n" in each.read_text()]) == 2)
    form = as_json(cluster, "open", array, "tensorboard")
    assert form["shows"] == [f"/home/alice/open-batch/sizes-{number}" for number in (0, 1)]
    assert form["proxy_command"] is None
    assert form["ssh"].startswith("ssh -L 6006:")
    _, _, relay = form["ssh"].split()[2].partition(":")
    with process(cluster, ["sh", "-c", f"exec {form['ssh'].split('@ctl ')[1]}"]) as carrier:
        through = ("--unix-socket", relay, "http://localhost/index.js")
        page = got(cluster, *through)
        assert len(page) > 1_000_000
        at_once = "".join(f" & curl -s {' '.join(through)} | cksum" for _ in range(8))
        sums = cluster.run(["sh", "-c", f"{at_once[3:]}; wait"]).stdout.split("\n")
        assert [each.split()[1] for each in sums[:-1]] == [str(len(page.encode()))] * 8
        assert len({*sums[:-1]}) == 1
        runs = (*through[:2], "http://localhost/data/runs")
        until(lambda: sorted(json.loads(got(cluster, *runs))) == ["sizes-0", "sizes-1"], lambda: got(cluster, *runs))
        assert cluster.run(["stat", "-c", "%a", relay]).stdout == "600\n"
        assert carrier.stdin
        carrier.stdin.close()  # ssh has gone
        assert until(lambda: carrier.poll() is not None)
    assert cluster.run(["test", "-e", relay], check=False).returncode == 1


def test_a_new_environment(cluster: Sandbox, programs: Consumers) -> None:
    """The spec's job starts without its command, opens, and lasts until it is stopped."""
    directory = workdir(cluster, "open-new")
    (directory / "events.py").write_text(EVENTS, encoding="utf-8")
    path = f"{programs.jupyter_python.parent}:{PLAIN}"
    spec = {"name": "train", "mode": "pytorch", "nodes": 2, "command": "touch began", "retries": 3, "array": "1-9"}
    (directory / "job.yaml").write_text(json.dumps({**spec, "env": {"PATH": path}}), encoding="utf-8")
    words = ["slurm-plugin", "open", "--new", "job.yaml", "tensorboard", "--logdir=runs", "--json"]
    form = json.loads(cluster.run(["sh", "-c", f"cd open-new && exec {' '.join(words)}"]).stdout)
    assert form["shows"] == ["runs"]
    job = Job(cluster, form["job"], directory)
    assert job.state == "RUNNING"
    shell = cluster.run(["slurm-plugin", "open", str(job.id), "shell"], input="echo $WORLD_SIZE; pwd\n")
    assert shell.stdout == "2\n/home/alice/open-new\n"
    bobs = cluster.run(["slurm-plugin", "open", str(job.id), "tensorboard"], user="bob", check=False)
    assert bobs.returncode == 1
    assert cluster.run(["slurm-plugin", "stop", str(job.id)]).returncode == 0
    assert job.end() == "CANCELLED"
    assert not (directory / "began").exists()
