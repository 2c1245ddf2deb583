"""The names of Determined's package that a Trial class or a script uses, on Slurm: no server, no other package.

It is on the path of a trial only where the real package is not installed.
"""

from determined import core
from slurm_plugin.experiment.runner.settings import ClusterInfo, InvalidHP, TrialInfo, get_cluster_info

__all__ = ["LOG_FORMAT", "ClusterInfo", "InvalidHP", "TrialInfo", "core", "get_cluster_info"]
LOG_FORMAT = "%(levelname)s: [%(process)s] %(name)s: %(message)s"  # for logging.basicConfig of a script
__version__ = "0.38.1"  # the release whose interface this is
