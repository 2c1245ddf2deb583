"""Check the network between a job's hosts: the links and speeds between neighbours, and the result of an all-reduce.

This check is not in CHECKS, because it needs all hosts at the same time, and an MPI that starts a rank on each.
slurm_plugin/supervisor/fabric.py launches the ranks, `program` measures, and `judge` names the faulty hosts.
"""

from prechecks.fabric.judge import ITEM, Thresholds, judge, unknown
from prechecks.fabric.ring import cover

__all__ = ["ITEM", "Thresholds", "cover", "judge", "unknown"]
