"""`slurm-plugin hosts` inside real jobs: the ranks' places are those of srun, the nodes those of the step or job."""

from collections.abc import Iterator

import pytest

from hostfiles import ranktable_read
from slurm_plugin.sandbox import Sandbox
from slurm_plugin.sandbox.machine import inside
from tests.cluster.jobs import Job, printed, workdir

pytestmark = pytest.mark.cluster
HOME = "/home/alice"

# A task's line: the rank from our file, and its real rank. They are equal if we place ranks as Slurm does.
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
    """Run a batch script of alice's, and return its lines without srun's messages about its wait."""
    directory = workdir(box, name)
    (directory / "batch.sh").write_text(script)
    inside = f"/home/alice/{name}"
    box.run(["sbatch", "--wait", f"--output={inside}/out", *options, f"{inside}/batch.sh"])
    return [line for line in (directory / "out").read_text().splitlines() if not line.startswith("srun: ")]


@pytest.mark.full  # 10 s
def test_ranks_are_where_srun_puts_them(cluster: Sandbox) -> None:
    """Every distribution over unequal nodes, a step on a part of the job, and the job's nodes."""
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


UNLIKE = """#!/bin/bash
slurm-plugin hosts openmpi
slurm-plugin hosts pytorch --node 1 | tail -1
srun -N2 -n2 --gres=gpu:2 slurm-plugin hosts mpich | sort | tr '\\n' ' '
"""
LAUNCHED = """#!/bin/bash
#PLUGIN retries=1 mode=openmpi
cat $SLURM_PLUGIN_HOSTFILE
exit 3
"""


def test_nodes_with_unlike_numbers_of_gpus(cluster: Sandbox) -> None:
    """Slurm's variables have only those of the batch host. The guards' step is not refused, and checks all of them."""
    cluster.run(["sbatch", "-w", "n2", "--gres=gpu:2", "--output=/dev/null", "--wrap", "sleep 9000"])
    lines = batch(cluster, "unlike", UNLIKE, "-N2", "-w", "n[1-2]", "--gpus=6")
    assert lines == ["n1 slots=4", "n2 slots=2", "export SLOTS=2", "n1:4 n1:4 n2:2 n2:2 "]
    directory = workdir(cluster, "unlike-launched")
    (directory / "job.sh").write_text(LAUNCHED)
    line = "slurm-plugin sbatch --parsable -N2 -w 'n[1-2]' --gpus=6 --output=job.out job.sh"
    job = Job(cluster, int(cluster.run(["sh", "-c", f"cd {directory.name}; {line}"]).stdout), directory)
    assert (job.end(), job.exit_code) == ("FAILED", "3:0")
    assert printed(job) == ["n1 slots=4", "n2 slots=2"]
    assert job.log.count("[slurm_plugin] gpu-check: ok on n[1-2]\n") == 2, job.log


# A table is folded into one line that begins with a unique word.
ASCEND = r"""#!/bin/bash
echo "batch $(slurm-plugin hosts ranktable-1.0 | tr -d '\n')"
slurm-plugin hosts ranktable-1.0 --output table.json && echo "file $(tr -d '\n' < table.json)"
srun --overlap -N3 -n3 --ntasks-per-node=1 slurm-plugin hosts devices > lines
srun --overlap -N1 -n1 -w n2 slurm-plugin hosts ranktable-1.0 > one.json
srun --overlap -N2 -n2 -w n2,n3 bash -c '((SLURM_PROCID)) || slurm-plugin hosts ranktable-1.0 > two.json'
srun -m cyclic bash -c 'eval "$(slurm-plugin hosts ascend --table table.json)"
  echo "rank $RANK_ID $SLURMD_NODENAME $ASCEND_DEVICE_ID $RANK_SIZE"'
srun bash -c 'eval "$(slurm-plugin hosts ascend)"; echo "worker $MS_NODE_ID $MS_SCHED_HOST $MS_SCHED_PORT"'
slurm-plugin hosts ascend | tr '\n' ' '
"""
ASCEND_HETEROGENEOUS = """#!/bin/bash
slurm-plugin hosts ranktable-1.0
echo "exit $?"
srun --het-group=0,1 -N1 -n1 bash -c '((SLURM_PROCID)) || slurm-plugin hosts ranktable-1.0 > step.json'
"""
BROKEN = """#!/bin/bash
slurm-plugin hosts ranktable-1.0 --output table.json
echo "exit $?"
ls
"""


@pytest.fixture
def npus(cluster: Sandbox) -> Iterator[Sandbox]:
    """Give n1 to n3 two fake Ascend devices each, with addresses in each node's hccn.conf."""
    pids = {row.name: row.pid or 0 for row in cluster.status().machines}
    made = []
    for place, name in enumerate(("n1", "n2", "n3")):
        conf = inside(pids[name], "/etc/hccn.conf")
        conf.write_text("".join(f"address_{device}=192.168.{place}.{8 + device}\n" for device in range(2)))
        conf.chmod(0o644)
        files = [inside(pids[name], f"/dev/davinci{device}") for device in range(2)]
        for file in files:
            file.touch()
        made += [conf, *files]
    yield cluster
    for file in made:
        file.unlink(missing_ok=True)


@pytest.mark.full  # 10 s
def test_a_rank_table_in_a_job(npus: Sandbox) -> None:
    """The table of the batch script, the file, and a table made outside the job from the nodes' lines are equal."""
    lines = batch(npus, "ascend", ASCEND, "-N3", "-n6", "--ntasks-per-node=2", f"--chdir={HOME}/ascend")
    home = npus.home("alice") / "ascend"
    by_hand = ["--devices", f"{HOME}/ascend/lines", "--nodelist=n[1-3]"]
    outside = npus.run(["slurm-plugin", "hosts", "ranktable-1.0", *by_hand]).stdout
    servers = ranktable_read.parse(outside).servers
    assert [[device.ip for device in server.devices] for server in servers] == [
        [f"192.168.{place}.8", f"192.168.{place}.9"] for place in range(3)
    ]
    folded = outside.replace("\n", "")
    assert lines[:2] == [f"batch {folded}", f"file {folded}"]
    assert (home / "table.json").read_text() == outside
    assert ranktable_read.parse((home / "one.json").read_text()).servers == servers[1:2]
    assert ranktable_read.parse((home / "two.json").read_text()).servers == servers[1:]
    ranks = sorted(line for line in lines if line.startswith("rank "))
    assert ranks == [f"rank {rank} n{rank // 2 + 1} {rank % 2} 6" for rank in range(6)]
    scheduler = [word.partition("=")[2] for word in lines[-1].split() if "=" in word]
    assert (scheduler[:2], scheduler[3]) == (["MS_SCHED", servers[0].id], "6")
    workers = sorted(line for line in lines if line.startswith("worker "))
    assert workers == [f"worker {rank} {servers[0].id} {scheduler[2]}" for rank in range(6)]


@pytest.mark.full  # 10 s
def test_a_rank_table_of_a_heterogeneous_job(npus: Sandbox) -> None:
    """The nodes of all groups are asked, from the batch script and from a step over both groups."""
    chdir = f"--chdir={HOME}/ascend-groups"
    lines = batch(npus, "ascend-groups", ASCEND_HETEROGENEOUS, "-N1", chdir, ":", "-N2", chdir)
    assert lines.pop() == "exit 0"
    servers = ranktable_read.parse("\n".join(lines)).servers
    assert [server.devices[0].ip for server in servers] == ["192.168.0.8", "192.168.1.8", "192.168.2.8"]
    step = (npus.home("alice") / "ascend-groups/step.json").read_text()
    assert ranktable_read.parse(step).servers == servers[:2]


def test_a_node_without_hccn_conf(npus: Sandbox) -> None:
    """Its line names it, the exit code is 2, and no file is left."""
    pid = next(row.pid for row in npus.status().machines if row.name == "n2")
    inside(pid or 0, "/etc/hccn.conf").unlink()
    lines = batch(npus, "ascend-broken", BROKEN, "-N3", f"--chdir={HOME}/ascend-broken")
    why = "/etc/hccn.conf: No such file or directory, and hccn_tool: No such file or directory"
    assert lines == [f"slurm-plugin: n2: device 0: {why}", "exit 2", "batch.sh", "out"]
