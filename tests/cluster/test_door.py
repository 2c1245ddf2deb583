"""slurm_plugin.slurm on a real Slurm: the same assertions for each back end, whatever users write."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from slurm_plugin.sandbox import Sandbox
from slurm_plugin.slurm import Job, JobNotFoundError, Slurm, SlurmAwayError, SlurmError
from tests.cluster.doors import BACKENDS, connecting
from tests.cluster.jobs import ALICE_UID
from tests.waiting import HANG_S, until

pytestmark = pytest.mark.cluster

SLEEP = "#!/bin/sh\nsleep 9000\n"


@pytest.fixture(params=BACKENDS)
def door(request: pytest.FixtureRequest, cluster: Sandbox) -> Iterator[Slurm]:
    """Yield a connection with one back end, with a deadline that no test reaches."""
    with connecting(cluster, request.param) as connect:
        yield connect(deadline_s=HANG_S)


def once(door: Slurm, job_id: int, *states: str) -> Job:
    """Return the job when it has one of these states."""
    until(lambda: door.job(job_id).state in states, lambda: f"{' or '.join(states)}: {door.job(job_id)}")
    return door.job(job_id)


def sleeping(door: Slurm, *arguments: str, script: str = SLEEP) -> int:
    """Submit a job that sleeps."""
    return door.submit(script, arguments=["--output=/dev/null", *arguments], directory="/tmp").id


def test_a_jobs_way(door: Slurm) -> None:
    """Submit, run, requeue, change and cancel a job: each state and each change is visible."""
    job_id = sleeping(door, "--nodes=2", "--requeue", "--job-name=way", "--time=10")
    running = once(door, job_id, "RUNNING")
    assert (running.nodes, running.name, running.partition, running.user) == ("n[1-2]", "way", "main", "root")
    assert door.work_directory(job_id) == "/tmp"
    door.requeue(job_id)
    pending = once(door, job_id, "PENDING")
    assert (pending.restarts, pending.nodes, pending.reason) == (1, "", "BeginTime")
    with pytest.raises(SlurmError):  # a second request must not end the next run
        door.requeue(job_id)
    door.update_job(job_id, ExcNodeList="n[1-2]", AdminComment='site sp1:{"granted":3}', Comment="a [sp1;retries=3] b")
    changed = door.job(job_id)
    assert (changed.excluded, changed.comment) == ("n[1-2]", "a [sp1;retries=3] b")
    assert changed.admin_comment == 'site sp1:{"granted":3}'
    door.update_job(job_id, ExcNodeList="", AdminComment="", Comment="")
    cleared = door.job(job_id)
    assert (cleared.excluded, cleared.comment, cleared.admin_comment) == ("", "", "")
    door.update_job(job_id, Nice="10", ExcNodeList="n1")  # pyslurm itself cannot change both
    assert door.job(job_id).excluded == "n1"
    door.cancel(job_id)
    assert once(door, job_id, "CANCELLED").restarts == 1


def test_jobs_of_a_user_on_a_node(door: Slurm) -> None:
    """All jobs of the user that run or ran there, with their states; an error if Slurm cannot tell."""
    first = sleeping(door, "--nodelist=n1", "--ntasks=1")
    both = sleeping(door, "--nodelist=n[1-2]", "--ntasks=2", "--ntasks-per-node=1")
    array = sleeping(door, "--nodelist=n2", "--ntasks=1", "--array=1-2")
    over = sleeping(door, "--nodelist=n1", "--ntasks=1", script="#!/bin/sh\nexit 3\n")
    sleeping(door, "--hold")
    for job_id in (first, both):
        once(door, job_id, "RUNNING")
    once(door, over, "FAILED")
    assert door.jobs_of(0, "n1").items() >= {first: "RUNNING", both: "RUNNING", over: "FAILED"}.items()
    until(lambda: len([each for each in door.jobs_of(0, "n2").values() if each == "RUNNING"]) == 3)
    running = {number for number, state in door.jobs_of(0, "n2").items() if state == "RUNNING"}
    assert {both, array} < running
    assert "RUNNING" not in door.jobs_of(0, "n3").values()
    assert "RUNNING" not in door.jobs_of(ALICE_UID, "n1").values()
    with pytest.raises(SlurmError, match="Invalid node name n99"):
        door.jobs_of(0, "n99")
    with suppress(SlurmError):  # "Invalid user: 4242" up to 24.11
        assert door.jobs_of(4242, "n1") == {}


def test_times_are_utc(door: Slurm) -> None:
    """Submission, start and the end by the time limit: aware, and correct in any time zone."""
    before = datetime.now(UTC).replace(microsecond=0)
    running = once(door, sleeping(door, "--time=10"), "RUNNING")
    after = datetime.now(UTC)
    assert running.submit_time
    assert running.start_time
    assert before <= running.submit_time <= running.start_time <= after
    assert running.end_time == running.start_time + timedelta(minutes=10)
    waiting = door.job(sleeping(door, "--hold"))
    assert (waiting.start_time, waiting.end_time) == (None, None)


def test_how_a_job_ended(door: Slurm) -> None:
    """An exit code or a signal, never both. Cancelling an ended job changes nothing."""
    ends = {"exit 7": ("FAILED", 7, None), "kill -9 $$": ("FAILED", None, 9), "true": ("COMPLETED", 0, None)}
    jobs = {script: sleeping(door, "--ntasks=1", script=f"#!/bin/sh\n{script}\n") for script in ends}
    for script, job_id in jobs.items():
        job = once(door, job_id, "COMPLETED", "FAILED")
        assert (job.state, job.exit_code, job.exit_signal) == ends[script], script
    door.cancel(jobs["true"])
    assert door.job(jobs["true"]).state == "COMPLETED"


def test_held_and_released(door: Slurm) -> None:
    """A held job waits with a reason for that. After its release it runs."""
    job_id = sleeping(door, "--begin=now+600")
    door.hold(job_id)
    assert door.job(job_id).reason.startswith("JobHeld")
    door.release(job_id)
    assert not door.job(job_id).reason.startswith("JobHeld")
    door.update_job(job_id, StartTime="now")
    once(door, job_id, "RUNNING")


def test_signals(door: Slurm, cluster: Sandbox) -> None:
    """To the steps only, to the batch script only, or to both."""
    file = cluster.home("alice") / "signals"
    file.unlink(missing_ok=True)
    note = "trap 'echo {0} >> /home/alice/signals' USR1; {1} while :; do sleep 0.1; done"
    step = note.format("step", "echo up >> /home/alice/signals;")
    batch = note.format("batch", f'srun bash -c "{step}" &')
    job_id = sleeping(door, script=f"#!/bin/bash\n{batch}\n")
    heard = ["up"]
    until(file.exists)
    for to, words in (("steps", ["step"]), ("batch", ["batch"]), ("all", ["batch", "step"])):
        door.signal(job_id, "USR1", to)  # type: ignore[arg-type]
        heard += words
        until(lambda heard=heard: len(file.read_text().split()) >= len(heard), to)  # type: ignore[misc]
        assert sorted(file.read_text().split()) == sorted(heard), to  # a signal to others shows later


HOSTILE = (
    "two\nlines",
    "x\n999 alice RUNNING None n1 (null) 0 forged",
    "JobState=COMPLETED ExcNodeList=n1 AdminComment=sp1:{}",
    "quotes \" and ' and $(touch /tmp/forged) and `id`",
    "tab\tand\rreturn, größer, 訓練",
    "~" * 64,
    "not \udcff UTF-8",
    "None",
    "N/A",
)


def test_hostile_names_and_comments_forge_nothing(door: Slurm) -> None:
    """Jobs whose names and comments look like records are parsed like any other."""
    plain = sleeping(door, "--hold", "--job-name=plain", "--comment=plain")
    jobs = {text: sleeping(door, "--hold", f"--job-name={text}", f"--comment={text}") for text in HOSTILE}
    found = door.jobs([plain, *jobs.values(), 999_999])
    assert set(found) == {plain, *jobs.values()}
    for text, odd in jobs.items():
        shown = text.replace("\udcff", "\ufffd")
        assert (found[odd].comment, found[odd].name) == (shown, shown)
        same = {"id": plain, "comment": "plain", "name": "plain", "submit_time": found[plain].submit_time}
        assert found[odd]._replace(**same) == found[plain], text
        assert door.job(odd) == found[odd], text
    assert door.jobs().items() >= found.items()


def test_jobs_that_slurm_does_not_know(door: Slurm) -> None:
    """A request for one unknown job raises a specific error with a command to try. Among many jobs it is left out.
    Cancelling it is no error.
    """
    with pytest.raises(JobNotFoundError, match=r"job 999999 .*\n  see what runs with: squeue --me"):
        door.job(999_999)
    assert door.jobs([999_999]) == door.jobs([]) == {}
    door.cancel(999_999)
    job_id = sleeping(door, "--hold")
    assert set(door.jobs(range(job_id, job_id + 5000))) == {job_id}


def test_a_nodes_way(door: Slurm) -> None:
    """Drain a node, with the reason byte for byte, and resume it."""
    reason = "slurm_plugin: gpu-check: 3 of 4 GPUs; disk-size shm: 512 MB < 1 GB [job 7]"
    before = datetime.now(UTC).replace(microsecond=0)
    door.drain("n4", reason)
    found = door.nodes(["n3", "n4"])
    assert (found["n3"].states, found["n3"].reason, found["n3"].partitions) == ({"IDLE"}, "", ("main",))
    assert (found["n4"].states, found["n4"].reason, found["n4"].reason_user) == ({"IDLE", "DRAIN"}, reason, "root")
    assert found["n4"].reason_time
    assert before <= found["n4"].reason_time <= datetime.now(UTC)
    door.resume("n4")
    assert "DRAIN" not in door.nodes(["n4"])["n4"].states
    # 22.05 waits for the node's next answer before it trusts it again.
    until(lambda: door.nodes(["n4"])["n4"].states == {"IDLE"}, "an idle n4")
    assert {name: node.gres for name, node in door.nodes([]).items()} == dict.fromkeys(
        ("n1", "n2", "n3", "n4", "n5"), ("gpu:4",)
    )


def test_a_nodes_reason_is_not_its_comment(door: Slurm, cluster: Sandbox) -> None:
    """Slurm prints a node's comment and its reservation after the reason."""
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


def test_nodes_that_slurm_does_not_know(door: Slurm) -> None:
    """They are absent from the answer; the other nodes are in it."""
    assert set(door.nodes(["n99", "n1", "n3", "other"])) == {"n1", "n3"}
    assert door.nodes(["n99"]) == {}


def test_what_slurm_refuses(door: Slurm) -> None:
    """The error names the request, Slurm's answer and the command to try. It differs from an absent controller."""
    said = r"could not requeue job 999999: (scontrol|pyslurm) said: .*[Ii]nvalid job id(?s:.*)\n  see it with: scontrol"
    with pytest.raises(SlurmError, match=said):
        door.requeue(999_999)
    with pytest.raises(SlurmError, match=r"could not drain node n99: (scontrol|pyslurm) said: .*[Ii]nvalid node name"):
        door.drain("n99", "x")
    with pytest.raises(SlurmError, match=r"could not submit the job: sbatch said: .*") as caught:
        sleeping(door, "--partition=none")
    assert not isinstance(caught.value, SlurmAwayError)


def test_version_settings_and_ping(door: Slurm, cluster: Sandbox) -> None:
    """The version is that of slurmctld's binary."""
    said = cluster.run(["slurmctld", "-V"], user="root").stdout.split()[-1]
    assert (door.version(), door.config()["SLURM_VERSION"], door.ping()) == (said, said, True)
