"""A job that is submitted inside another job inherits its variables, but has nodes and GPUs of its own."""

import shlex

import pytest
import yaml

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import Job, printed, workdir

pytestmark = pytest.mark.cluster

# A plain step, because an srun inside a job that has inherited SLURM_HET_SIZE fails on every release.
HOSTS = "slurm-plugin hosts openmpi; env -u SLURM_HET_SIZE srun -N1 -n1 -w n3 slurm-plugin hosts mpich"
SPEC = {
    "name": "inside",
    "mode": "pytorch",
    "nodes": 2,
    "accelerators": {"gpu": 4},
    "launch": "task",
    "retries": 1,
    "command": "bash -c 'echo $(hostname) $SLURM_STEP_GPUS $CUDA_VISIBLE_DEVICES'",
}
FAILS = "#!/bin/bash\n#PLUGIN retries=1\nhostname\nexit 3\n"
GROUPS = "sbatch --wait --output=outer.out -N1 -w n1 : -N1 -w n4 --wrap"


def submitted(box: Sandbox, name: str, outer: str, *inner: str) -> list[Job]:
    """Run alice's submissions inside a job of the command `outer`, in her directory `name`."""
    directory = box.home("alice") / name
    (directory / "inner.sh").write_text("\n".join(inner))
    line = f"{outer} 'bash inner.sh >ids'" if outer == GROUPS else f"{outer} bash inner.sh >ids"
    box.run(["sh", "-c", f"cd {name}; {line}"])
    return [Job(box, int(number), directory) for number in (directory / "ids").read_text().split()]


@pytest.mark.parametrize("outer", ["srun -N1 -w n1", "srun -N1 -w n2 --gres=gpu:1", GROUPS])
def test_hosts(cluster: Sandbox, outer: str) -> None:
    """In the batch script those of the job, also if the other job's step ran on one of them; in a step its own."""
    name = f"inside-hosts-{len(outer)}"
    directory = workdir(cluster, name)
    sbatch = f"sbatch --parsable -N2 -w 'n[2-3]' --output=job.out --wrap {shlex.quote(HOSTS)}"
    (job,) = submitted(cluster, name, outer, sbatch)
    assert job.end() == "COMPLETED", job.log
    assert (directory / "job.out").read_text() == "n2 slots=1\nn3 slots=1\nn3:1\n"


@pytest.mark.full  # 10 s each
@pytest.mark.parametrize(
    "outer",
    [
        "srun -N1 -w n1 --gres=gpu:1",
        "salloc -N1 -n1 -w n1 --gpus-per-task=1 --mem-per-cpu=50",
        GROUPS,
    ],
)
def test_supervised_jobs(cluster: Sandbox, outer: str) -> None:
    """Each rank has the GPUs of its job, and a program's failure is its own: the guards of the job's nodes answer."""
    name = f"inside-{len(outer)}"
    directory = workdir(cluster, name)
    (directory / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    (directory / "fails.sh").write_text(FAILS)
    cluster.run(["sh", "-c", f"cd {name}; slurm-plugin render --batch spec.yaml >job.yaml"])
    spec, fails = submitted(
        cluster,
        name,
        outer,
        "sbatch --parsable -w 'n[2-3]' --output=job.out job.yaml",
        "slurm-plugin sbatch --parsable -N2 -w 'n[2-3]' --output=fails.out fails.sh",
    )
    assert spec.end() == "COMPLETED", spec.log
    assert printed(spec) == [f"{node} 0,1,2,3 0,1,2,3" for node in ("n2", "n3") for _ in range(4)]
    assert (fails.end(), fails.exit_code) == ("FAILED", "3:0")
    said = (directory / "fails.out").read_text().splitlines()
    assert "n2" in said
    assert said.count("[slurm_plugin] dns: ok on n[2-3]") == 2
    assert said[-1].endswith("the program failed with exit code 3; its nodes are fine")
