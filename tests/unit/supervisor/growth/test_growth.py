"""When a running program is told to make room for more nodes, and what a look asks Slurm."""

import json
import os
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.records import progress_file
from slurm_plugin.records.grant import GREW, Grant, Run, time_text, written
from slurm_plugin.records.job_plan import JobPlan
from slurm_plugin.slurm import Listed
from slurm_plugin.supervisor.growth.growth import EVERY_S, Growth, Question, free_nodes
from slurm_plugin.supervisor.run import from_environment
from tests import fakes
from tests.fake_slurm import FakeClock
from tests.waiting import until

NOW = 1_700_000_000.0
PLAN = JobPlan("pytorch", nodes=4, min_nodes=2, retries=1, checkpoint="/ck", grow_s=2 * EVERY_S)
RUN = from_environment({"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]"}, 1)
FREE: dict[str, Any] = {"idle": ["n3", "n4", "n5"], "left_s": 9000.0, "waits": ""}


class Scene:
    """A program on n1 and n2 of a job that wants four nodes, and what its looks find."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, plan: JobPlan = PLAN, own: Sequence[str] = ("n1", "n2")
    ) -> None:
        self.clock, self.found = FakeClock(), dict(FREE)
        self.said: list[str] = []
        monkeypatch.setattr("slurm_plugin.supervisor.growth.growth.say", self.said.append)
        self.growth = Growth(plan, RUN, own, look=self._look, clock=self.clock.now, now=lambda: NOW + self.clock.time)

    def _look(self, _question: Question, lasting: Collection[str]) -> bytes:
        return json.dumps({key: value for key, value in self.found.items() if key != "waits" or lasting}).encode()

    def next(self, *, saved: bool = True, **found: Any) -> str:
        """Return the result of the next look, a minute later. `saved`: there is a new checkpoint."""
        self.found.update(found)
        self.clock.sleep(EVERY_S)
        if saved:
            self.found["checkpoint"] = NOW + self.clock.time
        assert self.growth() == ""  # the look has only begun
        answers: list[str] = []
        until(lambda: answers.append(self.growth()) or self.growth._child is None, "the end of the look")
        return next(filter(None, answers), "")


def test_it_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough nodes were free at every look of the time `grow`."""
    scene = Scene(monkeypatch)
    assert [scene.next() for _ in range(3)] == ["", "", "2 more nodes are free"]


def test_a_node_that_was_used_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time begins anew."""
    scene = Scene(monkeypatch)
    assert [scene.next(), scene.next(idle=["n3"]), scene.next(idle=["n3", "n4"])] == ["", "", "1 more nodes are free"]


def test_it_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a job waits, without a new checkpoint, or with too little time left. Each reason is logged once."""
    scene = Scene(monkeypatch)
    for found in ({}, {}, {"waits": "job 9 waits for nodes"}, {}, {"waits": "", "left_s": 60.0}):
        assert scene.next(**found) == ""
    assert scene.next(saved=False, left_s=9000.0) == ""
    assert scene.said == [
        "2 more node(s) free, and the job does not grow: job 9 waits for nodes",
        "2 more node(s) free, and the job does not grow: 1 min 0 s are left",
    ]
    assert scene.next() == "2 more nodes are free"


def test_the_cost_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that made its first step after 40 min needs more than twice that time for twice the nodes."""
    scene = Scene(monkeypatch)
    assert [scene.next(step=NOW + 2400, left_s=4800.0) for _ in range(3)] == ["", "", ""]
    assert scene.next(left_s=4801.0) == "2 more nodes are free"


def test_a_look_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The free nodes must last from then on. The job's time to wait is respected."""
    scene = Scene(monkeypatch)
    scene.next()
    scene.next()
    del scene.found["idle"]
    assert scene.next(error="slurmctld is away", later=600.0) == ""
    assert scene.said == ["cannot look for free nodes: slurmctld is away"]
    scene.clock.sleep(500.0)
    assert scene.growth() == ""
    assert scene.growth._child is None
    scene.clock.sleep(100.0)
    assert [scene.next(idle=["n3"]), scene.next(), scene.next()] == ["", "", "1 more nodes are free"]


def test_no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that did not ask for it, may not restart, has all its nodes, or has left one out, sends no request."""
    two = ("n1", "n2")
    plans = [PLAN._replace(grow_s=0.0), PLAN._replace(retries=0), PLAN._replace(nodes=2)]
    for plan, own in [(each, two) for each in plans] + [(PLAN, ("n1",))]:
        scene = Scene(monkeypatch, plan, own)
        scene.clock.sleep(10 * EVERY_S)
        assert scene.growth() == ""
        assert scene.growth._child is None


def look(directory: Path, *lasting: str, given: Grant | None, settings: str = "") -> tuple[dict[str, Any], list[str]]:
    """Return the answer of a look at a cluster of three nodes, and the questions to Slurm about many jobs."""
    ours = fakes.job(
        state="RUNNING",
        partition="main",
        comment="[sp1;retries=1;again=1]",
        admin_comment=written("", given) if given else "",
        end_time=datetime.fromtimestamp(NOW + 500, UTC),
    )
    nodes = [fakes.node("n1", "ALLOCATED", partitions=("main",)), fakes.node("n2", partitions=("main",))]
    door = fakes.FakeSlurm([ours], nodes)
    door.listed = [Listed(fakes.job(9, reason="Priority", partition="main"), "9")]
    door.settings["PrivateData"] = settings
    question = Question(7, 3, ("n1",), str(directory / "ck"), str(directory))
    return json.loads(free_nodes(door, question, lasting, NOW)), [what for what, _ in door.questions]


def test_what_is_asked(tmp_path: Path) -> None:
    """All jobs are read only if nodes have been free for long enough. The first step and the checkpoint are read."""
    (tmp_path / "ck").write_text("")
    os.utime(tmp_path / "ck", (NOW, NOW))
    progress_file.write(tmp_path / progress_file.FILE, [progress_file.Point(NOW - at, at, 1) for at in (2, 3)])
    found, questions = look(tmp_path, given=Grant(2, tasks=1))
    assert found == {"checkpoint": NOW, "step": NOW - 3, "idle": ["n2"], "left_s": 500.0}
    assert questions == []
    found, questions = look(tmp_path, "n2", given=Grant(2, tasks=1))
    assert found["waits"] == "job 9 waits for nodes"
    assert questions == ["listing"]


def test_waiting_jobs_that_are_hidden(tmp_path: Path) -> None:
    """Where a user sees only their own jobs, nothing shows that nobody waits."""
    found, questions = look(tmp_path, "n2", given=Grant(2, tasks=1), settings="jobs,users")
    assert (found["waits"], questions) == ("PrivateData hides the jobs that wait", [])


def test_jobs_that_may_not_grow(tmp_path: Path) -> None:
    """Without a grant or a restart left, before the hour is over, or if the last growth gave no more nodes."""
    last = Grant(2, tasks=1, last=GREW, runs=(Run(0, "n[1-2]", "", GREW),))
    for given, later in (
        (None, float("inf")),
        (Grant(2), float("inf")),
        (Grant(1, tasks=1), float("inf")),
        (Grant(2, tasks=1, grown=time_text(datetime.fromtimestamp(NOW - 600, UTC))), 3000.0),
        (last, float("inf")),
    ):
        found, _ = look(tmp_path, "n2", given=given)
        assert (found["later"], "idle" in found) == (later, False)
    less = Grant(2, tasks=1, last=GREW, runs=(Run(0, "", "", GREW),))
    assert "idle" in look(tmp_path, given=less)[0]
