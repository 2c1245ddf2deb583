"""Programs of alice's: their Python, a training in PyTorch, and a job without slurm_plugin."""

import os
from pathlib import Path

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import workdir
from tests.waiting import HANG_S

OTHER_ROOT = "SLURM_PLUGIN_TEST_ROOT" in os.environ
WITH_PYSLURM = Path(os.environ.get("SLURM_PLUGIN_TEST_ROOT", "/"), "opt/pyslurm").exists()
# Another root directory has its own Python and packages. Else use this environment, at its path in the machines.
PYTHON = "/usr/bin/python3" if OTHER_ROOT else "/sandbox/venv/bin/python"
LIBUV = {"USE_LIBUV": "0"} if OTHER_ROOT else {}  # Debian's own PyTorch is built without it

TRAIN = """
import glob, json, os, sys, time, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def train(rank, world):
    torch.manual_seed(rank)  # different weights and data: DDP must make the ranks agree
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(64, 8)
    y = x @ torch.arange(8.0).reshape(8, 1)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss.detach_())
        losses.append(loss.item() / world)
    weights = torch.cat([part.detach().flatten() for part in model.parameters()])
    everybodys = [torch.empty_like(weights) for _ in range(world)]
    dist.all_gather(everybodys, weights)
    return losses, all(torch.equal(other, weights) for other in everybodys)


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
losses, agree = train(rank, world)
found = {"world": world, "local": os.environ["LOCAL_RANK"], "node": os.uname().nodename}
found |= {"losses": losses, "agree": agree, "given": sys.argv[1:]}
with open(f"rank{rank}.json", "w") as file:
    json.dump(found, file)
dist.barrier()
open(f"passed.{rank}", "w").close()
while len(glob.glob("passed.*")) < world:
    time.sleep(0.05)  # a rank that ends early closes connections that others still use
os._exit(0)  # in a normal exit, gloo's threads sometimes abort the process
"""
# A rank that runs until it is told to save. It leaves a file for each of the two.
SAVES = """
import os, signal, time
from pathlib import Path

asked = []
signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
rank = f"{os.uname().nodename}.{os.environ.get('LOCAL_RANK', '')}"
Path(f"runs.{rank}").touch()
while not asked:
    time.sleep(0.1)
time.sleep(1)  # the time for a checkpoint
Path(f"saved.{rank}").touch()
"""


def program(box: Sandbox, name: str, text: str) -> str:
    """Write a program of alice's, and return its path on the machines."""
    (box.home("alice") / name).write_text(text, encoding="utf-8")
    return f"/home/alice/{name}"


def plain_job(box: Sandbox, name: str, script: str, *arguments: str) -> str:
    """Run alice's batch job without slurm_plugin, and return its output."""
    directory = workdir(box, name)
    words = ["sbatch", "--wait", f"--chdir=/home/alice/{name}", "--output=out", *arguments]
    box.run(words, input=f"#!/bin/bash\n{script}\n", timeout=HANG_S)
    return (directory / "out").read_text(encoding="utf-8")
