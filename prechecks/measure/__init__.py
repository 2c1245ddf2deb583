"""Sources of the checks' values: /proc, sysfs, slurm.conf, vendors' tools, NVML, and the growth of counters."""
