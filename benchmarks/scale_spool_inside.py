"""The part of benchmarks/scale.py that serves a long spool, as SlurmUser on the controller's machine.

Argument: the number of entries, which are those of jobs that have ended, as after an outage of the controller. Prints
the seconds for a new entry, the seconds and CPU seconds of the worker, and its peak memory in MB.
"""

import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

from slurm_plugin.controller import requeue_worker
from slurm_plugin.controller.requeue_policy import Ended
from slurm_plugin.slurm import connect

SPOOL = "/var/spool/slurm_plugin"
FIRST_JOB = 1_000_000
FEW = 20
NODES = tuple(f"n{number}" for number in range(1, 5))


def main() -> None:
    """Fill a spool, serve it, and print."""
    count = int(sys.argv[1])
    with tempfile.TemporaryDirectory(dir=SPOOL) as name:
        spool = Path(name)
        with patch("os.fsync"):  # the time of the disk is measured below, with a few entries
            for number in range(FEW, count):
                requeue_worker.put(spool, Ended(FIRST_JOB + number, 0, NODES))
        start = time.perf_counter()
        for number in range(FEW):
            requeue_worker.put(spool, Ended(FIRST_JOB + number, 0, NODES))
        put_s = (time.perf_counter() - start) / FEW
        start, cpu = time.perf_counter(), time.process_time()
        requeue_worker.serve(spool, connect(deadline_s=60.0))
        took, used = time.perf_counter() - start, time.process_time() - cpu
        left = sum(1 for _ in spool.glob("[0-9]*.json"))
    assert left == 0, f"{left} entries are left"
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"put_s": put_s, "seconds": took, "cpu_s": used, "peak_mb": peak_mb}))


if __name__ == "__main__":
    main()
