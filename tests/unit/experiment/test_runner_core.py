"""Scripts with `determined.core`, without Determined."""

from pathlib import Path

import pytest

from slurm_plugin.errors import UsageError
from slurm_plugin.experiment.runner import core
from slurm_plugin.experiment.runner.distributed import DistributedContext, places
from tests.unit.experiment.running import ROOT, TRIALS, Run

SHIM = {"PYTHONPATH": f"{ROOT}:{TRIALS}:{ROOT}/slurm_plugin/experiment/shim"}


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_script(tmp_path: Path, ranks: int) -> None:
    """It is told to stop, saves with all ranks, and goes on to its full length in the next run.

    One rank needs no PyTorch.
    """
    if ranks > 1:
        pytest.importorskip("torch")
    run = Run(tmp_path, length=20, unit="batches")
    run.run("core_script", ranks, real=ranks == 1, STOP_AT="7", **SHIM)
    assert run.checkpoints == ["step-00000005", "step-00000010"]
    assert run.metric() == {5: ranks / 5, 10: ranks / 10}
    (run.trial / "stop").unlink()
    run.run("core_script", ranks, real=ranks == 1, **SHIM)
    assert run.metric() == {step: ranks / step for step in (5, 10, 15, 20)}
    assert [each["step"] for each in run.lines("training")] == list(range(1, 21))
    assert run.lines("validation")[-1]["epochs"] == 4
    assert run.lines("progress")[-1]["progress"] == 1
    last = run.trial / "checkpoints/step-00000020"
    assert sorted(path.name for path in last.iterdir()) == [
        "metadata.json",
        *(f"state{rank}" for rank in range(ranks)),
    ]


def test_a_script_that_refuses_its_values(tmp_path: Path) -> None:
    """det.InvalidHP within core.init ends it with 0."""
    run = Run(tmp_path, {"bad": True}, length=20, unit="batches")
    run.run("core_script", real=True, **SHIM)
    assert [each["why"] for each in run.lines("invalid_hp")] == ["bad"]


def test_checkpoints_by_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """upload, download, delete; an id that leads elsewhere is refused."""
    monkeypatch.setenv("SLURM_PLUGIN_CHECKPOINT", str(tmp_path / "there"))
    monkeypatch.delenv("SLURM_PLUGIN_METRICS", raising=False)
    (tmp_path / "from").mkdir()
    (tmp_path / "from/weights").write_text("1")
    store = core.CheckpointContext(DistributedContext())
    name = store.upload(tmp_path / "from", {"steps_completed": 3})
    store.download(name, tmp_path / "to")
    assert (tmp_path / "to/weights").read_text() == "1"
    for other in ("step-00000004", "../from", "from"):
        with pytest.raises(UsageError, match="is not there"):
            store.delete(other)
    store.delete(name)
    assert list((tmp_path / "there").iterdir()) == []
    with pytest.raises(UsageError, match="found steps_completed None"):
        store.upload(tmp_path / "from")


def test_the_place_of_a_rank() -> None:
    """From the variables of torchrun; one rank without them."""
    alone = {"rank": 0, "size": 1, "local_rank": 0, "local_size": 1, "cross_rank": 0, "cross_size": 1}
    assert places({}) == alone
    environ = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    wanted = {"rank": 5, "size": 8, "local_rank": 1, "local_size": 4, "cross_rank": 1, "cross_size": 2}
    assert places(environ) == wanted
    with pytest.raises(ValueError, match="from_torch_distributed"):
        DistributedContext(rank=0, size=2)
