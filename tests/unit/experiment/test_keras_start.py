"""The ranks of a TFKerasTrial as TF_CONFIG has them. Without TensorFlow; tests/consumers/test_keras.py has it."""

import json
from typing import Any

import pytest

from slurm_plugin.errors import UsageError
from slurm_plugin.experiment.runner.keras import start

FOUR = ["n1:9000", "n1:9001", "n2:9000", "n2:9001"]
ONE = {"rank": 0, "size": 1, "local_rank": 0, "local_size": 1, "cross_rank": 0, "cross_size": 1}


@pytest.mark.parametrize(
    ("cluster", "task", "expected"),
    [
        ({}, {}, ONE),
        ({"worker": ["n1:9000"]}, {"type": "worker", "index": 0}, ONE),
        ({"worker": FOUR}, {"type": "worker", "index": 3}, (3, 4, 1, 2, 1, 2)),
        ({"chief": ["n1:9000"], "worker": ["n2:9000"]}, {"type": "chief", "index": 0}, (0, 2, 0, 1, 0, 2)),
        ({"chief": ["n1:9000"], "worker": ["n2:9000"]}, {"type": "worker", "index": 0}, (1, 2, 0, 1, 1, 2)),
    ],
)
def test_place(cluster: dict[str, Any], task: dict[str, Any], expected: Any) -> None:
    """The chief is rank 0, the workers follow. Tasks with the same host are ranks of one node."""
    environ = {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})} if cluster else {}
    found = start.place(environ)
    assert found == expected or tuple(found.values()) == expected


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("no JSON", "mode tensorflow sets it"),
        ("[1]", "mode tensorflow sets it"),
        ('{"cluster": {"worker": 3}}', "mode tensorflow sets it"),
        (
            '{"cluster": {"worker": ["n1:1"], "ps": ["n1:2"]}, "task": {"type": "ps", "index": 0}}',
            "found tasks of type ps",
        ),
        ('{"cluster": {"worker": ["n1:1"]}, "task": {"type": "worker", "index": 7}}', "worker 7 is not in the cluster"),
    ],
)
def test_refused_clusters(config: str, words: str) -> None:
    """A message says what was found."""
    with pytest.raises(UsageError, match=words):
        start.place({"TF_CONFIG": config})
