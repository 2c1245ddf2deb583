"""Hyperparameter search, experiment files and Trial classes on plain Slurm. Nodes run it with the standard library."""
