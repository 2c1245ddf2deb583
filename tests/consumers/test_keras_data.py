"""The batches that a rank of a TFKerasTrial gets, with real TensorFlow in one process."""

import json
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest

from tests.consumers.keras_runs import QUIET
from tests.fetched import Consumers
from tests.unit.experiment.running import ROOT

READ = """
import json, sys
import numpy as np, tensorflow as tf
from slurm_plugin.errors import UsageError
from slurm_plugin.experiment.runner.keras import data
from slurm_plugin.experiment.runner.keras.data import Fit, Slots

X = np.arange(10.0)
Y = np.arange(10) % 3


class Rows(tf.keras.utils.Sequence):
    def __len__(self):
        return 5

    def __getitem__(self, index):
        return X[2 * index : 2 * index + 2], Y[2 * index : 2 * index + 2]


FOUND = {
    "arrays": (X, Y),
    "weighted": (X, Y, X / 10),
    "one-hot": (X, np.eye(3)[Y]),
    "sequence": Rows(),
    "dataset": tf.data.Dataset.from_tensor_slices((X, Y)).batch(2),
    "endless": tf.data.Dataset.from_tensor_slices((X, Y)).batch(2).repeat(),
    "list": [1, 2],
    "bare": X,
    "uneven": (X, Y[:9]),
}
for line in sys.stdin:
    what, kind, batch, slots, fit, more, take = json.loads(line)
    fit = {**fit, **({"class_weight": dict(fit["class_weight"])} if "class_weight" in fit else {})}
    try:
        if what == "validation":
            dataset, steps = data.validation(FOUND[kind], batch, Slots(*slots), Fit(**fit)), 0
        else:
            more = {"seed": 1, "done": 0, **more}
            dataset, steps = data.training(FOUND[kind], batch, Slots(*slots), Fit(**fit), **more)
        rows = [[np.asarray(part).tolist() for part in each] for each in dataset.take(take)]
        print("READ", json.dumps([steps, rows]))
    except UsageError as error:
        print("READ", json.dumps(str(error)))
"""
PLAIN = {"shuffle": False}
Case = tuple[str, str, int, Sequence[int], dict[str, Any], dict[str, Any], int]


@pytest.fixture(scope="module")
def read(consumers: Consumers) -> Any:
    """Return a function that returns for each case the steps of an epoch and the batches, or the error."""

    def found(*cases: Case) -> Any:
        done = subprocess.run(
            [str(consumers.tensorflow_python), "-c", READ], check=True, text=True, capture_output=True,
            input="".join(json.dumps(case) + "\n" for case in cases),
            env={**QUIET, "TF_USE_LEGACY_KERAS": "1", "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        return [json.loads(each.removeprefix("READ ")) for each in done.stdout.splitlines() if each.startswith("READ ")]

    return found


def xs(rows: Any) -> list[list[float]]:
    """Return the records of each batch."""
    return [each[0] for each in rows]


def test_batches(read: Any) -> None:
    """Each step divides the records of the global batch among the slots, also after a restart and when shuffled."""
    one, two, three, fourth, rest, tiny, sequence, dataset, endless, shuffled, again = read(
        ("training", "arrays", 4, (0, 1, 1), PLAIN, {}, 3),
        ("training", "arrays", 2, (1, 1, 2), PLAIN, {}, 3),
        ("training", "arrays", 2, (0, 2, 2), PLAIN, {}, 4),  # two devices in this process: their batches take turns
        ("training", "arrays", 2, (1, 1, 2), PLAIN, {"done": 1}, 1),
        ("validation", "arrays", 4, (0, 1, 2), PLAIN, {}, 9),
        ("training", "arrays", 12, (0, 1, 1), PLAIN, {}, 1),
        ("training", "sequence", 2, (1, 1, 2), PLAIN, {}, 3),
        ("training", "dataset", 2, (0, 1, 1), PLAIN, {"done": 6}, 1),
        ("training", "endless", 2, (0, 1, 1), PLAIN, {"done": 6}, 1),
        ("training", "arrays", 5, (0, 1, 1), {}, {}, 4),
        ("training", "arrays", 5, (0, 1, 1), {}, {"done": 3}, 1),
    )
    assert one == [2, [[[0, 1, 2, 3], [0, 1, 2, 0]], [[4, 5, 6, 7], [1, 2, 0, 1]], [[0, 1, 2, 3], [0, 1, 2, 0]]]]
    assert (two[0], xs(two[1])) == (2, [[2, 3], [6, 7], [2, 3]])
    assert xs(three[1]) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert xs(fourth[1]) == [[6, 7]]
    assert xs(rest[1]) == [[0, 1, 2, 3], [8, 9]]
    assert (tiny[0], xs(tiny[1])) == (1, [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]])
    assert (sequence[0], xs(sequence[1])) == (2, [[2, 3], [6, 7], [2, 3]])
    assert (dataset[0], xs(dataset[1])) == (5, [[2, 3]])
    assert (endless[0], xs(endless[1])) == (0, [[2, 3]])
    orders = xs(shuffled[1])
    assert sorted(orders[0] + orders[1]) == sorted(orders[2] + orders[3]) == list(range(10))
    assert orders[:2] != orders[2:]
    assert xs(again[1]) == orders[3:]


def test_weights_of_classes(read: Any) -> None:
    """They become weights of the records, by number or by one-hot vector, and multiply those that are given."""
    fit = {**PLAIN, "class_weight": [[0, 1.0], [1, 2.0], [2, 4.0]]}
    kinds = ("arrays", "one-hot", "sequence", "dataset", "weighted")
    found = read(*(("training", kind, 2, (0, 1, 1), fit, {"done": 1}, 1) for kind in kinds))
    weights = [rows[0][2] for _, rows in found]
    assert weights[:4] == [[4.0, 1.0]] * 4
    assert weights[4] == pytest.approx([0.8, 0.3])


def test_refused_data(read: Any) -> None:
    """A message says what was found and what is accepted."""
    found = read(
        ("training", "list", 2, (0, 1, 1), {}, {}, 1),
        ("training", "bare", 2, (0, 1, 1), {}, {}, 1),
        ("training", "uneven", 2, (0, 1, 1), {}, {}, 1),
        ("validation", "endless", 2, (0, 1, 1), {}, {}, 1),
        ("validation", "endless", 2, (0, 1, 1), {"validation_steps": 2}, {}, 9),
    )
    assert "found list, accepted are (x, y)" in found[0]
    assert "found ndarray, accepted" in found[1]
    assert "arrays of [9, 10] records" in found[2]
    assert "validation_steps=N" in found[3]
    assert len(found[4][1]) == 2
