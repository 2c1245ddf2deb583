"""Keys as other systems call them are answered with ours."""

import msgspec
import pytest

from slurm_plugin.errors import UsageError
from slurm_plugin.spec import Spec, load, othernames

OURS = {field.encode_name for field in msgspec.structs.fields(Spec)}


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("gpus", "accelerators: {gpu: N}, those of each node"),
        ("GPUs-per-node", "accelerators: {gpu: N}, those of each node"),
        ("job-name", "name"),
        ("num_nodes", "nodes"),
        ("max_restarts", "retries"),
    ],
)
def test_what_is_meant(key: str, says: str) -> None:
    """In place of all the keys that there are."""
    with pytest.raises(UsageError) as error:
        load(f"name: a\nmode: single\ncommand: x\n{key}: 4\n".encode(), "job.yaml")
    assert f"  line 4: {key}: unknown key; here it is {says}\n" in str(error.value)


def test_every_answer_is_a_key_of_ours() -> None:
    """And no key of ours is answered so."""
    for word, says in othernames.WORDS.items():
        assert word not in OURS
        assert says.partition(":")[0].partition(",")[0] in OURS


def test_nobody_calls_one_of_ours_so() -> None:
    """Then all that are accepted are listed, with the nearest."""
    assert othernames.meant("retires") == ""
