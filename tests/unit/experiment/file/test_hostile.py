"""Files with a wrong value at any place: each is accepted or refused with a message, never with a traceback."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.errors import UsageError
from slurm_plugin.experiment.file import loader
from slurm_plugin.spec.documents import MAX_BYTES
from tests import fakes
from tests.unit.experiment.file.small import MODEL

WHOLE: dict[str, Any] = {
    "name": "a",
    "description": "d",
    "labels": ["a"],
    "data": {"url": "x"},
    "workspace": "w",
    "project": "p",
    "entrypoint": "model_def:MyTrial",
    "scheduling_unit": 10,
    "records_per_epoch": 9,
    "max_restarts": 2,
    "min_validation_period": {"epochs": 1},
    "min_checkpoint_period": {"batches": 9},
    "perform_initial_validation": True,
    "checkpoint_policy": "all",
    "checkpoint_storage": {"type": "shared_fs", "host_path": "/c", "storage_path": "d", "save_trial_best": 2},
    "hyperparameters": {
        "global_batch_size": 16,
        "lr": {"type": "log", "minval": -4, "maxval": -1, "base": 10, "count": 3},
        "o": {"name": {"type": "categorical", "vals": ["sgd", 1]}, "k": {"type": "const", "val": 1}},
        "list": [1, {"a": 2}],
    },
    "searcher": {
        "name": "adaptive_asha",
        "metric": "loss",
        "smaller_is_better": False,
        "max_length": {"epochs": 9},
        "max_trials": 9,
        "max_concurrent_trials": 4,
        "mode": "standard",
        "divisor": 3,
        "max_rungs": 3,
        "bracket_rungs": [3, 2],
        "stop_once": False,
        "time_metric": "epochs",
        "max_time": 9,
    },
    "resources": {"slots_per_trial": 8, "shm_size": "1.5G", "resource_pool": "gpu", "max_slots": 16, "priority": 3},
    "bind_mounts": [{"host_path": "/d", "container_path": "/d", "read_only": True, "propagation": "rshared"}],
    "environment": {
        "image": {"cuda": "a/b", "cpu": "c"},
        "environment_variables": {"cuda": ["A=1"], "cpu": ["A=2"]},
        "registry_auth": {"username": "u"},
        "experiment_seed": 3,
    },
    "reproducibility": {"experiment_seed": 3},
    "optimizations": {"aggregation_frequency": 2, "mixed_precision": "O1"},
    "preemption_timeout": 60,
    "slurm": {"slots_per_node": 8, "gpu_type": "a100", "sbatch_args": ["--time=10"]},
    "pbs": {},
    "profiling": {"enabled": True},
}
SMALL: dict[str, Any] = {
    "entrypoint": "model_def:MyTrial",
    "hyperparameters": {"global_batch_size": 16},
    "searcher": {"name": "single", "metric": "loss", "max_length": 9},
}
WRONG: tuple[Any, ...] = (
    *(None, True, -1, 2**70, "a\x1b[2J", "\ud800", "1e999", "x" * 5000, [], [None], {"type": []}, {"": 1}, "/../.."),
    *("module:", "python3 -m determined.launch.horovod"),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value in a document."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield from places(part, (*path, key))


def changed(value: Any, path: tuple[Any, ...], wrong: Any) -> Any:
    """Return a document with another value at a place."""
    if not path:
        return wrong
    copy = value.copy()
    copy[path[0]] = changed(value[path[0]], path[1:], wrong)
    return copy


@pytest.mark.parametrize("key", WHOLE)
def test_wrong_values(key: str, tmp_path: Path) -> None:
    """At every place below a key."""
    (tmp_path / "model_def.py").write_text(MODEL)
    path = tmp_path / "e.yaml"
    nodes = (fakes.node("n1", gres=("gpu:a100:8",), partitions=("gpu",)),)
    whole = {**SMALL, key: WHOLE[key]}
    for place in places(WHOLE[key]):
        for wrong in WRONG:
            path.write_text(json.dumps(changed(whole, (key, *place), wrong)), encoding="utf-8")
            try:
                found = loader.load(path, nodes=lambda: nodes)
            except UsageError as error:
                assert "\x1b" not in str(error)
            else:
                json.dumps([found.experiment, dict(found.job)], allow_nan=False)


def test_the_whole_file_is_accepted(tmp_path: Path) -> None:
    """Else its places would not be reached."""
    (tmp_path / "model_def.py").write_text(MODEL)
    (tmp_path / "e.yaml").write_text(json.dumps(WHOLE))
    job = loader.load(tmp_path / "e.yaml").job
    assert (job["time"], job["accelerators"]) == ("10", {"gpu": 8, "type": "a100"})


def test_other_files(tmp_path: Path) -> None:
    """Aliases, binary data, a long file, a list."""
    path = tmp_path / "e.yaml"
    for data in (b"a: &x 1\nsearcher: *x\n", b"\xff\xfe", b"#" * (MAX_BYTES + 1), b"- searcher\n", b"", b"searcher: 1"):
        path.write_bytes(data)
        with pytest.raises(UsageError):
            loader.load(path)
