"""The orders of a recorder. The supervisor gives them, and loads nothing else of it."""

from typing import NamedTuple


class Orders(NamedTuple):
    """What to record: one attempt of a job."""

    directory: str  # the job's
    job_id: int
    attempt: int
    nodes: str  # the attempt's node list
    node: str  # this node
    offsets: tuple[int, int]  # the sizes of the log, stdout and stderr, before the program
    progress: str = ""  # the user's own expression
    request: str = ""  # a sampler.Request as JSON, if the job has no guards
    apart: bool = False  # the lines of slurm_plugin go to a file
    threshold: float = 0.0  # of `performance`; 0: only steps are judged
    pattern: str = ""  # the user's own expression for hardware and end-to-end times
    notify: str = ""  # the site's command
    slow: int = -1  # a pipe to the supervisor, which gets what is wrong in place of the command
