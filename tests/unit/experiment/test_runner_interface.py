"""What a PyTorchTrial may call, and what is called in it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.experiment.running import Run, needs_torch

pytestmark = needs_torch

URL = {"url": "https://example.org/pytorch_mnist.tar.gz"}


@pytest.mark.full  # 4 s of training
def test_the_tutorials_mnist(tmp_path: Path) -> None:
    """The convolutional network of the users' tutorial learns, on 2 ranks."""
    hparams = {
        "learning_rate": 1.0, "global_batch_size": 32, "n_filters1": 4, "n_filters2": 8,
        "dropout1": 0.25, "dropout2": 0.5,
    }  # fmt: skip
    run = Run(tmp_path, hparams, data=URL, records_per_epoch=50_000, length=3, min_validation_period={"epochs": 1})
    run.run("mnist:MNistTrial", 2)
    assert set(run.metric("accuracy")) == {16, 32, 48}
    assert run.metric("accuracy")[48] > 0.9
    assert run.metric("loss", "training")[48] < run.metric("loss", "training")[16]
    import torch

    (state,) = (run.trial / "checkpoints/step-00000048").glob("*.pth")
    saved = torch.load(state)  # as torch 2.6 and later read it by default
    keys = ("models_state_dict", "optimizers_state_dict", "lr_schedulers_state_dict", "callbacks")
    assert [*saved][:4] == [*keys]
    assert not any(name.startswith("module.") for name in saved["models_state_dict"][0])
    assert saved["lr_schedulers_state_dict"][0]["last_epoch"] == 3


@pytest.mark.parametrize("ranks", [1, 2])
def test_every_function_of_the_context(tmp_path: Path, ranks: int) -> None:
    """Two models, two optimizers, reducers, callbacks, places: 40 records in batches of 8, for 2 epochs."""
    run = Run(tmp_path, {"global_batch_size": 8}, data=URL, length=2, scheduling_unit=4)
    output = run.run("everything:TwoModels", ranks)
    found: list[dict[str, Any]] = [json.loads((tmp_path / f"seen{rank}.json").read_text()) for rank in range(ranks)]
    for rank, seen in enumerate(found):
        assert seen["hparams"] == {"global_batch_size": 8, "lr": 0.05}
        assert seen["sizes"] == [8, 8 // ranks]
        assert seen["ids"] == [1, 0]
        assert seen["seed"] == found[0]["seed"]
        assert seen["data"] == URL
        assert seen["config"] == {
            "name": "single", "metric": "validation_loss", "smaller_is_better": True, "max_length": {"epochs": 2},
        }  # fmt: skip
        assert seen["info"] == [seen["hparams"], "TRIAL"]
        everyone = list(range(ranks))
        gathered = None if rank else everyone
        assert seen["ranks"] == [rank, ranks, rank, 1, everyone, gathered, "of 0", everyone, gathered, 0], output
        assert seen["epochs"] == [[at % 5 == 0, at % 5 == 4] for at in range(10)]
        assert len(seen["norms"]) == 10
        assert max(seen["norms"]) <= 0.000101
        assert seen["rates"] == [[pytest.approx(0.01 * 0.9**10)], [pytest.approx(0.1 * 0.9**10)]]
        assert seen["batches"] == 2  # since the report after batch 8
        assert seen["average"]["array"] == 2
        assert seen["average"]["largest"] == pytest.approx(39 / 40)
        assert {name: seen["metrics"][name] for name in ("records", "ranks")} == {"records": 40, "ranks": ranks}
        assert seen["metrics"]["spread"] == pytest.approx(39 / 40)
        of_rank_0 = ("on_checkpoint_save_start", "on_checkpoint_end", "on_checkpoint_write_end")
        wanted = [
            "on_trial_startup", "on_trial_shutdown", "on_training_start", "on_training_epoch_start",
            "on_training_epoch_end", "on_training_epoch_start", "on_training_epoch_end",
            "on_validation_start", "on_validation_epoch_start", "on_validation_epoch_end", "on_validation_end",
            *(of_rank_0 if not rank else ()), "on_checkpoint_upload_end",
        ]  # fmt: skip
        assert [name for name in seen["called"] if name != "on_training_workload_end"] == wanted
        assert seen["called"].count("on_training_workload_end") == 3
    assert [each["step"] for each in run.lines("training")] == [4, 8, 10]
    assert (run.trial / "checkpoints/step-00000010/more.txt").exists()


@pytest.mark.parametrize(("entrypoint", "ranks"), [("Refuses", 1), ("OneRefuses", 2)])
def test_refused_hyperparameters(tmp_path: Path, entrypoint: str, ranks: int) -> None:
    """det.InvalidHP on any rank: the program ends with 0 and says so."""
    run = Run(tmp_path)
    run.run(f"everything:{entrypoint}", ranks)
    assert [each["why"] for each in run.lines("invalid_hp")] == ["too small"]
    assert run.checkpoints == []


def test_without_an_experiment(tmp_path: Path) -> None:
    """A Trial is tried by hand for one epoch; its reports are printed."""
    (tmp_path / "values.json").write_text('{"global_batch_size": 16, "lr": 0.05}')
    empty = dict.fromkeys(("SLURM_PLUGIN_EXPERIMENT", "SLURM_PLUGIN_METRICS", "SLURM_PLUGIN_CHECKPOINT"), "")
    run = Run(tmp_path / "run")
    output = run.run("linear:MyTrial", SLURM_PLUGIN_HPARAMS=str(tmp_path / "values.json"), **empty)
    assert "validation step=16 batches=16 epochs=1 records=256 validation_loss=0.176305" in output
    assert (run.directory / "checkpoints/step-00000016/state_dict.pth").exists()


def test_the_trial_asks_for_its_end(tmp_path: Path) -> None:
    """It saves and ends with 0 soon after. It evaluates all data at once."""
    run = Run(tmp_path, {"global_batch_size": 8}, length=100_000, min_validation_period={"batches": 2})
    run.run("everything:Whole")
    assert 2 in run.metric("batches_seen")
    assert run.metric("batches_seen")[2] == 5
    (last, *_) = reversed(run.checkpoints)
    assert 3 <= int(last.removeprefix("step-")) < 500_000
    assert run.lines("progress")[-1]["progress"] < 1


@pytest.mark.parametrize("apex", ["", "1"])
def test_mixed_precision_and_gradients_of_several_batches(tmp_path: Path, apex: str) -> None:
    """With an aggregation_frequency of 2 the optimizer steps after every second batch. PyTorch's loader is divided."""
    run = Run(tmp_path, {"global_batch_size": 8}, length=2, optimizations={"aggregation_frequency": 2})
    run.run("everything:Mixed", APEX=apex)
    assert json.loads((tmp_path / "steps.json").read_text()) == [1, 3, 5, 7, 9]
    assert [*run.metric()] == [10]
