"""The losses of a PyTorchTrial: those that Determined has, on any number of ranks, and after a restart."""

import shutil
from pathlib import Path

import pytest

from tests.unit.experiment.running import Run, needs_torch

pytestmark = needs_torch

# determined 0.38.1 and torch 2.13.0: validation_loss after 16, 32 and 48 batches.
PEER = {16: 0.17630510, 32: 0.00645475804, 48: 0.00040358626}
VALIDATION = {"min_validation_period": {"epochs": 1}}


@pytest.mark.full  # 10 s
@pytest.mark.parametrize("ranks", [1, 2])
def test_losses_are_determineds(tmp_path: Path, ranks: int) -> None:
    """One rank with 16 records a batch, or two with 8 each: the same batches, the same losses."""
    run = Run(tmp_path, **VALIDATION)
    output = run.run("linear:MyTrial", ranks, real=ranks == 2)  # by torchrun
    assert "validation batches=48 epochs=3 validation_loss=0.000403586\n" in output
    assert run.metric() == pytest.approx(PEER, abs=1e-6)
    assert [each["records"] for each in run.lines("validation")] == [256, 512, 768]
    assert len(run.lines("start")) == 1


@pytest.mark.full  # over 5 s
@pytest.mark.parametrize(
    ("entrypoint", "ranks", "dies"),
    [
        ("linear:MyTrial", 1, 21),
        ("linear:MyTrial", 2, 37),
        ("noisy:NoisyTrial", 1, 21),
        ("noisy:NoisyTrial", 2, 37),
        ("noisy:LoaderProcesses", 1, 30),
        ("noisy:OwnSampler", 1, 37),
    ],
)
def test_a_restart_ends_with_the_same_losses(tmp_path: Path, entrypoint: str, ranks: int, dies: int) -> None:
    """Killed in the middle, it goes on from the last checkpoint: weights, order of the data, random numbers."""
    fields = {**VALIDATION, "min_checkpoint_period": {"batches": 7}}
    whole, broken = Run(tmp_path / "whole", **fields), Run(tmp_path / "broken", **fields)
    whole.run(entrypoint, ranks)
    code, real = -9 if ranks == 1 else 1, (entrypoint, ranks) == ("linear:MyTrial", 1)
    broken.run(entrypoint, ranks, code=code, real=real, DIE_AT=str(dies))
    assert 48 not in broken.metric()
    saved = [each["step"] for each in broken.lines("checkpoint")]
    assert f"restored step-{saved[-1]:08}" in broken.run(entrypoint, ranks, real=real)
    assert len(broken.lines("start")) == 2
    assert broken.metric() == whole.metric()
    assert broken.checkpoints == whole.checkpoints
    saved = [each["step"] for each in broken.lines("checkpoint")]
    assert saved == [each["step"] for each in whole.lines("checkpoint")]  # it repeats none


def test_an_unfinished_checkpoint_is_not_restored(tmp_path: Path) -> None:
    """Without the newest checkpoint it restores the one before, and ends with the same loss."""
    run = Run(tmp_path, **VALIDATION)
    run.run("linear:MyTrial")
    last = run.trial / "checkpoints/step-00000048"
    partial = last.with_name(".step-00000048-0-0-0")
    last.rename(partial)
    (partial / "state_dict.pth").write_bytes(b"cut off")
    run.run("linear:MyTrial")
    assert run.metric() == pytest.approx(PEER, abs=1e-6)
    assert run.checkpoints == ["step-00000016", "step-00000032", "step-00000048"]


def test_another_number_of_ranks_restores_too(tmp_path: Path) -> None:
    """A checkpoint of 2 ranks goes on with one: the batches are the same."""
    run = Run(tmp_path, **VALIDATION)
    run.run("linear:MyTrial", 2)
    shutil.rmtree(run.trial / "checkpoints/step-00000048")
    run.run("linear:MyTrial", 1)
    assert run.metric() == pytest.approx(PEER, abs=1e-6)
