"""Pass a job from one run to the next: requeue it without its bad nodes, and keep the old run from writing its files.

The supervisor requeues the job. If the supervisor is lost, a guard requeues it.

The file `turn` in the job's directory names the one run that may write the job's files. If Slurm loses all nodes of a
run, it starts the next run on other nodes, while the old run may still reach the files. The next run writes its number
into `turn` and waits `WAIT_S`. The guard on the old run's first node reads `turn` every `LOOK_S` and ends its ranks. An
old run that cannot read `turn` cannot write the other files either.
"""

import os
import time
from contextlib import suppress
from pathlib import Path

from hostfiles import nodelist
from slurm_plugin.records import job_directory, token
from slurm_plugin.slurm import Slurm, SlurmAwayError, SlurmError, releases
from slurm_plugin.supervisor.log import say

TURN = job_directory.TURN
LOOK_S = 1.0
WAIT_S = 3.0
SEEN, LOST = b"s", b"x"


def take(directory: Path, restart: int, attempt: int, cluster: str = "") -> None:
    """Write this run and its current attempt of the job into `turn`. Raise OSError on failure."""
    job_directory.write(directory / TURN, f"{restart} {attempt} {cluster}".rstrip() + "\n")


def taken(directory: str | Path, cluster: str = "") -> tuple[int, int]:
    """Return the run and the attempt in `turn`; -1 and -1 if no run of this cluster wrote the file."""
    text = job_directory.read(Path(directory, TURN), os.geteuid())
    try:
        restart, attempt, *name = (text or "").split(maxsplit=2)
        return (-1, -1) if job_directory.theirs("".join(name), cluster) else (int(restart), int(attempt))
    except ValueError:
        return -1, -1


def watched(directory: str, restart: int, cluster: str = "", *, seen: bool = False) -> int:
    """Start a process that watches `turn`. Return the read end of a pipe from this process.

    The process writes `SEEN` when `turn` names this run, then `LOST` when `turn` names a later run. The pipe is closed
    when the process ends. `seen`: whether an earlier process has written SEEN. Before SEEN, the process ignores higher
    numbers, because they are old.

    It is a separate process because a read from a hanging file server must not delay the guard or its step.
    """
    read, write = os.pipe()
    guard = os.getpid()
    if os.fork():
        os.close(write)
        return read
    try:
        with suppress(OSError):
            null = os.open(os.devnull, os.O_RDWR)
            for standard in (0, 1, 2):
                os.dup2(null, standard)
            os.close(read)
            while os.getppid() == guard:
                now = taken(directory, cluster)[0]
                if now == restart and not seen:
                    seen = bool(os.write(write, SEEN))
                if seen and now > restart:
                    os.write(write, LOST)
                    break
                time.sleep(LOOK_S)
    finally:
        os._exit(0)


def takes_changes(door: Slurm, names: int, had: int) -> bool:
    """Return whether Slurm can change a running job that has `names` nodes now and began with `had` nodes.

    If Slurm cannot, a request takes 5 s and fails, so callers do not send it. The next run reports the restarts.
    """
    if names >= had:
        return True
    try:
        config = door.config()
    except SlurmError:
        return True
    known = releases.of(config.get("SLURM_VERSION") or "")
    return not (
        known and known.lost_node_bars_changes and config.get("AccountingStorageType") != "accounting_storage/slurmdbd"
    )


def mark(
    door: Slurm,
    job_id: int,
    restart: int,
    leave_out: tuple[str, ...],
    again: int = 0,
    *,
    grow: bool = False,
    moved: bool = False,
) -> bool:
    """Write this run, `again` and the nodes to leave out into the token of the job's comment.

    `grow`: the job is requeued for more nodes. `moved`: the next run gets none of this run's nodes. Return False if a
    later run has begun.

    Raise SlurmAwayError, and ValueError for a comment without a token.
    """
    job = door.job(job_id)
    if job.restarts > restart:
        return False
    names = nodelist.expand(job.nodes) if job.nodes else []
    # `names` has the nodes at the end of the run. Slurm has already removed lost nodes and will not use them.
    places = tuple(names.index(name) for name in leave_out if name in names)
    comment = token.update(job.comment, again=again, mark=token.Mark(restart, places, grow, moved))
    asked = token.find(job.comment)
    had = asked.had.nodes if asked and asked.had and asked.had.run == restart else 0
    if not takes_changes(door, len(names), had):  # from `had` the controller's worker sees the loss of a node
        return True
    try:
        door.update_job(job_id, Comment=comment)
    except SlurmAwayError:
        raise
    except SlurmError as error:
        say(f"could not mark the job: {error.one_line}")
    return True


def put_back(
    door: Slurm,
    job_id: int,
    restart: int,
    leave_out: tuple[str, ...],
    again: int = 0,
    *,
    grow: bool = False,
    moved: bool = False,
) -> bool:
    """Mark the job and requeue it. Return False if a later run has begun: an earlier request may have succeeded.

    Raise SlurmError, and ValueError for a comment without a token.
    """
    if not mark(door, job_id, restart, leave_out, again, grow=grow, moved=moved):
        return False
    door.requeue(job_id)
    return True
