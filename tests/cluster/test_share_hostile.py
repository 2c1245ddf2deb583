"""What members of a group may put into the requests of a shared job, on a real Slurm."""

import json
import subprocess

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.test_share import BOB, answers, entered, ours, own, shared, write

pytestmark = pytest.mark.cluster
__all__ = ["entered"]


@pytest.mark.full  # over 5 s
def test_hostile_files(cluster: Sandbox) -> None:
    """Whatever a member puts there: nothing is done, the log stays short, and the next true request counts."""
    job = shared(cluster, "hostile")
    other = shared(cluster, "other")
    place = f"/home/alice/share-hostile/.slurm_plugin/{job.id}/requests"
    true = {"v": 1, "verb": "stop", "arguments": {}, "job": job.id, "restart": 0, "cluster": ""}
    for command in (
        f"ln -s /home/alice/share-hostile/job.out {place}/1-{BOB}.json",
        f"mkfifo {place}/2-{BOB}.json",
        f"mkdir -p {place}/3-{BOB}.json/full && chmod 777 {place}/3-{BOB}.json",
        f"ln -s /dev/zero {place}/4-{BOB}.json",
        f"mkfifo {place}/5-20001.json",
        f"echo x >~/mine && ln ~/mine {place}/6-{BOB}.json",
        f"truncate -s 1T {place}/7-{BOB}.json",
    ):
        cluster.run(["sh", "-c", command], user="bob", check=False)
    texts = ("", "{", "[" * 3000, '{"v": NaN}', "\x1b[2J", json.dumps({**true, "job": other.id}))
    for text in (*texts, json.dumps({**true, "restart": 1}), json.dumps({**true, "verb": "time"})):
        assert write(job, text) == 0
    assert write(job, json.dumps(true), name="9-20001.json") == 0
    assert write(job, json.dumps(true), name=".9-20002.json.1") == 0
    job.until(lambda: [each for each in (own(job) / "requests").iterdir() if each.is_file()][1:] == [], "the look")
    job.until(lambda: sum(not each["done"] for each in answers(job)) >= len(texts) + 2, "the answers")
    assert not any(each["done"] for each in answers(job))
    assert (job.state, other.state) == ("RUNNING", "RUNNING")
    assert "\x1b" not in job.log
    assert write(job, json.dumps(true)) == 0
    assert job.end() == "CANCELLED"
    assert other.state == "RUNNING"


@pytest.mark.full  # over 5 s
def test_ten_thousand_requests(cluster: Sandbox) -> None:
    """A flood stops neither the job nor another's request, and fills no log."""
    job = shared(cluster, "flood", grace="1h")
    place = f"/home/alice/share-flood/.slurm_plugin/{job.id}/requests"
    flood = "i=0; while [ $i -lt 10000 ]; do i=$((i + 1)); echo x >$i-20002.json; done"
    cluster.run(["sh", "-c", f"cd {place} && {flood}"], user="bob")
    job.until(lambda: not list((own(job) / "requests").iterdir()), "the end of the flood")
    assert job.state == "RUNNING"
    assert len(answers(job)) <= 100
    assert len(job.log.splitlines()) < 100
    assert ours(job, "stop", user="bob").returncode == 0
    assert job.end() == "CANCELLED"


@pytest.mark.full  # over 5 s
def test_who_has_left_the_group(cluster: Sandbox) -> None:
    """A session from before can still write a request, and the supervisor refuses it."""
    job = shared(cluster, "left")
    group = cluster.directory / "image/etc/group"
    before = group.read_text()
    true = {"v": 1, "verb": "stop", "arguments": {}, "job": job.id, "restart": 0, "cluster": ""}
    place = f"/home/alice/share-left/.slurm_plugin/{job.id}/requests"
    session = cluster.popen(
        ["sh", "-c", f'echo here; read text; echo "$text" >{place}/1-{BOB}.json; read text'],
        "bob",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    with session:
        assert session.stdout is not None
        assert session.stdin is not None
        assert session.stdout.readline() == "here\n"
        try:
            group.write_text(before.replace("team:x:20100:alice,bob", "team:x:20100:alice"))
            session.stdin.write(f"{json.dumps(true)}\n")
            session.stdin.flush()
            (answer,) = [job.until(lambda: answers(job), "the answer"), answers(job)][1]
        finally:
            group.write_text(before)
            session.stdin.close()
    assert (answer["done"], answer["said"]) == (False, "its owner is not one of those with whom the job is shared")
    assert job.state == "RUNNING"
