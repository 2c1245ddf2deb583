"""The supervisor of a job on this machine alone, with a minimal srun."""

from collections.abc import Mapping
from pathlib import Path

from slurm_plugin.records.job_plan import JobPlan
from slurm_plugin.slurm import Slurm
from slurm_plugin.supervisor.decide import Action
from slurm_plugin.supervisor.launcher import Launcher
from slurm_plugin.supervisor.queries import Surroundings
from slurm_plugin.supervisor.run import from_environment
from slurm_plugin.supervisor.supervise import Supervisor
from tests.fake_slurm import FakeSlurm
from tests.fakes import job
from tests.guarded import AGES, new_job

JOB = new_job()  # guards kill every process with this job id on this machine
FIRST = {"SLURM_JOB_ID": str(JOB), "HOME": "/h"}
AGAIN = {**FIRST, "SLURM_RESTART_COUNT": "2"}
# An srun of one node. It fails once for each file `broken*` in its directory, and writes its arguments to `launched`.
SRUN = """#!/bin/sh
cd {directory}
for file in broken*; do [ ! -e "$file" ] || { rm "$file"; echo "srun: error: no luck" >&2; exit 1; }; done
case "$*" in
*" job guard "*) while [ "$1" != -- ]; do shift; done; shift; SLURM_JOB_ID={job} SLURMD_NODENAME=n1 exec "$@" ;;
*) echo "$*" >launched ;;
esac
"""
RUNNING = job(JOB, state="RUNNING")


def supervisor(srun: Path, door: Slurm, plan: JobPlan, environ: Mapping[str, str] | None = None) -> Supervisor:
    """Return the supervisor of a run on n1."""
    environ = {"SLURM_JOB_ID": str(JOB), "SLURM_JOB_NODELIST": "n1", "PATH": f"{srun}:/usr/bin:/bin", **(environ or {})}
    site = {"run_directory": str(srun / "run"), "infiniband_partitions": (), "prechecks": {"deadline_s": AGES}}
    site |= {"max_hold_s": 3000, "notify": "/bin/true", "logs": {"diagnosis_s": AGES}}
    run = from_environment(environ, 1)
    return Supervisor(Surroundings(plan, site, door, environ, Launcher()), run)


def attempted(srun: Path, door: FakeSlurm, plan: JobPlan, environ: Mapping[str, str] | None = None) -> Action:
    """Run the supervisor. Return the action after its last attempt."""
    return supervisor(srun, door, plan, environ=environ).supervise()
