"""Workers as real processes, with a small supervisor and programs."""

import json
import os
import signal
from pathlib import Path

import pytest

from slurm_plugin.experiment import claim, journal
from slurm_plugin.records import experiments
from tests.waiting import until
from tests.workers import ENDED, create, log, python, started, state, work


def test_trials_one_after_the_other(tmp_path: Path) -> None:
    """One task runs the whole budget. Values reach the program in its command, its environment and a file."""
    place = create(tmp_path)
    program = python("""
values = json.loads(Path(os.environ["SLURM_PLUGIN_HPARAMS"]).read_text())
name = "{" + "lr}"  # this text is a word of the command, too
assert sys.argv[1:] == [f"lr={values['lr']}", "2", name, f"${name}", json.dumps({"a": 2})], sys.argv
assert os.environ["SLURM_PLUGIN_HP_LR"] == json.dumps(values["lr"])
assert os.environ["SLURM_PLUGIN_HP_NET_LAYERS"] == "2"
assert "SLURM_PLUGIN_HP_OLD" not in os.environ
number = int(os.environ["SLURM_PLUGIN_TRIAL"])
place = Path(os.environ["SLURM_PLUGIN_EXPERIMENT"], "trials", f"{number:04}")
assert Path(os.environ["SLURM_PLUGIN_CHECKPOINT"]) == place / "checkpoints"
print("trained", os.environ["CONTINUED"])
say(number / 10, 1)
say(number, 2)
""")
    words = ["lr={lr}", "{net.layers}", "{{lr}}", "${lr}", '{"a": {net.layers}}']
    assert work(place, [*program, *words], SLURM_PLUGIN_HP_OLD="1") == 0
    now = state(place)
    assert [(each.number, each.state, each.takes, each.task) for each in now.trials] == [
        (number, experiments.COMPLETED, 1, "100_0") for number in (1, 2, 3)
    ]
    assert [[value for _, value, _ in each.reports] for each in now.trials] == [[0.1, 1], [0.2, 2], [0.3, 3]]
    assert now.exhausted
    lines = [line for line in log(place).splitlines() if "trial" in line]
    assert lines[0].startswith("[slurm_plugin] trial 1 begins: lr=0.")
    assert lines[1:6:2] == [f"[slurm_plugin] trial {n} completed, loss 0.{n}" for n in (1, 2, 3)]
    assert lines[-1] == "[slurm_plugin] no further trial: all are made"
    assert (journal.trial_directory(place, 2) / "log").read_text() == "trained False\n"
    (place / experiments.JOURNAL).unlink()
    journal.rebuild(place)
    assert state(place).trials == now.trials


def test_arguments(tmp_path: Path) -> None:
    """`pass: arguments` appends the values to the command. A dollar in them stays one where the plan has variables."""
    space = {"name": {"type": "categorical", "vals": ["a$b c"]}, "deep": True, "sizes": [1, 2]}
    place = create(tmp_path, space=space, trials=1, give="arguments")
    program = python("print(sys.argv[1:])")
    assert work(place, program, PLAN='{"variables": true}') == 0
    found = (journal.trial_directory(place, 1) / "log").read_text()
    assert found == "['--deep', 'true', '--name', 'a$$b c', '--sizes', '[1, 2]']\n"


@pytest.mark.parametrize(
    ("program", "line", "ends", "goes_on"),
    [
        ("sys.exit(3)", {}, (experiments.FAILED, "code 3"), True),
        ("sys.exit(3)", {"verdicts": {"n1": "lost a GPU"}}, (experiments.FAILED, "code 3"), False),
        ("sys.exit(3)", {"phase": "precheck"}, (experiments.RUNNING, ""), False),
        ("sys.exit(3)", {"action": "requeue"}, (experiments.RUNNING, ""), False),
        ("sys.exit(0)", {"told": True}, (experiments.RUNNING, ""), False),
        ("sys.exit(0)", {"saved": True}, (experiments.RUNNING, ""), False),
        ("say(1, 9); sys.exit(0)", {"saved": True}, (experiments.RUNNING, ""), False),
        ("say(1, 10); sys.exit(0)", {"saved": True}, (experiments.COMPLETED, ""), True),
        ("say(1, 10); sys.exit(0)", {"saved": True, "verdicts": {"n1": "bad"}}, (experiments.COMPLETED, ""), False),
        ("sys.exit(3)", {"trial": 99}, (experiments.RUNNING, ""), False),
    ],
)
def test_the_end_of_a_trial(
    tmp_path: Path, program: str, line: dict[str, object], ends: tuple[str, str], *, goes_on: bool
) -> None:
    """A failure ends only its trial. What is the node's, or Slurm's, ends the task; the trial can go on elsewhere.

    A program that has saved and ended with 0 is not done, unless it has reported the trial's full length.
    """
    place = create(tmp_path, trials=2, max_length=10)
    code = work(place, python(program), LINE=json.dumps(line))
    trials = state(place).trials
    assert (trials[0].state, trials[0].why) == ends
    assert len(trials) == (2 if goes_on else 1)
    assert (code == 0) == ("exit(0)" in program or goes_on)


def test_an_invalid_trial_does_not_count(tmp_path: Path) -> None:
    """Another one takes its place, whatever the exit code. A program that refuses all values does not run for ever."""
    place = create(tmp_path, trials=2)
    program = """
number = int(os.environ["SLURM_PLUGIN_TRIAL"])
if number < 3:
    line(kind="invalid_hp", why="too deep\\x1b")
    sys.exit(number - 1)
"""
    assert work(place, python(program)) == 0
    assert [each.state for each in state(place).trials] == [*[experiments.INVALID] * 2, *[experiments.COMPLETED] * 2]
    assert state(place).trials[0].why == "too deep?"
    other = tmp_path / "other"
    other.mkdir()
    place = create(other, trials=2)
    assert work(place, python('line(kind="invalid_hp")')) == 0
    assert len(state(place).trials) == claim.MOST_INVALID


def test_told_to_end(tmp_path: Path) -> None:
    """The trial stays unfinished. The same task continues it after a requeue, and counts no takeover."""
    place = create(tmp_path, trials=1)
    program = python("""
mark = Path("ran")
if mark.exists():
    print("again", os.environ["CONTINUED"])
    sys.exit(0)
mark.touch()
time.sleep(600)
""")
    first = started(place, program)
    until((tmp_path / "ran").exists)
    first.send_signal(signal.SIGTERM)
    assert first.wait() == 128 + signal.SIGTERM
    assert state(place).trials[0].state == experiments.RUNNING
    assert work(place, program, SLURM_RESTART_COUNT="1") == 0
    trial = state(place).trials[0]
    assert (trial.state, trial.takes, trial.restarts) == (experiments.COMPLETED, 1, 1)
    assert "again True" in (journal.trial_directory(place, 1) / "log").read_text()


def test_stopped_by_the_user(tmp_path: Path) -> None:
    """`slurm-plugin stop` sends SIGINT: the program ends, and the job is cancelled. Another task may have the trial."""
    place = create(tmp_path, trials=1)
    first = started(place, python("Path('ran').touch(); time.sleep(600)"), ENVIRONMENT="BATCH")
    until((tmp_path / "ran").exists)
    first.send_signal(signal.SIGINT)
    until((tmp_path / "cancelled").exists)
    first.kill()  # Slurm does
    first.wait()
    assert (tmp_path / "cancelled").read_text() == "101"
    assert state(place).trials[0].state == experiments.RUNNING


def test_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    """Its program may still run, so the task ends, and Slurm ends what is left of its job."""
    place = create(tmp_path, trials=2)
    program = "Path('ran').write_text(f'{os.getppid()} {os.getpid()}'); Path('ready').touch(); time.sleep(600)"
    first = started(place, python(program))
    until((tmp_path / "ready").exists)
    supervisor, child = map(int, (tmp_path / "ran").read_text().split())
    os.kill(supervisor, signal.SIGKILL)
    assert first.wait() == 128 + signal.SIGKILL
    os.kill(child, signal.SIGKILL)
    assert [each.state for each in state(place).trials] == [experiments.RUNNING]


def test_values_that_no_program_can_get(tmp_path: Path) -> None:
    """They fail their trial, and only that."""
    space = {"name": {"type": "const", "val": "a\0b"}}
    place = create(tmp_path, trials=2, space=space)
    assert work(place, python("pass")) == 0
    assert {(each.state, each.why) for each in state(place).trials} == {
        (experiments.FAILED, "it could not be started with these values")
    }


@pytest.mark.parametrize("retries", [0, 1])
def test_an_orphan(tmp_path: Path, retries: int) -> None:
    """A trial whose job Slurm says is over is continued by another task, while its retries last."""
    place = create(tmp_path, trials=1, retries=retries)
    first = started(place, python("Path('ran').touch(); time.sleep(600)"))
    until((tmp_path / "ran").exists)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    assert work(place, python("pass"), 1) == 0  # Slurm still says that it runs
    assert state(place).trials[0].task == "100_0"
    (tmp_path / ENDED).write_text("101")
    assert work(place, python("pass"), 1) == 0
    trial = state(place).trials[0]
    if retries:
        assert (trial.state, trial.task, trial.takes) == (experiments.COMPLETED, "100_1", 2)
    else:
        assert (trial.state, trial.why) == (experiments.FAILED, "its task ended before it did: retries are used up")


def test_a_worker_that_was_cut_off(tmp_path: Path) -> None:
    """Slurm gave its node up, and another task has its trial. It ends its program, and records nothing."""
    place = create(tmp_path, trials=1, retries=1)
    first = started(place, python("Path('ran').touch(); time.sleep(600)"))
    until((tmp_path / "ran").exists)
    (tmp_path / ENDED).write_text("101")
    assert work(place, python("say(0.5, 1)"), 1) == 0
    assert first.wait() == 128 + signal.SIGTERM
    trial = state(place).trials[0]
    assert (trial.state, trial.task, trial.takes, len(trial.reports)) == (experiments.COMPLETED, "100_1", 2, 1)
    assert "no longer this task's" in log(place)


@pytest.mark.parametrize("event", [{"e": "pause"}, {"e": "stop"}, {"e": "cancel"}])
def test_what_the_user_asks_for(tmp_path: Path, event: dict[str, str]) -> None:
    """No task takes another trial. A running one ends as it would, also after a requeue, or when it is cancelled."""
    place = create(tmp_path)
    program = python("Path('ran').touch(); time.sleep(600) if not Path('go').exists() else None")
    running = started(place, program)
    until((tmp_path / "ran").exists)
    file = journal.Journal(place)
    with file.locked():
        file.append(event)
    assert work(place, program, 1) == 0
    assert len(state(place).trials) == 1
    if event["e"] == "cancel":
        running.wait()
        assert state(place).trials[0].state == experiments.CANCELLED
    else:
        running.send_signal(signal.SIGTERM)
        running.wait()
        assert work(place, program, 1) == 0
        assert state(place).trials[0].state == experiments.RUNNING
        (tmp_path / "go").touch()
        assert work(place, program) == 0
        assert [each.state for each in state(place).trials] == [experiments.COMPLETED]
    with file.locked():
        file.append({"e": "resume"})
    (tmp_path / "go").touch()
    assert work(place, program) == 0
    assert [each.state == experiments.COMPLETED for each in state(place).trials] == [event["e"] != "cancel", True, True]
