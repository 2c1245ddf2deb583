"""slurm_plugin.slurm while the controller hangs or is away: the same assertions for each back end."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from slurm_plugin.sandbox import Sandbox
from slurm_plugin.slurm import Slurm, SlurmAwayError
from tests.cluster import controller
from tests.cluster.doors import BACKENDS, Connect, connecting
from tests.waiting import HANG_S, until

pytestmark = pytest.mark.cluster


@pytest.fixture(params=BACKENDS)
def connect(request: pytest.FixtureRequest, cluster: Sandbox) -> Iterator[Connect]:
    """Yield `slurm_plugin.slurm.connect` for one back end."""
    with connecting(cluster, request.param) as connected:
        yield connected


def answers(door: Slurm) -> bool:
    """Return whether a connection with a short deadline gets an answer in time."""
    with suppress(SlurmAwayError):
        return bool(door.nodes(["n1"]))
    return False


def test_a_stopped_controller_meets_the_deadline(cluster: Sandbox, connect: Connect) -> None:
    """A request to a hanging slurmctld fails at its deadline, with a command to try."""
    door = connect(deadline_s=3.0)
    until(lambda: answers(door), "an answer in 3 s")
    with controller.stopped(cluster):
        with pytest.raises(SlurmAwayError, match=r"gave no answer in 3 s.*\n  is slurmctld up\? try: scontrol ping"):
            door.job(1)
        assert not door.ping()


@pytest.mark.full  # 14 s
def test_a_controller_that_comes_back_is_asked_again(cluster: Sandbox, connect: Connect) -> None:
    """The error says that it is down. A patient caller waits until it is back, and the request is done once."""
    patient, hasty = connect(deadline_s=HANG_S, patience_s=HANG_S), connect(deadline_s=HANG_S)
    job_id = patient.submit("#!/bin/sh\n", arguments=["--output=/dev/null", "--hold"], directory="/tmp").id
    with ThreadPoolExecutor(1) as pool:
        with controller.away(cluster):
            change = pool.submit(patient.update_job, job_id, Comment="after all")
            with pytest.raises(SlurmAwayError, match=r"could not read the jobs.*\n  is slurmctld up"):
                hasty.jobs([job_id, job_id + 1])
            assert not hasty.ping()
            assert not change.done()
        change.result()
    assert patient.job(job_id).comment == "after all"
