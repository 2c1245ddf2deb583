"""Jobs that are shared with a group, on a real Slurm: alice owns them, bob is in the group, and carol is not."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import Job, submit
from tests.cluster.test_holds import HELD, ours, site

pytestmark = pytest.mark.cluster
__all__ = ["site"]

WRITE = {"group": "team", "access": "read-write"}
SAVES = """bash -c 'trap "echo saved; exit 0" USR1; echo begun; while :; do sleep 0.1; done'"""
BOB = 20002


@pytest.fixture(autouse=True)
def entered(cluster: Sandbox) -> Iterator[None]:
    """Others may enter alice's home."""
    home = cluster.home("alice")
    mode = home.stat().st_mode
    home.chmod(0o711)
    yield
    home.chmod(mode)


def shared(box: Sandbox, name: str, **spec: Any) -> Job:
    """Return a running job of alice's that is shared with the group `team`."""
    given = {"mode": "single", "nodes": 1, "accelerators": None, "command": SAVES, "share": WRITE, **spec}
    job = submit(box, f"share-{name}", **given)
    job.until(lambda: "shared with group team" in job.log, "the sharing")
    return job


def own(job: Job) -> Path:
    """Return the job's own directory."""
    return job.directory / ".slurm_plugin" / str(job.id)


def write(job: Job, text: str, user: str = "bob", name: str = "$(date +%s%N)-$(id -u).json") -> int:
    """Write a file into `requests/` as a user, without slurm_plugin. Return the exit code."""
    box = f"/home/alice/{job.directory.name}/.slurm_plugin/{job.id}/requests"
    return job.box.run(["sh", "-c", f'cat >"{box}/{name}"'], user=user, check=False, input=text).returncode


def answers(job: Job) -> list[dict[str, Any]]:
    """Return the answers to requests so far."""
    file = own(job) / "answers.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_bob_sees_and_stops_it_and_carol_does_not(cluster: Sandbox) -> None:
    """A member reads the log and the history, and stops the job, which saves. Others neither see nor stop it."""
    job = shared(cluster, "shared", grace="1h")
    job.until(lambda: "begun" in job.log, "the program")
    for verb, said in (("logs", "begun"), ("history", "RUNNING")):
        done = ours(job, verb, user="bob")
        assert (done.returncode, said in done.stdout) == (0, True), (verb, done)
    assert "begun" not in ours(job, "logs", user="carol").stdout
    cloned = ours(job, "clone", "--dry-run", user="bob")
    assert (cloned.returncode, "#SBATCH --job-name=share-shared\n" in cloned.stdout) == (0, True), cloned
    for user, code in (("bob", 0), ("carol", 1)):
        assert cluster.run(["cat", "/home/alice/share-shared/job.out"], user=user, check=False).returncode == code, user
    for words in (["stop"], ["stop", "--json"], ["release"], ["rerun"]):
        refused = ours(job, *words, user="carol")
        assert (refused.returncode, "is alice's" in refused.stderr) == (1, True), refused
    assert write(job, "{}", user="carol") != 0
    assert answers(job) == []
    assert job.state == "RUNNING"

    stopped = ours(job, "stop", user="bob")
    assert (stopped.returncode, stopped.stdout) == (
        0,
        f"job {job.id}: it is told to save if it has `grace`, then it is cancelled\n",
    ), stopped.stderr
    assert job.end() == "CANCELLED"
    assert "\nsaved\n" in job.log
    assert "[slurm_plugin] stop (asked by bob): it is told to save" in job.log
    ((answer,), left) = answers(job), sorted((own(job) / "requests").iterdir())
    assert (answer["user"], answer["uid"], answer["verb"], answer["done"]) == ("bob", BOB, "stop", True)
    assert left == []


@pytest.mark.full  # over 5 s
def test_the_environment_stays_private(cluster: Sandbox) -> None:
    """A member reads neither the program's environment nor another's requests, and changes no record."""
    job = shared(cluster, "private")
    place = f"/home/alice/share-private/.slurm_plugin/{job.id}"
    job.until((own(job) / "launch.json").exists, "the launch")
    for command in (
        f"cat {place}/launch.json",
        f"ls {place}/requests",
        f"rm {place}/output.json",
        f"mv {place}/requests {place}/mine",
        f"touch {place}/new",
        f"echo >>{place}/attempts.jsonl",
        f"mv {place} {place}.mine",
        "echo >>/home/alice/share-private/job.out",
    ):
        done = cluster.run(["sh", "-c", command], user="bob", check=False)
        assert done.returncode != 0, command
    assert cluster.run(["cat", f"{place}/output.json"], user="bob").stdout
    assert cluster.run(["ls", place], user="carol", check=False).returncode != 0
    assert job.state == "RUNNING"


@pytest.mark.full  # over 5 s
def test_a_held_job(cluster: Sandbox) -> None:
    """A member runs the command again, and releases the job."""
    job = shared(cluster, "held", command="bash -c 'exit 5'", hold_on_failure="1h")
    job.until(lambda: HELD in job.log, "the hold")
    assert ours(job, "release", user="carol").returncode == 1
    done = ours(job, "rerun", user="bob")
    assert (done.returncode, done.stdout) == (0, f"job {job.id}: its command runs again\n"), done.stderr
    job.until(lambda: job.log.count(HELD) == 2, "the second hold")
    done = ours(job, "release", "--json", user="bob")
    assert (done.returncode, json.loads(done.stdout)["asked"]) == (0, "release"), done.stderr
    assert (job.end(), job.exit_code) == ("FAILED", "5:0")


@pytest.mark.full  # over 5 s
def test_a_job_that_is_not_held(cluster: Sandbox) -> None:
    """The answer of the supervisor is the command's message."""
    job = shared(cluster, "runs")
    done = ours(job, "release", user="bob")
    assert (done.returncode, f"job {job.id}: the job is not held: its command runs\n" in done.stderr) == (1, True)
    assert job.state == "RUNNING"


@pytest.mark.full  # over 5 s
def test_time(cluster: Sandbox) -> None:
    """A member lowers the limit. A raise is up to Slurm, as for the job's user; the answer says so."""
    job = shared(cluster, "time", time="2h")
    done = ours(job, "time", "1h", user="bob")
    assert (done.returncode, done.stdout.startswith(f"job {job.id}: its time limit is 01:00:00")) == (0, True), done
    assert job.fields["TimeLimit"] == "01:00:00"
    done = ours(job, "time", "+2h", user="bob")
    assert (done.returncode, "only an operator" in done.stderr) == (1, True), done
    assert ours(job, "time", "30m", user="carol").returncode == 1
    assert job.fields["TimeLimit"] == "01:00:00"


@pytest.mark.full  # over 5 s
def test_read_only(cluster: Sandbox) -> None:
    """A member sees the job, and cannot act on it: the message says how the owner could allow it."""
    job = shared(cluster, "look", share={"group": "team"})
    assert "begun" in ours(job, "logs", user="bob").stdout
    for verb in ("release", "rerun"):
        done = ours(job, verb, user="bob")
        assert (done.returncode, "share: {group: ONE OF YOURS, access: read-write}" in done.stderr) == (1, True)
    assert ours(job, "stop", user="bob").returncode != 0
    assert not (own(job) / "requests").exists()
    assert job.state == "RUNNING"


@pytest.mark.full  # over 5 s
def test_none(cluster: Sandbox) -> None:
    """Nobody else sees the job's records and log, whatever the umask is."""
    job = submit(
        cluster, "share-none", mode="single", nodes=1, accelerators=None, command=SAVES, share={"access": "none"}
    )
    job.until(lambda: "shared with nobody" in job.log, "the sharing")
    job.until(lambda: (job.directory / "job.out").stat().st_mode & 0o777 == 0o600, "the log's mode")
    assert own(job).stat().st_mode & 0o777 == 0o700
    assert "begun" not in ours(job, "logs", user="bob").stdout


@pytest.mark.full  # over 5 s
def test_a_site_that_forbids_it(cluster: Sandbox, site: dict[str, Any]) -> None:
    """The supervisor obeys the site, whatever the batch script says."""
    site["share"] = "none"
    job = submit(cluster, "share-forbidden", mode="single", nodes=1, accelerators=None, command=SAVES, share=WRITE)
    job.until(lambda: "share asked for read-write, the site allows none" in job.log, "the refusal")
    job.until(lambda: "begun" in job.log, "the program")
    assert not (own(job) / "requests").exists()
    assert ours(job, "release", user="bob").returncode == 1
    site["share"] = "read-only"
    job = shared(cluster, "less")
    assert not (own(job) / "requests").exists()


@pytest.mark.full  # over 5 s
def test_a_wrong_group(cluster: Sandbox) -> None:
    """alice shares only with a group that she is in."""
    spec = "name: x\nmode: single\ncommand: 'true'\nshare: {{group: {}}}\n"
    for group in ("bob", "nobody-knows"):
        text = spec.format(group)
        done = cluster.run(["slurm-plugin", "submit", "-"], input=text, check=False)
        assert (done.returncode, f"share: group: found '{group}'" in done.stderr) == (2, True), done
    cluster.home("alice").chmod(0o700)
    done = cluster.run(["slurm-plugin", "submit", "-"], input=spec.format("team"))
    assert "share: group team cannot enter /home/alice\n  try: setfacl -m g:team:x /home/alice\n" in done.stderr
