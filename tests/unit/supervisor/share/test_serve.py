"""Requests that are checked and carried out: who counts, for which run, and what the asker and the log are told."""

import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slurm_plugin.records import requests
from slurm_plugin.supervisor import hold
from slurm_plugin.supervisor.share import inbox, serve
from slurm_plugin.supervisor.share.serve import Desk
from tests.unit.supervisor.share.shared import BOB, DAN, EVE, RUN, TEAM, Directory, said

REFUSED = "its owner is not one of those with whom the job is shared"
OTHER = "it is about another job, or another run of this job"


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Return the signals that are sent."""
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *words: sent.append(words))
    return sent


def test_a_member_stops_the_job(
    shared: Directory, desk: Desk, stopped: list[tuple[int, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    """The supervisor gets the signal of `slurm-plugin stop`. The asker has an answer, and the log names who asked."""
    name = shared.ask(BOB).name
    desk.look()
    desk.look()
    assert stopped == [(os.getppid(), signal.SIGINT)]
    assert [each.request for each in requests.answers(shared.path)] == [name]
    assert said(shared) == [(BOB, "stop", True, serve.ENDING)]
    assert capsys.readouterr().out == f"[slurm_plugin] stop (asked by {BOB}): {serve.ENDING}\n"


@pytest.mark.parametrize(
    ("uid", "changed", "why"),
    [
        (EVE, {}, REFUSED),  # not in the group
        (os.geteuid(), {}, REFUSED),  # a file of the job's user is no request of others
        (BOB, {"job": 8}, OTHER),
        (BOB, {"restart": 1}, OTHER),
        (BOB, {"restart": -1}, OTHER),
        (BOB, {"cluster": "theirs"}, OTHER),
        (BOB, {"verb": "cancel"}, "its verb is none of stop, time, priority, release, rerun"),
        (BOB, {"verb": "release"}, "the job is not held: its command runs"),
        (BOB, {"text": "{"}, "it is no JSON"),
        (BOB, {"text": "[" * 4000}, "it is no JSON"),
        (BOB, {"text": "x" * 5000}, "it has more than 4096 bytes"),
    ],
)
def test_what_counts_for_nothing(
    shared: Directory,
    desk: Desk,
    stopped: list[tuple[int, int]],
    uid: int,
    changed: dict[str, Any],
    why: str,
) -> None:
    """It is refused with the reason, and nothing is done."""
    shared.ask(uid, **changed)
    desk.look()
    ((asker, _, done, text),) = said(shared)
    assert (asker, done, text) == (uid, False, why)
    assert stopped == []


def test_a_cluster_that_is_unknown(shared: Directory, desk: Desk, stopped: list[tuple[int, int]]) -> None:
    """A client that cannot ask Slurm for its name still counts."""
    shared.ask(BOB, cluster="")
    desk.look()
    assert len(stopped) == 1


def test_group_membership_that_changed(
    shared: Directory, desk: Desk, members: set[int], stopped: list[tuple[int, int]]
) -> None:
    """Who has left the group, counts no more, although a session from before can still write; who has come, counts."""
    members.remove(BOB)
    shared.ask(BOB)
    desk.look()
    assert (stopped, said(shared)[-1][3]) == ([], REFUSED)
    members.add(EVE)
    shared.ask(EVE)
    desk.look()
    assert len(stopped) == 1


@pytest.mark.parametrize("ns", [0, 1, 99999999999999999999])
def test_clocks(shared: Directory, desk: Desk, stopped: list[tuple[int, int]], ns: int) -> None:
    """The clocks of other machines decide nothing: neither the name nor the time of a file makes it too old."""
    os.utime(shared.ask(BOB, ns), ns=(ns % 2**62, ns % 2**62))
    desk.look()
    assert len(stopped) == 1


def test_its_supervisor_has_ended(shared: Directory, members: set[int], stopped: list[tuple[int, int]]) -> None:
    """No other process gets the signal."""
    shared.ask(BOB)
    Desk(shared.fd, RUN._replace(supervisor=os.getppid() + 1), dict, lambda uid, _gid: uid in members).look()
    assert (stopped, said(shared)) == ([], [(BOB, "stop", False, "its supervisor has ended")])


@pytest.mark.parametrize("verb", hold.REQUESTS)
def test_a_job_that_is_held(shared: Directory, desk: Desk, verb: str) -> None:
    """A request goes on to the hold of this run, through no link of the directory."""
    shared.ask(BOB, verb=verb)
    (shared.path / hold.STATE).write_text(json.dumps({"restart": 0, "state": hold.HELD, "number": 1}))
    desk.look()
    assert said(shared) == [(BOB, verb, False, f"{hold.REQUEST}: No such file or directory")]
    (shared.path / hold.REQUEST).touch()
    shared.ask(DAN, verb=verb)
    desk.look()
    assert said(shared)[-1] == (DAN, verb, True, serve.HELD[verb])
    assert hold.requested(shared.path) == verb
    (shared.path / hold.STATE).write_text(json.dumps({"restart": 1, "state": hold.HELD, "number": 1}))
    shared.ask(DAN, verb=verb)
    desk.look()
    assert said(shared)[-1][2] is False


def test_nobody_fills_the_log(shared: Directory, desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """The log has a bounded number of lines about requests, and the answers a bounded number of entries."""
    for number in range(3 * serve.MOST_LINES):
        shared.ask(BOB, number, text="{")
        desk.look()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == serve.MOST_LINES + 1
    assert lines[-1] == f"[slurm_plugin] no further lines about requests; all answers: {requests.ANSWERS}"
    assert len(said(shared)) == requests.ANSWERS_KEPT


def test_a_flood(
    shared: Directory, desk: Desk, stopped: list[tuple[int, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Of one user's many requests one is carried out in each look, and the log says that others were dropped."""
    for number in range(inbox.WAITING + 3):
        shared.ask(BOB, number)
    desk.look()
    assert len(stopped) == 1
    assert "[slurm_plugin] 3 requests were dropped: at most 8 of one user wait\n" in capsys.readouterr().out
    for _ in range(inbox.WAITING):
        desk.look()
    assert len(stopped) == inbox.WAITING


def test_a_full_disk(
    shared: Directory, desk: Desk, stopped: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that cannot be written stops nothing."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(requests, "answer", full)
    shared.ask(BOB)
    desk.look()
    assert len(stopped) == 1


def test_groups_of_this_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job is shared only with a group of its user."""
    assert serve.group_id("") is None
    assert serve.group_id("root") == 0
    with pytest.raises(serve.RefusedError, match="no group 'no-such-group'"):
        serve.group_id("no-such-group")
    monkeypatch.setattr(serve.grp, "getgrnam", lambda _: SimpleNamespace(gr_gid=TEAM))
    with pytest.raises(serve.RefusedError, match="its user is not in group team"):
        serve.group_id("team")


def test_members_as_the_machine_knows_them() -> None:
    """A user of the group is a member, by the first group too; a number without a name is none."""
    assert serve.is_member(0, 0)
    assert not serve.is_member(0, TEAM)
    assert not serve.is_member(2**31 - 7, 0)


def test_the_run_ends(shared: Directory) -> None:
    """What is left of requests is removed; directories of others stay."""
    for number in range(20):
        shared.ask(BOB, number)
    (shared.box / "directory" / "x").mkdir(parents=True)
    inbox.clear(shared.fd)
    assert shared.left == ["directory"]


def test_the_task_of_an_array(shared: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members may read the spec, which is in the directory of the array's id; its requests stay as they are."""
    array = shared.path.with_name("6")
    (array / requests.DIRECTORY).mkdir(parents=True)
    (array / "job.yaml").touch(mode=0o600)
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "6")
    serve._set_array(shared.path, TEAM)
    found = [(each.stat().st_gid, each.stat().st_mode & 0o7777) for each in (array, array / "job.yaml")]
    assert found == [(TEAM, 0o2750), (TEAM, 0o640)]
    assert (array / requests.DIRECTORY).stat().st_mode & 0o777 == 0o755
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "5")
    serve._set_array(shared.path, TEAM)


def test_paths(shared: Directory) -> None:
    """A directory of another user's is not shared."""
    other = Path(shared.path.parent / "8")
    other.mkdir()
    os.chown(other, BOB, TEAM)
    with pytest.raises(PermissionError), serve.access.opened(other):
        pass
