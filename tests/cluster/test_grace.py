"""The time to save, on a real Slurm: the checkpoint signal reaches the program, and does not end its parents."""

from importlib.util import find_spec

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import OPEN_MPI, submit
from tests.cluster.programs import LIBUV, OTHER_ROOT, PYTHON, SAVES, program

pytestmark = pytest.mark.cluster


@pytest.mark.full  # over 5 s
def test_the_signal_to_save_reaches_the_program_below_shells_and_launchers(cluster: Sandbox) -> None:
    """Through a script, bash in modes single and horovod, a script's srun, and torchrun: each rank saves and ends."""
    saves = program(cluster, "saves.py", SAVES)
    within = f"X=1 /usr/bin/python3 {saves}; exit $?"
    few = {"nodes": 1, "accelerators": {"gpu": 0}, "grace": "30m", "time": "2h"}
    jobs = {
        submit(cluster, "grace-script", mode="script", command=f"{within}\n", **few): 1,
        submit(cluster, "grace-single", mode="single", command=f'bash -c "{within}"', **few): 1,
        submit(cluster, "grace-mpi", mode="horovod", command=f'bash -c "{within}"', env=OPEN_MPI, **few): 1,
        submit(cluster, "grace-srun", mode="script", command=f"srun bash -c '{within}'\n", **few): 1,
    }
    if OTHER_ROOT or find_spec("torch"):
        both = {**few, "nodes": 2, "accelerators": {"gpu": 2}, "env": {"OMP_NUM_THREADS": "1", **LIBUV}}
        jobs[submit(cluster, "grace-torch", command=f"{PYTHON} {saves}", **both)] = 4
    for job, ranks in jobs.items():
        job.until(lambda job=job, ranks=ranks: len(list(job.directory.glob("runs.*"))) == ranks, "its ranks")  # type: ignore[misc]
        cluster.run(["scancel", "--batch", "--signal=USR1", str(job.id)])
    for job, ranks in jobs.items():
        assert (job.end(), job.exit_code) == ("COMPLETED", "0:0"), job.log
        assert len(list(job.directory.glob("saved.*"))) == ranks, job.log


@pytest.mark.full  # over 5 s
def test_a_job_that_is_stopped_saves_first(cluster: Sandbox) -> None:
    """It is cancelled then and does not run again, whether its program ends by itself or at its time limit."""
    saves, python = program(cluster, "saves.py", SAVES), "/usr/bin/python3"
    ignores = program(cluster, "ignores.py", f"{SAVES}time.sleep(3000)\n")
    few = {"nodes": 1, "accelerators": {"gpu": 0}, "time": "2h", "retries": 2, "unconditional": True, "mode": "single"}
    ends = submit(cluster, "stop-ends", command=f"{python} {saves}", grace="30m", **few)
    stays = submit(cluster, "stop-stays", command=f"{python} {ignores}", grace="5s", **few)
    without = submit(cluster, "stop-without", command=f"{python} {saves}", **few)
    waits = submit(cluster, "stop-waits", command="true", begin="2030-01-01", **few)
    for job in (ends, stays, without):
        job.until(lambda job=job: list(job.directory.glob("runs.*")), "its program")  # type: ignore[misc]
    for job in (ends, stays, without, waits):
        said = cluster.run(["slurm-plugin", "stop", str(job.id)]).stdout
        assert said.startswith(f"job {job.id}: it is {'cancelled' if job is waits else 'told to save'}")
    for job in (ends, stays, without, waits):
        assert job.end() == "CANCELLED", job.log
        assert len(list(job.directory.glob("saved.*"))) == (job in (ends, stays)), job.log
    for job in (ends, stays, without):
        assert [each["action"] for each in job.attempts] == ["finish"]
    assert ends.attempts[0]["code"] == 0
