"""Run a Trial class of tests/unit/experiment/trials as a job does: one process, or ranks of PyTorch's launcher."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.experiment import journal
from slurm_plugin.records import experiments
from tests.unit.experiment.forks import Fork, Program

ROOT = Path(__file__).parents[3]
TRIALS = Path(__file__).parent / "trials"
DEADLINE_S = 300.0  # only a hang takes so long
needs_torch = pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="torch is not installed")


class Run:
    """An experiment's directory with one trial."""

    def __init__(self, directory: Path, hparams: Mapping[str, Any] = {}, **fields: Any) -> None:
        """Write the experiment. `fields`: of the runner; `length`, `unit`, `metric`, `smaller` of the search."""
        self.directory, self.trial = directory, directory / "trials/0001"
        search = experiments.Search(
            metric=experiments.Metric(fields.pop("metric", "validation_loss"), fields.pop("smaller", True)),
            space={},
            algorithms=(experiments.Algorithm("single"),),
            max_length=fields.pop("length", 3),
            unit=fields.pop("unit", "epochs"),
            seed=3,
        )
        directory.mkdir(parents=True, exist_ok=True)
        journal.create(directory, experiments.Experiment("test", search, runner=fields))
        self.trial.mkdir(parents=True)
        (self.trial / "hparams.json").write_text(json.dumps({"global_batch_size": 16, "lr": 0.05, **hparams}))

    @property
    def environ(self) -> dict[str, str]:
        """Return the variables of the trial."""
        ours = {
            "EXPERIMENT": str(self.directory),
            "TRIAL": "1",
            "HPARAMS": str(self.trial / "hparams.json"),
            "METRICS": str(self.trial / "metrics.jsonl"),
            "CHECKPOINT": str(self.trial / "checkpoints"),
        }
        return {f"SLURM_PLUGIN_{name}": value for name, value in ours.items()}

    def start(
        self, entrypoint: str, ranks: int = 1, *, real: bool = False, **environ: str
    ) -> "subprocess.Popen[str] | Fork":
        """Start the Trial, or a module that is a script, on this number of ranks.

        `real`: by an interpreter of its own or by torchrun, else in forks of a process that has imported PyTorch.
        """
        is_class = ":" in entrypoint  # else a script
        module, *arguments = ["slurm_plugin.experiment.runner", entrypoint] if is_class else [entrypoint]
        path = os.pathsep.join((str(ROOT), str(TRIALS)))
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "PYTHON"))}
        given = {**clean, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **self.environ, **environ}
        if not real:
            output = str(self.directory / "output.txt")
            return Fork(Program(module, arguments, ranks, str(self.directory), given, output))
        several = ["torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}", "-m"] if ranks > 1 else []
        return subprocess.Popen(
            [sys.executable, "-m", *several, module, *arguments],
            cwd=self.directory, env=given, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(self, entrypoint: str, ranks: int = 1, *, code: int = 0, real: bool = False, **environ: str) -> str:
        """Run the Trial to its end, which has this exit code. Return its output."""
        process = self.start(entrypoint, ranks, real=real, **environ)
        try:
            output, _ = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
        assert process.returncode == code, (process.returncode, output)
        return output

    def lines(self, kind: str) -> list[dict[str, Any]]:
        """Return the reported lines of a kind."""
        path = self.trial / "metrics.jsonl"
        found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [each for each in found if each["kind"] == kind]

    def metric(self, name: str = "validation_loss", kind: str = "validation") -> dict[int, float]:
        """Return a metric by its step; the last value of each step."""
        return {each["step"]: each["metrics"][name] for each in self.lines(kind) if name in each["metrics"]}

    @property
    def checkpoints(self) -> list[str]:
        """Return the names of everything in the directory of the checkpoints."""
        path = self.trial / "checkpoints"
        return sorted(each.name for each in path.iterdir()) if path.exists() else []
