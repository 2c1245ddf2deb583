"""Pure functions from records and Slurm's answers to text for people."""
