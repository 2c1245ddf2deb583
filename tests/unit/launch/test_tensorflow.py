"""Mirrors slurm_plugin/launch/tensorflow.py: TF_CONFIG in every task, and servers that end after the other tasks."""

import json
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from hostfiles import Allocation, Host, tensorflow
from slurm_plugin.launch import MODES, Options, Place, Shape
from slurm_plugin.launch.tensorflow import SERVERS_END
from tests.children import children
from tests.unit.launch.tasks import exports
from tests.waiting import HANG_S, until

MODE = MODES["tensorflow"]
ALLOCATION = Allocation((Host("n1", 2, 2), Host("n2", 2, 2)), 17)
ONE_A_HOST = Allocation((Host("n1", 2, 1), Host("n2", 2, 1)), 17)


def test_every_task_finds_what_hostfiles_says_of_it() -> None:
    """TaskProlog's lines give each task exactly hostfiles.tensorflow's TF_CONFIG. With groups, servers are tasks."""
    for options, grouped in [(Options(), False), (Options(ps=1), True), (Options(chief=True), False)]:
        for launch in ["node", "task"]:
            place = Place(ALLOCATION, 61000, "/w", launch, options=options, grouped=grouped)
            step = ALLOCATION if launch == "task" else ONE_A_HOST
            for task in range(step.tasks):
                found = exports(MODE.task_script(place), task, *step.places[task])
                expected = tensorflow.config(step, 61000, task, ps=options.ps, chief=options.chief)
                assert list(found) == ["TF_CONFIG"], options
                assert json.loads(found["TF_CONFIG"]) == expected, options


def test_servers_stand_beside_the_tasks() -> None:
    """Both tasks train; with a chief and an evaluator no task is left for a server. The launch has their number."""
    place = Place(ALLOCATION, 61000, "/w", options=Options(ps=3, chief=True))
    servers = ["n1:61001", "n2:61001", "n1:61002"]
    told = [json.loads(exports(MODE.task_script(place), task, task, 0)["TF_CONFIG"]) for task in range(2)]
    assert [each["task"]["type"] for each in told] == ["chief", "worker"]
    assert [each["cluster"] for each in told] == [{"chief": ["n1:61000"], "worker": ["n2:61000"], "ps": servers}] * 2
    assert MODE.variables(place) == {"SLURM_PLUGIN_WORKERS": "1", "SLURM_PLUGIN_SERVERS": "3"}
    grouped = place._replace(options=Options(ps=1), grouped=True)
    assert MODE.variables(grouped) == {"SLURM_PLUGIN_WORKERS": "1"}


def test_the_launch() -> None:
    """One task for each node or slot. The lines that end servers are there only with servers."""
    words = ("python", "train.py")
    assert MODE.launch(words, Shape(2, 4)).argv[:4] == ("srun", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1")
    assert MODE.launch(words, Shape(2, 4, "task")).argv[2] == "--ntasks=8"
    assert "bash" not in MODE.launch(words, Shape(2, 4)).argv
    with_servers = MODE.launch(words, Shape(2, 4, options=Options(ps=1))).argv
    assert with_servers[-6:] == ("bash", "-p", "-c", SERVERS_END, *words)


def test_one_port_a_task_of_the_first_node() -> None:
    """They count up from the job's, those of servers after those of tasks."""
    assert MODE.ports(Place(ALLOCATION, 61000, "/w")) == 1
    assert MODE.ports(Place(ALLOCATION, 61000, "/w", "task")) == 2
    assert MODE.ports(Place(ALLOCATION, 61000, "/w", "task", options=Options(ps=3))) == 4


def started(
    directory: Path, rank: int, kind: str, program: str, workers: int, *, servers: int = 0, local: int = 0
) -> "subprocess.Popen[bytes]":
    """Run one task with these lines, on the second of two nodes."""
    environ = {
        "PATH": "/usr/bin:/bin",
        "TF_CONFIG": json.dumps({"cluster": {"ps": ["n1:1"]}, "task": {"type": kind, "index": 0}}),
        "CUDA_VISIBLE_DEVICES": "0",
        "SLURM_PLUGIN_DIRECTORY": str(directory),
        "SLURM_PLUGIN_ATTEMPT": "0",
        "SLURM_PLUGIN_WORKERS": str(workers),
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(local),
        "SLURM_NODEID": "1",
        "SLURM_STEP_NUM_NODES": "2",
        **({"SLURM_PLUGIN_SERVERS": str(servers)} if servers else {}),
    }
    return subprocess.Popen(["bash", "-p", "-c", SERVERS_END, "sh", "-c", program], env=environ, cwd=directory)


def pause(pid: int) -> int:
    """Return the pid of the lines' current `sleep 1`, 0 outside one."""
    for child in children(pid):
        with suppress(OSError):
            if Path(f"/proc/{child}/cmdline").read_bytes() == b"sleep\x001\0":
                return child
    return 0


@pytest.mark.full  # 6 s
def test_a_server_ends_well_when_all_workers_have(tmp_path: Path) -> None:
    """It continues while one of two workers runs: two more pauses begin, with a check between them."""
    with started(tmp_path, 2, "ps", "exec sleep 1000000", 2) as server:
        with started(tmp_path, 0, "worker", "exit 0", 2) as first:
            assert first.wait(HANG_S) == 0
        seen = {until(lambda: pause(server.pid))}
        while len(seen) < 3:
            seen.add(until(lambda: pause(server.pid)))
        assert server.poll() is None
        with started(tmp_path, 1, "worker", "exit 0", 2) as second:
            assert second.wait(HANG_S) == 0
        assert server.wait(HANG_S) == 0


def test_a_failure_is_handed_on_and_tells_nobody_to_end(tmp_path: Path) -> None:
    """The program's own code. srun ends the others."""
    tasks = [started(tmp_path, number, kind, "exit 7", 3) for number, kind in enumerate(("ps", "worker", "chief"))]
    assert [task.wait(HANG_S) for task in tasks] == [7, 7, 7]
    assert list(tmp_path.glob("ended/*")) == []


def test_a_signal_of_the_programs_own_ends_only_what_it_ends(tmp_path: Path) -> None:
    """A checkpoint signal reaches both the program and bash."""
    program = "trap 'exit 3' USR1; echo $$ >pid; mv pid ready; while :; do sleep 0.1; done"
    with started(tmp_path, 0, "worker", program, 1) as task:
        until((tmp_path / "ready").exists)
        for pid in (task.pid, int((tmp_path / "ready").read_text())):
            os.kill(pid, signal.SIGUSR1)
        assert task.wait(HANG_S) == 3


SERVES = """case $TF_CONFIG in
*'"type": "ps"'*)
  echo "$TF_CONFIG" >server.$$; echo $CUDA_VISIBLE_DEVICES >new.$$; mv new.$$ gpus.$$
  exec sleep 1000000 ;;
esac
until [ -e go ]; do sleep 0.1; done"""


@pytest.mark.full  # 6 s
def test_servers_beside_a_worker(tmp_path: Path) -> None:
    """The node's share of five servers, without GPUs. They outlive their worker until all workers have ended."""
    with started(tmp_path, 1, "worker", SERVES, 2, servers=5) as task:
        until(lambda: len([*tmp_path.glob("gpus.*")]) == 2)  # each file gets this name when it is complete
        told = [json.loads(path.read_text()) for path in tmp_path.glob("server.*")]
        cluster = {"ps": ["n1:1"]}
        assert sorted(each["task"]["index"] for each in told) == [1, 3]
        assert [(each["cluster"], each["task"]["type"]) for each in told] == [(cluster, "ps")] * 2
        assert {path.read_text() for path in tmp_path.glob("gpus.*")} == {"-1\n"}
        (tmp_path / "go").touch()
        until((tmp_path / "ended/worker.1").exists)
        seen = {until(lambda: pause(task.pid))}
        while len(seen) < 3:
            seen.add(until(lambda: pause(task.pid)))
        assert task.poll() is None
        with started(tmp_path, 0, "worker", "exit 0", 2) as other:
            assert other.wait(HANG_S) == 0
        assert task.wait(HANG_S) == 0


def test_only_the_first_task_of_a_node_has_servers(tmp_path: Path) -> None:
    """A second one runs only its own program."""
    (tmp_path / "go").touch()
    with started(tmp_path, 3, "worker", SERVES, 1, servers=5, local=1) as task:
        assert task.wait(HANG_S) == 0
    assert list(tmp_path.glob("server.*")) == []


def test_a_server_that_fails_ends_its_task(tmp_path: Path) -> None:
    """With its code. The worker beside it is ended, and no other task ends well."""
    program = """case $TF_CONFIG in *'"type": "ps"'*) exit 9 ;; esac; echo $$ >pid; exec sleep 1000000"""
    with started(tmp_path, 1, "worker", program, 1, servers=2) as task:
        assert task.wait(HANG_S) == 9
    assert list(tmp_path.glob("ended/*")) == []


def test_a_worker_that_fails_takes_its_servers_along(tmp_path: Path) -> None:
    """Immediately: a running server would hold the step."""
    program = """case $TF_CONFIG in *'"type": "ps"'*) echo $$ >pid; mv pid serves; exec sleep 1000000 ;; esac
    until [ -e serves ]; do sleep 0.1; done; exit 7"""
    with started(tmp_path, 1, "worker", program, 1, servers=2) as task:
        assert task.wait(HANG_S) == 7
    until(lambda: not Path(f"/proc/{(tmp_path / 'serves').read_text().strip()}/fd").exists())
