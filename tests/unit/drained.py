"""A node that slurm_plugin's checks have drained."""

from datetime import UTC, datetime

from tests.fakes import node

OURS = "slurm_plugin: gpu-check: 3 of 4 GPUs; disk-size shm: 512 MB < 1 GB [job 7] [job 9]"
BAD = node("n2", "IDLE", "DRAIN", reason=OURS)
AT = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
