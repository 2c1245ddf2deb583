"""A run of a job on its first node: what it takes from its environment, and what keeps its program from starting."""

import pytest

from slurm_plugin.job.supervise import counted
from slurm_plugin.slurm import SlurmAwayError
from tests.fake_slurm import FakeSlurm
from tests.fakes import job

FIRST = {"SLURM_JOB_ID": "7", "HOME": "/h"}
AGAIN = {**FIRST, "SLURM_RESTART_COUNT": "2"}


def test_another_jobs_count_of_restarts_is_not_believed() -> None:
    """A first run has none of its own, and may have inherited that of the job whose program submitted it."""
    assert counted(AGAIN, FakeSlurm(job(7, restarts=0))) == FIRST
    assert counted(AGAIN, FakeSlurm(job(7, restarts=2))) == AGAIN


def test_the_controller_is_asked_only_where_there_is_a_count() -> None:
    """Thousands of first runs cost it nothing."""
    nobody = FakeSlurm(AssertionError())
    assert counted(FIRST, nobody) == FIRST
    assert counted({**FIRST, "SLURM_RESTART_COUNT": "0"}, nobody) == {**FIRST, "SLURM_RESTART_COUNT": "0"}
    assert counted({"SLURM_RESTART_COUNT": "2"}, nobody) == {"SLURM_RESTART_COUNT": "2"}  # in no job


def test_a_count_that_cannot_be_checked_is_believed(capsys: pytest.CaptureFixture[str]) -> None:
    """It nearly always is the job's own."""
    assert counted(AGAIN, FakeSlurm(SlurmAwayError("no slurmctld answered"))) == AGAIN
    said = "[slurm_plugin] could not read whether the job was restarted: no slurmctld answered\n"
    assert capsys.readouterr().out == said
