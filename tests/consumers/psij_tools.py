"""The helpers of psij-python's tests, which its source package lacks, and its fixture `execparams`, for Slurm."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from psij import Job, JobExecutor, JobState, JobStatus
from psij.executors.batch.slurm import SlurmExecutorConfig

SHARED = Path.home() / ".psij/test"


class ExecutorTestParams:
    """What a test runs its jobs with."""

    executor, launcher, url = "slurm", "srun", None


@pytest.fixture
def execparams() -> ExecutorTestParams:
    """Return Slurm with srun as the launcher."""
    return ExecutorTestParams()


def assert_completed(job: Job, status: JobStatus | None, attached: bool = False) -> None:
    """Fail if the job did not complete."""
    assert status
    assert status.state == JobState.COMPLETED, status


def _make_test_dir() -> None:
    SHARED.mkdir(parents=True, exist_ok=True)


def _get_timeout(params: ExecutorTestParams) -> timedelta | None:
    return None


def _get_executor_instance(params: ExecutorTestParams, job: Job | None = None) -> JobExecutor:
    if job and job.spec:
        job.spec.launcher = params.launcher
    return JobExecutor.get_instance(params.executor, config=SlurmExecutorConfig(queue_polling_interval=1))


@contextmanager
def _deploy(path: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=SHARED) as directory:
        yield Path(shutil.copy(path, directory))
