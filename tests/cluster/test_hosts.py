"""`slurm-plugin hosts` inside real jobs: ranks are where srun has put them, nodes are the step's or the job's."""

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import workdir

pytestmark = pytest.mark.cluster

# What a task is told and what it is, in one line: the two halves are equal where we place ranks as Slurm does.
COMPARE = (
    'eval "$(slurm-plugin hosts pytorch --task $SLURM_PROCID)"; '
    'echo "$GROUP_RANK.$LOCAL_RANK/$WORLD_SIZE $SLURM_NODEID.$SLURM_LOCALID/$SLURM_NTASKS"'
)
UNEQUAL = f"""#!/bin/bash
for way in block cyclic plane=2 plane=3 cyclic:block block:cyclic,nopack; do
  srun --overlap -m $way bash -c '{COMPARE}'
done
srun --overlap -N2 -n2 -w n2,n3 bash -c '{COMPARE}'
echo "$(slurm-plugin hosts mpich | tr '\\n' ' ')"
srun --overlap -N1 -n1 -w n2 bash -c "slurm-plugin hosts openmpi"
"""
HETEROGENEOUS = f"""#!/bin/bash
slurm-plugin hosts openmpi
srun --het-group=0,1 bash -c '{COMPARE}'
srun --het-group=1 bash -c '{COMPARE}'
srun --het-group=1 -n1 -N1 bash -c 'slurm-plugin hosts mpich'
"""


def batch(box: Sandbox, name: str, script: str, *options: str) -> list[str]:
    """The lines that a batch script of alice's printed, run with these options."""
    directory = workdir(box, name)
    (directory / "batch.sh").write_text(script)
    inside = f"/home/alice/{name}"
    box.run(["sbatch", "--wait", f"--output={inside}/out", *options, f"{inside}/batch.sh"])
    return (directory / "out").read_text().splitlines()


def test_ranks_are_where_srun_puts_them(cluster: Sandbox) -> None:
    """Every distribution over unequal nodes, a step on a part of the job, and the job's own nodes."""
    lines = batch(cluster, "unequal", UNEQUAL, "-N3", "-n10", "--gpus-per-node=2")
    told, hostfiles = lines[:-2], lines[-2:]
    assert len(told) == 6 * 10 + 2
    assert [line for line in told if len(set(line.split())) != 1] == []
    assert hostfiles == ["n1:2 n2:2 n3:2 ", "n2 slots=2"]


def test_a_heterogeneous_job_is_one_allocation(cluster: Sandbox) -> None:
    """All groups in order, each with its own GPUs; steps over both groups and over one."""
    groups = ("-N1", "-n2", "--gpus-per-node=2", ":", "-N2", "-n3", "--gpus-per-node=1")
    lines = batch(cluster, "heterogeneous", HETEROGENEOUS, *groups)
    assert lines[:3] == ["n1 slots=2", "n2 slots=1", "n3 slots=1"]
    assert len(lines) == 3 + 5 + 3 + 1
    assert [line for line in lines[3:-1] if len(set(line.split())) != 1] == []
    assert lines[-1] == "n2:1"
