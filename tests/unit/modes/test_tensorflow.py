"""Mirrors slurm_plugin/modes/tensorflow.py: TF_CONFIG in every task, and servers that end with the others."""

import json
import subprocess
import time
from pathlib import Path

import pytest

from hostfiles import Allocation, Host, tensorflow
from slurm_plugin.modes import MODES, Options, Place, Shape
from slurm_plugin.modes.tensorflow import SERVERS_END
from tests.children import children
from tests.unit.modes.tasks import exports

MODE = MODES["tensorflow"]
ALLOCATION = Allocation((Host("n1", 2, 2), Host("n2", 2, 2)), 17)


@pytest.mark.parametrize("launch", ["node", "task"])
@pytest.mark.parametrize("options", [Options(), Options(ps=1), Options(chief=True)], ids=["reduce", "ps", "chief"])
def test_every_task_finds_what_hostfiles_says_of_it(launch: str, options: Options) -> None:
    """TaskProlog's lines give each task exactly TF_CONFIG of hostfiles.tensorflow."""
    place = Place(ALLOCATION, 61000, "/w", launch, options=options)
    step = ALLOCATION if launch == "task" else ALLOCATION.one_task_a_host
    for task in range(step.tasks):
        found = exports(MODE.task_script(place), task, *step.places[task])
        expected = tensorflow.config(step, 61000, task, ps=options.ps, chief=options.chief)
        assert list(found) == ["TF_CONFIG"]
        assert json.loads(found["TF_CONFIG"]) == expected


def test_the_launch() -> None:
    """One task a node, or one a slot; the lines that end servers only where there are some."""
    words = ("python", "train.py")
    assert MODE.launch(words, Shape(2, 4)).argv[:4] == ("srun", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1")
    assert MODE.launch(words, Shape(2, 4, "task")).argv[2] == "--ntasks=8"
    assert "bash" not in MODE.launch(words, Shape(2, 4)).argv
    with_servers = MODE.launch(words, Shape(2, 4, options=Options(ps=1))).argv
    assert with_servers[-5:] == ("bash", "-c", SERVERS_END, *words)


def test_one_port_a_task_of_the_first_node() -> None:
    """They count up from the job's."""
    assert MODE.ports(Place(ALLOCATION, 61000, "/w")) == 1
    assert MODE.ports(Place(ALLOCATION, 61000, "/w", "task")) == 2


def started(directory: Path, rank: int, kind: str, program: str, workers: int) -> "subprocess.Popen[bytes]":
    """One task under the lines."""
    environ = {
        "PATH": "/usr/bin:/bin",
        "TF_CONFIG": json.dumps({"cluster": {"ps": ["n1:1"]}, "task": {"type": kind, "index": 0}}),
        "SLURM_PLUGIN_DIRECTORY": str(directory),
        "SLURM_PLUGIN_ATTEMPT": "0",
        "SLURM_PLUGIN_WORKERS": str(workers),
        "SLURM_PROCID": str(rank),
    }
    return subprocess.Popen(["bash", "-c", SERVERS_END, "sh", "-c", program], env=environ, cwd=directory)


def test_a_server_ends_well_when_all_workers_have(tmp_path: Path) -> None:
    """It goes on while one of two workers runs."""
    server = started(tmp_path, 2, "ps", "exec sleep 60", 2)
    first = started(tmp_path, 0, "worker", "exit 0", 2)
    assert first.wait(20) == 0
    time.sleep(2.5)
    assert server.poll() is None
    assert started(tmp_path, 1, "worker", "exit 0", 2).wait(20) == 0
    assert server.wait(20) == 0


@pytest.mark.parametrize("kind", ["ps", "worker", "chief"])
def test_a_failure_is_handed_on_and_tells_nobody_to_end(tmp_path: Path, kind: str) -> None:
    """The program's own code; srun ends the others."""
    assert started(tmp_path, 0, kind, "exit 7", 1).wait(20) == 7
    assert list(tmp_path.glob("ended.0/*")) == []


def test_a_signal_of_the_programs_own_ends_only_what_it_ends(tmp_path: Path) -> None:
    """A checkpoint signal reaches program and bash alike."""
    task = started(tmp_path, 0, "worker", "trap 'exit 3' USR1; touch ready; while :; do sleep 0.1; done", 1)
    deadline = time.monotonic() + 20
    while not (tmp_path / "ready").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    program = next(pid for pid in children(task.pid) if b"trap" in Path(f"/proc/{pid}/cmdline").read_bytes())
    for pid in (task.pid, program):
        subprocess.run(["kill", "-USR1", str(pid)], check=True)
    assert task.wait(20) == 3
