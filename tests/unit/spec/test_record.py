"""For a key of another system, the message names the key of a spec."""

import msgspec

from slurm_plugin.errors import UsageError
from slurm_plugin.spec import Spec, load
from slurm_plugin.spec.record import synonyms
from tests.refusals import refusal_of

OURS = {field.encode_name for field in msgspec.structs.fields(Spec)}


def test_what_is_meant() -> None:
    """The message names the key, not all accepted keys."""
    cases = [
        ("gpus", "accelerators: {gpu: N}, those of each node"),
        ("GPUs-per-node", "accelerators: {gpu: N}, those of each node"),
        ("job-name", "name"),
        ("num_nodes", "nodes"),
        ("max_restarts", "retries"),
        ("comment", "sbatch: {comment: ...}"),
    ]
    for key, says in cases:
        error = refusal_of(UsageError, load, f"name: a\nmode: single\ncommand: x\n{key}: 4\n".encode(), "job.yaml")
        assert f"  line 4: {key}: unknown key; here it is {says}\n" in error, key


def test_every_answer_is_a_key_of_ours() -> None:
    """And no key of a spec has such an answer."""
    for word, says in synonyms().items():
        assert word not in OURS
        assert says.partition(":")[0].partition(",")[0] in OURS


def test_nobody_calls_one_of_ours_so() -> None:
    """Then the message lists all accepted keys, with the nearest."""
    assert Spec.meant("retires") == ""


def test_an_environment_is_no_key() -> None:
    """`conda: env` once got the answer `did you mean command?`."""
    for word in ("conda", "conda-env", "venv"):
        assert Spec.meant(word).startswith("command, which begins with the environment's own program: /opt/")


def test_what_is_said_of_cpus() -> None:
    """`cpus` counts those of a process; the answer mentions no node."""
    for word in ("cpu", "cores", "vcpus", "cpus-per-task"):
        assert Spec.meant(word) == "cpus, those for each process"
