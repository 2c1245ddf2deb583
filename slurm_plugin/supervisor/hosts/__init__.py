"""`slurm-plugin hosts`: hostfiles, rank tables and launch variables of the current job."""
