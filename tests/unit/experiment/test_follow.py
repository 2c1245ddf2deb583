"""A running trial: its reports in the journal, its stop, its checkpoints. Real processes and files."""

import json
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.experiment import journal
from slurm_plugin.experiment.follow import Follower
from slurm_plugin.records import experiments
from slurm_plugin.records.experiments import Algorithm, Retention
from tests.waiting import until
from tests.workers import create, log, python, started, state, work

WAITS = "while not (stop := metrics.with_name('stop')).exists(): time.sleep(0.02)\n"
ASHA = Algorithm("adaptive_asha", {"mode": "aggressive", "divisor": 2.0, "max_rungs": 2})


def events(place: Path) -> list[dict[str, Any]]:
    """Return the events in the first trial's directory."""
    return journal.of_trial(journal.trial_directory(place, 1))


@pytest.mark.parametrize("api", [True, False])
def test_a_trial_at_its_full_length_is_stopped(tmp_path: Path, *, api: bool) -> None:
    """A program of the script API sees the file. Another one gets SIGINT, as by `slurm-plugin stop`."""
    place = create(tmp_path, trials=1, max_length=10, unit="step")
    begin = "line(kind='start', api=1)\n" if api else "import signal\n"
    ends = WAITS + "print('saved')" if api else "time.sleep(600)"
    assert work(place, python(f"{begin}say(0.5, 10)\n{ends}")) == 0
    trial = state(place).trials[0]
    assert (trial.state, trial.value(experiments.Metric("loss"))) == (experiments.COMPLETED, 0.5)
    assert ("saved" in (journal.trial_directory(place, 1) / "log").read_text()) == api


def test_an_api_program_that_takes_too_long(tmp_path: Path) -> None:
    """It is told by the signal after its time."""
    place = create(tmp_path, trials=1, max_length=10, unit="step")
    assert work(place, python("line(kind='start', api=1)\nsay(0.5, 10)\ntime.sleep(600)"), API_S="0.2") == 0
    assert state(place).trials[0].state == experiments.COMPLETED


def test_asha_stops_a_trial_that_is_worse(tmp_path: Path) -> None:
    """And only that one: it is no failure, and the task goes on with the next trial."""
    place = create(tmp_path, trials=4, max_length=8, unit="step", algorithms=(ASHA,))
    program = python("""
number = int(os.environ["SLURM_PLUGIN_TRIAL"])
for step in (2, 4, 8):
    say(number, step)
    until = time.monotonic() + (600 if step == 8 or (step == 4 and number > 1) else 0.3)
    while time.monotonic() < until: time.sleep(0.02)
""")
    assert work(place, program) == 0
    trials = state(place).trials
    assert [each.state for each in trials] == [experiments.COMPLETED, *[experiments.STOPPED] * 3]
    assert [len(each.reports) for each in trials] == [3, 2, 2, 2]


def test_a_restart_reports_each_step_once(tmp_path: Path) -> None:
    """The values that come again stand only in the trial's own file. A torn line there costs nothing."""
    place = create(tmp_path, trials=1)
    first = started(place, python("say(0.5, 1); say(0.4, 2); time.sleep(600)"))
    until(lambda: [each.time for each in state(place).trials[0].reports] == [1, 2] if state(place).trials else False)
    first.kill()
    first.wait()
    (journal.trial_directory(place, 1) / journal.EVENTS).open("a").write('{"e":"rep')
    assert work(place, python("say(0.9, 1); say(0.8, 2); say(0.3, 3)"), SLURM_RESTART_COUNT="1") == 0
    trial = state(place).trials[0]
    assert [(each.time, each.value) for each in trial.reports] == [(1, 0.5), (2, 0.4), (3, 0.3)]
    found = [(each["time"], each["value"]) for each in events(place) if each["e"] == "report"]
    assert found == [(1, 0.5), (2, 0.4), (1, 0.9), (2, 0.8), (3, 0.3)]
    (place / experiments.JOURNAL).unlink()
    journal.rebuild(place)
    assert state(place).trials == (trial,)


def test_checkpoints_are_removed(tmp_path: Path) -> None:
    """Those that the rules do not keep, and nothing that no trial has reported."""
    place = create(tmp_path, trials=2, retention=Retention(1, 0, 1))
    program = python("""
saved = Path(os.environ["SLURM_PLUGIN_CHECKPOINT"])
number = int(os.environ["SLURM_PLUGIN_TRIAL"])
(saved / "mine").mkdir(parents=True)
half = saved / ".removed-c1"  # of a worker that died
half.mkdir()
(half / "model").write_text("x")
for step, loss in ((1, 3), (2, 1 if number == 1 else 5), (3, 4)):
    if step == 2:
        (saved / "c2").write_text("a single file")
    else:
        (saved / f"c{step}").mkdir()
        (saved / f"c{step}/model").write_text("x")
    say(loss, step)
    line(kind="checkpoint", name=f"c{step}", step=step)
""")
    assert work(place, program) == 0
    left = {
        number: sorted(each.name for each in (journal.trial_directory(place, number) / "checkpoints").iterdir())
        for number in (1, 2)
    }
    assert left == {1: ["c2", "c3", "mine"], 2: ["c3", "mine"]}
    assert [dict(each.checkpoints).keys() for each in state(place).trials] == [{"c2", "c3"}, {"c3"}]


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reports wait, in their order, and the trial goes on."""
    place = create(tmp_path, trials=1, max_length=2, unit="step")
    file = journal.Journal(place)
    with file.locked():
        file.append({"e": "new", "n": 1, "values": {}}, {"e": "take", "n": 1, "task": "1_1", "job": 1})
    trial = file.state.trials[0]
    own = journal.trial_directory(place, 1)
    own.mkdir()
    said: list[str] = []
    follower = Follower(file, trial, said.append, own_checkpoints=True)
    (own / "metrics.jsonl").write_text(json.dumps({"loss": 1, "step": 1}) + "\n")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(journal, "_write", full)
        follower.look()
        follower.look()
    assert len(said) == 1
    assert "No space left on device" in said[0]
    with (own / "metrics.jsonl").open("a") as written:
        written.write(json.dumps({"loss": 0.5, "step": 2}) + "\n")
    follower.look()
    assert [(each.time, each.value) for each in file.state.trials[0].reports] == [(1, 1), (2, 0.5)]
    assert [each["time"] for each in map(json.loads, (own / journal.EVENTS).read_text().splitlines())] == [1, 2]
    assert (own / "stop").exists()
    assert follower.stops_since


def test_a_journal_that_is_lost_while_a_trial_runs(tmp_path: Path) -> None:
    """The trial goes on, its end waits for the repair, and nothing is lost."""
    place = create(tmp_path, trials=1)
    running = started(place, python("say(0.5, 1)\nwhile not Path('go').exists(): time.sleep(0.02)\nsay(0.4, 2)"))
    until(lambda: any(each["e"] == "report" for each in events(place)))
    (place / experiments.JOURNAL).rename(place / "lost")
    until(lambda: "experiment repair" in log(place))
    (tmp_path / "go").touch()
    until(lambda: "trying again" in log(place))
    assert journal.rebuild(place) == 1
    assert running.wait() == 0
    trial = state(place).trials[0]
    assert (trial.state, trial.takes, [each.time for each in trial.reports]) == (experiments.COMPLETED, 1, [1, 2])
