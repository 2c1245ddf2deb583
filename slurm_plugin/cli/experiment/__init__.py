"""`slurm-plugin experiment`: a file for each group of its commands."""
