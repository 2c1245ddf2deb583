"""`slurm-plugin top`: jobs and nodes, live. Only `app` needs Textual, the extra `tui`."""
