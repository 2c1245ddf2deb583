"""When a Trial class' runner reports, validates and saves, how its data is divided, and how a stop ends it."""

import itertools
import json
import math
import signal
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.errors import UsageError
from slurm_plugin.experiment import journal, trial
from slurm_plugin.experiment.runner import settings
from slurm_plugin.experiment.runner.session import Session
from slurm_plugin.experiment.runner.settings import Length
from slurm_plugin.records import experiments
from tests.unit.experiment.running import Run
from tests.waiting import until

EPOCH = 4  # batches


def session(run: Run, monkeypatch: pytest.MonkeyPatch) -> Session:
    """Return the session of this trial, of which this process is the only rank."""
    for name, value in run.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(trial, "_begun", set())
    return Session(settings.load(), EPOCH)


@pytest.mark.parametrize(
    ("length", "unit", "fields", "wanted"),
    [
        (2, "epochs", {}, {8: "end"}),
        (6, "batches", {"scheduling_unit": 4}, {4: "report", 6: "end"}),
        (100, "records", {}, {6: "end"}),  # 16 a batch
        (3, "records", {}, {1: "end"}),  # at least one batch
        (2, "epochs", {"min_validation_period": {"epochs": 1}}, {4: "validate", 8: "end validate"}),
        (1, "epochs", {"min_validation_period": {"batches": 3}}, {3: "validate", 4: "end"}),
        (1, "epochs", {"min_checkpoint_period": {"records": 33}}, {2: "checkpoint", 4: "checkpoint end"}),
        (1, "epochs", {"min_checkpoint_period": 3}, {3: "checkpoint", 4: "end"}),
    ],
)
def test_what_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int, unit: str, fields: dict[str, Any], wanted: Any
) -> None:
    """Periods in batches, epochs and records, of 4 batches an epoch. 0: never."""
    found = session(Run(tmp_path, length=length, unit=unit, **fields), monkeypatch)
    seen = {}
    while not found.is_over():
        found.trained()
        if due := found.due():
            seen[found.progress.batches] = set(due)
    assert seen == {batches: set(names.split()) for batches, names in wanted.items()}


@pytest.mark.parametrize(
    "given", [{"steps": 1}, {"epochs": 1, "batches": 2}, "1", {"epochs": -1}, {"batches": 1.5}, True]
)
def test_periods_that_are_refused(given: Any) -> None:
    """The message names the key."""
    with pytest.raises(UsageError, match="min_validation_period: found"):
        Length.read(given, "min_validation_period")


def test_a_length_in_the_users_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trial trains until a report reaches it."""
    found = session(Run(tmp_path, length=1000, unit="tokens"), monkeypatch)
    found.trained(5)
    found.report_training({"tokens": 999})
    assert not found.is_over()
    found.report_validation({"validation_loss": 1, "tokens": 1000})
    assert found.is_over()
    assert found.fraction() == 0


@pytest.mark.parametrize(
    ("policy", "smaller", "others", "values", "wanted"),
    [
        ("best", True, None, [5, 4, 4, math.nan, 3], [True, True, False, False, True]),
        ("best", False, None, [5, 4, 6], [True, False, True]),
        ("best", True, 4.5, [5, 4.4], [False, True]),  # another trial has 4.5
        ("best", True, None, [math.nan, 5], [True, True]),
        ("all", True, 1, [5, 6], [True, True]),
        ("none", True, None, [5, 4], [False, False]),
    ],
)
def test_the_checkpoint_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, smaller: bool, others: float | None,
    values: list[float], wanted: list[bool],
) -> None:  # fmt: skip
    """`best` is the experiment's best so far, over all trials."""
    run = Run(tmp_path, checkpoint_policy=policy, smaller=smaller)
    if others is not None:
        written = journal.Journal(tmp_path)
        with written.locked():
            written.append({"e": "new", "n": 2, "values": {}}, {"e": "take", "n": 2, "task": "1_0", "job": 1})
            written.append({"e": "report", "n": 2, "time": 1.0, "value": others})
    found = session(run, monkeypatch)
    asked = []
    for value in values:
        found.trained()
        asked.append(found.report_validation({"validation_loss": value}))
    assert asked == wanted


def test_a_validation_without_the_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the names that there are."""
    with pytest.raises(UsageError, match=r"metric validation_loss: the validation has accuracy\?, loss\n"):
        session(Run(tmp_path), monkeypatch).report_validation({"loss": 1, "accuracy\x1b": 2, "image": [[1]]})


@pytest.mark.parametrize(("records", "batch", "ranks", "wanted"), [
    (10, 3, 1, [[0, 1, 2], [3, 4, 5], [6, 7, 8]]),  # the users' example: 9 of 10
    (10, 3, 2, [[0, 1, 2, 3, 4, 5]]),  # the third batch lacks a partner
    (2, 3, 1, [[0, 1]]),  # less than a batch: what there is
    (3, 3, 2, [[0, 1, 2, 0, 1, 2]]),  # fewer batches than ranks
])  # fmt: skip
def test_the_data_of_an_epoch(records: int, batch: int, ranks: int, wanted: list[list[int]]) -> None:
    """The ranks together have whole batches; a partial one is dropped. From any batch on it is the same data."""
    pytest.importorskip("torch")
    from torch.utils.data import BatchSampler, SequentialSampler

    from slurm_plugin.experiment.runner.data import EpochSampler, ShardSampler

    def taken(start: int) -> list[list[int]]:
        batches = BatchSampler(SequentialSampler(range(records)), batch, drop_last=False)
        samplers = [EpochSampler(batches, ranks, rank, start) for rank in range(ranks)]
        assert {len(each) for each in samplers} == {len(wanted)}
        parts = [itertools.islice(each, 2 * len(wanted) - start) for each in samplers]
        return [[index for part in row for index in part] for row in zip(*parts, strict=True)]

    assert taken(0) == wanted * 2
    assert taken(1) == (wanted * 2)[1:]
    batches = BatchSampler(SequentialSampler(range(records)), batch, drop_last=False)
    shards = [ShardSampler(batches, ranks, rank) for rank in range(ranks)]
    assert sum(map(len, shards)) == len(batches)
    assert sorted(index for shard in shards for part in shard for index in part) == list(range(records))


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("how", ["stop", "SIGUSR1"])
def test_a_stop_saves_and_ends_with_0(tmp_path: Path, ranks: int, how: str) -> None:
    """By the stop file, or by the signal to save; the next run goes on from there."""
    run = Run(tmp_path, length=10**9, unit="batches", min_validation_period={"batches": 50})
    process = run.start("linear:MyTrial", ranks)
    until(lambda: run.lines("validation"), lambda: f"a validation, of {process.args}")
    if how == "stop":
        (run.trial / "stop").touch()
    else:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for pid in children if ranks > 1 else [process.pid]:
            signal_rank(int(pid))
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    last = run.lines("checkpoint")[-1]
    assert run.checkpoints[-1] == last["name"]
    progress = json.loads((run.trial / "checkpoints" / last["name"] / "progress.json").read_text())
    assert progress["batches"] == progress["saved"] == last["step"]


def signal_rank(pid: int) -> None:
    """Send the signal to save, as a job's guard does: to those that handle it."""
    import os

    caught = int(
        next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "SigCgt" in line)[8:], 16
    )
    if caught >> (signal.SIGUSR1 - 1) & 1:
        os.kill(pid, signal.SIGUSR1)


def test_the_real_package_goes_first(tmp_path: Path) -> None:
    """Where `determined` is installed, a Trial gets that one."""
    package = tmp_path / "there/determined"
    (package / "pytorch").mkdir(parents=True)
    shim = Path(settings.__file__).parents[1] / "shim/determined"
    (package / "pytorch/__init__.py").write_text((shim / "pytorch/__init__.py").read_text())
    (package / "__init__.py").write_text(
        (shim / "__init__.py").read_text().replace("from determined import core\n", "")
    )
    (tmp_path / "asks.py").write_text("import determined\nprint('from', determined.__file__)\n")
    run = Run(tmp_path / "run", length=1)
    code = 2  # `asks` has no class
    path = {"PYTHONPATH": f"{experiments.__file__.rpartition('/slurm_plugin/')[0]}:{tmp_path}"}
    assert f"from {shim}/__init__.py" in run.run("asks:None_", code=code, **path)
    path["PYTHONPATH"] += f":{tmp_path / 'there'}"
    assert f"from {package}/__init__.py" in run.run("asks:None_", code=code, **path)


@pytest.mark.parametrize(
    ("entrypoint", "code", "said"),
    [
        ("linear:", 2, "accepted is MODULE:CLASS"),
        ("lineal:MyTrial", 2, "there is no lineal.py"),
        ("linear:Trial", 2, "linear has no class Trial"),
        ("broken:Trial", 1, "No module named 'nowhere'"),
    ],
)
def test_entrypoints_that_are_refused(tmp_path: Path, entrypoint: str, code: int, said: str) -> None:
    """The message says what is missing."""
    run = Run(tmp_path)
    (tmp_path / "broken.py").write_text("import nowhere\n")
    assert said in run.run(entrypoint, code=code)
