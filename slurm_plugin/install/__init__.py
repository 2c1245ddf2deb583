"""`slurm-plugin site install`: the site directory, slurm.conf and job_submit.lua, changed by a plan shown first.

What should stand there is rendered (slurm_plugin.site), what stands is looked at (look), the difference is a plan
(plan): a value. It is shown (show), and performed only where that is asked for (perform).
"""
