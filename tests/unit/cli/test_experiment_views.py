"""The commands that look at an experiment, on a directory as a search leaves it."""

import csv
import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.cli.experiment import export as experiment_export
from slurm_plugin.cli.experiment import views as experiment_views
from slurm_plugin.cli.experiment.views import BEST, EXPORT, LOGS, METRICS_OF, REPORT, STATUS, TRIALS
from slurm_plugin.cli.nodeside.definition import Command
from slurm_plugin.experiment import journal
from slurm_plugin.records.experiments import COMPLETED, FAILED, RUNNING, State, Trial
from tests import experiments
from tests.waiting import HANG_S, until

STATE = experiments.state(20, seed=5, running=2, budget=30)
BY_VALUE = sorted(
    (value, each) for each in STATE.trials if (value := each.value(experiments.experiment().search.metric)) is not None
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an experiment of 20 trials, two of which run."""
    one = experiments.experiment("mnist", trials=30)
    return experiments.directory(tmp_path_factory.mktemp("experiments") / "mnist", one, STATE)


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> "Run":
    """Return what runs a command and returns its exit code, stdout and stderr."""
    return Run(capsys)


class Run:
    """Runs commands."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, command: Command, *words: str | Path) -> tuple[int, str, str]:
        """Run a command with these words."""
        code = command([str(each) for each in words])
        return code, *self._capsys.readouterr()


def test_status(finished: Path, said: Run) -> None:
    """The state as text and as JSON; without a terminal --watch prints it once."""
    code, out, _ = said(STATUS, finished, "--watch")
    assert code == 0
    first, search, best, *_ = out.splitlines()
    assert first == "mnist: running"
    assert search == "  adaptive_asha, 30 trials, 8 at once; validation_loss, smaller is better"
    value, trial = BY_VALUE[0]
    assert best == f"  best so far: {value:.6g}, trial {trial.number} ({trial.state} at 9,000 batches)"
    _, out, _ = said(STATUS, finished, "--json")
    form = json.loads(out)
    assert (form["state"], form["best"]["trial"], form["directory"]) == ("running", trial.number, str(finished))


def test_watch_ends_with_the_experiment(tmp_path: Path) -> None:
    """On a terminal the state is drawn again until the experiment is over."""
    state = experiments.state(3, running=1, budget=3)
    path = experiments.directory(tmp_path / "x", experiments.experiment(trials=3), state)
    main, other = pty.openpty()
    code = "import sys; from slurm_plugin.cli.experiment.views import STATUS; sys.exit(STATUS(sys.argv[1:]))"
    command = [sys.executable, "-c", code, str(path), "--watch"]
    process = subprocess.Popen(command, stdin=other, stdout=other, stderr=other, env={**os.environ, "TERM": "xterm"})
    os.close(other)
    drawn = Screen(main)
    try:
        until(lambda: "mnist: running" in drawn.read(), "the first state")
        lines = journal.Journal(path)
        with lines.locked():
            lines.append({"e": "end", "n": 3, "state": COMPLETED, "why": ""})
        until(lambda: "mnist: finished" in drawn.read(), "the last state")
        assert process.wait(timeout=HANG_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(main)


class Screen:
    """What a process writes to a terminal."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd, self._text = fd, ""

    def read(self) -> str:
        """Return all so far."""
        for block in self._blocks():
            self._text += block.decode()
        return self._text

    def _blocks(self) -> Iterator[bytes]:
        try:
            while block := os.read(self._fd, 65536):
                yield block
        except OSError:  # nothing more now, or the process has ended
            return


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        ((), [each.number for each in STATE.trials]),
        (("--sort=value", "--limit=3"), [each.number for _, each in BY_VALUE[:3]]),
        (("--sort=-value", "--limit=2"), [each.number for _, each in BY_VALUE[:-3:-1]]),
        (("--state=running",), [19, 20]),
        (
            ("--sort=optimizer.lr", "--limit=4"),
            [each.number for each in sorted(STATE.trials, key=lambda each: each.values["optimizer"]["lr"])[:4]],
        ),
    ],
)
def test_trials(finished: Path, said: Run, words: tuple[str, ...], numbers: list[int]) -> None:
    """Rows in the order and number that the options ask for, as text and as JSON."""
    _, out, _ = said(TRIALS, finished, *words)
    head, *rows = out.splitlines()
    assert head.split()[:4] == ["TRIAL", "STATE", "batch_size", "dropout"]
    assert [int(row.split()[0]) for row in rows] == numbers
    _, out, _ = said(TRIALS, finished, "--json", *words)
    assert [each["trial"] for each in json.loads(out)["trials"]] == numbers


def test_best(finished: Path, said: Run) -> None:
    """The best trials with their values, log and newest checkpoint."""
    _, out, _ = said(BEST, finished, "--n=2", "--json")
    first, second = json.loads(out)["best"]
    assert [first["trial"], second["trial"]] == [each.number for _, each in BY_VALUE[:2]]
    own = finished / "trials" / f"{first['trial']:04}"
    assert (first["log"], first["checkpoint"]) == (str(own / "log"), str(own / "checkpoints" / "009000"))
    _, out, _ = said(BEST, finished, "--n=1")
    assert f"1. trial {first['trial']}, completed" in out
    assert f"   optimizer.lr     {first['values']['optimizer']['lr']:.6g}" in out


SPEC = """\
name: mnist
mode: single
nodes: 1
command: COMMAND
search:
  algorithm: random
  metric: {name: validation_loss}
  trials: 30
  space: {dropout: {type: double, minval: 0, maxval: 0.6}, layers: {type: int, minval: 1, maxval: 8}}
"""


@pytest.mark.parametrize(
    ("command", "give", "line"),
    [
        ("python train.py --p {dropout}", "environment", "python train.py --p 0.25"),
        ("python train.py 'a b'", "arguments", "python train.py 'a b' --dropout 0.25 --layers 4"),
        ("python train.py", "environment", "SLURM_PLUGIN_HP_DROPOUT=0.25 SLURM_PLUGIN_HP_LAYERS=4 python train.py"),
        ("[", "environment", ""),  # the file is broken meanwhile
    ],
)
def test_command_of_the_best(tmp_path: Path, command: str, give: str, line: str) -> None:
    """As the trial ran it: with its values in the words, after them, or in variables."""
    (tmp_path / "experiment.yaml").write_text(SPEC.replace("COMMAND", command))
    trial = Trial(1, {"dropout": 0.25, "layers": 4})
    one = experiments.experiment()._replace(give=give)
    assert experiment_export.commands(tmp_path, one, [trial]) == {1: line}


def test_metrics(finished: Path, said: Run) -> None:
    """All metrics of a trial, one of them, as CSV; of a trial whose program wrote none those of its events."""
    trial = BY_VALUE[0][1]
    _, out, _ = said(METRICS_OF, finished, str(trial.number), "--csv", "--name=validation_loss")
    _, *rows = csv.reader(out.splitlines())
    assert [(float(row[2]), float(row[3])) for row in rows] == [(each.time, each.value) for each in trial.reports]
    code, out, _ = said(METRICS_OF, finished, str(trial.number))
    assert (code, out.splitlines()[1].split()[0], "validation_loss (validation) over batches" in out) == (
        0, "validation_loss", True,
    )  # fmt: skip
    code, _, err = said(METRICS_OF, finished, str(trial.number), "--name=acuracy")
    assert (code, "did you mean accuracy?" in err) == (1, True)
    code, _, err = said(METRICS_OF, finished, "21")
    assert (code, "found no trial 21; accepted: 1 to 20" in err) == (1, True)


def test_metrics_of_a_program_that_reports_by_its_log(tmp_path: Path, said: Run) -> None:
    """They are in the events of the trial's worker."""
    state = experiments.state(1)
    path = experiments.directory(tmp_path / "x", experiments.experiment(trials=1), state)
    own = journal.trial_directory(path, 1)
    (own / "metrics.jsonl").write_text('{"kind": "start", "api": 1}\n')
    (own / "events.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in experiments.events(state.trials[0])))
    _, out, _ = said(METRICS_OF, path, "1", "--json")
    (metric,) = json.loads(out)["metrics"]
    assert [point[1] for point in metric["points"]] == [each.value for each in state.trials[0].reports]


def test_logs(finished: Path, said: Run) -> None:
    """The options are those of `slurm-plugin logs`. An ended trial is followed to its end, a missing log is named."""
    trial = next(each for each in STATE.trials if each.state == FAILED)
    whole = (finished / "trials" / f"{trial.number:04}" / "log").read_text()
    assert said(LOGS, finished, str(trial.number)) == (0, whole, "")
    assert said(LOGS, finished, str(trial.number), "--grep=OutOfMemory")[1] == whole.splitlines()[-1] + "\n"
    assert said(LOGS, finished, str(trial.number), "--follow", "--tail=2")[1].splitlines() == whole.splitlines()[-2:]
    assert said(LOGS, finished, str(trial.number), "--grep=nothing")[0] == 1
    (finished / "trials" / "0020" / "log").unlink()
    code, _, err = said(LOGS, finished, "20")
    assert (code, "trial 20 has no log; it is running" in err) == (1, True)


def test_export(finished: Path, said: Run, tmp_path: Path) -> None:
    """CSV and JSON with all trials, to stdout or a file."""
    _, out, _ = said(EXPORT, finished)
    rows = list(csv.DictReader(out.splitlines()))
    assert [float(row["hp.optimizer.lr"]) for row in rows] == [each.values["optimizer"]["lr"] for each in STATE.trials]
    assert said(EXPORT, finished, "--json", f"--output={tmp_path / 'x.json'}")[0] == 0
    form = json.loads((tmp_path / "x.json").read_text())
    assert (form["state"], [each["trial"] for each in form["trials"]]) == ("running", list(range(1, 21)))
    code, _, err = said(EXPORT, finished, f"--output={tmp_path}/none/x.csv")
    assert (code, "--output FILE" in err) == (1, True)
    assert said(EXPORT, finished, "--json", "--csv")[0] == 2


def test_tensorboard(finished: Path, said: Run, tmp_path: Path) -> None:
    """TensorBoard's own reader finds the metrics and the hyperparameters of each trial."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import plugin_data_pb2

    code, out, _ = said(EXPORT, finished, f"--tensorboard={tmp_path / 'tb'}")
    assert (code, out.splitlines()[0]) == (0, "written: 20 trials")
    for trial in STATE.trials:
        read = EventAccumulator(str(tmp_path / "tb" / f"{trial.number:04}"))
        read.Reload()
        tags = ["validation_loss", "accuracy"] if trial.reports else []
        assert read.Tags()["scalars"] == tags
        points = [(each.step, each.value) for each in read.Scalars("validation_loss")] if tags else []
        assert points == [(each.time, pytest.approx(each.value, rel=1e-6)) for each in trial.reports]
        data = plugin_data_pb2.HParamsPluginData.FromString(
            read.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
        )
        assert data.session_start_info.hparams["optimizer.lr"].number_value == trial.values["optimizer"]["lr"]


def test_tensorboard_is_missing(finished: Path, said: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Exit 3 with the command that installs it."""
    monkeypatch.setitem(sys.modules, "tensorboard.plugins.hparams", None)
    code, _, err = said(EXPORT, finished, f"--tensorboard={tmp_path / 'tb'}")
    assert (code, "run: pip install tensorboard" in err) == (3, True)


def test_report(finished: Path, said: Run, tmp_path: Path) -> None:
    """The page is in the experiment's directory, with links to the logs that hold from there, and diagnoses."""
    code, out, _ = said(REPORT, finished)
    path = finished / "report.html"
    assert (code, out.startswith(f"written: {path} (")) == (0, True)
    text = path.read_text()
    assert '<a href="trials/0001/log">' in text
    assert "(gpu_oom" in text
    assert said(REPORT, finished, f"--output={tmp_path / 'r.html'}")[0] == 0
    relative = os.path.relpath(finished / "trials" / "0001" / "log", tmp_path)
    assert f'<a href="{relative}">' in (tmp_path / "r.html").read_text()
    assert f'<a href="{finished.as_uri()}/trials/0001/log">' in said(REPORT, finished, "--output=-")[1]


def test_a_directory_whose_name_is_no_utf8(tmp_path: Path, said: Run) -> None:
    """The links of the page hold there, too."""
    path = tmp_path / os.fsdecode(b"caf\xe9")
    experiments.directory(path, experiments.experiment(trials=1), experiments.state(1))
    assert said(REPORT, path, f"--output={tmp_path / 'r.html'}")[0] == 0
    assert '<a href="caf%E9/trials/0001/log">' in (tmp_path / "r.html").read_text()


def test_an_encoding_that_lacks_characters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command shows such a character as its number, and goes on."""
    path = experiments.directory(tmp_path / "x", experiments.experiment("训练", trials=1), experiments.state(1))
    stdout = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", stdout)
    assert main(["experiment", "status", str(path)]) == 0
    stdout.seek(0)
    assert stdout.read().startswith("\\u8bad\\u7ec3: ")


def test_failed_and_unknown_experiments(tmp_path: Path, said: Run) -> None:
    """Exit 1 if all trials failed; unknown experiments and keys are refused with what to try."""
    failed = State(tuple(each._replace(state=FAILED, reports=()) for each in experiments.state(2).trials), 2)
    path = experiments.directory(tmp_path / "x", experiments.experiment(trials=2), failed)
    assert said(STATUS, path)[0] == 1
    assert said(BEST, path)[0] == 1
    code, _, err = said(TRIALS, path, "--sort=optimiser.lr")
    assert (code, "did you mean optimizer.lr?" in err) == (2, True)
    code, _, err = said(STATUS, tmp_path / "none")
    assert (code, "found no such experiment" in err) == (1, True)


def test_bounded_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a very large file the beginning and the end are read; a link or a pipe gives nothing."""
    monkeypatch.setattr(experiment_views, "FIRST_BYTES", 8)
    monkeypatch.setattr(experiment_views, "LAST_BYTES", 8)
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"".join(b"%03d\n" % number for number in range(100)))
    assert list(experiment_views.lines(path)) == [b"000", b"001", b"098", b"099"]
    os.mkfifo(tmp_path / "pipe")
    assert list(experiment_views.lines(tmp_path / "pipe")) == list(experiment_views.lines(tmp_path / "none")) == []


def test_running_trials_are_followed(tmp_path: Path) -> None:
    """`logs --follow` ends when the trial is over, not before."""
    state = experiments.state(2, running=1, budget=3)
    path = experiments.directory(tmp_path / "x", experiments.experiment(trials=3), state)
    assert state.trials[1].state == RUNNING
    code = "import sys; from slurm_plugin.cli.experiment.views import LOGS; sys.exit(LOGS(sys.argv[1:]))"
    command = [sys.executable, "-c", code, str(path), "2", "--follow"]
    log = journal.trial_directory(path, 2) / "log"
    before = log.read_text()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == before.splitlines(keepends=True)[0]  # it has begun
        with log.open("a") as file:
            file.write("one more\n")
        lines = journal.Journal(path)
        with lines.locked():
            lines.append({"e": "end", "n": 2, "state": COMPLETED, "why": ""})
        rest = process.stdout.read()
        assert process.wait(timeout=HANG_S) == 0
    assert rest.splitlines() == [*before.splitlines()[1:], "one more"]


def test_diagnosis_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The logs of the newest failed trials are diagnosed. A link is not followed."""
    monkeypatch.setattr(experiment_export, "MOST_DIAGNOSED", 1)
    state = experiments.state(60)
    path = experiments.directory(tmp_path / "x", experiments.experiment(), state)
    last = [each.number for each in state.trials if each.state == FAILED][-1]
    found = experiment_export.page_extras(path, experiments.experiment(), state, None)
    assert list(found.diagnoses) == [last]
    log = journal.trial_directory(path, last) / "log"
    log.rename(tmp_path / "secret")
    log.symlink_to(tmp_path / "secret")
    assert experiment_export.page_extras(path, experiments.experiment(), state, None).diagnoses == {}
    assert found.rungs == [1000, 3000, 9000]
