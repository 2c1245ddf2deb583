"""Run the programs of failures.yaml on a machine with an NVIDIA GPU, and write what each prints to NAME.log.

usage: tests/captured/gpu/capture.py [NAME...]. It needs PyTorch with CUDA, and some programs CuPy, JAX, Numba, Triton,
transformers, Lightning or nvcc.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

HERE = Path(__file__).parent
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone")
SECONDS = 150  # the watchdog of NCCL leaves a process that nothing ends
PROGRAM = """\
import os, torch
import torch.distributed as dist
rank = int(os.environ["RANK"])

dist.init_process_group("gloo")
x = torch.ones(4)
dev = torch.device("cuda", 0)
w = torch.randn(1024, 1024, device=dev)
for step in range(4):
    loss = (w @ w).float().mean()
    print(f"[rank {rank}] step {step} loss {abs(loss.item()):.4f}", flush=True)
    if step == 2 and rank == 1:
FAULT
    dist.all_reduce(x)
print("done", flush=True)
"""


def entries() -> list[dict[str, Any]]:
    """Return the programs, with the class of each failure and whose it is."""
    found: list[dict[str, Any]] = yaml.safe_load((HERE / "failures.yaml").read_text())
    return found


def capture(entry: dict[str, Any], directory: Path) -> None:
    """Run one program and write its log."""
    fault = "".join(f"        {line}\n" for line in entry.get("fault", "").splitlines()).rstrip("\n")
    script = directory / f"train_{entry['name'].replace('-', '_')}.py"  # a name that hides no library
    script.write_text(PROGRAM.replace("FAULT", fault) if fault else entry["program"])
    processes = 2 if fault else entry.get("processes", 0)
    argv = [*TORCHRUN, f"--nproc-per-node={processes}"] if processes else [sys.executable]
    with (HERE / f"{entry['name']}.log").open("wb") as log:
        try:
            subprocess.run([*argv, str(script)], stdout=log, stderr=subprocess.STDOUT, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            print(f"{entry['name']}: ended after {SECONDS} s", file=sys.stderr)


if __name__ == "__main__":
    with TemporaryDirectory() as place:
        for each in entries():
            if each["name"] in (sys.argv[1:] or [each["name"]]):
                capture(each, Path(place))
