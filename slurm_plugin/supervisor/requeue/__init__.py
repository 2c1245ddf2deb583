"""A requeue, as the supervisor or a guard requests it from Slurm, and the start of the job after it."""
