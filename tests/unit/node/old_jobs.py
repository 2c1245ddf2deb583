"""Real directories of jobs that ended long ago, of real owners."""

import os
import time
from pathlib import Path
from typing import Any

from slurm_plugin.node import cleanup, retention
from slurm_plugin.records import job_directory, log_files
from tests.fakes import FakeSlurm
from tests.unit.node.owned import give
from tests.waiting import until

DAY_S = 86400.0
NOW = time.time()


def made(work: Path, job_id: int, uid: int, *, days: float = 40, cluster: str = "") -> Path:
    """A job's directory with records, a file of the user's, and a log for one node and one rank."""
    ours = work / job_directory.OURS
    logs = work / "logs"
    for each in (ours, logs):
        each.mkdir(exist_ok=True)
        give(each, uid)
    own = ours / str(job_id)
    own.mkdir()
    log_files.write_output(own, log_files.Output("train", str(work / "out"), "", str(logs), "both"))
    job_directory.record(own, {"n": 0, "cluster": cluster})
    (own / "requests").mkdir()
    (own / "requests" / "1").write_text("x")
    stem = log_files.stem("train", job_id, 0)
    paths = [logs / f"{stem}{log_files.of_worker(0)}", logs / f"{stem}-attempt-1{log_files.of_rank(0, 0)}"]
    for path in paths:
        path.write_text("x" * 5000)
    age(own, days, uid, *paths)
    return own


def age(own: Path, days: float, uid: int, *more: Path) -> None:
    """Give everything there an age and an owner."""
    for path in [*own.rglob("*"), own, *more]:
        give(path, uid)
        os.utime(path, (NOW - days * DAY_S, NOW - days * DAY_S), follow_symlinks=False)
    begun = time.clock_gettime_ns(cleanup.STAMPS)
    until(lambda: time.clock_gettime_ns(cleanup.STAMPS) > begun)  # what is removed is older than the question


def clean(top: Path, slurm: FakeSlurm | None = None, **more: Any) -> dict[str, Any]:
    """What `retention.clean` finds and removes, of all users."""
    more = {"owner": None, "remove": True, "now": NOW, **more}
    return retention.clean(str(top), 30 * DAY_S, slurm or FakeSlurm(), "here", **more)


def jobs(found: dict[str, Any]) -> list[int]:
    """The jobs in the answer."""
    return sorted(each["job"] for each in found["jobs"])
