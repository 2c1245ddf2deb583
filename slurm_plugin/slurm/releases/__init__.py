"""The releases of Slurm that we know, and what differs between them: one small file for each.

Alike on all of them, and therefore in no record: with PrologFlags=Alloc,DeferBatch the batch script waits while another
node's prolog runs, and **when that prolog fails it is launched for a moment** (9 of 10 times); HealthCheckProgram gets
SLURMD_NODENAME as its whole environment, and may drain its node with scontrol.
"""

import re
from typing import Final

from slurm_plugin.slurm.releases import v22_05, v24_11, v26_05
from slurm_plugin.slurm.releases.release import Release

__all__ = ["RELEASES", "Release", "of"]

RELEASES: Final = (v22_05.RELEASE, v24_11.RELEASE, v26_05.RELEASE)  # oldest first
_SERIES: Final = re.compile(r"(\d{1,4})\.(\d{1,4})(?!\d)", re.ASCII)


def of(version: str) -> Release | None:
    """What is known of `24.11.5`: the newest release here that is not newer; None where it is older or unreadable."""
    found = _SERIES.match(version)
    if found is None:
        return None
    series = int(found[1]), int(found[2])
    return next((release for release in reversed(RELEASES) if release.series <= series), None)
