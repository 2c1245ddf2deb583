"""Mirrors slurm_plugin/experiment/file/keys.py, search_section.py: refusals with line, place and nearest word."""

from pathlib import Path

import pytest

from tests.unit.experiment.file.small import load, problems

TOP = (
    "name, description, labels, data, workspace, project, entrypoint, scheduling_unit, records_per_epoch, max_restarts,"
    " min_validation_period, min_checkpoint_period, perform_initial_validation, checkpoint_policy, checkpoint_storage,"
    " hyperparameters, searcher, resources, bind_mounts, environment, experiment_seed, reproducibility, optimizations,"
    " preemption_timeout, slurm, pbs, profiling, debug, tensorboard_storage, log_policies, retention_policy,"
    " integrations, security, data_layer, internal"
)
LENGTH = "one of {batches: N}, {records: N}, {epochs: N}"
NAMES = "single, random, grid, adaptive_asha, async_halving"
ASHA = "name: adaptive_asha, metric: m"
# Text -> its problems.
REFUSED: dict[str, list[str]] = {
    "max_restart: 3": [f"line 1: max_restart: unknown key; accepted: {TOP}; did you mean max_restarts?"],
    "max_restarts: -1": ["line 1: max_restarts: found '-1'; accepted: a whole number from 0 to 9007199254740992"],
    "scheduling_unit: 0": ["line 1: scheduling_unit: found '0'; accepted: a whole number from 1 to 9007199254740992"],
    "min_validation_period: {batches: 1, epochs: 2}": [
        f"line 1: min_validation_period: found batches, epochs; accepted: {LENGTH}"
    ],
    "min_checkpoint_period: {}": [f"line 1: min_checkpoint_period: found no unit; accepted: {LENGTH}"],
    "min_checkpoint_period: {epoch: 2}": [
        "line 1: min_checkpoint_period.epoch: unknown key; accepted: batches, records, epochs; did you mean epochs?"
    ],
    "checkpoint_policy: besst": ["line 1: checkpoint_policy: found 'besst'; accepted: best, all, none; did you"
                                " mean best?"],
    "perform_initial_validation: yes": ["line 1: perform_initial_validation: found 'yes'; accepted: true, false"],
    "workspace: w": ["line 1: workspace: found it without `project`; give both, or neither"],
    "project: p": ["line 1: project: found it without `workspace`; give both, or neither"],
    "checkpoint_storage: {type: s4}": [
        "line 1: checkpoint_storage.type: found 's4'; accepted: shared_fs, directory, s3, gcs, azure"
    ],
    "checkpoint_storage: {type: shared_fs}": [
        "line 1: checkpoint_storage.host_path: missing; accepted: an absolute path"
    ],
    "checkpoint_storage: {type: s3, bucket: b, host_path: /c}": [
        "line 1: checkpoint_storage.host_path: unknown key; accepted: type, save_experiment_best, save_trial_best,"
        " save_trial_latest, bucket, access_key, secret_key, endpoint_url, prefix"
    ],
    "checkpoint_storage: {host_path: c}": [
        "line 1: checkpoint_storage.host_path: found 'c'; accepted: an absolute path"
    ],
    "checkpoint_storage: {host_path: /c, storage_path: ../d}": [
        "line 1: checkpoint_storage.storage_path: found '../d'; accepted: a path inside host_path, /c"
    ],
    "checkpoint_storage: {host_path: /c, storage_path: /d}": [
        "line 1: checkpoint_storage.storage_path: found '/d'; accepted: a path inside host_path, /c"
    ],
    "checkpoint_storage: {save_trial_best: -1}": [
        "line 1: checkpoint_storage.save_trial_best: found '-1'; accepted: a whole number from 0 to 9007199254740992:"
        " a number of checkpoints"
    ],
    "bind_mounts: [{host_path: data, container_path: /data}]": [
        "line 1: bind_mounts.0.host_path: found 'data'; accepted: an absolute path"
    ],
    "bind_mounts: [{host_path: /a, container_path: /b}]": [
        "line 1: bind_mounts.0: found '/a' at '/b', and no image: only a container has other paths; give"
        " environment.image, or equal paths"
    ],
    "environment: {imagee: x}": [
        "line 1: environment.imagee: unknown key; accepted: image, environment_variables, experiment_seed,"
        " force_pull_image, registry_auth, registrt_auth, ports, proxy_ports, add_capabilities, drop_capabilities,"
        " pod_spec; did you mean image?"
    ],
    "environment: {environment_variables: [A B]}": [
        "line 1: environment.environment_variables: found 'A B'; accepted: NAME=VALUE"
    ],
    "environment: {environment_variables: [SLURM_X=1]}": [
        "line 1: environment.environment_variables: SLURM_ names are Slurm's and ours; choose another name, or an input"
        " variable of srun: man srun"
    ],
    "resources: {slots_per_trial: many, shm_size: 4 cups}": [
        "line 1: resources.slots_per_trial: found 'many'; accepted: a whole number from 0 to 65536",
        "line 1: resources.shm_size: found '4 cups'; accepted: a number of bytes, or a size such as 128M or 1.5G",
    ],
    "experiment_seed: 2147483648": ["line 1: experiment_seed: found '2147483648'; accepted: a whole number from 0 to"
                                    " 2147483647"],
    "experiment_seed: 1\nreproducibility: {experiment_seed: 2}": [
        "line 1: experiment_seed: found 1 and 2 in two places; keep one of them"
    ],
    "slurm: {sbatch_args: [-n 3]}": ["line 1: slurm.sbatch_args: found '-n 3'; accepted: --NAME=VALUE or --NAME"],
    "hyperparameters: {lr: {type: log, minval: 1, maxval: 0}}\nexperiment_seed: x": [
        "line 1: hyperparameters.lr: found a range of type log; accepted with the searcher `single`: a constant",
        "line 1: hyperparameters.lr.maxval: found 0; accepted: a number above `minval`, which is 1",
        "line 2: experiment_seed: found 'x'; accepted: a whole number from 0 to 2147483647",
    ],
    "hyperparameters: {a: 1}": [
        "line 1: hyperparameters.global_batch_size: missing; accepted: a whole number, which a Trial class divides"
        " among its slots"
    ],
    "hyperparameters: {global_batch_size: 10}\nresources: {slots_per_trial: 4}": [
        "line 1: hyperparameters.global_batch_size: found 10, which 4 slots cannot share equally; accepted: such as 8"
    ],
    "searcher: {name: adaptive_simple, metric: m}": [
        f"line 1: searcher.name: found adaptive_simple, which Determined itself has given up; accepted: {NAMES}"
    ],
    "searcher: {name: randam, metric: m}": [
        f"line 1: searcher.name: found 'randam'; accepted: {NAMES}; did you mean random?"
    ],
    "searcher: {name: single}": ["line 1: searcher.metric: missing; accepted: the name of a reported value"],
    "searcher: {name: single, metric: m}": [f"line 1: searcher.max_length: missing; accepted: {LENGTH}"],
    "searcher: {name: single, metric: m, max_length: {batches: 0}}": [
        "line 1: searcher.max_length.batches: found '0'; accepted: a whole number from 1"
    ],
    "searcher: {name: single, metric: m, max_length: 9, mode: standard}": [
        "line 1: searcher.mode: unknown key; accepted: name, metric, smaller_is_better, max_length, source_trial_id,"
        " source_checkpoint_uuid"
    ],
    "searcher: {name: single, metric: m, max_length: 9, source_trial_id: 15}": [
        "line 1: searcher.source_trial_id: found '15', a checkpoint of another platform; leave it out, and load a file"
        " in the program"
    ],
    "searcher: {name: random, metric: m, max_length: 9}": [
        "line 1: searcher.max_trials: missing; accepted: a whole number from 1 to 1000000"
    ],
    f"searcher: {{{ASHA}, max_trials: 2}}": [
        f"line 1: searcher.max_length: missing; accepted: {LENGTH}, or time_metric and max_time"
    ],
    f"searcher: {{{ASHA}, max_trials: 2, time_metric: batches}}": [
        "line 1: searcher.time_metric: found it without `max_time`; give both, or `max_length`"
    ],
    f"searcher: {{{ASHA}, max_trials: 2, time_metric: tokens, max_time: 9}}": [
        "line 1: searcher.time_metric: found 'tokens' for a Trial class; accepted: records, batches, epochs"
    ],
    f"searcher: {{{ASHA}, max_trials: 2, max_length: 9, divisor: 1, mode: fast}}": [
        "line 1: searcher.mode: found 'fast'; accepted: aggressive, standard, conservative",
        "line 1: searcher.divisor: found 1; accepted: a number above 1, up to 1000",
    ],
    "searcher: {name: grid, metric: m, max_length: 9}\nhyperparameters: {global_batch_size: 8, a: {type: int, minval:"
    " 1, maxval: 2}}": [
        "line 2: hyperparameters.a.count: found nothing; the searcher `grid` needs the number of values in the grid"
    ],
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text: str, tmp_path: Path) -> None:
    """Each problem with its line and place."""
    assert problems(tmp_path, text) == REFUSED[text]


LENGTHS = {
    "name: single, metric: m, max_length: {records: 900}": (900, "records"),
    "name: single, metric: m, max_length: 1_000": (1000, "batches"),
    f"{ASHA}, max_trials: 4, max_length: {{epochs: 3}}": (3, "epochs"),
    f"{ASHA}, max_trials: 4, time_metric: epochs, max_time: 5": (5, "epochs"),
    f"{ASHA}, max_trials: 4, time_metric: batches, max_time: 5, max_length: {{epochs: 3}}": (5, "batches"),
}


@pytest.mark.parametrize("searcher", LENGTHS)
def test_both_dialects(searcher: str, tmp_path: Path) -> None:
    """Lengths in units, a bare number of batches, and a reported time."""
    search = load(tmp_path, f"searcher: {{{searcher}}}\n").experiment.search
    assert (search.max_length, search.unit) == LENGTHS[searcher]


def test_a_command_may_end_by_itself(tmp_path: Path) -> None:
    """Then it needs no length, and the time of adaptive_asha may be any reported value."""
    text = "entrypoint: ./train.sh\nhyperparameters: {}\nsearcher: "
    assert load(tmp_path, f"{text}{{name: single, metric: m}}").experiment.search.max_length == 0
    timed = f"{{{ASHA}, max_trials: 4, time_metric: tokens, max_time: 5}}"
    search = load(tmp_path, text + timed).experiment.search
    assert (search.max_length, search.unit) == (5, "tokens")


def test_one_bracket(tmp_path: Path) -> None:
    """`async_halving` is adaptive_asha with one bracket."""
    text = "searcher: {name: async_halving, metric: m, max_trials: 9, max_length: 9, num_rungs: 3, divisor: 3}"
    (algorithm,) = load(tmp_path, text).experiment.search.algorithms
    assert algorithm.name == "adaptive_asha"
    assert algorithm.options == {"mode": "standard", "divisor": 3, "max_rungs": 3, "bracket_rungs": (3,),
                                 "stop_once": True}  # fmt: skip


def test_most_slots_at_once(tmp_path: Path) -> None:
    """`max_slots` limits the trials, also those of a searcher without a limit."""
    for most, concurrent, at_once in ((8, 16, 4), (8, 0, 4), (1, 16, 1), (800, 16, 16)):
        text = f"resources: {{slots_per_trial: 2, max_slots: {most}}}\nsearcher: {{name: random, metric: m, max_trials:"
        search = load(tmp_path, f"{text} 99, max_length: 9, max_concurrent_trials: {concurrent}}}").experiment.search
        assert search.concurrent == at_once


def test_null_is_the_default(tmp_path: Path) -> None:
    """As in Determined. A hyperparameter may be null."""
    text = "description:\nresources: {resource_pool: '', shm_size: null}\nmax_restarts: ~\nhyperparameters:\n"
    experiment, job, *_ = load(tmp_path, f"{text}  global_batch_size: 8\n  a: null\n  b: 'null'\n")
    assert (experiment.retries, experiment.notes, job.get("partition")) == (5, (), None)
    assert experiment.search.space == {"global_batch_size": 8, "a": None, "b": "null"}


def test_yaml(tmp_path: Path) -> None:
    """Hyperparameters and data have the types of YAML 1.2; a categorical one may name its list `val`."""
    text = "data: {on: yes, n: 1_0}\nhyperparameters: {global_batch_size: 8, a: 1e-4, b: 010, c: No, d: '1', e: True}"
    experiment = load(tmp_path, text).experiment
    assert experiment.runner["data"] == {"on": "yes", "n": 10}
    assert experiment.search.space == {"global_batch_size": 8, "a": 1e-4, "b": 10, "c": "No", "d": "1", "e": True}
    text = "searcher: {name: random, metric: m, max_trials: 2, max_length: 9}\nhyperparameters:\n"
    text += "  global_batch_size: 8\n  o: {m: {type: categorical, val: [1, a]}}"
    nested = load(tmp_path, text).experiment.search.space["o"]
    assert nested == {"m": {"type": "categorical", "vals": [1, "a"]}}
