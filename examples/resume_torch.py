"""A PyTorch training that continues after a restart: with one rank, or with DDP in `resume-torch.yaml`.

Every rank loads the checkpoint. Only rank 0 writes it, so no rank waits for another to save.
"""

import os
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS, STEP_S, EVERY = int(os.environ.get("STEPS", "600")), float(os.environ.get("STEP_S", "1")), 10
file = Path(os.environ.get("SLURM_PLUGIN_CHECKPOINT") or "checkpoints") / "state.pt"
asked = []


def save(step: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Write a new file, then rename it: whenever the node dies, there is a complete checkpoint."""
    fresh = file.with_suffix(".new")
    with fresh.open("wb") as out:
        torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, out)
        out.flush()
        os.fsync(out.fileno())
    fresh.replace(file)
    print(f"saved step {step}", flush=True)


def main() -> None:
    """Train to the last step, from the last checkpoint."""
    signal.signal(signal.SIGUSR1, lambda *_: asked.append(True))  # save soon: the program may be ended soon
    many = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if many:
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank = dist.get_rank() if many else 0
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if torch.cuda.is_available() else "cpu"
    torch.manual_seed(7)
    model = torch.nn.Linear(8, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    step = 0
    if file.exists():
        saved = torch.load(file, map_location=device, weights_only=True)
        step = saved["step"]
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    if rank == 0 and os.environ.get("SLURM_PLUGIN_RESTART") == "1":
        print(f"restarted: {os.environ['SLURM_PLUGIN_REASON']}; on from step {step}", flush=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    training = DistributedDataParallel(model) if many else model  # checkpoints have the names of `model`
    while step < STEPS:
        time.sleep(STEP_S)
        torch.manual_seed(1000 * step + rank)  # the same data for this step after a restart
        rows = torch.randn(64, 8).to(device)
        loss = (training(rows) - rows.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if rank == 0 and (asked or step % EVERY == 0 or step == STEPS):
            asked.clear()
            save(step, model, optimizer)
    if rank == 0:
        print(f"done: {sum(float(each.sum()) for each in model.parameters()):.6f}", flush=True)
    if many:
        dist.destroy_process_group()
        os._exit(0)  # at the normal end of Python, a thread of gloo that still runs may abort the rank (SIGABRT)


if __name__ == "__main__":
    main()
