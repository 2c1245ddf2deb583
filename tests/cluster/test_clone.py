"""clone and delete on a real Slurm, of jobs that were submitted in each way."""

import pytest
import yaml

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import Job, submit, workdir

pytestmark = pytest.mark.cluster

FEW = {"nodes": 1, "accelerators": {"gpu": 0}, "mode": "script", "command": "echo on $SLURM_JOB_NUM_NODES\n"}
SCRIPT = "#!/bin/sh\n#SBATCH -N1 -o job.out -t 5\n#PLUGIN retries=1\necho script on $SLURM_JOB_NUM_NODES\n"


def call(box: Sandbox, *words: str) -> str:
    """Return the output of a command of slurm-plugin that succeeds."""
    done = box.run(["slurm-plugin", *words], check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def kept(job: Job, name: str) -> str:
    """Return a file of what the job was submitted as."""
    return (job.directory / ".slurm_plugin" / str(job.id) / name).read_text()


def test_a_spec(cluster: Sandbox) -> None:
    """It is kept as submitted. A clone with changes runs in the same directory, and its clone has the changes."""
    first = submit(cluster, "clone-spec", **FEW)
    assert yaml.safe_load(kept(first, "job.yaml"))["nodes"] == 1
    assert "#SBATCH --nodes=1\n" in kept(first, "job.sh")
    assert first.end() == "COMPLETED", first.log
    number = str(first.id)
    for changes in (["--set", "nodes=2", "--set", "output=a.out"], ["--set", "output=b.out"]):
        number = call(cluster, "clone", *changes, number)
        assert Job(cluster, int(number), first.directory).end() == "COMPLETED"
        assert "on 2\n" in (first.directory / changes[-1].removeprefix("output=")).read_text()


@pytest.mark.full  # 13 s
def test_scripts(cluster: Sandbox) -> None:
    """A script of the wrapper, and one of plain sbatch, are submitted again, with options for sbatch."""
    home = workdir(cluster, "clone-scripts")
    (home / "job.sh").write_text(SCRIPT)
    for words in (["slurm-plugin", "sbatch"], ["sbatch"]):
        command = f"cd /home/alice/clone-scripts && exec {' '.join(words)} --parsable job.sh"
        number = cluster.run(["sh", "-c", command]).stdout.strip()
        first = Job(cluster, int(number), home)
        assert first.end() == "COMPLETED", first.log
        if "slurm-plugin" in words:
            assert kept(first, "job.sh").endswith(SCRIPT)
        second = Job(cluster, int(call(cluster, "clone", "--set", "nodes=2", "--set", "output=two.out", number)), home)
        assert second.end() == "COMPLETED", second.log
        assert "script on 2\n" in (home / "two.out").read_text()
        (home / "two.out").unlink()


def test_an_ended_job_is_deleted(cluster: Sandbox) -> None:
    """Its records and its log go, its checkpoints stay. A job that runs is refused."""
    job = submit(cluster, "delete", **{**FEW, "command": "sleep 3000"}, checkpoint="saved", output="delete-%j.out")
    job.until_state("RUNNING")
    (job.directory / "saved").mkdir(exist_ok=True)
    (job.directory / "saved/model").write_text("x")
    refused = cluster.run(["slurm-plugin", "delete", "--yes", str(job.id)], check=False)
    assert (refused.returncode, "has not ended: it is RUNNING" in refused.stderr) == (1, True)
    call(cluster, "stop", str(job.id))
    assert job.end() == "CANCELLED"
    log = job.directory / f"delete-{job.id}.out"
    job.until(log.exists, "its log")
    assert call(cluster, "delete", "--yes", str(job.id)).startswith(f"job {job.id}: deleted, ")
    assert not log.exists()
    assert not (job.directory / ".slurm_plugin" / str(job.id)).exists()
    assert (job.directory / "saved/model").exists()
