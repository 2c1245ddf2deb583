"""`--set KEY=VALUE` of `slurm-plugin clone`: changed keys of a spec's text."""

import pytest

from slurm_plugin.errors import UsageError
from slurm_plugin.spec import changes

SPEC = b"""name: a
nodes: 1
accelerators: {gpu: 2}
command: |
  python train.py
  echo done
env:
  A: '007'
time: 1:30:00
"""


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], SPEC.decode()),
        (["nodes=8"], SPEC.decode().replace("nodes: 1", "nodes: 8")),
        (["accelerators.gpu=4"], SPEC.decode().replace("gpu: 2", "gpu: 4")),
        (["time="], SPEC.decode().replace("time: 1:30:00\n", "")),
        (["retries=3"], f"{SPEC.decode()}retries: 3\n"),
        (["sbatch.hint=nomultithread"], f"{SPEC.decode()}sbatch:\n  hint: nomultithread\n"),
        (["partition=[a, b]"], f"{SPEC.decode()}partition: [a, b]\n"),
        (["env.A=x: y # z"], SPEC.decode().replace("A: '007'", "A: 'x: y # z'")),
        (["nodes=2", "nodes=4"], SPEC.decode().replace("nodes: 1", "nodes: 4")),
    ],
)
def test_a_change_leaves_the_other_keys_as_they_are(words: list[str], text: str) -> None:
    """Their order and quotes stay."""
    assert changes.applied(SPEC, [changes.read(word) for word in words], "job.yaml").decode() == text


def test_without_a_change_comments_stay() -> None:
    """The text is the same."""
    assert changes.applied(b"# mine\nname: a\n", [], "job.yaml") == b"# mine\nname: a\n"


@pytest.mark.parametrize("word", ["nodes", "=8", "a..b=1", "\x1b=1", ""])
def test_a_word_that_is_no_change(word: str) -> None:
    """The message has the accepted form."""
    with pytest.raises(UsageError, match="accepted: KEY=VALUE, such as nodes=8"):
        changes.read(word)


@pytest.mark.parametrize(
    ("word", "says"), [("nodes.a=8", "nodes has no keys; set nodes as a whole"), ("env={", "which is no YAML")]
)
def test_a_change_that_does_not_fit(word: str, says: str) -> None:
    """The message says what to do."""
    with pytest.raises(UsageError, match=says):
        changes.applied(SPEC, [changes.read(word)], "job.yaml")
