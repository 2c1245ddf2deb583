"""The GPUs of a job on each node, by Slurm's record of the job."""

from collections.abc import Mapping, Sequence

import pytest

from hostfiles import HostfileError
from slurm_plugin.errors import MissingError
from slurm_plugin.slurm import SlurmError, inventory
from slurm_plugin.slurm.resources import Gres, gres

JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_GPUS_ON_NODE": "4"}
STEP = {"SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n[1-2]"}
UNLIKE = {"n1": gres("gpu:4(IDX:0-3)"), "n2": gres("gpu:a100:1(IDX:2),gpu:v100:1(IDX:3),shard:4"), "n9": gres("gpu:8")}
ALIKE = {"n1": gres("gpu:4(IDX:0-3)"), "n2": gres("gpu:4(IDX:0-3)")}
NONE: dict[str, tuple[Gres, ...]] = {"n1": (), "n2": ()}
GROUPS = {
    "SLURM_HET_SIZE": "2",
    **{f"SLURM_JOB_NODELIST_HET_GROUP_{group}": f"n{group + 1}" for group in (0, 1)},
    **{f"SLURM_TASKS_PER_NODE_HET_GROUP_{group}": "1" for group in (0, 1)},
}


@pytest.mark.parametrize(
    ("environ", "devices", "expected"),
    [
        (JOB, UNLIKE, [4, 2]),
        ({**JOB, **STEP, "SLURM_GPUS_ON_NODE": "2"}, UNLIKE, [4, 2]),
        (JOB, ALIKE, [4, 4]),
        ({**JOB, **STEP, "SLURM_GPUS_ON_NODE": "2"}, ALIKE, None),  # the step has two on each node
        ({"SLURM_JOB_ID": "7", **GROUPS}, {**NONE, "n2": gres("gpu:4")}, [1, 4]),
        ({**JOB, "SLURM_GPUS_ON_NODE": "", "SLURM_JOB_GPUS": "0,1"}, UNLIKE, [4, 2]),
        (JOB, {"n1": UNLIKE["n1"]}, None),
    ],
)
def test_slots(environ: Mapping[str, str], devices: Mapping[str, Sequence[Gres]], expected: list[int] | None) -> None:
    """One number for each node; nothing where the variables say the same, or where Slurm does not list all nodes."""
    assert inventory.gpu_slots(environ, lambda number: devices if number == 7 else {}) == expected


def test_slurm_is_asked_only_about_several_nodes_with_gpus() -> None:
    """One node knows its own GPUs, and a job without GPUs has none elsewhere."""
    for change in ({"SLURM_JOB_NODELIST": "n1"}, {"SLURM_GPUS_ON_NODE": ""}):
        assert inventory.gpu_slots({**JOB, **change}, lambda _: pytest.fail("Slurm was asked")) is None


@pytest.mark.parametrize("error", [SlurmError("no answer\n  try: scontrol ping"), MissingError("no scontrol"), None])
def test_slurm_does_not_tell(error: Exception | None) -> None:
    """Each node then counts as this one, unless the job requested a total."""

    def devices(_job_id: int) -> Mapping[str, Sequence[Gres]]:
        if error:
            raise error
        return {"n1": ()}

    assert inventory.gpu_slots(JOB, devices) is None
    why = str(error).splitlines()[0] if error else "it does not list all of them"
    with pytest.raises(
        HostfileError, match=rf"^the job has 6 GPUs in all, .* how many n[12] has: {why}; ask for them "
    ):
        inventory.gpu_slots({**JOB, "SLURM_GPUS": "6"}, devices)


def test_numbers() -> None:
    """The GPUs of each node, of all types."""
    assert inventory.gpu_numbers({**UNLIKE, "n3": ()}) == {"n1": [0, 1, 2, 3], "n2": [2, 3], "n9": [], "n3": []}
