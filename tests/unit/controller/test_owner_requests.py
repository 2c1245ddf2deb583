"""What a job's owner asks of SlurmUser."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from prechecks import files
from slurm_plugin.controller import owner_requests, requeue_worker
from slurm_plugin.records import grant, site_settings, syslog
from slurm_plugin.records.grant import Grant
from slurm_plugin.slurm import Node, Queueing, Request, SlurmAwayError, calls, changes
from slurm_plugin.spec import policy_language
from tests.fakes import FakeSlurm, job
from tests.unit.controller import serving
from tests.unit.controller.serving import BAD, ENDED

SITE = {
    "extend_time_s": 4 * 3600,
    "priorities": {"urgent": {"qos": "urgent", "per_user": 1}},
    "spool_directory": "/nowhere",
}


def door(*, given: Grant | None = Grant(2), state: str = "RUNNING") -> FakeSlurm:  # noqa: B008
    """Return a Slurm with job 7."""
    comment = grant.written("theirs", given) if given else ""
    found = FakeSlurm([job(state=state, admin_comment=comment)])
    found.queues[7] = Queueing(time_limit_s=7200)
    return found


def test_a_longer_limit() -> None:
    """The grant keeps the first limit, from which the site's allowance counts."""
    slurm = door()
    owner_requests.serve("7 time 240", SITE, slurm)
    (_, _, fields) = slurm.changes[0]
    assert isinstance(fields, dict)
    assert fields["TimeLimit"] == "240"
    assert grant.parse(fields["AdminComment"]) == Grant(2, time=120)
    assert fields["AdminComment"].startswith("theirs sp1:")
    slurm.queues[7] = Queueing(time_limit_s=240 * 60)
    owner_requests.serve("7 time 360", SITE, slurm)
    with pytest.raises(owner_requests.RefusedError, match="began with 120 minutes and may have 360"):
        owner_requests.serve("7 time 361", SITE, slurm)


@pytest.mark.parametrize(
    ("slurm", "text"),
    [
        (door(given=None), "7 time 240"),
        (door(state="PENDING"), "7 time 240"),
        (door(), "7 time 100000"),
        (door(), "7 time -1"),
        (door(), "7 time 240; rm -rf /"),
        (door(), "7 priority very-urgent"),
        (door(), ""),
    ],
)
def test_what_is_refused(slurm: FakeSlurm, text: str) -> None:
    """A job without a grant, more than the site allows, and every other text."""
    with pytest.raises(owner_requests.RefusedError):
        owner_requests.serve(text, SITE, slurm)
    assert slurm.changes == []


def test_without_the_sites_allowance_nothing_is_raised() -> None:
    """`extend_time` is 0 by default."""
    with pytest.raises(owner_requests.RefusedError):
        owner_requests.serve("7 time 240", {}, door())


def test_one_request_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one waits, but not for ever: each waiting request is a process."""
    said: list[tuple[int, str]] = []
    monkeypatch.setattr(syslog, "syslog", lambda *line: said.append(line))
    monkeypatch.setattr(site_settings, "read", lambda _: {**SITE, "spool_directory": str(tmp_path), "slurm_bin": ""})
    monkeypatch.setattr(owner_requests, "connect", lambda *_, **__: door())
    monkeypatch.setattr(owner_requests, "LOCK_S", 0.0)
    monkeypatch.setenv(owner_requests.VARIABLE, "7 time 240")
    with files.Locked(os.open(tmp_path, files.DIRECTORY), owner_requests.LOCK, 0.0):
        owner_requests.main()
    owner_requests.main()
    assert said == [
        (syslog.LOG_WARNING, "request '7 time 240' of a job's owner: other requests take too long"),
        (syslog.LOG_INFO, "job 7: the time limit is raised from 120 to 240 minutes for its owner"),
    ]


def test_while_the_worker_counts_a_restart(tmp_path: Path) -> None:
    """Worker and request both write the grant. A request between the worker's read and write changes nothing."""
    site, slurm = {**SITE, "spool_directory": str(tmp_path)}, door()
    slurm.known_nodes = {"n2": BAD}
    nodes, refused = slurm.nodes, []

    def ask(names: Sequence[str]) -> Mapping[str, Node]:
        with suppress(owner_requests.RefusedError):
            refused.append(owner_requests.serve("7 time 240", site, slurm))
        return nodes(names)

    slurm.nodes = ask  # type: ignore[method-assign]
    requeue_worker.put(tmp_path, ENDED)
    serving.serve(tmp_path, slurm)
    after = grant.parse(slurm.known_jobs[7].admin_comment)
    assert after is not None
    assert (after.used, refused) == (1, [])
    owner_requests.serve("7 time 240", site, slurm)
    assert grant.parse(slurm.known_jobs[7].admin_comment) == replace(after, time=120)


def test_a_restart_of_slurmctld_in_a_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request reads the job once more: a restart may have been counted meanwhile."""
    slurm, later = door(), Grant(2, 1, counted=0)
    update = slurm.update_job

    def lost(_job_id: int, **_fields: str) -> None:
        slurm.known_jobs[7] = job(state="RUNNING", admin_comment=grant.written("", later))
        slurm.update_job = update  # type: ignore[method-assign]
        raise SlurmAwayError("no slurmctld answers")

    slurm.update_job = lost  # type: ignore[method-assign]
    monkeypatch.setattr(site_settings, "read", lambda _: {**SITE, "spool_directory": str(tmp_path), "slurm_bin": ""})
    monkeypatch.setattr(owner_requests, "connect", lambda *_, **__: slurm)
    monkeypatch.setattr(calls, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setenv(owner_requests.VARIABLE, "7 time 240")
    owner_requests.main()
    assert grant.parse(slurm.known_jobs[7].admin_comment) == replace(later, time=120)


def test_an_urgent_job() -> None:
    """SlurmUser counts the user's jobs once more."""
    slurm = door(state="PENDING")
    slurm.requests[7] = Request("main", qos="normal")
    slurm.known_jobs[8], slurm.requests[8] = job(8, state="RUNNING"), Request("main", qos="urgent")
    with pytest.raises(changes.NotChangedError, match="user alice has 1 urgent job"):
        owner_requests.serve("7 priority urgent", SITE, slurm)
    assert slurm.changes == []


def test_a_qos_with_capitals_in_the_site_file() -> None:
    """Slurm has it in lower case, so the urgent jobs are found and counted."""
    known = policy_language.compiled_priorities({"urgent": policy_language.Priority(qos="Urgent", per_user=1)})
    slurm = door(state="PENDING")
    slurm.requests[7] = Request("main", qos="normal")
    slurm.known_jobs[8], slurm.requests[8] = job(8, state="RUNNING"), Request("main", qos="urgent")
    with pytest.raises(changes.NotChangedError, match="user alice has 1 urgent job"):
        owner_requests.serve("7 priority urgent", {**SITE, "priorities": known}, slurm)


def test_an_owner_who_undoes_the_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """The requests of others do not wait for it."""
    monkeypatch.setattr(changes.time, "sleep", lambda _: pytest.fail("it waits"))
    slurm = door(state="PENDING")
    slurm.requests[7] = Request("main", qos="normal")  # a fake that changes nothing: as if it was undone
    owner_requests.serve("7 priority urgent", SITE, slurm)
    assert slurm.changes == [("update_job", 7, {"QOS": "urgent"})]
