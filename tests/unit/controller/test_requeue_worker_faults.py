"""The worker goes on after failures: removed nodes, missing commands, no descriptors."""

import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from slurm_plugin.controller import requeue_worker
from slurm_plugin.controller.requeue_policy import Ended
from slurm_plugin.errors import MissingError
from slurm_plugin.slurm import Job
from tests.fakes import FakeSlurm, node
from tests.unit.controller.serving import BAD, ENDED, Clock, given_job, serve


def test_a_node_that_slurm_does_not_know_any_more(tmp_path: Path) -> None:
    """A node of the run and an excluded node are gone from slurm.conf: neither is written into the new list.

    Slurm refuses a list with an unknown name.
    """
    requeue_worker.put(tmp_path, Ended(7, 1, ("n9", "n2")))
    door = FakeSlurm([given_job(excluded="n[7,8]")], [BAD, node("n8")])
    serve(tmp_path, door)
    assert [change[2].get("ExcNodeList") for change in door.changes] == ["n[8,2]", None]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "error", [MissingError("squeue was not found"), OSError(errno.EMFILE, "Too many open files"), RecursionError()]
)
def test_what_cannot_be_asked_is_asked_again(tmp_path: Path, error: Exception) -> None:
    """While Slurm's commands are upgraded, or descriptors run out, the entry waits. Then it is handled."""
    requeue_worker.put(tmp_path, ENDED)
    door = FakeSlurm([given_job()], [node("n1"), BAD])
    answer, errors = door.jobs, [error] * 5

    def jobs(job_ids: Sequence[int] | None = None) -> Mapping[int, Job]:
        if errors:
            raise errors.pop()
        return answer(job_ids)

    door.jobs = jobs  # type: ignore[method-assign]
    serve(tmp_path, door)
    assert len(door.changes) == 2
    assert list(requeue_worker.entries(tmp_path)) == []


def _refusing(monkeypatch: pytest.MonkeyPatch, name: str, times: int) -> None:
    """Let Path.`name` fail this many times with EIO."""
    real, left = getattr(Path, name), [None] * times

    def refuse(path: Path, *args: object, **options: object) -> object:
        if left:
            left.pop()
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return real(path, *args, **options)

    monkeypatch.setattr(Path, name, refuse)


@pytest.mark.parametrize("name", ["read_text", "open"])
def test_an_entry_that_cannot_be_read_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The worker waits for it."""
    requeue_worker.put(tmp_path, ENDED)
    door = FakeSlurm([given_job()], [node("n1"), BAD])
    _refusing(monkeypatch, name, 3)
    clock = serve(tmp_path, door)
    assert clock.sleeps[:3] == [requeue_worker.QUIET_EVERY_S] * 3
    assert len(door.changes) == 2


def test_an_entry_that_can_never_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker ends with an error, and the entry stays for the next one."""
    requeue_worker.put(tmp_path, ENDED)
    _refusing(monkeypatch, "read_text", 1000)
    clock = Clock()
    with pytest.raises(requeue_worker.GivenUpError):
        serve(tmp_path, FakeSlurm(), clock)
    assert clock.sleeps == [requeue_worker.QUIET_EVERY_S] * requeue_worker.MOST_READS
    assert [path.name for path in tmp_path.glob("*.json")] == ["7.1.json"]
