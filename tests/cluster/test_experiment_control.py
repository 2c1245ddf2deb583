"""A search on a real Slurm, changed while it runs: concurrency, pause, resume, extend, stop, cancel, list."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from slurm_plugin.experiment import journal
from slurm_plugin.records.experiments import CANCELLED, COMPLETED, RUNNING, State
from slurm_plugin.sandbox import Sandbox
from tests.cluster.etc import Etc
from tests.cluster.jobs import workdir
from tests.waiting import until

pytestmark = pytest.mark.cluster

# Each trial writes its number, prints its value, and waits for its file.
PROGRAM = """echo "$SLURM_PLUGIN_TRIAL" >> started
echo "loss=$1"
until [ -e go ] || [ -e "go.$SLURM_PLUGIN_TRIAL" ]; do sleep 0.1; done
"""
SEARCH = {
    "algorithm": "random",
    "metric": {"name": "loss", "regex": r"loss=(\S+)"},
    "space": {"x": {"type": "double", "minval": 0, "maxval": 1}},
    "trials": 12,
    "concurrent": 2,
}


@dataclass(frozen=True, slots=True)
class Search:
    """A search of alice's."""

    box: Sandbox
    home: Path  # its working directory, on the host

    def call(self, *words: str) -> Any:
        """Run `slurm-plugin WORDS --json` in the working directory, and return what it prints."""
        inside = f"/home/alice/{self.home.name}"
        said = self.box.run(["sh", "-c", f'cd {inside} && exec slurm-plugin "$@" --json', "sh", *words])
        return json.loads(said.stdout)

    def listed(self, array: int) -> list[dict[str, Any]]:
        """Return the lines of `experiment list` about the experiment with this array."""
        return [each for each in self.call("experiment", "list")["experiments"] if array in each["arrays"]]

    def verb(self, verb: str, *words: str) -> Any:
        """Run a verb of `slurm-plugin experiment` on the search."""
        return self.call("experiment", verb, "lr", *words)

    @property
    def state(self) -> State:
        """What its journal says."""
        return journal.load(self.home / "lr")[1]

    @property
    def started(self) -> list[int]:
        """The trials that have begun, in this order."""
        file = self.home / "started"
        return list(map(int, file.read_text().split())) if file.exists() else []

    def count(self, *states: str) -> int:
        """Return how many trials are in these states."""
        return sum(each.state in states for each in self.state.trials)

    def tasks(self) -> list[str]:
        """Return squeue's state and reason of each task that has not ended."""
        return self.box.run(["squeue", "-h", "--array", "-o", "%T %r"]).stdout.splitlines()

    def running(self) -> int:
        """Return how many tasks run, or end now."""
        return sum(each.startswith(("RUNNING", "COMPLETING")) for each in self.tasks())

    def go(self, *trials: int) -> None:
        """Let these trials end; without any, all."""
        for name in [f"go.{number}" for number in trials] or ["go"]:
            (self.home / name).touch()

    def until_started(self, number: int) -> None:
        """Wait until this many trials have begun."""
        why = f"{number} trials"
        until(lambda: len(self.started) >= number, lambda: f"{why}; {self.started} {self.tasks()} {self.logs()}")

    def logs(self) -> str:
        """Return the logs of the tasks and of the trials, for a failed test."""
        paths = [*self.home.glob("lr/tasks/*"), *self.home.glob("lr/trials/*/log")]
        return "\n".join(f"== {path}\n{path.read_text()}" for path in sorted(paths))


@pytest.fixture
def search(cluster: Sandbox, request: pytest.FixtureRequest) -> Search:
    """Write the spec and the program into a new directory of alice's."""
    home = workdir(cluster, request.node.name.replace("_", "-")[:40])
    (home / "run.sh").write_text(PROGRAM)
    spec = {"name": "lr", "mode": "single", "command": "sh run.sh {x}", "search": SEARCH}
    (home / "lr.yaml").write_text(yaml.safe_dump(spec))
    return Search(cluster, home)


@pytest.mark.full  # 85 s
def test_a_search_is_changed_while_it_runs(search: Search) -> None:
    """Twelve trials, two at once. Each verb holds at once; what was left is done by a second array."""
    made = search.call("experiment", "submit", "lr.yaml")
    assert (made["tasks"], made["trials"], Path(made["experiment"]).name) == (12, 12, "lr")
    search.until_started(2)
    assert search.running() == 2

    search.verb("concurrency", "4")
    search.until_started(4)
    assert search.running() == 4

    search.verb("concurrency", "3")
    search.go(search.started[0])
    until(lambda: search.count(COMPLETED) == 1 and search.running() == 3, lambda: f"one to end: {search.logs()}")
    assert len(search.started) == 4

    search.verb("pause")
    search.go(search.started[1])
    until(lambda: search.count(COMPLETED) == 2 and search.running() == 2, lambda: f"one to end: {search.logs()}")
    assert {each for each in search.tasks() if each.startswith("PENDING")} == {"PENDING JobHeldUser"}
    assert len(search.started) == 4
    (found,) = search.listed(made["array"])
    assert (found["state"], found["counts"][RUNNING], found["left"]) == ("paused", 2, 10)

    search.verb("concurrency", "4")
    search.verb("resume")
    search.until_started(6)
    assert search.verb("extend", "--trials=2")["left"] == 12
    assert search.verb("stop")["left"] == 4
    search.go()
    until(lambda: not search.tasks(), lambda: f"all tasks to end: {search.tasks()}")
    assert (search.count(COMPLETED), len(search.state.trials)) == (6, 6)

    again = search.verb("resume")
    assert (again["tasks"], again["left"]) == (8, 8)
    until(lambda: search.count(COMPLETED) == 14, lambda: f"fourteen to end: {search.state} {search.logs()}")
    until(lambda: not search.tasks())
    assert search.state.arrays == (made["array"], again["array"])
    assert sorted(search.started) == list(range(1, 15))
    assert all(0 <= each.reports[-1].value <= 1 for each in search.state.trials)
    assert search.verb("resume")["array"] is None


def test_submit_and_cancel(search: Search) -> None:
    """A spec with `search` through `slurm-plugin submit`. `cancel` by the array's id ends the trials and all tasks."""
    array = search.call("submit", "lr.yaml")["array"]
    search.until_started(2)
    assert search.call("experiment", "cancel", str(array))["left"] == 0
    until(lambda: not search.tasks(), lambda: f"all tasks to end: {search.tasks()}")
    assert (search.count(CANCELLED), len(search.started)) == (2, 2)
    (found,) = search.listed(array)
    assert found["state"] == "cancelled"


@pytest.mark.full  # 47 s
def test_fewer_tasks_than_trials(search: Search, etc: Etc) -> None:
    """Slurm takes arrays of three tasks here. They do all twelve trials, and the submission says how many tasks."""
    etc.settings(MaxArraySize="3")
    etc.restart()
    search.go()
    made = search.call("experiment", "submit", "lr.yaml")
    assert (made["tasks"], made["trials"]) == (3, 12)
    until(lambda: search.count(COMPLETED) == 12, lambda: f"twelve to end: {search.state} {search.logs()}")
    until(lambda: not search.tasks())
    assert sorted(search.started) == list(range(1, 13))
    assert {each.task.partition("_")[0] for each in search.state.trials} == {str(made["array"])}
