"""What it costs to measure a node of a job, and to find the steps in a log.

    .venv/bin/python benchmarks/usage.py [--smallest]

Prints milliseconds of CPU for a sample of 8, 64 and 512 processes, by psutil and without accelerators, and for
reading 64 KiB of a log. In brackets is the share of a core, with a sample every 30 s and 64 KiB every 10 s. Exits 1 if
a sample of 64 processes takes more than a thousandth of a core, which makes samples rarer. Run as root, every process
of root is read, which costs more than on a node.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmarks.measure import arguments, judged
from slurm_plugin.records import progress_file, usage
from slurm_plugin.supervisor.guard import sampler
from slurm_plugin.supervisor.recording.orders import Orders
from slurm_plugin.supervisor.recording.recorder import Recorder

MOST = sampler.SHARE
JOB = 4_000_000_000  # no job of Slurm has this number
LINE = "2026-03-01 09:30:05 rank 3 loss 2.31 lr 1e-05 grad 0.7 tokens 123456\n"
STEP = " iteration      201/  250000 | consumed samples:       205824 | elapsed time per iteration (ms): 139.4 |\n"


@contextmanager
def job(count: int) -> Iterator[None]:
    """Run `count` processes of a job."""
    environ = {**os.environ, "SLURM_JOB_ID": str(JOB)}
    running = [subprocess.Popen(["sleep", "1000"], env=environ) for _ in range(count)]
    try:
        yield
    finally:
        for each in running:
            each.kill()
        for each in running:
            each.wait()


def sample(count: int, samples: int) -> float:
    """Return the CPU seconds of a sample of `count` processes, without the first one."""
    sampler.SHARE = 1e9  # type: ignore[misc]  # sample without pauses
    request = sampler.Request({}, {"n1": 1}, every_s=0.01)
    read, write = os.pipe()
    with job(count), tempfile.TemporaryDirectory() as directory:
        pid = sampler.start(json.dumps(request._asdict()), "n1", JOB, directory, (), out=write)
        with os.fdopen(read) as lines:
            lines.readline()
            before = sum(psutil.Process(pid).cpu_times()[:2])
            for _ in range(samples):
                assert json.loads(lines.readline().split(" ", 4)[4])[1] > count * 100_000
            spent = sum(psutil.Process(pid).cpu_times()[:2]) - before
            sampler.stop(pid)
            os.waitpid(pid, 0)
            os.close(write)
    return spent / samples


def look(line: str, looks: int) -> float:
    """Return the CPU seconds for reading 64 KiB of such lines."""
    text = (line * 2000).encode()[: 1 << 16]
    with tempfile.TemporaryDirectory() as directory, Path(directory, "log").open("wb", buffering=0) as file:
        recorder = Recorder(Orders(directory, 17, 0, "n1", "n1", (0, 0)), (file.fileno(),))
        before = time.process_time()
        for _ in range(looks):
            file.write(text)
            recorder.look()
        return (time.process_time() - before) / looks


def main() -> int:
    """Measure, print and judge."""
    options = arguments(__doc__).parse_args()
    counts, times = ((8, 64), 20) if options.smallest else ((8, 64, 512), 200)
    samples = {count: sample(count, times) for count in counts}
    looks = {name: look(line, times) for name, line in (("no steps", LINE), ("steps", STEP))}
    for count, spent in samples.items():
        print(f"a sample of {count:3} processes: {spent * 1000:6.2f} ms ({spent / usage.EVERY_S:.4%})")
    for name, spent in looks.items():
        print(f"64 KiB of a log, {name:9}: {spent * 1000:5.2f} ms ({spent / progress_file.EVERY_S:.4%})")
    share = samples[64] / usage.EVERY_S
    return judged([f"{share:.4%} of a core"] if share > MOST else [], smallest=options.smallest)


if __name__ == "__main__":
    sys.exit(main())
