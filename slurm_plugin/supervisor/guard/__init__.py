"""Our one process on each node of a job: its protocol, its client in the supervisor, its server."""
