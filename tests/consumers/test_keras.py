"""A TFKerasTrial with real TensorFlow: on one and two ranks, with each kind of data, and after a restart."""

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.consumers.keras_runs import KerasRun, finished
from tests.fetched import Consumers
from tests.waiting import until

VALIDATION: dict[str, Any] = {"min_validation_period": {"epochs": 1}, "scheduling_unit": 3, "records_per_epoch": 64}
LOAD = "import sys, tensorflow as tf; print(tf.keras.models.load_model(sys.argv[1]).count_params())"
# One process with two devices: CPUs in place of GPUs.
MIRRORED = """
import sys

import tensorflow as tf
from slurm_plugin.experiment.runner import __main__ as runner, settings
from slurm_plugin.experiment.runner.distributed import DistributedContext
from slurm_plugin.experiment.runner.keras import loop
from slurm_plugin.experiment.runner.keras.start import Ranks

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
runner.offer_determined()
loop.seed(settings.load().seed)
loop.run(runner.load_class(sys.argv[1]), settings.load(), Ranks(strategy, DistributedContext(), 2))
"""
Make = Callable[..., KerasRun]


@pytest.fixture
def make(tmp_path: Path, consumers: Consumers) -> Make:
    """Return a function that makes an experiment's directory of this name."""

    def made(name: str = "run", hparams: dict[str, Any] | None = None, **fields: Any) -> KerasRun:
        run = KerasRun(
            tmp_path / name, hparams or {}, framework="keras", **{"metric": "val_loss", **VALIDATION, **fields}
        )
        run.consumers = consumers
        return run

    return made


@pytest.mark.parametrize(("entrypoint", "shuffle"), [("Arrays", True), ("Sequences", False), ("Pipelines", False)])
def test_losses_are_the_same_on_two_ranks(make: Make, entrypoint: str, shuffle: bool) -> None:
    """One rank with 16 records a batch, or two with 8 each: the same records, the same losses. Arrays also shuffled."""
    one, two = make("one", {"shuffle": shuffle}), make("two", {"shuffle": shuffle})
    one.run(entrypoint)
    two.run(entrypoint, 2)
    for kind, name in (("validation", "val_loss"), ("validation", "val_mae"), ("training", "mae")):
        assert two.metric(name, kind) == pytest.approx(one.metric(name, kind), rel=2e-5)
    losses = one.metric("val_loss")
    assert list(losses) == [4, 8, 12]
    assert losses[12] < losses[4]
    assert list(one.metric("loss", "training")) == [3, 4, 6, 8, 9, 12]
    counts = [(each["batches"], each["epochs"], each["records"]) for each in two.lines("validation")]
    assert counts == [(4, 1, 64), (8, 2, 128), (12, 3, 192)]
    assert len(two.lines("start")) == 1
    assert two.checkpoints == one.checkpoints == ["step-00000004", "step-00000008", "step-00000012"]


@pytest.mark.parametrize(("entrypoint", "shuffle"), [("Arrays", True), ("Pipelines", False)])
def test_losses_are_the_same_on_two_devices(make: Make, entrypoint: str, shuffle: bool) -> None:
    """One process may have several devices: each gets its part of the batch."""
    one, two = make("one", {"shuffle": shuffle}), make("two", {"shuffle": shuffle})
    one.run(entrypoint)
    output, codes = finished(two.ranks(f"fitted:{entrypoint}", program=["-c", MIRRORED], TF_USE_LEGACY_KERAS="1"))
    assert codes == [0], output
    assert two.metric("val_loss") == pytest.approx(one.metric("val_loss"), rel=2e-5)
    assert two.metric("loss", "training") == pytest.approx(one.metric("loss", "training"), rel=2e-5)


@pytest.mark.parametrize(
    ("entrypoint", "ranks", "dies"),
    [("Arrays", 2, 7), ("Sequences", 1, 10), ("Pipelines", 2, 7)],
)
def test_a_restart_ends_with_the_same_losses(make: Make, entrypoint: str, ranks: int, dies: int) -> None:
    """Killed in the middle, it goes on from the checkpoint: weights, optimizers, learning rate, order of the data."""
    fields = {"min_checkpoint_period": {"batches": 3}, "checkpoint_policy": "none"}
    norm = {"norm": 1}  # its statistics are of all ranks
    whole, broken = make("whole", norm, **fields), make("broken", norm, **fields)
    whole.run(entrypoint, ranks)
    output, codes = finished(broken.ranks(f"fitted:{entrypoint}", ranks, DIE_AT=str(dies)))
    assert 0 not in codes, output
    assert 12 not in broken.metric("val_loss")
    broken.run(entrypoint, ranks)
    assert broken.metric("val_loss") == pytest.approx(whole.metric("val_loss"), rel=1e-6)
    assert broken.checkpoints == whole.checkpoints == [f"step-{step:08d}" for step in (3, 6, 9, 12)]
    epochs = [f"begin {epoch}\nend {epoch} loss mae val_loss val_mae\n" for epoch in range(3)]
    assert [(each.directory / "epochs").read_text() for each in (whole, broken)] == ["".join(epochs)] * 2


def test_the_model_is_a_file_of_keras(make: Make) -> None:
    """`tf.keras.models.load_model` reads it, without this package and without the Trial."""
    run = make(hparams={"norm": 1}, length=1)
    run.run("Arrays")
    (path,) = (run.trial / "checkpoints").glob("*/determined-keras-model.h5")
    python = str(run.consumers.tensorflow_python)
    done = subprocess.run(
        [python, "-c", LOAD, str(path)], check=True, capture_output=True, text=True, env={"TF_USE_LEGACY_KERAS": "1"}
    )
    assert done.stdout.split()[-1] == "21"


@pytest.mark.parametrize(
    ("entrypoint", "ranks", "metric"),
    [
        ("Clothes", 1, "val_accuracy"),
        ("Pictures", 1, "val_categorical_error"),
        ("Pictures", 2, "val_categorical_error"),
    ],
)
def test_image_classifiers(make: Make, entrypoint: str, ranks: int, metric: str) -> None:
    """They learn, with optimizers of before Keras 2.11, augmentation and TensorBoard."""
    hparams = {"global_batch_size": 32, "dense1": 32, "dropout": 0.25}
    run = make(hparams=hparams, length=2, metric=metric, smaller=metric != "val_accuracy", records_per_epoch=160)
    output, codes = finished(run.ranks(f"images:{entrypoint}", ranks))
    assert codes == [0] * ranks, output
    losses = list(run.metric("val_loss").values())
    assert losses[1] < losses[0]
    assert list(run.metric(metric)) == ([20, 40] if entrypoint == "Clothes" else [5, 10])


@pytest.mark.parametrize(("ranks", "by"), [(1, "file"), (2, "file"), (2, "signal")])
def test_a_stopped_trial_saves_and_ends_with_0(make: Make, ranks: int, by: str) -> None:
    """By the search's file or by SIGUSR1 at rank 0 the ranks end at the same batch; later it goes on from there."""
    run = make(length=10**7)
    processes = run.ranks("fitted:Arrays", ranks)
    until(lambda: run.lines("training") or any(each.poll() is not None for each in processes), "the training")
    stop = run.trial / "stop"
    if by == "file":
        stop.touch()
    else:
        processes[0].send_signal(signal.SIGUSR1)
    output, codes = finished(processes)
    assert codes == [0] * ranks, output
    last = run.lines("checkpoint")[-1]["step"]
    assert run.lines("training")[-1]["step"] <= last
    stop.unlink(missing_ok=True)
    again = run.ranks("fitted:Arrays", ranks)
    until(lambda: run.lines("training")[-1]["step"] > last or any(each.poll() is not None for each in again), "more")
    stop.touch()
    output, codes = finished(again)
    assert codes == [0] * ranks, output
    assert run.lines("training")[-1]["step"] > last


@pytest.mark.parametrize("ranks", [1, 2])
def test_keras_early_stopping_ends_the_trial(make: Make, ranks: int) -> None:
    """Keras' callback sees the validation of its epoch; the last state is validated and saved."""
    run = make(length=50, checkpoint_policy="none")
    run.run("Patient", ranks)
    assert list(run.metric("val_loss")) == [4, 8, 12]
    assert run.checkpoints == ["step-00000012"]


@pytest.mark.parametrize(
    ("entrypoint", "ranks", "fields", "code", "words"),
    [
        ("Refuses", 2, {}, 0, "invalid hyperparameters: lr too large"),
        ("Doubts", 2, {}, 0, "another rank has found invalid hyperparameters"),
        ("Unwrapped", 2, {}, 2, "call context.wrap_dataset(dataset)"),
        ("Pipelines", 1, {"records_per_epoch": 0}, 2, "set records_per_epoch"),
        ("Arrays", 1, {"metric": "val_acc"}, 2, "the validation has val_loss, val_mae"),
        ("Arrays", 1, {"optimizations": {"aggregation_frequency": 2}}, 2, "a TFKerasTrial has 1"),
    ],
)
def test_refused(make: Make, entrypoint: str, ranks: int, fields: dict[str, Any], code: int, words: str) -> None:
    """Each rank ends with the same code and says what to change."""
    run = make(**fields)
    assert words in run.run(entrypoint, ranks, code=code)
    assert len(run.lines("invalid_hp")) == {"Refuses": ranks, "Doubts": 1}.get(entrypoint, 0)


def test_keras_3(make: Make) -> None:
    """Keras 3 runs on one rank. On several it is refused: its `fit` does not run there."""
    run = make(min_checkpoint_period={"batches": 3})
    output, codes = finished(run.ranks("fitted:Arrays", TF_USE_LEGACY_KERAS="0", DIE_AT="7"))
    assert codes == [-9], output
    run.run("Arrays", TF_USE_LEGACY_KERAS="0")
    assert list(run.metric("val_loss")) == [4, 8, 12]
    assert "whose `fit` does not run under" in make("two").run("Arrays", 2, code=3, TF_USE_LEGACY_KERAS="0")
