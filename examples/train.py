"""A real data-parallel training that survives restarts: ridge regression by gradient descent, mpi4py and NumPy.

Every rank has its own shard of the data. Gradients are gathered and added in rank order, so that a run that was
interrupted ends with exactly the same weights as one that was not. The functions that make it restartable say RESUME.

    mpirun -np 8 python3 train.py --steps 60 --checkpoint checkpoints/
"""

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

FEATURES, ROWS_PER_RANK, LEARNING_RATE, DECAY = 32, 256, 0.1, 1e-3


def shard(rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of one rank, the same in every run: features and noisy targets of a linear model."""
    truth = np.random.default_rng(7).normal(size=FEATURES)
    rng = np.random.default_rng(1000 + rank)
    x = rng.normal(size=(ROWS_PER_RANK, FEATURES))
    return x, x @ truth + rng.normal(scale=0.1, size=ROWS_PER_RANK)


def load(file: Path) -> tuple[int, np.ndarray]:
    """RESUME: return the step and the weights of the checkpoint; without a checkpoint those of the start."""
    if not file.exists():
        return 0, np.zeros(FEATURES)
    with np.load(file) as saved:
        return int(saved["step"]), saved["weights"]


def save(file: Path, step: int, weights: np.ndarray) -> None:
    """RESUME: write a new file, then rename it, so that there is always a complete checkpoint."""
    fresh = file.with_suffix(".tmp.npz")
    np.savez(fresh, step=step, weights=weights)
    fresh.replace(file)


def use_accelerator(pattern: str) -> None:
    """Check the device file of this rank. Raise RuntimeError, as for a lost GPU, if it is no device any more."""
    if not pattern:
        return
    device = Path(pattern % int(os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", "0")))
    if not device.is_char_device():
        raise RuntimeError(f"{os.uname().nodename}: {device}: the accelerator fell off the bus")


def train(comm: MPI.Comm, options: argparse.Namespace) -> None:
    """Train to the last step, from the last checkpoint."""
    rank, size = comm.Get_rank(), comm.Get_size()
    x, y = shard(rank)
    options.checkpoint.mkdir(parents=True, exist_ok=True)
    file = options.checkpoint / "weights.npz"
    step, weights = load(file)
    if rank == 0:
        attempt = os.environ.get("SLURM_PLUGIN_ATTEMPT", "0")
        print(f"train: attempt {attempt}: from step {step} on {size} ranks", flush=True)
    parts = np.empty((size, FEATURES + 1))
    while step < options.steps:
        use_accelerator(options.device)
        error = x @ weights - y
        own = np.append(x.T @ error / len(y) + DECAY * weights, np.mean(error**2))
        comm.Allgather(own, parts)
        total = parts.sum(axis=0) / size
        weights = weights - LEARNING_RATE * total[:-1]
        step += 1
        time.sleep(options.pace)
        if rank == 0:
            print(f"train: step {step} loss {total[-1]:.12f}", flush=True)
            if step % options.every == 0 or step == options.steps:
                save(file, step, weights)


def main() -> None:
    """Read the command line and train. If one rank fails, end all ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--every", type=int, default=5, help="steps between two checkpoints")
    parser.add_argument("--pace", type=float, default=0.1, help="seconds a step takes at least")
    parser.add_argument("--device", default="", help="device file of local rank %%d, such as /dev/nvidia%%d")
    parser.add_argument(
        "--checkpoint", type=Path, default=Path(os.environ.get("SLURM_PLUGIN_CHECKPOINT") or "checkpoints")
    )
    comm = MPI.COMM_WORLD
    try:
        train(comm, parser.parse_args())
    except Exception as error:  # noqa: BLE001 - after any error the other ranks must not wait for this one
        print(f"train: rank {comm.Get_rank()}: {error}", file=sys.stderr, flush=True)
        comm.Abort(1)


if __name__ == "__main__":
    main()
