"""Checked nodes, ready launch environments and automatic restart for jobs on any Slurm cluster."""

__version__ = "0.1.0"
