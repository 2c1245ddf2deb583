"""A pytest plug-in: tests of any project run on a real Slurm, in a sandbox."""
