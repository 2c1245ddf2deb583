"""The fabric of a job's hosts: can each talk with its neighbours, how fast, and do they add up right together?

Unlike the other checks this one is no item of a node's own round: it needs all hosts at once, and an MPI that starts
a rank on each. `program` measures, `judge` says which host is to blame, slurm_plugin/job/fabric.py launches.
"""

from prechecks.fabric.judge import ITEM, Thresholds, judge, unknown
from prechecks.fabric.ring import cover

__all__ = ["ITEM", "Thresholds", "cover", "judge", "unknown"]
