"""A TFKerasTrial on 2 nodes: it loses one and ends with the undisturbed loss; a search of it. Run by .ci/consumers."""

import json
from pathlib import Path

import pytest

from slurm_plugin.experiment import journal
from slurm_plugin.records import experiments
from slurm_plugin.sandbox import Sandbox
from tests.cluster import jobs
from tests.consumers.keras_runs import QUIET
from tests.fetched import REASON, Consumers, fetched, required
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(fetched() is None, reason=REASON)]

TRIAL = Path(__file__).parents[1] / "unit/experiment/trials/fitted.py"
RUNNER = {
    "framework": "keras",
    "records_per_epoch": 64,
    "min_validation_period": {"epochs": 1},
    "min_checkpoint_period": {"batches": 3},
    "checkpoint_policy": "none",
}
# If there is a file `breaks`, each rank of the first attempt waits in the middle until its node is broken.
WAITS = """
import os, time
from pathlib import Path

import tensorflow as tf
from fitted import Arrays


class Waits(tf.keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == (1, 3) and os.environ["SLURM_PLUGIN_ATTEMPT"] == "0" and Path("breaks").exists():
            Path("waits." + os.environ["SLURMD_NODENAME"]).touch()
            while Path("/dev/fakegpu3").exists():
                time.sleep(0.1)
            raise RuntimeError("CUDA error: unspecified launch failure")


class MyTrial(Arrays):
    def keras_callbacks(self):
        return [Waits(), *super().keras_callbacks()]
"""


def submit(box: Sandbox, consumers: Consumers, name: str, *, breaks: bool) -> jobs.Job:
    """Submit the Trial with 2 nodes and a spare, as a task of an experiment starts it."""
    directory = jobs.workdir(box, name)
    trial, here = directory / "e/trials/0001", f"/home/alice/{name}"
    trial.mkdir(parents=True)
    algorithms = (experiments.Algorithm("single"),)
    search = experiments.Search(experiments.Metric("val_loss"), {}, algorithms, max_length=3, unit="epochs")
    journal.create(directory / "e", experiments.Experiment(name, search, runner=RUNNER))
    (trial / "hparams.json").write_text(json.dumps({"global_batch_size": 16, "lr": 0.05, "norm": 1}))
    (directory / "fitted.py").write_text(TRIAL.read_text())
    (directory / "model_def.py").write_text(WAITS)
    if breaks:
        (directory / "breaks").touch()
    box.run(["chown", "-R", "alice:", here], "root")
    env = {
        "SLURM_PLUGIN_EXPERIMENT": f"{here}/e", "SLURM_PLUGIN_TRIAL": "1",
        "SLURM_PLUGIN_HPARAMS": f"{here}/e/trials/0001/hparams.json",
        "SLURM_PLUGIN_METRICS": f"{here}/e/trials/0001/metrics.jsonl",
    }  # fmt: skip
    words = " ".join(f"{key}={value}" for key, value in env.items())
    runner = f"{consumers.tensorflow_python} -m slurm_plugin.experiment.runner model_def:MyTrial"
    return jobs.submit(
        box, name, made=True, command=f"env {words} PYTHONPATH=/sandbox/src:{here} {runner}", env=QUIET,
        checkpoint="e/trials/0001/checkpoints", nodes=2, spares=1, retries=2, accelerators={"gpu": 1},
        mode="tensorflow",
    )  # fmt: skip


def losses(job: jobs.Job) -> dict[int, float]:
    """Return the loss of each validation."""
    lines = map(json.loads, (job.directory / "e/trials/0001/metrics.jsonl").read_text().splitlines())
    return {each["step"]: each["metrics"]["val_loss"] for each in lines if each["kind"] == "validation"}


def test_a_lost_node_changes_no_loss(cluster: Sandbox) -> None:
    """The spare takes its place; the Trial is restored from the newest checkpoint, and its data goes on there."""
    consumers = required()
    whole = submit(cluster, consumers, "keras-whole", breaks=False)
    assert whole.end() == "COMPLETED", whole.log
    broken = submit(cluster, consumers, "keras-broken", breaks=True)
    broken.until(lambda: len([*broken.directory.glob("waits.*")]) == 2, "the middle of the training")
    cluster.break_node("n2", "node-dead")
    assert broken.end() == "COMPLETED", broken.log
    assert [attempt["action"] for attempt in broken.attempts] == ["again", "finish"]
    assert list(losses(broken)) == [4, 8, 12]
    assert losses(broken) == pytest.approx(losses(whole), rel=1e-6)
    saved = broken.directory / "e/trials/0001/checkpoints"
    assert sorted(each.name for each in saved.iterdir()) == [f"step-{step:08}" for step in (3, 6, 9, 12)]


EXPERIMENT = """
name: rates
entrypoint: fitted:Arrays
hyperparameters:
  global_batch_size: 16
  lr: {type: categorical, vals: [5e-2, 2e-2]}
records_per_epoch: 64
searcher: {name: grid, metric: val_loss, max_length: {epochs: 3}}
min_validation_period: {epochs: 1}
checkpoint_policy: all
checkpoint_storage: {save_trial_best: 0, save_trial_latest: 2}
resources: {slots_per_trial: 8}
environment:
  environment_variables: [PATH=PROGRAMS:/usr/bin:/bin, PYTHONPATH=/sandbox/src, CUDA_VISIBLE_DEVICES=-1]
"""


def test_an_experiment_file_with_a_keras_trial(cluster: Sandbox) -> None:
    """Two trials of two nodes each, by `experiment submit`: every validation counts, two checkpoints are kept."""
    consumers = required()
    directory = jobs.workdir(cluster, "keras-file")
    (directory / "fitted.py").write_text(TRIAL.read_text())
    (directory / "e.yaml").write_text(EXPERIMENT.replace("PROGRAMS", str(consumers.tensorflow_python.parent)))
    said = cluster.run(["sh", "-c", "cd /home/alice/keras-file && exec slurm-plugin experiment submit --json e.yaml"])
    experiment = cluster.home("alice") / Path(json.loads(said.stdout)["experiment"]).relative_to("/home/alice")

    def trials() -> tuple[experiments.Trial, ...]:
        return journal.load(experiment)[1].trials

    until(
        lambda: len(trials()) == 2 and all(each.is_over for each in trials()),
        lambda: "\n".join(path.read_text() for path in (*experiment.glob("trials/*/log"), *directory.glob("*.out"))),
    )
    assert [(each.state, each.why) for each in trials()] == [(experiments.COMPLETED, "")] * 2
    assert [[report.time for report in each.reports] for each in trials()] == [[1, 2, 3]] * 2
    assert all(each.reports[2].value < each.reports[0].value for each in trials())
    for each in trials():
        kept = sorted(path.name for path in (experiment / f"trials/{each.number:04}/checkpoints").iterdir())
        assert kept == ["step-00000008", "step-00000012"]
