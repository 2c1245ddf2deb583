"""The search algorithms of other packages share a search on a real Slurm, of a program that knows nothing of it."""

import json
from importlib.util import find_spec

import pytest
import yaml

from slurm_plugin.experiment import journal
from slurm_plugin.experiment.searchers import make
from slurm_plugin.records.experiments import COMPLETED, Proposal
from slurm_plugin.sandbox import Sandbox
from tests.cluster import programs
from tests.cluster.jobs import workdir
from tests.waiting import until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(programs.OTHER_ROOT or find_spec("hyperopt") is None, reason="hyperopt is not installed here"),
]

# Branin's function.
PROGRAM = """import argparse, math
parser = argparse.ArgumentParser()
parser.add_argument("--x", type=float)
parser.add_argument("--y", type=float)
x, y = vars(parser.parse_args()).values()
bent = y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6
print(f"epoch 1 - loss: {bent**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10:.6f} - lr: 0.1")
"""
NAMES = ["bayes_opt_search", "tpe_search", "anneal_search"]
TRIALS = 24


@pytest.mark.full  # 96 s
def test_three_algorithms_share_a_search(cluster: Sandbox) -> None:
    """Each trial completes once, with the values that the journal so far gives, and none repeats another one."""
    home = workdir(cluster, "branin")
    (home / "branin.py").write_text(PROGRAM)

    def call(words: str) -> str:
        return cluster.run(["sh", "-c", f"cd /home/alice/{home.name} && {words}"]).stdout

    call("python3 branin.py --x 1 --y 2 >log")
    regex = json.loads(call("slurm-plugin experiment regex log loss --json"))["found"][0]["regex"]
    search = {
        "algorithm": NAMES,
        "metric": {"name": "loss", "regex": regex},
        "space": {
            "x": {"type": "double", "minval": -5, "maxval": 10},
            "y": {"type": "double", "minval": 0, "maxval": 15},
        },
        "trials": TRIALS,
        "concurrent": 8,
        "pass": "arguments",
        "seed": 3,
        "n_initial_points": 5,
    }
    spec = {"name": "branin", "mode": "single", "command": "python3 branin.py", "search": search}
    (home / "branin.yaml").write_text(yaml.safe_dump(spec))
    call("slurm-plugin experiment submit branin.yaml --directory found")
    found = home / "found"

    def logs() -> str:
        paths = sorted([*found.glob("tasks/*"), *found.glob("trials/*/log")])
        return "\n".join(f"== {path}\n{path.read_text()}" for path in paths)

    until(lambda: sum(each.state == COMPLETED for each in journal.load(found)[1].trials) == TRIALS, logs)
    experiment, state = journal.load(found)
    assert [each.algorithm for each in state.trials] == [0, 1, 2] * (TRIALS // 3)
    assert len({tuple(each.values.values()) for each in state.trials}) == TRIALS
    assert min(each.reports[-1].value for each in state.trials) < 5
    rebuilt, compared = make(experiment.search), 0
    for line in (found / "journal.jsonl").read_text().splitlines():
        match json.loads(line):
            case {"e": "new", "n": number, "values": values, "algorithm": algorithm}:
                if algorithm:  # the arithmetic of bayes_opt_search depends on the number of processors
                    assert rebuilt.propose(number) == Proposal(values, algorithm=algorithm)
                    compared += 1
                rebuilt.created(number, Proposal(values, algorithm=algorithm))
            case {"e": "report", "n": number, "time": time, "value": value}:
                rebuilt.reported(number, time, value)
            case {"e": "end", "n": number, "state": ended}:
                rebuilt.ended(number, ended)
    assert compared == TRIALS * 2 // 3
