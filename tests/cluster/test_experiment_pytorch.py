"""A PyTorchTrial on 2 nodes loses one of them, goes on from its checkpoint, and ends with the undisturbed loss."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from slurm_plugin.experiment import journal
from slurm_plugin.records import experiments
from slurm_plugin.sandbox import Sandbox
from tests.cluster import jobs, programs
from tests.waiting import until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(programs.OTHER_ROOT or find_spec("torch") is None, reason="PyTorch is not installed here"),
]

TRIAL = Path(__file__).parents[1] / "unit/experiment/trials/linear.py"
LOSSES = {16: 0.17630503, 32: 0.00645475796, 48: 0.00040358626}  # those of an undisturbed run on 2 ranks
# In the first attempt each rank waits in the middle until its node has lost its GPU, or is dead.
WAITS = """
import os, time
from pathlib import Path

from linear import MyTrial as Undisturbed


class MyTrial(Undisturbed):
    def train_batch(self, batch, epoch_idx, batch_idx):
        if batch_idx == 37 and os.environ["SLURM_PLUGIN_ATTEMPT"] == "0":
            Path("waits." + os.environ["SLURMD_NODENAME"]).touch()
            while Path("/dev/fakegpu3").is_char_device():
                time.sleep(0.1)
            raise RuntimeError("CUDA error: unspecified launch failure")
        return super().train_batch(batch, epoch_idx, batch_idx)
"""
START = """
import os, sys

from slurm_plugin.experiment.runner.__main__ import main

files = {"HPARAMS": "/hparams.json", "METRICS": "/metrics.jsonl"}
os.environ |= {f"SLURM_PLUGIN_{name}": f"HERE/trials/0001{file}" for name, file in files.items()}
os.environ |= {"SLURM_PLUGIN_EXPERIMENT": "HERE", "SLURM_PLUGIN_TRIAL": "1"}
sys.exit(main(["model_def:MyTrial"]))
"""


def submit(box: Sandbox, name: str) -> jobs.Job:
    """Submit the Trial with 2 nodes and a spare, as a task of an experiment starts it."""
    directory = jobs.workdir(box, name)
    trial = directory / "e/trials/0001"
    trial.mkdir(parents=True)
    runner = {"min_validation_period": {"epochs": 1}, "min_checkpoint_period": {"batches": 7}}
    search = experiments.Search(
        experiments.Metric("validation_loss"),
        {},
        (experiments.Algorithm("single"),),
        max_length=3,
        unit="epochs",
    )
    journal.create(directory / "e", experiments.Experiment(name, search, runner=runner))
    (trial / "hparams.json").write_text(json.dumps({"global_batch_size": 16, "lr": 0.05}))
    (directory / "linear.py").write_text(TRIAL.read_text())
    (directory / "model_def.py").write_text(WAITS)
    (directory / "start.py").write_text(START.replace("HERE", f"/home/alice/{name}/e"))
    box.run(["chown", "-R", "alice:", f"/home/alice/{name}"], "root")
    command, env = f"{programs.PYTHON} start.py", {"OMP_NUM_THREADS": "1"}
    return jobs.submit(
        box, name, made=True, command=command, env=env, checkpoint="e/trials/0001/checkpoints", nodes=2, spares=1,
        retries=2, accelerators={"gpu": 1}, mode="pytorch",
    )  # fmt: skip


@pytest.mark.full  # 176 s
@pytest.mark.parametrize("fault", ["gpu-missing", "node-dead"])
def test_a_lost_node_changes_no_loss(cluster: Sandbox, fault: str) -> None:
    """The spare takes its place; the Trial is restored from the newest checkpoint, and its data goes on there."""
    job = submit(cluster, f"trial-{fault}")
    job.until(lambda: len([*job.directory.glob("waits.*")]) == 2, "the middle of the training")
    cluster.break_node("n2", fault)
    assert job.end() == "COMPLETED", job.log
    assert [attempt["action"] for attempt in job.attempts] == ["again", "finish"]
    trial = job.directory / "e/trials/0001"
    lines = [json.loads(line) for line in (trial / "metrics.jsonl").read_text().splitlines()]
    found = [(each["step"], each["metrics"]["validation_loss"]) for each in lines if each["kind"] == "validation"]
    assert [step for step, _ in found] == [16, 32, 48]
    assert dict(found) == pytest.approx(LOSSES, abs=1e-6)
    saved = [each["step"] for each in lines if each["kind"] == "checkpoint"]
    assert saved == [7, 14, 16, 21, 28, 32, 35, 42, 48]
    assert [each["kind"] for each in lines].count("start") == 2
    assert sorted(path.name for path in (trial / "checkpoints").iterdir()) == [f"step-{step:08}" for step in saved]


EXPERIMENT = f"""
name: rates
entrypoint: linear:MyTrial
hyperparameters:
  global_batch_size: 16
  lr: {{type: categorical, vals: [5e-2, 2e-2]}}
records_per_epoch: 256
searcher: {{name: grid, metric: validation_loss, max_length: {{epochs: 3}}}}
min_validation_period: {{epochs: 1}}
checkpoint_policy: all
checkpoint_storage: {{save_trial_best: 0, save_trial_latest: 2}}
resources: {{slots_per_trial: 2}}
environment:
  environment_variables: [PATH={Path(programs.PYTHON).parent}:/usr/bin:/bin, OMP_NUM_THREADS=1]
"""


@pytest.mark.full  # over 5 s
def test_an_experiment_file_with_a_trial_class(cluster: Sandbox) -> None:
    """Two trials with two ranks each, by `experiment submit`: the known losses, and the checkpoints that are kept."""
    directory = jobs.workdir(cluster, "file")
    (directory / "linear.py").write_text(TRIAL.read_text())
    (directory / "e.yaml").write_text(EXPERIMENT)
    said = cluster.run(["sh", "-c", "cd /home/alice/file && exec slurm-plugin experiment submit --json e.yaml"])
    experiment = cluster.home("alice") / Path(json.loads(said.stdout)["experiment"]).relative_to("/home/alice")
    until(
        lambda: all(each.is_over for each in state(experiment).trials) and len(state(experiment).trials) == 2,
        lambda: "\n".join(path.read_text() for path in (*experiment.glob("trials/*/log"), *directory.glob("*.out"))),
    )
    trials = state(experiment).trials
    assert [each.state for each in trials] == [experiments.COMPLETED] * 2, [each.why for each in trials]
    (known,) = [each for each in trials if each.values["lr"] == 0.05]
    assert [report.time for report in known.reports] == [1, 2, 3]
    assert [report.value for report in known.reports] == pytest.approx([*LOSSES.values()], abs=1e-6)
    for each in trials:
        kept = sorted(path.name for path in (experiment / f"trials/{each.number:04}/checkpoints").iterdir())
        assert kept == ["step-00000032", "step-00000048"]


def state(experiment: Path) -> experiments.State:
    """Return what the journal says."""
    return journal.load(experiment)[1]
