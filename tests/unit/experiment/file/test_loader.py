"""Mirrors slurm_plugin/experiment/file/loader.py: both kinds of file, the seed's own files, and the defaults."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_plugin.errors import UsageError
from slurm_plugin.experiment.file import loader
from slurm_plugin.launch.variables import with_hyperparameters
from slurm_plugin.records.experiments import Algorithm, Metric, Retention
from slurm_plugin.spec import load_all, record
from slurm_plugin.spec.submit_config import Containers, Experiments, SubmitConfig
from tests.refusals import refusal_of
from tests.unit.experiment.file.small import load
from tests.waiting import HANG_S

FILES = Path(__file__).parents[1] / "files"
MODEL = """from determined.keras import TFKerasTrial
from determined.pytorch import PyTorchTrial
class MNistTrial(PyTorchTrial): pass
class ImageNetTrial(PyTorchTrial): pass
class MyTrial(PyTorchTrial): pass
class FashionMNISTTrial(TFKerasTrial): pass
"""
RUNNER = "python3 -m slurm_plugin.experiment.runner model_def:"
# File -> mode, command, retries, metric, smaller is better, length, and some hyperparameters.
EXAMPLES = {
    "mnist_pytorch_const": (
        *("pytorch", f"{RUNNER}MNistTrial", 5, Metric("validation_loss"), (1, "epochs")),
        {"learning_rate": 1.0, "global_batch_size": 64, "dropout2": 0.5},
    ),
    "imagenet-test": (
        *("pytorch", f"{RUNNER}ImageNetTrial", 0, Metric("acc", smaller_is_better=False), (10, "epochs")),
        {"weight_decay": 1e-4, "pretrained": True, "start-epoch": 0, "data": "/mnt/data"},
    ),
    "fashion_mnist_keras_const": (
        *("tensorflow", f"{RUNNER}FashionMNISTTrial", 5, Metric("val_accuracy"), (5, "epochs")),
        {"dense1": 128},
    ),
    "random": (
        *("pytorch", f"{RUNNER}MyTrial", 5, Metric("accuracy"), (1000, "batches")),
        {"num_layers": {"type": "int", "minval": 1, "maxval": 3}, "global_batch_size": 64},
    ),
    "distributed": ("script", "python train.py", 5, Metric("validation_error"), (64, "epochs"), {}),
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a directory with the examples and their program."""
    shutil.copytree(FILES, tmp_path, dirs_exist_ok=True)
    (tmp_path / "model_def.py").write_text(MODEL)
    return tmp_path


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_of_the_platform(name: str, directory: Path) -> None:
    """Each is accepted unchanged, and its job is a job spec."""
    mode, command, retries, metric, length, values = EXAMPLES[name]
    experiment, job, *_ = loader.load(directory / f"{name}.yaml")
    assert (job["mode"], job["command"], job.get("retries", 0)) == (mode, command, retries)
    assert (job["name"], job["workdir"], experiment.name) == (name, str(directory), name)
    assert experiment.search.metric == metric
    assert (experiment.search.max_length, experiment.search.unit) == length
    assert values.items() <= experiment.search.space.items()
    (spec,) = load_all(str(dict(job)).replace("'", '"').encode(), name)
    assert isinstance(spec, record.Spec)
    assert spec.retries == experiment.retries == retries


def test_every_example_is_tried() -> None:
    """No file lies beside the table."""
    assert {path.stem for path in FILES.glob("*.yaml")} == set(EXAMPLES)


def test_all_of_one_file(directory: Path) -> None:
    """Each key becomes what its page says."""
    site = SubmitConfig(experiment=Experiments({"4090": "gpu"}), container=Containers("pyxis"))
    experiment, job, chosen, parent = loader.load(directory / "distributed.yaml", site)
    saves = "/mnt/volume/userdata/public/ckpt"
    assert job == {
        "name": "distributed",
        "mode": "script",
        "nodes": 1,
        "accelerators": {"gpu": 8},
        "partition": "gpu",
        "command": "python train.py",
        "env": {"NCCL_DEBUG": "INFO"},
        "container": {
            "image": "docker://determinedai/environments:cuda-11.3-pytorch-1.12-tf-2.11-gpu-0.24.0",
            "runtime": "pyxis",
            "mounts": [f"{saves}:{saves}", "/data:/data", "/mnt/read-only-data:/mnt/read-only-data:ro"],
        },
        "workdir": str(directory),
        "retries": 5,
        "unconditional": "yes",
    }
    assert (chosen, parent) == ("", saves)
    assert experiment.retention == Retention(0, 1, 1000000)
    assert experiment.labels == ("user1",)
    assert experiment.runner == {}
    assert experiment.notes == (
        "resources.shm_size: programs use the node's own /dev/shm, which Slurm does not limit",
        "environment.registry_auth: the container runtime has its own login; see: apptainer remote login, or enroot's"
        " .credentials",
        "min_validation_period, min_checkpoint_period: for Trial classes only; this command trains by itself",
    )


def test_defaults(tmp_path: Path) -> None:
    """A file with the required keys alone has the defaults of Determined."""
    experiment, job, *_ = load(tmp_path, "")
    assert job == {
        "name": "e",
        "mode": "pytorch",
        "nodes": 1,
        "accelerators": {"gpu": 1},
        "command": f"{RUNNER}MyTrial",
        "workdir": str(tmp_path),
        "retries": 5,
        "unconditional": "yes",
        "grace": "60s",
    }
    assert experiment._replace(search=experiment.search._replace(seed=0)) == experiment._replace(
        name="e",
        search=experiment.search._replace(
            metric=Metric("loss", smaller_is_better=True),
            space={"global_batch_size": 8},
            algorithms=(Algorithm("single"),),
            trials=0,
            concurrent=1,
            max_length=9,
            unit="batches",
            seed=0,
        ),
        retries=5,
        grace_s=60.0,
        retention=Retention(0, 1, 1),
        runner={
            "entrypoint": "model_def:MyTrial",
            "framework": "pytorch",
            "data": {},
            "records_per_epoch": 0,
            "scheduling_unit": 100,
            "min_validation_period": {"batches": 0},
            "min_checkpoint_period": {"batches": 0},
            "perform_initial_validation": False,
            "checkpoint_policy": "best",
            "optimizations": {
                "aggregation_frequency": 1,
                "average_aggregated_gradients": True,
                "average_training_metrics": True,
            },
            "slots": 1,
        },
        description="",
        labels=(),
        notes=(),
    )


def test_defaults_of_adaptive_asha(tmp_path: Path) -> None:
    """Those of the searcher."""
    text = "searcher: {name: adaptive_asha, metric: m, max_trials: 9, max_length: {epochs: 4}}\nrecords_per_epoch: 9"
    search = load(tmp_path, text).experiment.search
    assert (search.trials, search.concurrent, search.max_length, search.unit) == (9, 16, 4, "epochs")
    options = {"mode": "standard", "divisor": 4.0, "max_rungs": 5, "bracket_rungs": (), "stop_once": True}
    assert search.algorithms == (Algorithm("adaptive_asha", options),)


def test_random_seeds(tmp_path: Path) -> None:
    """Two experiments of one file differ, unless the file has a seed."""
    assert len({load(tmp_path, "").experiment.search.seed for _ in range(4)}) > 1
    assert load(tmp_path, "experiment_seed: 7").experiment.search.seed == 7


def test_neither_kind(tmp_path: Path) -> None:
    """The message says what each kind has; a key that is nearly one of them is named."""
    path = tmp_path / "job.yaml"
    path.write_text("name: a\nserach: {}\n")
    assert refusal_of(UsageError, loader.load, path) == (
        f"{path}: found no `searcher:`, as an experiment file has, and no `search:`, as a job spec; did you mean"
        f" search?\n  for one job, run: slurm-plugin submit {path}"
    )
    assert refusal_of(UsageError, loader.load, tmp_path / "x") == (
        f"{tmp_path}/x: No such file or directory\n  give an experiment file, or a job spec with `search:`"
    )
    os.mkfifo(tmp_path / "pipe")
    assert refusal_of(UsageError, loader.load, tmp_path / "pipe") == (
        f"{tmp_path}/pipe: found no regular file\n  give an experiment file, or a job spec with `search:`"
    )


def test_a_search_without_its_program(tmp_path: Path) -> None:
    """For a preview, the entrypoint may be missing, and so may its file."""
    path = tmp_path / "e.yaml"
    searcher = "searcher: {name: random, metric: m, max_trials: 9, max_length: {batches: 4}}\n"
    for text in (searcher, f"{searcher}entrypoint: nowhere:Class\n"):
        path.write_text(text)
        assert loader.load(path, program=False).experiment.search.trials == 9
    path.write_text(searcher)
    assert "entrypoint: missing; accepted: a Trial class" in refusal_of(UsageError, loader.load, path)


def test_the_example_of_a_search() -> None:
    """`slurm-plugin example search` is accepted, and its program prints what the regular expression reads."""
    examples = Path(__file__).parents[4] / "examples"
    experiment, job, *_ = loader.load(examples / "search.yaml")
    assert experiment.search.trials == 20
    command = with_hyperparameters(job["command"], {"lr": "0.01", "momentum": "0.9"}).replace("python3", sys.executable)
    done = subprocess.run(
        shlex.split(command), cwd=examples, capture_output=True, text=True, check=True, timeout=HANG_S
    )
    values = re.findall(experiment.search.metric.regex, done.stdout)
    assert len(values) == 10
    assert float(values[-1]) < float(values[0])
