"""A site that shows neither nodes nor others' jobs to users (PrivateData), and one with reservations."""

from collections.abc import Iterator

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster import looks, training
from tests.cluster.etc import Etc
from tests.cluster.jobs import submit

pytestmark = pytest.mark.cluster

FORECAST = "cd ~ && printf 'name: a\\nmode: single\\ncommand: x\\n{}' | slurm-plugin forecast -"


@pytest.fixture
def private(cluster: Sandbox, etc: Etc) -> Sandbox:
    """Return a cluster whose users see only their own jobs, and no nodes."""
    etc.settings(PrivateData="jobs,nodes")
    etc.restart()
    return cluster


@pytest.mark.full  # 20 s, and it restarts slurmctld twice
def test_users_who_see_no_nodes(private: Sandbox) -> None:
    """Commands do without them. A node that is drained under a program is left with time to save."""
    assert private.run(["sh", "-c", FORECAST.format("")]).stdout.startswith("a: would start now, on n")
    said = private.run(["slurm-plugin", "why", "n1"], check=False)
    assert (said.returncode, "this site does not show nodes to users" in said.stderr) == (2, True)
    job = training.submit(private, "private-data", grace="1h", nodes=2, min_nodes=1, retries=1)
    (job.directory / "train.sh").write_text(training.PROGRAM.replace("[ -c /dev/fakegpu3 ] || exit 5", ":"))
    training.until_runs(job, 0)
    training.leaves_when_told(job, "n1", "n2")
    assert "it runs on n[1-2]" in private.run(["slurm-plugin", "why", str(job.id)]).stdout
    private.break_node("n2", "gpu-missing")
    looks.look(private, "n2")
    training.until_runs(job, 1, nodes=1)
    assert "n2" not in training.hosts(job, 1)
    assert training.stop(job) == "COMPLETED"
    assert "[slurm_plugin] the program is ended: nodes were drained under it" in job.log


@pytest.fixture
def reserved(cluster: Sandbox) -> Iterator[Sandbox]:
    """Yield a cluster with a maintenance of all nodes in an hour."""
    more = ["duration=120", "flags=maint,ignore_jobs", "users=root", "nodes=ALL"]
    cluster.run(["scontrol", "create", "reservation=m", "starttime=now+1hour", *more], user="root")
    yield cluster
    cluster.run(["scontrol", "delete", "reservationname=m"], user="root")


@pytest.mark.full  # 12 s
def test_a_maintenance_that_the_time_limit_reaches_into(reserved: Sandbox) -> None:
    """`forecast` and `why` name it, with a time limit that fits. With that the job could start."""
    reaches = "its time limit reaches into the reservation m, from "
    fits = "; with `time: 55m` it could start now"
    said = reserved.run(["sh", "-c", FORECAST.format("time: 4h\\n")]).stdout
    assert reaches in said
    assert f"{fits}\n  when it is, and for whom: scontrol show reservation\n" in said
    assert reserved.run(["sh", "-c", FORECAST.format("time: 55m\\n")]).stdout.startswith("a: would start now")
    for time, begins in (("4h", reaches), (None, "it has no time limit, and reaches into the reservation m, from ")):
        job = submit(reserved, f"reserved-{time}", nodes=1, mode="single", command="x", time=time)
        why = ["slurm-plugin", "why", str(job.id)]
        job.until(lambda why=why: "the reservation m" in reserved.run(why).stdout, "its reason")  # type: ignore[misc]
        said = reserved.run(why).stdout
        assert begins in said
        assert fits in said
        assert "try next\n  scontrol show reservation\n" in said
