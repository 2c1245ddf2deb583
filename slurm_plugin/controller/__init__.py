"""SlurmUser on the controller: EpilogSlurmctld, its spool, the worker, and what follows a run that ended."""
