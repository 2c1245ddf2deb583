"""The door, asked of a real Slurm: the same assertions for each room behind it, whatever users write."""

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.sandbox import Sandbox
from slurm_plugin.slurm import Job, JobNotFoundError, Slurm, SlurmAwayError, SlurmError
from tests.cluster import controller
from tests.cluster.command import until as until_true
from tests.cluster.doors import PYSLURM, Door
from tests.cluster.jobs import ALICE_UID

pytestmark = pytest.mark.cluster

SLEEP = "#!/bin/sh\nsleep 300\n"
ROOT = Path(os.environ.get("SLURM_PLUGIN_TEST_ROOT", "/"))
# pyslurm works beside its own Slurm only: the one root that has it is asked through both.
BACKENDS = {"cli": "Commands", "pyslurm": "Library"} if (ROOT / PYSLURM[1:]).exists() else {"cli": "Commands"}
Connect = Callable[..., Slurm]


@pytest.fixture(params=BACKENDS)
def connect(request: pytest.FixtureRequest, cluster: Sandbox) -> Iterator[Connect]:
    """`slurm_plugin.slurm.connect` in the controller's machine, for one of the rooms; as root."""
    made: list[Door] = []

    def connected(**named: Any) -> Slurm:
        door = Door(cluster, {"SLURM_PLUGIN_BACKEND": request.param}, **named)
        made.append(door)
        assert (door.backend, door.said) == (BACKENDS[request.param], [])
        return door  # type: ignore[return-value]

    yield connected
    for door in made:
        door.close()


@pytest.fixture
def door(connect: Connect) -> Slurm:
    """A door with a deadline that nothing here comes near."""
    return connect(deadline_s=20.0)


def until(door: Slurm, job_id: int, *states: str) -> Job:
    """Wait for one of these states."""
    deadline = time.monotonic() + 30
    while (job := door.job(job_id)).state not in states:
        assert time.monotonic() < deadline, job
        time.sleep(0.1)
    return job


def sleeping(door: Slurm, *arguments: str, script: str = SLEEP) -> int:
    """A new job."""
    return door.submit(script, arguments=["--output=/dev/null", *arguments], directory="/tmp")


def test_a_jobs_way(door: Slurm) -> None:
    """Submitted, running, requeued, changed while it waits, cancelled: each is seen, and each change is there."""
    job_id = sleeping(door, "--nodes=2", "--requeue", "--job-name=way", "--time=10")
    running = until(door, job_id, "RUNNING")
    assert (running.nodes, running.name, running.partition, running.user) == ("n[1-2]", "way", "main", "root")
    assert door.work_directory(job_id) == "/tmp"
    door.requeue(job_id)
    pending = until(door, job_id, "PENDING")
    assert (pending.restarts, pending.nodes, pending.reason) == (1, "", "BeginTime")
    with pytest.raises(SlurmError):  # so that one who asks twice does not end the next run
        door.requeue(job_id)
    door.update_job(job_id, ExcNodeList="n[1-2]", AdminComment='site sp1:{"granted":3}', Comment="a [sp1;retries=3] b")
    changed = door.job(job_id)
    assert (changed.excluded, changed.comment) == ("n[1-2]", "a [sp1;retries=3] b")
    assert changed.admin_comment == 'site sp1:{"granted":3}'
    door.update_job(job_id, ExcNodeList="", AdminComment="", Comment="")
    cleared = door.job(job_id)
    assert (cleared.excluded, cleared.comment, cleared.admin_comment) == ("", "", "")
    door.update_job(job_id, Nice="10", ExcNodeList="n1")  # pyslurm alone could not say both
    assert door.job(job_id).excluded == "n1"
    door.cancel(job_id)
    assert until(door, job_id, "CANCELLED").restarts == 1


def test_jobs_of_a_user_on_a_node(door: Slurm) -> None:
    """Those that run and have run there, each with its state; an error where that cannot be told."""
    first = sleeping(door, "--nodelist=n1", "--ntasks=1")
    both = sleeping(door, "--nodelist=n[1-2]", "--ntasks=2", "--ntasks-per-node=1")
    array = sleeping(door, "--nodelist=n2", "--ntasks=1", "--array=1-2")
    over = sleeping(door, "--nodelist=n1", "--ntasks=1", script="#!/bin/sh\nexit 3\n")
    sleeping(door, "--hold")
    for job_id in (first, both):
        until(door, job_id, "RUNNING")
    until(door, over, "FAILED")
    assert door.jobs_of(0, "n1").items() >= {first: "RUNNING", both: "RUNNING", over: "FAILED"}.items()
    until_true(lambda: len([each for each in door.jobs_of(0, "n2").values() if each == "RUNNING"]) == 3, 30)
    running = {number for number, state in door.jobs_of(0, "n2").items() if state == "RUNNING"}
    assert {both, array} < running
    assert "RUNNING" not in door.jobs_of(0, "n3").values()
    assert "RUNNING" not in door.jobs_of(ALICE_UID, "n1").values()
    with pytest.raises(SlurmError, match="Invalid node name n99"):
        door.jobs_of(0, "n99")
    with suppress(SlurmError):  # "Invalid user: 4242" up to 24.11
        assert door.jobs_of(4242, "n1") == {}


def test_times_are_utc(door: Slurm) -> None:
    """Submission, start and the end that the time limit sets: aware, and of this minute whatever the zone is."""
    before = datetime.now(UTC).replace(microsecond=0)
    running = until(door, sleeping(door, "--time=10"), "RUNNING")
    after = datetime.now(UTC)
    assert running.submit_time
    assert running.start_time
    assert before <= running.submit_time <= running.start_time <= after
    assert running.end_time == running.start_time + timedelta(minutes=10)
    waiting = door.job(sleeping(door, "--hold"))
    assert (waiting.start_time, waiting.end_time) == (None, None)


@pytest.mark.parametrize(
    ("script", "code", "number"), [("exit 7", 7, None), ("kill -9 $$", None, 9), ("true", 0, None)]
)
def test_how_a_job_ended(door: Slurm, script: str, code: int | None, number: int | None) -> None:
    """An exit code or a signal, never both."""
    ended = until(door, sleeping(door, script=f"#!/bin/sh\n{script}\n"), "COMPLETED", "FAILED")
    assert (ended.exit_code, ended.exit_signal) == (code, number)


def test_cancelling_what_has_ended_is_no_error(door: Slurm) -> None:
    """Nothing is left to cancel: of a job that completed, and of one that Slurm does not know."""
    job_id = sleeping(door, script="#!/bin/sh\ntrue\n")
    until(door, job_id, "COMPLETED")
    door.cancel(job_id)
    door.cancel(999_999)
    assert door.job(job_id).state == "COMPLETED"


def test_held_and_released(door: Slurm) -> None:
    """A held job waits with a reason that says so; released, it runs."""
    job_id = sleeping(door, "--begin=now+600")
    door.hold(job_id)
    assert door.job(job_id).reason.startswith("JobHeld")
    door.release(job_id)
    assert not door.job(job_id).reason.startswith("JobHeld")
    door.update_job(job_id, StartTime="now")
    until(door, job_id, "RUNNING")


def test_signals(door: Slurm, cluster: Sandbox) -> None:
    """To the steps alone, to the batch script alone, or to both."""
    file = cluster.home("alice") / "signals"
    file.unlink(missing_ok=True)
    note = "trap 'echo {0} >> /home/alice/signals' USR1; {1} while :; do sleep 0.1; done"
    step = note.format("step", "echo up >> /home/alice/signals;")
    script = f'#!/bin/bash\nsrun bash -c "{step}" &\n{note.format("batch", "")}\n'
    job_id = sleeping(door, script=script)
    heard = ["up"]
    until_true(file.exists)
    for to, words in (("steps", ["step"]), ("batch", ["batch"]), ("all", ["batch", "step"])):
        door.signal(job_id, "USR1", to)  # type: ignore[arg-type]
        heard += words
        until_true(lambda heard=heard: len(file.read_text().split()) >= len(heard))  # type: ignore[misc]
        time.sleep(0.3)  # a signal to the wrong one would come now
        assert sorted(file.read_text().split()) == sorted(heard), to


@pytest.mark.parametrize(
    "text",
    [
        "two\nlines",
        "x\n999 alice RUNNING None n1 (null) 0 forged",
        "JobState=COMPLETED ExcNodeList=n1 AdminComment=sp1:{}",
        "quotes \" and ' and $(touch /tmp/forged) and `id`",
        "tab\tand\rreturn, größer, 訓練",
        "~" * 64,
        "not \udcff UTF-8",
        "None",
        "N/A",
    ],
)
def test_hostile_names_and_comments_forge_nothing(door: Slurm, text: str) -> None:
    """A job whose user chose its name and comment to look like records is read like any other."""
    plain = sleeping(door, "--hold", "--job-name=plain", "--comment=plain")
    odd = sleeping(door, "--hold", f"--job-name={text}", f"--comment={text}")
    found = door.jobs([plain, odd, 999_999])
    shown = text.replace("\udcff", "\ufffd")
    assert set(found) == {plain, odd}
    assert (found[odd].comment, found[odd].name) == (shown, shown)
    same = {"id": plain, "comment": "plain", "name": "plain", "submit_time": found[plain].submit_time}
    assert found[odd]._replace(**same) == found[plain]
    assert door.jobs()[odd] == door.job(odd) == found[odd]


def test_a_job_that_slurm_does_not_know(door: Slurm) -> None:
    """An error of its own, with the next command to try."""
    with pytest.raises(JobNotFoundError, match=r"job 999999 .*\n  see what runs with: squeue --me"):
        door.job(999_999)
    assert door.jobs([999_999]) == door.jobs([]) == {}


def test_more_jobs_than_one_question_names(door: Slurm) -> None:
    """However many ids are asked for, those that exist are found, in one question."""
    job_id = sleeping(door, "--hold")
    assert set(door.jobs(range(job_id, job_id + 5000))) == {job_id}


def test_a_nodes_way(door: Slurm) -> None:
    """Drained with a reason, byte for byte; resumed."""
    reason = "slurm_plugin: gpu-check: 3 of 4 GPUs; disk-size shm: 512 MB < 1 GB [job 7]"
    before = datetime.now(UTC).replace(microsecond=0)
    door.drain("n4", reason)
    found = door.nodes(["n3", "n4"])
    assert (found["n3"].states, found["n3"].reason, found["n3"].partitions) == ({"IDLE"}, "", ("main",))
    assert (found["n4"].states, found["n4"].reason, found["n4"].reason_user) == ({"IDLE", "DRAIN"}, reason, "root")
    assert found["n4"].reason_time
    assert before <= found["n4"].reason_time <= datetime.now(UTC)
    door.resume("n4")
    deadline = time.monotonic() + 30  # 22.05 waits for the node's next answer before it trusts it again
    while (states := door.nodes(["n4"])["n4"].states) != {"IDLE"}:
        assert "DRAIN" not in states
        assert time.monotonic() < deadline, states
        time.sleep(0.2)
    assert set(door.nodes([])) == {"n1", "n2", "n3", "n4", "n5"}


def test_a_nodes_reason_is_not_its_comment(door: Slurm, cluster: Sandbox) -> None:
    """Slurm prints a node's comment and its reservation behind the reason."""
    try:
        cluster.run(["scontrol", "update", "nodename=n3", "comment=rack 4 [job 8]"], user="root")
        words = ["reservationname=test", "user=root", "starttime=now", "duration=10", "nodes=n3"]
        cluster.run(["scontrol", "create", *words], user="root")
        door.drain("n3", "new disk [job 7]")
        found = door.nodes(["n3"])["n3"]
        assert (found.reason, found.reason_user, found.states >= {"DRAIN"}) == ("new disk [job 7]", "root", True)
    finally:
        cluster.run(["scontrol", "delete", "reservationname=test"], user="root")
        cluster.run(["scontrol", "update", "nodename=n3", "comment="], user="root")


def test_what_slurm_refuses(door: Slurm) -> None:
    """The error names what was asked, what Slurm said and what to try; no controller is taken for one that is away."""
    said = r"could not requeue job 999999: (scontrol|pyslurm) said: .*[Ii]nvalid job id(?s:.*)\n  see it with: scontrol"
    with pytest.raises(SlurmError, match=said):
        door.requeue(999_999)
    with pytest.raises(SlurmError, match=r"could not drain node n99: (scontrol|pyslurm) said: .*[Ii]nvalid node name"):
        door.drain("n99", "x")
    with pytest.raises(SlurmError, match=r"could not submit the job: sbatch said: .*") as caught:
        sleeping(door, "--partition=none")
    assert not isinstance(caught.value, SlurmAwayError)


def test_version_settings_and_ping(door: Slurm, cluster: Sandbox) -> None:
    """slurmctld's own release, as its binary has it."""
    said = cluster.run(["slurmctld", "-V"], user="root").stdout.split()[-1]
    assert (door.version(), door.config()["SLURM_VERSION"], door.ping()) == (said, said, True)


@pytest.fixture
def stopped(cluster: Sandbox, connect: Connect) -> Iterator[Slurm]:
    """A slurmctld that does not answer, and a door that knew it before."""
    door = connect(deadline_s=3.0)
    assert door.nodes(["n1"])
    with controller.stopped(cluster):
        yield door


def test_a_stopped_controller_meets_the_deadline(stopped: Slurm) -> None:
    """A question to a slurmctld that hangs ends at its deadline, with what to try."""
    began = time.monotonic()
    with pytest.raises(SlurmAwayError, match=r"gave no answer in 3 s.*\n  is slurmctld up\? try: scontrol ping"):
        stopped.job(1)
    assert not stopped.ping()
    assert time.monotonic() - began < 20


def test_a_controller_that_comes_back_is_asked_again(cluster: Sandbox, connect: Connect) -> None:
    """Down: an error that says so, and the patient wait until it is back; what was asked for is done once."""
    patient, hasty = connect(deadline_s=20.0, patience_s=60.0), connect(deadline_s=20.0)
    job_id = sleeping(patient, "--hold")
    with ThreadPoolExecutor(1) as pool:
        with controller.away(cluster):
            change = pool.submit(patient.update_job, job_id, Comment="after all")
            with pytest.raises(SlurmAwayError, match=r"could not read the jobs.*\n  is slurmctld up"):
                hasty.jobs([job_id, job_id + 1])
            assert not hasty.ping()
            assert not change.done()
        change.result(60)
    assert patient.job(job_id).comment == "after all"
