"""torch.distributed.run itself, once for each of two nodes, as mode pytorch starts it: its logs and its error files."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest

from hostfiles import Allocation, Host
from slurm_plugin.launch import MODES, Place, Shape
from slurm_plugin.launch.log_copy import Logs
from slurm_plugin.logs import library
from slurm_plugin.logs.diagnosis import of_files
from slurm_plugin.records import log_files
from slurm_plugin.supervisor.run import free_port, is_free
from tests.unit.launch.tasks import exports
from tests.waiting import HANG_S, until

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed in this environment")
MODE = MODES["pytorch"]
# Rank 2 raises; the others wait to be ended for it.
PROGRAM = """
import os, sys, time
from torch.distributed.elastic.multiprocessing.errors import record

@record
def main():
    rank = int(os.environ["RANK"])
    print("out", rank, *sys.argv[1:], flush=True)
    print("err", rank, file=sys.stderr, flush=True)
    if rank == int(os.environ["BAD"]):
        raise KeyError("lost")
    while int(os.environ["BAD"]) >= 0:
        time.sleep(1)

main()
"""

# Rank 2 does not make the second call, and each writes its dump, as the watchdog of NCCL does.
DUMPS = """
import glob, os, time
import torch, torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace
dist.init_process_group("gloo")
for _ in range(1 if dist.get_rank() == 2 else 2):
    work = dist.all_reduce(torch.ones(4), async_op=True)
prefix = os.environ["TORCH_FR_DUMP_TEMP_FILE"]
open(prefix + str(dist.get_rank()), "wb").write(_dump_fr_trace())
while len(glob.glob(os.path.dirname(prefix) + "/../*/trace_rank_*")) < 3:
    time.sleep(0.1)
os._exit(0)
"""


def run(directory: Path, per: str, slots: Sequence[int], bad: int, *command: str) -> list[tuple[int, str]]:
    """Run the program on nodes with so many ranks; return the exit code and the output of each node."""
    hosts = tuple(Host(f"n{at + 1}", count, 1) for at, count in enumerate(slots))
    place = Place(Allocation(hosts, 7), free_port(os.getpid(), 0, 1, is_free), str(directory))
    shape = Shape(nodes=len(slots), slots=slots[0], logs=Logs(f"{directory}/logs/j-7", per))
    argv = MODE.launch(command, shape).argv
    words = argv[argv.index("bash") :]
    common = {**os.environ, **MODE.variables(place), "MASTER_ADDR": "127.0.0.1", "BAD": str(bad)}
    common |= {"SLURM_PLUGIN_DIRECTORY": str(directory), "SLURM_PLUGIN_ATTEMPT": "1"}
    nodes = []
    for node in range(len(slots)):
        slurm = {"SLURM_PROCID": str(node), "SLURM_NODEID": str(node), "SLURM_LOCALID": "0"}
        own = exports(
            MODE.task_script(place), node, node, 0, **{**common, **slurm, "SLURMD_NODENAME": hosts[node].name}
        )
        environ = {**common, **slurm, **own}
        nodes.append(subprocess.Popen(words, env=environ, stdout=-1, stderr=-2, stdin=-3, text=True, process_group=0))
    until(lambda: any(node.poll() is not None for node in nodes), "the end of a node")
    for node in nodes:
        if node.poll() is None and bad >= 0:  # as srun does with --kill-on-bad-exit
            os.killpg(node.pid, signal.SIGTERM)
    return [(node.returncode, out) for node in nodes for out, _ in (node.communicate(timeout=HANG_S),)]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Its file, in a directory with a blank in its name."""
    file = tmp_path / "my code" / "train.py"
    file.parent.mkdir()
    file.write_text(PROGRAM)
    return file


@pytest.mark.full  # 8 s
def test_a_rank_that_raises(program: Path, tmp_path: Path) -> None:
    """Its error file names its rank and node, also where nodes have unlike numbers of ranks."""
    ended = run(tmp_path, "both", (1, 2), 2, sys.executable, str(program), "--lr", "1 e")
    assert ended[1][0] == 1, ended
    found = log_files.error_files(tmp_path, 1)
    assert [(each.node, each.rank) for each in found] == [("n2", 2)]
    assert "KeyError" in found[0].path.read_text()
    assert "no error file defined for parent" not in ended[1][1]
    assert (tmp_path / "errors/1/n2/error.json").exists()
    files = {each.path.name: each.path.read_text() for each in log_files.find(tmp_path / "logs", 7)}
    ranks = ("0-device-0", "1-device-0", "2-device-1")
    assert set(files) == {"j-7-worker-0.log", "j-7-worker-1.log", *(f"j-7-proc-rank-{rank}.txt" for rank in ranks)}
    for rank, node in ((0, 0), (1, 1), (2, 1)):
        text = files[f"j-7-proc-rank-{ranks[rank]}.txt"]
        assert {f"out {rank} --lr 1 e", f"err {rank}"} <= set(text.splitlines())
        assert f"out {rank} --lr 1 e" in files[f"j-7-worker-{node}.log"].splitlines()
        assert f"out {rank} --lr 1 e" in ended[node][1].splitlines()
    assert "KeyError: 'lost'" in files["j-7-proc-rank-2-device-1.txt"]
    assert "ChildFailedError" in files["j-7-worker-1.log"]
    assert "ChildFailedError" not in files["j-7-proc-rank-2-device-1.txt"]


@pytest.mark.parametrize(
    "options",
    [
        ("-m", "train"),
        pytest.param(("-X", "dev", "train.py"), marks=pytest.mark.full),  # 7 s
        pytest.param(("-u", "train.py"), marks=pytest.mark.full),  # 7 s
    ],
)
def test_every_form_of_a_python_command(
    options: tuple[str, ...], program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module, and an interpreter with options, have their files too."""
    monkeypatch.chdir(program.parent)
    assert run(tmp_path, "rank", (2,), -1, sys.executable, *options, "x")[0][0] == 0
    files = log_files.find(tmp_path / "logs", 7)
    assert [each.path.read_text() for each in files] == [f"out {rank} x\nerr {rank}\n" for rank in range(2)]
    assert log_files.error_files(tmp_path, 1) == []


@pytest.mark.full  # over 5 s
def test_dumps_of_the_flight_recorder(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the program has switched it on, they are in the job's directory, and the diagnosis reads them."""
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "100")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    program.write_text(DUMPS)
    assert [code for code, _ in run(tmp_path, "rank", (1, 2), -1, sys.executable, str(program))] == [0, 0]
    found = of_files(log_files.dumps(tmp_path, 1), library.load()).cause
    assert (found.failure, found.ranks) == ("rank_hang", (2,))


SWITCHES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, None),
        ({SWITCHES[0]: "2000"}, log_files.DUMP_FILES[0]),
        ({SWITCHES[1]: "2000"}, log_files.DUMP_FILES[1]),  # all releases know this name
        ({SWITCHES[0]: "2000", SWITCHES[1]: "2000"}, log_files.DUMP_FILES[1]),
        ({SWITCHES[0]: "2000", log_files.DUMP_FILES[0]: "/mine"}, None),
        ({SWITCHES[0]: "2000", log_files.DUMP_FILES[1]: "/mine"}, None),
    ],
)
@pytest.mark.parametrize("launch", ["node", "task"])
def test_where_dumps_go(launch: str, given: dict[str, str], wanted: str | None, tmp_path: Path) -> None:
    """Into the directory of the node's error files, unless the user names another place."""
    place = Place(Allocation((Host("n1", 2, 1),), 7), 1234, str(tmp_path), launch=launch)
    found = exports(MODE.task_script(place), 0, 0, 0, **{"SLURM_PLUGIN_DIRECTORY": str(tmp_path), **given})
    there = {name: value for name, value in found.items() if name in log_files.DUMP_FILES}
    assert there == ({wanted: f"{tmp_path}/errors/0/n/trace_rank_"} if wanted else {})
