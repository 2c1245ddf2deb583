"""Experiment files of Determined, as jobs and searches of slurm_plugin.

docs/reference/experiment-file.md describes them for users.
"""
