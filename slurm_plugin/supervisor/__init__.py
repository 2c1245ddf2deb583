"""The user on the first node of a job: attempt after attempt, until the job ends or is requeued."""
