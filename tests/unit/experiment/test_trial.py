"""The script API: what a program gets, what it reports, when it stops, and its checkpoints."""

import json
import math
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.errors import UsageError
from slurm_plugin.experiment import trial
from tests.waiting import until

ROOT = Path(__file__).parents[3]


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of a trial whose program this process is."""
    for name in [*os.environ]:
        if name.startswith(("SLURM", "PMI", "OMPI")) or name == "RANK":
            monkeypatch.delenv(name)
    monkeypatch.setattr(trial, "_begun", set())
    (tmp_path / "hparams.json").write_text('{"lr": 0.1, "net": {"layers": 2}}')
    for name, file in (("HPARAMS", "hparams.json"), ("METRICS", "metrics.jsonl"), ("CHECKPOINT", "checkpoints")):
        monkeypatch.setenv(f"SLURM_PLUGIN_{name}", str(tmp_path / file))
    return tmp_path


def lines(directory: Path) -> list[dict[str, Any]]:
    """Return the reported lines without their times."""
    found = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    assert all(isinstance(each.pop("at"), float) for each in found)
    return found


class Scalar:
    """A value of NumPy or PyTorch."""

    def item(self) -> float:
        return 0.5


def test_reports(directory: Path) -> None:
    """The first line says that the program uses the API. Numbers that JSON lacks are null."""
    assert trial.hparams == {"lr": 0.1, "net": {"layers": 2}}
    trial.report_training(1, {"loss": Scalar()})
    trial.report_validation(2, {"loss": float("nan"), "ok": True}, batches=2, epochs=1)
    trial.report_progress(0.25)
    assert lines(directory) == [
        {"kind": "start", "api": 1},
        {"kind": "training", "step": 1, "metrics": {"loss": 0.5}},
        {"kind": "validation", "step": 2, "metrics": {"loss": None, "ok": 1}, "batches": 2, "epochs": 1},
        {"kind": "progress", "progress": 0.25},
    ]
    for value in ("0.3", [1.0], None):
        with pytest.raises(UsageError, match=r"metric loss: found .*, accepted is a number"):
            trial.report_training(1, {"loss": value})
    with pytest.raises(TypeError, match="accepted beside the metrics are batches, epochs, records"):
        trial.report_training(1, {"loss": 1}, steps=1)
    for step, counts in ((math.inf, {}), (math.nan, {}), (1, {"epochs": math.inf})):
        with pytest.raises(ValueError, match=r"(step|epochs): found (inf|nan), accepted is a finite number"):
            trial.report_validation(step, {"loss": 1}, **counts)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="progress: found nan"):
        trial.report_progress(math.nan)


def test_rank_0_alone_writes(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any rank may say that the values cannot work."""
    monkeypatch.setenv("SLURM_PROCID", "0")  # a launcher's; the rank is the launcher's own number
    monkeypatch.setenv("RANK", "3")
    trial.report_validation(1, {"loss": 1.0})
    trial.checkpoint.path(1)
    trial.checkpoint.report(1)
    assert not (directory / "metrics.jsonl").exists()
    assert trial.checkpoint.latest() is None
    with pytest.raises(SystemExit) as end:
        trial.invalid_hp("too wide")
    assert end.value.code == 0
    assert lines(directory) == [{"kind": "invalid_hp", "why": "too wide"}]


def test_a_line_that_was_cut_off(directory: Path) -> None:
    """The next report begins a line of its own."""
    (directory / "metrics.jsonl").write_text('{"kind": "val')
    trial.report_validation(1, {"loss": 1.0})
    first, *rest = (directory / "metrics.jsonl").read_text().splitlines()
    assert first == '{"kind": "val'
    assert [json.loads(each)["kind"] for each in rest] == ["start", "validation"]


def test_a_report_that_cannot_be_written(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It ends no program."""
    (directory / "metrics.jsonl").mkdir()
    trial.report_validation(1, {"loss": 1.0})
    assert "this report is lost" in capsys.readouterr().err


def test_outside_an_experiment(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The values are empty, the reports are printed, checkpoints are in `checkpoints`."""
    for name in ("HPARAMS", "METRICS", "CHECKPOINT"):
        monkeypatch.delenv(f"SLURM_PLUGIN_{name}")
    monkeypatch.chdir(directory)
    assert trial.hparams == {}
    assert not (directory / "metrics.jsonl").exists()
    trial.report_validation(3, {"loss": 0.5})
    assert capsys.readouterr().out == "validation step=3 loss=0.5\n"
    trial.checkpoint.path(3)
    assert trial.checkpoint.report(3) == directory / "checkpoints/step-00000003"


def test_the_program_of_the_documentation(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It trains, saves, stops, and goes on where it was."""
    page = (ROOT / "docs/how-to/report-from-a-program.md").read_text()
    program = textwrap.dedent(page.partition("    ```python\n")[2].partition("    ```\n")[0])
    names = {
        "build": lambda rate: {"rate": rate},
        "load": lambda _, saved: int((saved / "step").read_text()),
        "steps": 2500,
        "train_one_step": lambda _: 0.5,
        "evaluate": lambda model: model["rate"],
    }
    names["save"] = lambda _, place: (place / "step").write_text(str(names["step"]))
    exec(program, names)  # noqa: S102 - of the documentation
    saved = [each["step"] for each in lines(directory) if each["kind"] == "checkpoint"]
    assert saved == [1000, 2000]
    (directory / "stop").touch()
    exec(program, names)  # noqa: S102
    assert names["step"] == 2001
    assert trial.checkpoint.latest() == directory / "checkpoints/step-00002001"
    assert [each["metrics"] for each in lines(directory) if each["kind"] == "validation"] == [{"val_loss": 0.1}] * 25


@pytest.mark.parametrize("text", ["[1]", "{", None])
def test_values_that_cannot_be_read(directory: Path, monkeypatch: pytest.MonkeyPatch, text: str | None) -> None:
    """The message names the variable."""
    path = directory / "other.json"
    if text is not None:
        path.write_text(text)
    monkeypatch.setenv("SLURM_PLUGIN_HPARAMS", str(path))
    with pytest.raises(UsageError, match="SLURM_PLUGIN_HPARAMS"):
        _ = trial.hparams


def test_checkpoints(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a complete one is found. Left-overs of killed runs are removed, one with the same step is replaced."""
    assert trial.checkpoint.latest() is None
    for step in (9, 100):
        (trial.checkpoint.path(step) / "model").write_text(str(step))
        trial.checkpoint.report(step, batches=step)
    partial = trial.checkpoint.path(200)
    (partial / "model").write_text("cut off")
    assert trial.checkpoint.latest() == directory / "checkpoints/step-00000100"
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert trial.checkpoint.path(200) != partial
    (trial.checkpoint.path(100) / "model").write_text("again")
    trial.checkpoint.report(100)
    assert sorted(each.name for each in (directory / "checkpoints").iterdir()) == ["step-00000009", "step-00000100"]
    assert (directory / "checkpoints/step-00000100/model").read_text() == "again"
    (directory / "checkpoints/step-00000300").touch()  # a file is none
    assert trial.checkpoint.latest() == directory / "checkpoints/step-00000100"
    assert [each["name"] for each in lines(directory)[1:]] == ["step-00000009", "step-00000100", "step-00000100"]


PROGRAM = """
import time
from pathlib import Path
from slurm_plugin.experiment import trial
step = 0
while not trial.should_stop():
    step += 1
    trial.report_validation(step, {"loss": 1 / step})
    time.sleep(0.01)
trial.checkpoint.path(step)
trial.checkpoint.report(step)
"""


@pytest.mark.parametrize("how", ["file", signal.SIGUSR1, signal.SIGTERM])
def test_stop(directory: Path, how: Any) -> None:
    """A stop file, SIGUSR1 or SIGTERM: the program saves, and ends with 0."""
    with subprocess.Popen([sys.executable, "-c", PROGRAM], env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
        until(lambda: (directory / "metrics.jsonl").exists() and len(lines(directory)) > 2, "reports")
        if how == "file":
            (directory / "stop").touch()
        else:
            process.send_signal(how)
        assert process.wait(timeout=60) == 0
    assert lines(directory)[-1]["kind"] == "checkpoint"


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["loss=0.3", "step=100"], {"kind": "validation", "step": 100, "metrics": {"loss": 0.3}}),
        (["a.b=-1e-3"], {"kind": "validation", "metrics": {"a.b": -0.001}}),
        (["loss=nan", "epochs=2"], {"kind": "validation", "metrics": {"loss": None}, "epochs": 2}),
        (["--kind", "training", "loss=1"], {"kind": "training", "metrics": {"loss": 1}}),
    ],
)
def test_report_metric(directory: Path, words: list[str], wanted: Mapping[str, Any]) -> None:
    """One line, and no word of the API: a shell script sees no stop file."""
    assert main(["report-metric", *words]) == 0
    assert lines(directory) == [wanted]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "found no metric"),
        (["step=3"], 2, "found no metric"),
        (["loss"], 2, "found 'loss'"),
        (["loss=\x1b[31m"], 2, "found 'loss=?[31m'"),
        (["=1"], 2, "accepted: NAME=NUMBER"),
        (["loss=0.3", "step=inf"], 2, "found 'step=inf'; accepted: a finite number, as in loss=0.3 or step=100"),
        (["loss=0.3", "epochs=nan"], 2, "found 'epochs=nan'; accepted: a finite number"),
    ],
)
def test_report_metric_refuses(
    directory: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, said: str
) -> None:
    """Nothing is written."""
    assert main(["report-metric", *words]) == code
    assert said in capsys.readouterr().err
    assert not (directory / "metrics.jsonl").exists()


def test_report_metric_elsewhere(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Outside a trial it says what to do. A file that cannot be written: exit code 1. Other ranks say nothing."""
    (directory / "metrics.jsonl").mkdir()
    assert main(["report-metric", "loss=1"]) == 1
    monkeypatch.delenv("SLURM_PLUGIN_METRICS")
    assert main(["report-metric", "loss=1"]) == 2
    assert "a spec with `search`" in capsys.readouterr().err
    monkeypatch.setenv("SLURM_PLUGIN_METRICS", str(directory / "there"))
    monkeypatch.setenv("SLURM_PROCID", "1")
    assert main(["report-metric", "loss=1"]) == 0
    assert not (directory / "there").exists()
