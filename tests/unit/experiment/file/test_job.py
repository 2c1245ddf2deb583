"""Mirrors slurm_plugin/experiment/file/job.py, notes.py: each key of the file as a key of the job, or as a note."""

from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.experiment.file.job import job_name
from slurm_plugin.spec.submit_config import Containers, Experiments, SubmitConfig
from tests.unit.experiment.file.small import load, problems

APPTAINER: dict[str, Any] = {"runtime": "apptainer"}
CPU = "resources: {slots_per_trial: 0}\nhyperparameters: {global_batch_size: 8}"
# Text -> keys of the job; None: the job has no such key.
JOBS: dict[str, dict[str, Any]] = {
    "name: 手写体 v1/2": {"name": "v1-2"},
    "name: 手写体": {"name": "experiment"},
    "max_restarts: 0": {"retries": None, "unconditional": None},
    "max_restarts: 1000": {"retries": 128, "unconditional": "yes"},
    "preemption_timeout: 300": {"grace": "300s"},
    "entrypoint: ./a.sh": {"mode": "script", "command": "./a.sh", "grace": None},
    CPU: {"nodes": 1, "accelerators": None},
    "resources: {resource_pool: gpu}": {"partition": "gpu"},
    "resources: {resource_pool: a pool}": {"partition": "main"},
    "environment: {environment_variables: [A=1, B=x=y, C=]}": {"env": {"A": "1", "B": "x=y", "C": ""}},
    "environment: {environment_variables: {cuda: [A=1], cpu: [A=2]}}": {"env": {"A": "1"}},
    f"{CPU}\nenvironment: {{environment_variables: {{gpu: [A=1], cpu: [A=2]}}}}": {"env": {"A": "2"}},
    "environment: {image: a/b:1}": {"container": {**APPTAINER, "image": "docker://a/b:1"}},
    "environment: {image: nvcr.io/a:1}": {"container": {**APPTAINER, "image": "docker://nvcr.io/a:1"}},
    "environment: {image: docker://a}": {"container": {**APPTAINER, "image": "docker://a"}},
    "environment: {image: /images/a.sif}": {"container": {**APPTAINER, "image": "/images/a.sif"}},
    "environment: {image: ./a.sqsh}": {"container": {"runtime": "pyxis", "image": "./a.sqsh"}},
    "environment: {image: {cpu: c, cuda: g}}": {"container": {**APPTAINER, "image": "docker://g"}},
    f"{CPU}\nenvironment: {{image: {{cpu: c, gpu: g}}}}": {"container": {**APPTAINER, "image": "docker://c"}},
    "environment: {image: {rocm: r}}": {"container": {**APPTAINER, "image": "docker://r"}},
    "environment: {image: a}\nbind_mounts: [{host_path: /d, container_path: /e}, {host_path: /f, container_path: /g,"
    " read_only: true}]": {"container": {**APPTAINER, "image": "docker://a", "mounts": ["/d:/e", "/f:/g:ro"]}},
    "slurm: {sbatch_args: [--time=1:00:00, --mem=8G, --contiguous, --switches=1]}": {
        "time": "1:00:00", "memory": "8G", "sbatch": {"contiguous": "yes", "switches": "1"},
    },
}  # fmt: skip
SITE = SubmitConfig(experiment=Experiments({"a pool": "main"}))


@pytest.mark.parametrize("text", JOBS)
def test_job(text: str, tmp_path: Path) -> None:
    """The keys that the text sets. All jobs are accepted by the checks of a job spec."""
    _, job, *_ = load(tmp_path, text, SITE)
    assert {key: job.get(key) for key in JOBS[text]} == JOBS[text]


def test_a_relative_path_in_the_container(tmp_path: Path) -> None:
    """It is in the directory where the program starts."""
    text = "environment: {image: a}\nbind_mounts: [{host_path: '/d:1', container_path: data}]"
    _, job, *_ = load(tmp_path, text)
    assert job["container"]["mounts"] == [rf"/d\:1:{tmp_path}/data"]


def test_pyxis(tmp_path: Path) -> None:
    """Enroot wants a `#` behind a registry."""
    site = SubmitConfig(container=Containers("pyxis"))
    for image, named in {"nvcr.io/a/b:1": "docker://nvcr.io#a/b:1", "a/b": "docker://a/b"}.items():
        _, job, *_ = load(tmp_path, f"environment: {{image: {image}}}", site)
        assert job["container"] == {"runtime": "pyxis", "image": named}


def test_problems_of_the_job_have_the_place_in_the_file(tmp_path: Path) -> None:
    """The user has not written the job spec."""
    assert problems(tmp_path, "\n\nresources: {resource_pool: a pool}") == [
        "line 3: resources.resource_pool: found 'a pool'; accepted: a name of letters, digits and `_.+@:-`, or a list"
        " of names"
    ]
    assert problems(tmp_path, "environment: {image: a}\nbind_mounts:\n- {host_path: '/a\\b', container_path: /c}") == [
        "line 2: bind_mounts: found '/a\\\\b:/c'; accepted: SRC, SRC:DST or SRC:DST:ro, absolute paths without control"
        " characters and backslashes, with `\\:` for a `:` in a path; ro or rw"
    ]
    assert problems(tmp_path, "slurm: {sbatch_args: [--wrap=x]}")[0].startswith("line 1: slurm.sbatch_args: ")


def test_names() -> None:
    """A job's name has letters, digits, dots, `_` and `-`, at most 64."""
    names = {"a b": "a-b", "-a-": "a", "a" * 70: "a" * 64, "../x": "x", "a\x1b[0m": "a-0m"}
    assert {name: job_name(name) for name in names} == names


LOGIN = "the container runtime has its own login; see: apptainer remote login, or enroot's .credentials"
HOROVOD = "an option of Horovod, which is not used"
TRIALS = "for Trial classes only; this command trains by itself"
NOTES: dict[str, list[str]] = {
    "resources: {shm_size: 128M}": [
        "resources.shm_size: programs use the node's own /dev/shm, which Slurm does not limit"
    ],
    "resources: {shm_size: 1.5G, agent_label: big}": [
        "resources.agent_label: ignored, as Determined has long done",
        "resources.shm_size: programs use the node's own /dev/shm, which Slurm does not limit",
    ],
    "resources: {priority: 50, weight: 2}": [
        "resources.priority: Slurm's own priorities decide; see: sprio",
        "resources.weight: Slurm's own shares decide; see: sshare",
    ],
    "workspace: w\nproject: p": [
        "workspace and project: Slurm has none; they are only kept in the experiment's copy of the file"
    ],
    "environment: {registry_auth: {username: u}, force_pull_image: true}": [
        "environment.force_pull_image: the container runtime has its own cache of images",
        f"environment.registry_auth: {LOGIN}",
    ],
    "environment: {registrt_auth: {username: u}, force_pull_image: false}": [f"environment.registrt_auth: {LOGIN}"],
    "optimizations: {tensor_fusion_threshold: 64, aggregation_frequency: 2}": [
        f"optimizations.tensor_fusion_threshold: {HOROVOD}"
    ],
    "profiling: {enabled: true}\ndata_layer: {type: shared_fs}\ninternal: null\ndebug: true": [
        "data_layer: ignored, as Determined has long done",
        "profiling: not supported; use the profiler of the framework",
    ],
    "name: a b": ["name: Slurm's job is named a-b"],
    "max_restarts: 129": ["max_restarts: a job has at most 128 restarts"],
    "checkpoint_storage: {type: s3, bucket: b, access_key: k}": [
        "checkpoint_storage.type s3: nothing is uploaded; checkpoints are in the directory of the experiment"
    ],
    "checkpoint_storage: {save_trial_latest: 5}": [],
    "bind_mounts: [{host_path: /d, container_path: /d, propagation: rshared}]": [
        "bind_mounts.propagation: the container runtime decides",
        "bind_mounts: there is no container, so the program sees the nodes' own paths",
    ],
    "searcher: {name: single, metric: m, max_length: {epochs: 1}}": [
        "records_per_epoch: not given; an epoch is one pass over the training data"
    ],
    "searcher: {name: adaptive_asha, metric: m, max_trials: 2, max_length: 9, stop_once: false}": [
        "searcher.stop_once: false, which promotes paused trials, runs as stopping, as in Determined 0.38"
    ],
    "entrypoint: ./a.sh\nscheduling_unit: 10\ndata: {a: 1}": [f"scheduling_unit, data: {TRIALS}"],
    "log_policies: []\npbs: {}\nsecurity: {kerberos: {}}": ["security: Slurm's own users and groups count"],
}


@pytest.mark.parametrize("text", NOTES)
def test_notes(text: str, tmp_path: Path) -> None:
    """What has no meaning on Slurm is accepted, with a line each; a default has none."""
    assert list(load(tmp_path, text).experiment.notes) == NOTES[text]


def test_runner(tmp_path: Path) -> None:
    """What the runner of a Trial class reads."""
    text = """
data: {url: x}
records_per_epoch: 50_000
scheduling_unit: 10
min_validation_period: {epochs: 2}
min_checkpoint_period: {records: 900}
perform_initial_validation: true
checkpoint_policy: all
optimizations: {aggregation_frequency: 2, average_aggregated_gradients: false}
resources: {slots_per_trial: 4}
"""
    assert load(tmp_path, text).experiment.runner == {
        "entrypoint": "model_def:MyTrial",
        "framework": "pytorch",
        "data": {"url": "x"},
        "records_per_epoch": 50000,
        "scheduling_unit": 10,
        "min_validation_period": {"epochs": 2},
        "min_checkpoint_period": {"records": 900},
        "perform_initial_validation": True,
        "checkpoint_policy": "all",
        "optimizations": {
            "aggregation_frequency": 2,
            "average_aggregated_gradients": False,
            "average_training_metrics": True,
        },
        "slots": 4,
    }
