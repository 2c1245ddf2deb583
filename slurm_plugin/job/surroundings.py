"""What a run of a job has round it on its first node, from its beginning to its end."""

import argparse
from collections.abc import Mapping
from typing import Any, NamedTuple

from slurm_plugin.job.launch import Launcher
from slurm_plugin.slurm import Slurm


class Surroundings(NamedTuple):
    """The same for each of the run's attempts."""

    options: argparse.Namespace  # the words of `job supervise`
    site: Mapping[str, Any]
    door: Slurm
    environ: Mapping[str, str]  # as Slurm gave it to the batch script
    launcher: Launcher
