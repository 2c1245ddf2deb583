"""Our lines in the job's log: each begins `[slurm_plugin]`, whole and at once, between the program's own."""


def say(text: str) -> None:
    """Write one line of ours."""
    print(f"[slurm_plugin] {text}", flush=True)
