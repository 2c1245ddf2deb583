"""A person submits: a spec or a batch script becomes the script that sbatch gets."""
