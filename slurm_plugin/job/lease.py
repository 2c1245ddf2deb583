"""The lease of a job's ranks on a node (`slurm_plugin.job.guard`), which the site file's defaults go by as well."""

LEASE_S = 12.0  # after the last beat the ranks of a node are stopped
LOST_S = 60.0  # for how long a node may be silent before it counts as lost, unless the site says otherwise
