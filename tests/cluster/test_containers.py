"""Jobs whose program runs in a container, on a real Slurm: with Apptainer where the machines have it, as those of
.ci/versions do, else with a stand-in that enters another root. Pyxis is a stand-in everywhere."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import ALICE_UID, OPEN_MPI, Job, submit, workdir

pytestmark = pytest.mark.cluster

HERE = Path(__file__).parent
STAND_INS = {"apptainer": "apptainer.sh", "srun": "pyxis.sh"}
HELD = "[slurm_plugin] held for debugging until "
PATH = "/usr/local/bin:/usr/bin:/bin"
# The variables that the images set. The images mount the node's /usr for programs.
SETS = "NCCL_DEBUG=image OF_THE_IMAGE=1 WORLD_SIZE=image"
DIRECTORIES = ("etc", "usr", "proc", "sys", "dev", "tmp", "var/tmp", "root", "home", "data")
DEFINITION = f"""
Bootstrap: localimage
From: image

%environment
  export {SETS}
"""


def has_apptainer(box: Sandbox) -> bool:
    """Return whether the machines have the real Apptainer."""
    return box.run(["sh", "-c", "command -v apptainer"], check=False).returncode == 0


def built(box: Sandbox, directory: Path) -> str:
    """Build an image of alice's with the real Apptainer. Return its path, relative to the job's directory."""
    image = directory / "image"
    for each in DIRECTORIES:
        (image / each).mkdir(parents=True)
    for each in ("bin", "sbin", "lib", "lib64"):
        (image / each).symlink_to(f"usr/{each}")
    (image / "etc/inside").write_text("in the image\n")
    for each in ("passwd", "group", "hosts", "resolv.conf"):
        (image / "etc" / each).touch()
    (directory / "image.def").write_text(DEFINITION)
    for node in ("n1", "n2"):  # Debian's package makes it, but each machine has a separate /var/lib
        box.run(["mkdir", "-p", "/var/lib/apptainer/mnt/session"], user="root", node=node)
    where = f"/home/alice/{directory.name}"
    box.run(["chown", "-hR", "alice:", f"{where}/image"], user="root")
    box.run(["sh", "-c", f"cd {where} && apptainer -s build image.sif image.def"], node="n1")
    return "./image.sif"


def stood_in(directory: Path) -> str:
    """Make an image for the stand-in, and put the stand-in beside it."""
    image = directory / "image"
    for each in ("etc", "data"):
        (image / each).mkdir(parents=True)
    (image / "etc" / "inside").write_text("in the image\n")
    (image / ".env").write_text(SETS.replace(" ", "\n") + "\n")
    return "./image"


def contained(
    box: Sandbox, name: str, container: dict[str, Any] | None = None, *, by: Callable[..., Job] = submit, **spec: Any
) -> Job:
    """Submit a job in an image of alice's, with the function `by`.

    Its own `bin` comes first in its PATH, and has a substitute for each program that the machines lack.
    """
    directory = workdir(box, name)
    said = {"runtime": "apptainer", **(container or {})}
    real = said["runtime"] == "apptainer" and has_apptainer(box)
    (directory / "bin").mkdir()
    for program, stand_in in () if real else STAND_INS.items():
        shutil.copy(HERE / stand_in, directory / "bin" / program)
        (directory / "bin" / program).chmod(0o755)
    said["image"] = built(box, directory) if real else stood_in(directory)
    if real:
        said["mounts"] = ["/usr:/usr:ro", *said.get("mounts", ())]
    env = {"PATH": f"/home/alice/{name}/bin:{PATH}", **spec.pop("env", {})}
    fields = {"env": env, "container": said, **spec}
    if said["runtime"] == "apptainer":
        return by(box, name, made=True, **fields)
    fields = {"name": name, "mode": "pytorch", "nodes": 2, "output": "job.out", **fields}
    (directory / "job.yaml").write_text(yaml.safe_dump(fields))
    render = f"cd /home/alice/{name} && slurm-plugin render job.yaml"  # submit needs an srun with pyxis
    return Job(box, int(box.run(["sh", "-c", f"{render} | sbatch --parsable"]).stdout), directory)


LITERAL = '$(id) `id` $HOME "x" \\'


def printed(job: Job, word: str) -> list[str]:
    """Return the program's lines with this beginning, sorted."""
    return sorted(line for line in job.log.splitlines() if line.startswith(f"{word} "))


def test_ranks_a_hold_and_a_shell(cluster: Sandbox) -> None:
    """Each rank runs in the image, with its variables, the job's directory and its checkpoints, and nothing else of the
    node. Its exit code is the job's. The shell and the rerun of a held job run in the image, too.
    """
    home = cluster.home("alice")
    checkpoints = home / "contained-lr=0.1,bs=32"  # Apptainer's --bind would split the name
    checkpoints.mkdir()
    shutil.chown(checkpoints, ALICE_UID, ALICE_UID)
    (home / "not-mounted").touch()
    program = (
        "echo rank $RANK of $WORLD_SIZE in $(pwd) $(cat /etc/inside) $NCCL_DEBUG $OF_THE_IMAGE;"
        " echo literal $LITERAL;"
        " echo $RANK >$SLURM_PLUGIN_CHECKPOINT/rank.$RANK; echo $RANK >here.$RANK; cat /data/given;"
        " [ -e /home/alice/not-mounted ] && echo the home is there; touch /data/x /x 2>/dev/null && echo it may write;"
        " while [ $(ls here.* | wc -l) -lt 4 ]; do sleep 0.1; done; [ $RANK != 3 ] || [ -e mended ] || exit 7"
    )
    data = home / "contained-data"
    data.mkdir()
    (data / "given").write_text("data is there\n")
    job = contained(
        cluster,
        "contained",
        {"mounts": ["/home/alice/contained-data:/data:ro"], "home": "no"},
        accelerators={"gpu": 2},
        launch="task",
        command=f"bash -c '{program}'",
        env={"NCCL_DEBUG": "WARN", "LITERAL": LITERAL},
        checkpoint=f"/home/alice/{checkpoints.name}",
        hold_on_failure="1h",
        retries=1,
    )
    job.until(lambda: HELD in job.log, "the hold")
    ranks = [f"rank {rank} of 4 in /home/alice/contained in the image WARN 1" for rank in range(4)]
    assert printed(job, "rank") == ranks, job.log
    assert printed(job, "literal") == [f"literal {LITERAL}"] * 4
    assert sorted(path.name for path in checkpoints.iterdir()) == [f"rank.{rank}" for rank in range(4)]
    assert sorted(path.name for path in job.directory.glob("here.*")) == [f"here.{rank}" for rank in range(4)]
    said = job.log.splitlines()
    assert [said.count(each) for each in ("data is there", "the home is there", "it may write")] == [4, 0, 0], job.log

    typed = "echo $RANK $WORLD_SIZE $(cat /etc/inside) $(pwd); exit 9\n"
    shell = cluster.run(["slurm-plugin", "shell", str(job.id), "worker-1"], check=False, input=typed)
    assert (shell.returncode, shell.stdout) == (9, "2 4 in the image /home/alice/contained\n"), shell.stderr
    assert "by hand on this node: bash -c " in shell.stderr

    (job.directory / "mended").touch()
    cluster.run(["slurm-plugin", "rerun", str(job.id)])
    assert (job.end(), job.exit_code) == ("COMPLETED", "0:0"), job.log
    assert printed(job, "rank") == sorted(ranks * 2)
    assert job.attempts[0]["code"] == 7


def test_a_program_that_writes_to_its_image(cluster: Sandbox) -> None:
    """It may write if the spec says so; the changes are discarded. It starts in the spec's directory, with a home."""
    (cluster.home("alice") / "of-the-home").write_text("the home is there\n")
    job = contained(
        cluster,
        "contained-written",
        {"writable": "yes", "workdir": "/data"},
        mode="single",
        nodes=1,
        command="bash -c 'pwd; touch /etc/new && echo it may write; cat ~/of-the-home; touch ~/contained-written/x'",
    )
    assert (job.end(), job.exit_code) == ("COMPLETED", "0:0"), job.log
    said = job.log.splitlines()
    assert [said.count(each) for each in ("/data", "it may write", "the home is there")] == [1, 1, 1], job.log
    image = [path for path in job.directory.rglob("image*") if path.is_file()] + [*(job.directory / "image").rglob("*")]
    assert max(path.lstat().st_mtime for path in image) < (job.directory / "x").stat().st_mtime


def test_a_program_that_is_not_in_the_image(cluster: Sandbox) -> None:
    """The runtime or a shell reports it with an exit code. On healthy nodes the job is not restarted."""
    job = contained(cluster, "contained-lacks", mode="single", nodes=1, retries=2, command="/nonesuch --x")
    assert job.end() == "FAILED", job.log
    assert job.exit_code == ("255:0" if has_apptainer(cluster) else "127:0")
    assert "/nonesuch" in job.log
    assert len(job.attempts) == 1


def test_pyxis(cluster: Sandbox) -> None:
    """Its options reach srun. Without TaskProlog the ranks still get their variables, as does a held job's shell."""
    job = contained(
        cluster,
        "contained-pyxis",
        {"runtime": "pyxis"},
        accelerators={"gpu": 2},
        launch="task",
        command="bash -c 'echo rank $RANK of $WORLD_SIZE, $LOCAL_RANK $(cat /etc/inside) $NCCL_DEBUG; exit 6'",
        hold_on_failure="1h",
    )
    job.until(lambda: HELD in job.log, "the hold")
    assert "the program failed with exit code 6" in job.log
    told = printed(job, "rank")  # the first rank that ends ends the others, some before they print
    assert told
    assert {*told} <= {f"rank {rank} of 4, {rank % 2} in the image image" for rank in range(4)}
    typed = "echo $RANK of $WORLD_SIZE $(cat /etc/inside) $(pwd); exit 9\n"
    shell = cluster.run(["slurm-plugin", "shell", str(job.id), "worker-1"], check=False, input=typed)
    assert (shell.returncode, shell.stdout) == (9, "2 of 4 in the image /home/alice/contained-pyxis\n"), shell.stderr


def test_mpirun_stands_outside(cluster: Sandbox) -> None:
    """mpirun runs on the node, and its ranks run in the image on every node."""
    job = contained(
        cluster,
        "contained-mpi",
        mode="openmpi",
        accelerators={"gpu": 2},
        env=OPEN_MPI,
        command="bash -c 'echo rank $OMPI_COMM_WORLD_RANK $(cat /etc/inside) on $SLURMD_NODENAME'",
    )
    assert job.end() == "COMPLETED", job.log
    assert [line.rpartition(" on ")[0] for line in printed(job, "rank")] == [f"rank {n} in the image" for n in range(4)]


def test_a_runtime_that_is_not_there(cluster: Sandbox) -> None:
    """The log reports it, and the job is not restarted."""
    if has_apptainer(cluster):
        pytest.skip("these machines have Apptainer")
    job = submit(
        cluster, "contained-without", nodes=1, retries=1, command="true", mode="single", container={"image": "a.sif"}
    )
    assert (job.end(), job.exit_code) == ("FAILED", "127:0"), job.log
    assert "[slurm_plugin] error: apptainer was not found on the PATH of this node" in job.log
    assert len(job.attempts) == 1
