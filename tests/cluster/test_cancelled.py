"""scancel and the time to save, with proctrack/cgroup as on production sites: Slurm signals only first processes."""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox, config
from slurm_plugin.sandbox.machine import Bind
from tests.cluster.conftest import new_directory
from tests.cluster.jobs import Job, submit
from tests.cluster.programs import program

pytestmark = pytest.mark.cluster

FREEZER = Path("/sys/fs/cgroup/freezer")
KILL_WAIT_S = 120  # the programs end long before
SAVES = """
import os, signal, sys, time
from pathlib import Path

rank = f"{os.uname().nodename}.{os.environ.get('SLURM_PROCID', '')}"

def save(*_):
    time.sleep(1)  # the time for a checkpoint
    Path(f"saved.{rank}").touch()
    sys.exit(0)

signal.signal(signal.SIGUSR1, save)
Path(f"runs.{rank}").touch()
while True:
    time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    """Yield a sandbox of two nodes with proctrack/cgroup."""
    if not FREEZER.is_dir():
        pytest.skip("this machine has no cgroup v1, which proctrack/cgroup uses without systemd")
    conf = config.slurm_conf
    changed = pytest.MonkeyPatch()

    def slurm_conf(*given: object, **named: object) -> str:
        text = conf(*given, **named)  # type: ignore[arg-type]
        return text.replace("proctrack/linuxproc", "proctrack/cgroup").replace("KillWait=2", f"KillWait={KILL_WAIT_S}")

    mounts = new_directory() / "cgroup"
    (mounts / "freezer").mkdir(parents=True)
    cgroup = f"CgroupPlugin=cgroup/v1\nCgroupMountpoint={mounts}\n"
    changed.setattr(config, "slurm_conf", slurm_conf)
    changed.setattr(config, "cgroup_conf", lambda _: cgroup)
    made, root = Sandbox(new_directory()), os.environ.get("SLURM_PLUGIN_TEST_ROOT")
    try:
        made.up(2, 0, Path(root) if root else None, [Bind(str(FREEZER), str(mounts / "freezer"), writable=True)])
        yield made
    finally:
        changed.undo()
        made.down()
        shutil.rmtree(mounts.parent)
        for name in ("n1", "n2"):  # Slurm leaves the cgroups of its daemons
            for each in sorted(FREEZER.glob(f"slurm_{name}/**"), reverse=True):
                with suppress(OSError):
                    each.rmdir()


def ranks(job: Job, name: str) -> int:
    """Return how many ranks have made their file."""
    return len(list(job.directory.glob(f"{name}.*")))


@pytest.mark.full  # 25 s
def test_scancel_gives_the_time_to_save(box: Sandbox) -> None:
    """Each rank saves, on each node, below a shell or the step of slurm_plugin; without `grace` nothing is saved."""
    command = f"/usr/bin/python3 {program(box, 'saves.py', SAVES)}"
    few = {"nodes": 1, "accelerators": {"gpu": 0}, "time": "2h"}
    jobs = {
        submit(box, "cancel-single", mode="single", command=command, grace="10m", **few): 1,
        submit(box, "cancel-script", mode="script", command=f"{command}; exit $?\n", grace="10m", retries=1, **few): 1,
        submit(
            box, "cancel-tasks", mode="pytorch", launch="task", command=command, grace="10m", **{**few, "nodes": 2}
        ): 2,
        submit(box, "cancel-without", mode="single", command=command, **few): 0,
    }
    for job, saved in jobs.items():
        job.until(lambda job=job, saved=saved: ranks(job, "runs") == max(saved, 1), "its ranks")  # type: ignore[misc]
    box.run(["scancel", *(str(job.id) for job in jobs)])
    for job, saved in jobs.items():
        assert job.end() == "CANCELLED", job.log
        job.until(lambda job=job: "error,exiting" in job.log or ranks(job, "saved"), "its end")  # type: ignore[misc]
        assert ranks(job, "saved") == saved, job.log
        assert ("Slurm ends the job" in job.log) is (saved > 0), job.log
        assert job.diagnosis()[0] == "cancelled"
