"""What Slurm refuses is told with the command that shows why."""

import pytest

from slurm_plugin.slurm import purpose

NODES = "what the nodes have: sinfo --Format=partition,nodelist,cpus,memory,gres,features"


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("sbatch: error: invalid partition specified: gpu\nInvalid partition name specified", "the partitions are: "),
        ("Batch job submission failed: Requested node configuration is not available", NODES),
        ("Invalid account or account/partition combination specified", "yours are: sacctmgr show associations "),
        ("Batch job submission failed: something new", "try the same script with: sbatch --test-only"),
    ],
)
def test_what_is_to_be_tried(said: str, hint: str) -> None:
    """By slurmctld's own words; else what holds for every refusal."""
    lines = str(purpose.SUBMIT.refused("sbatch", said)).splitlines()
    assert lines[0].startswith("could not submit the job: sbatch said: ")
    assert lines[-1].startswith(f"  {hint}")
