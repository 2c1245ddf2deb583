"""The data that hooks, jobs and commands pass to each other. Each format is defined, written and read in one file."""
