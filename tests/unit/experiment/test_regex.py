"""The regular expression for a metric, suggested from a log, and the command that prints it."""

import io
import json
import math
import re
import sys
from pathlib import Path

import pytest

from slurm_plugin.cli.experiment.regex import REGEX
from slurm_plugin.experiment import log_values

KERAS = "32/32 [====] - 0s 2ms/step - loss: 0.3 - acc: 0.9 - val_loss: 0.4 - val_acc: 0.8"


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("loss=0.3\nloss=.2\nlr=1", "loss", [0.3, 0.2]),
        ("epoch 1 loss: 0.3, acc: 0.9", "loss", [0.3]),
        ("loss  =  0.3\nloss =0.2", "loss", [0.3, 0.2]),
        ("{'loss': 0.3, 'learning_rate': 5e-05}", "loss", [0.3]),
        ("{'loss': 0.3, 'learning_rate': 5e-05}", "learning_rate", [5e-5]),
        ("{'loss': '0.3'}", "loss", [0.3]),
        ('{"step": 3, "loss": 1.5e-3}\n{"step": 4, "loss": 2}', "loss", [0.0015, 2.0]),
        ("val_loss 0.3", "val_loss", [0.3]),
        ("loss = tensor(0.3, device='cuda:0', grad_fn=<NllLossBackward0>)", "loss", [0.3]),
        ("loss: tensor([0.3])", "loss", [0.3]),
        ("{'loss': np.float32(0.25)}", "loss", [0.25]),
        (KERAS, "loss", [0.3]), (KERAS, "val_loss", [0.4]), (KERAS, "acc", [0.9]),
        ("loss=nan\nloss=-inf\nloss=-1E+3\nloss=+4", "loss", [math.nan, -math.inf, -1000.0, 4.0]),
        ("loss_scale=1024 loss=0.3 train/loss=0.5 top-loss=2 loss2=7", "loss", [0.3]),
        ("loss scale: 1024\nloss: 0.3", "loss", [0.3]),
        ("train loss: 0.5\nval loss: 0.3\ntrain loss: 0.4\nval loss: 0.2\ntrain loss: 0.1", "loss", [0.3, 0.2]),
        ("loss: 0.5\nloss: 0.4\nbest loss: 0.3", "loss", [0.5, 0.4]),
        ("Epoch 1 Validation Loss: 0.25", "validation_loss", [0.25]),
        ("Loss: 0.25\nloss: 0.5", "loss", [0.5]),
        ("took 3s, loss: 0.3.", "loss", [0.3]),
        ("latency: 12.5ms", "latency", [12.5]),
        ("accuracy | 97.5%", "accuracy", [97.5]),
        ("loss is 0.3", "loss", [0.3]),
        ("a+b=0.3", "a+b", [0.3]),
        ("\rstep 1 loss=0.9\rstep 2 loss=0.8\n", "loss", [0.9, 0.8]),
    ],
)  # fmt: skip
def test_the_best(text: str, name: str, values: list[float]) -> None:
    """The best expression finds these values, as a trial's log is read: line by line, the first group."""
    best = log_values.suggest(text, name)[0]
    found = [float(match[1]) for line in text.splitlines() for match in re.finditer(best.regex, line)]
    assert repr(found) == repr(values) == repr(list(best.values))
    assert best.line in text


@pytest.mark.parametrize(
    "text", ["", "val_loss: 0.3", "loss_scale: 3", "loss: none", "loss: info", "loss: 1.2.3", "a loss"]
)
def test_none(text: str) -> None:
    """Other names, and what is no number, are no values."""
    assert log_values.suggest(text, "loss") == []


def test_the_others() -> None:
    """Other forms come with their own values; the same values again are left out."""
    text = "train loss: 0.5\nval loss: 0.3\nloss=0.1\n"
    found = [(each.regex, each.values) for each in log_values.suggest(text, "loss")]
    assert found == [
        (r"(?<![\w./-])val loss\s*:\s*([-+.\w]+)", (0.3,)),
        (r"(?<![\w./-])(?<!train )(?<!val )loss\s*=\s*([-+.\w]+)", (0.1,)),
        (r"(?<![\w./-])train loss\s*:\s*([-+.\w]+)", (0.5,)),
    ]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It prints what to write into the spec, and what that finds."""
    log = tmp_path / "log"
    log.write_text("".join(f"step {each} 'loss': {1 / each:.3f}\x1b[2J\n" for each in range(1, 9)))
    assert REGEX([str(log), "loss"]) == 0
    assert capsys.readouterr().out == (
        "search:\n"
        r"""  metric: {name: "loss", regex: '(?<![\w./-])''loss''\s*:\s*([-+.\w]+)'}""" + "\n\n"
        "finds 8 values: 1 0.5 0.333 ... 0.167 0.143 0.125\n"
        "first in: step 1 'loss': 1.000?[2J\n"
    )


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """--json has all forms; nan and infinity are texts. The log may be stdin."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"loss=0.5\nloss=nan\nloss=inf\n\xff")))
    assert REGEX(["-", "loss", "--json"]) == 0
    found = {"regex": r"(?<![\w./-])loss\s*=\s*([-+.\w]+)", "values": [0.5, "nan", "inf"], "line": "loss=0.5"}
    assert json.loads(capsys.readouterr().out) == {"v": 1, "metric": "loss", "found": [found]}


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("loss", 1, "LOG: found no value of loss\n  accepted: a line such as loss=0.3, loss: 0.3 or 'loss': 0.3; "
                    "the log has: val_loss, acc\n"),
        (" ", 2, "found an empty name; accepted: the metric's name in the log, such as loss\n"),
    ],
)  # fmt: skip
def test_nothing(name: str, code: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 1 if the log has no value of the metric, with the names that it has; 2 for wrong usage."""
    log = tmp_path / "log"
    log.write_text("acc: 0.5\nval_loss: 0.3\n")
    assert REGEX([str(log), name]) == code
    assert capsys.readouterr().err == f"slurm-plugin: {message.replace('LOG', str(log))}"


def test_no_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A log that cannot be read is exit 2."""
    assert REGEX([str(tmp_path / "no"), "loss"]) == 2
    assert capsys.readouterr().err.endswith("/no: No such file or directory; give a log, or - for stdin\n")
