"""The checks: one file for each check, or for a few similar ones. prechecks.registry lists all checks."""
