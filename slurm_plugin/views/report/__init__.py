"""What happened to a job: one HTML page, JSON, and a trace for Perfetto. Pure functions of the job's records."""
