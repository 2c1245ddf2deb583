"""Runs programs that fail, each on four ranks of two launchers of PyTorch, and keeps what they leave behind.

    python -m tests.failures.ranks DIRECTORY < JSON      {NAME: [PROGRAM, SECONDS]}

PyTorch is imported once. Launchers and ranks are forked from this process, so a run costs a second and not twenty.
DIRECTORY/NAME gets node{0,1}/ with agent.log, rankN.out, rankN.err and rankN.error.json, and train.py.
"""

import gc
import json
import os
import runpy
import shutil
import signal
import sys
import threading
import traceback
from pathlib import Path

import torch
import torch._dynamo  # each launcher would import it when a rank fails: 900 modules
import torch.distributed as dist
from torch.distributed import run
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from tests.failures import mounts

NODES, EACH = 2, 2
HANG_S = 120
OTHERS_S = 40  # from the end of one launcher to that of the others
LOOKS_S = 2.0  # between two looks of a launcher at ranks that time out: all of them have the time to say so
AT_ONCE = 4  # programs that run at the same time: some only wait
PORT = 29500  # the first; the runs have a network namespace of their own
assert dist.is_available()
assert run.main


def rank(program: str) -> None:
    """Run the program as a rank of its own interpreter would."""
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):  # the launcher's handlers
        signal.signal(each, signal.default_int_handler if each == signal.SIGINT else signal.SIG_DFL)
    signal.alarm(HANG_S)
    sys.argv = [program]
    code = 0
    try:
        runpy.run_path(program, run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - an interpreter prints KeyboardInterrupt too
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    if code:
        os._exit(code)  # else the launcher waits for what this function returns


def launcher(place: Path, node: int, port: int) -> None:
    """Be the launcher of one node."""
    signal.alarm(HANG_S)
    here = place / f"node{node}"
    here.mkdir(parents=True)
    log = os.open(here / "agent.log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    config = LaunchConfig(
        min_nodes=NODES, max_nodes=NODES, nproc_per_node=EACH, run_id=place.name, max_restarts=0,
        rdzv_backend="static", rdzv_endpoint=f"127.0.0.1:{port}", rdzv_configs={"rank": node, "timeout": 120},
        start_method="fork", monitor_interval=LOOKS_S if float(os.environ["TIMEOUT"]) < HANG_S else 0.1,
        logs_specs=DefaultLogsSpecs(str(here / "logs"), redirects=Std.ALL), local_addr="127.0.0.1",
    )  # fmt: skip
    try:
        elastic_launch(config, rank)(str(place / "train.py"))
    except ChildFailedError:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def forked(work: object, *arguments: object) -> int:
    """Start a process that does the work and ends."""
    if not (child := os.fork()):
        try:
            work(*arguments)  # type: ignore[operator]
        finally:
            os._exit(1)
    return child


def one(place: Path, program: str, seconds: float, port: int) -> None:
    """Run one program to its end."""
    place.mkdir(parents=True)
    (place / "train.py").write_text(program)
    os.chdir(place)
    os.environ["TIMEOUT"] = str(seconds)
    others = {forked(launcher, place, node, port) for node in range(NODES)}
    others.remove(os.wait()[0])
    if others:  # an agent waits for those of other nodes for five minutes; srun would end it
        threading.Timer(OTHERS_S, lambda: [os.kill(child, signal.SIGALRM) for child in others]).start()
    for child in others:
        os.waitpid(child, 0)
    for node in range(NODES):
        here = place / f"node{node}"
        for each in (here / "logs").glob("*/attempt_0/*"):
            number = node * EACH + int(each.name)
            for file, name in (("stdout.log", "out"), ("stderr.log", "err"), ("error.json", "error.json")):
                if (each / file).is_file():
                    shutil.copyfile(each / file, here / f"rank{number}.{name}")
        shutil.rmtree(here / "logs")
    os._exit(0)


def main(directory: Path) -> None:
    """Run all programs of standard input."""
    torch.set_num_threads(1)
    os.environ |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    waiting = sorted(json.load(sys.stdin).items(), key=lambda each: each[1][1])  # those that wait for a timeout first
    server = mounts.make()
    gc.disable()  # a collection in a fork copies PyTorch's pages, a quarter of the time of a run
    running = 0
    for number, (name, (program, seconds)) in enumerate(waiting):
        if running >= AT_ONCE:
            os.wait()
            running -= 1
        forked(one, directory / name, program, seconds, PORT + number * 10)
        running += 1
    for _ in range(running):
        os.wait()
    os.kill(server, signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
