"""`slurm-plugin site install`: change the site directory, slurm.conf and job_submit.lua by a plan that is shown first.

slurm_plugin.site.files renders what should be deployed, `machine` inspects this machine, and `plan` computes the
difference as a value. `show` prints it, and `machine` makes the changes.
"""
