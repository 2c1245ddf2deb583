"""Whether a slow program runs again on other nodes, and what its user is told."""

from dataclasses import replace
from typing import Any

import pytest

from slurm_plugin.records.grant import Grant, written
from slurm_plugin.records.job_plan import JobPlan
from slurm_plugin.slurm import Job, Request
from slurm_plugin.slurm.resources import Resources
from slurm_plugin.supervisor.recording import client
from slurm_plugin.supervisor.recording.client import Mover
from slurm_plugin.supervisor.run import from_environment
from tests.fakes import FakeSlurm, job, node

WORDS = "hardware time is 0.9 of e2e time"
MOVES = "it runs again on other nodes"
HAS = Resources(cpus=8, memory_mb=100, features=("a100", "ib"))
GPUS = {"gres": ("gpu:4",), "partitions": ("gpu",)}


def running(grant: Grant = Grant(3), **fields: object) -> Job:  # noqa: B008 - immutable
    """Return a job that runs on n1 and n2."""
    given = {"state": "RUNNING", "nodes": "n[1-2]", "partition": "gpu", "admin_comment": written("", grant)}
    return job(7, **{**given, **fields})


def moved(
    of: Job,
    *,
    least: int = 2,
    has: Resources = HAS,
    trial: int = 0,
    attempt: int = 0,
    reservation: str = "",
    **others: Any,
) -> tuple[str, str]:
    """Return why the program is to be ended, and what its user is told. `others`: the fields of n3 and n4."""
    own = [node(name, "ALLOCATED", **GPUS) for name in ("n1", "n2")]
    states = others.pop("states", ("IDLE",))
    door = FakeSlurm([of], [*own, *(node(name, *states, **{**GPUS, **others}) for name in ("n3", "n4"))])
    door.requests = {7: Request("gpu", reservation=reservation)}
    door.resources = {"n1": HAS, "n2": HAS._replace(features=("a100",)), "n3": has, "n4": has}
    run = from_environment({"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]"}, 1)
    run = replace(run, attempt=attempt)
    told: list[tuple[str, ...]] = []
    found = Mover(JobPlan(trial=trial), {"notify": "/n"}, door, run, least)
    found.source = iter([WORDS, "", ""]).__next__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client.notify, "of_job", lambda *words: told.append(words))
        why = found.look()
        assert found.look() == ""  # nothing new
    (words,) = told
    assert words[:3] == ("/n", "slow", 7)
    assert words[3].startswith(f"{WORDS}; ")
    return why, words[3].removeprefix(f"{WORDS}; ")


def test_enough_other_nodes_are_idle() -> None:
    """They need what the job's nodes have in common."""
    assert moved(running()) == (WORDS, MOVES)
    assert moved(running(), has=HAS._replace(features=("a100",), cpus=9)) == (WORDS, MOVES)
    assert moved(running(excluded="n4"), least=1) == (WORDS, MOVES)


@pytest.mark.parametrize(
    "others",
    [
        {"states": ("ALLOCATED",)},
        {"states": ("IDLE", "DRAIN")},
        {"states": ("IDLE", "RESERVED")},
        {"partitions": ("cpu",)},
        {"gres": ("gpu:2",)},
        {"has": HAS._replace(features=("ib",))},
        {"has": HAS._replace(cpus=7)},
        {"has": HAS._replace(memory_mb=99)},
    ],
    ids=str,
)
def test_no_other_nodes(others: dict[str, Any]) -> None:
    """The program goes on, and its user is told why."""
    needs = "it needs 2 other idle nodes like its own, and there are 0"
    assert moved(running(), **others) == ("", f"it goes on here: {needs}")


def test_it_goes_on() -> None:
    """Where nodes are excluded, where no restart is left, or the grant is not known; a trial in any case."""
    assert moved(running(excluded="n4"))[1].endswith("and there are 1")
    for over in (Grant(3, 3), Grant(0)):
        assert moved(running(over)) == ("", "it goes on here: no restart is left")
    assert moved(running(admin_comment="")) == ("", "it goes on here: no restart is left")
    assert moved(running(comment="[sp1;retries=3;again=3]")) == ("", "it goes on here: no restart is left")
    assert moved(running(Grant(1)), attempt=1) == ("", "it goes on here: no restart is left")
    reserved = moved(running(), reservation="maintenance")
    assert reserved == ("", "it goes on here: its reservation decides where it runs")
    assert moved(running(), trial=3) == ("", "it goes on here: a trial of an experiment is not moved")
    assert moved(running()._replace(id=8))[1].startswith("it goes on here: Slurm did not tell whether it can: ")
