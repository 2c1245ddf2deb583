"""Commands that act on jobs: stop, time, priority, rerun, release, shell, open."""
