"""Every rank prints its number, and the sum of all ranks: for `pytorch-hello.yaml`."""

import os
import socket

import torch
import torch.distributed as dist


def main() -> None:
    """Connect the ranks by gloo, which needs no accelerator, and add up their numbers."""
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    total = torch.tensor([rank])
    dist.all_reduce(total)
    attempt = os.environ.get("SLURM_PLUGIN_ATTEMPT", "0")
    print(
        f"rank {rank} of {world} on {socket.gethostname()}: sum of ranks {total.item()}, attempt {attempt}", flush=True
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
