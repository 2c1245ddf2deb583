"""What people call by hand on any machine, from the deployed copy too: the checks of this node, why a job waits.

Standard library only: a node has no other package. `prechecks` and `slurm_plugin.why` know; this asks and prints.
"""
