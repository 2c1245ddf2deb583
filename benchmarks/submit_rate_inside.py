"""The part of benchmarks/submit_rate.py that runs on the controller's machine.

Arguments: the number of parallel clients, and the number of held jobs that they submit in total. Prints submissions
per second, slurmctld's CPU seconds per submission, and whether job_submit.lua wrote a grant into a job.
"""

import json
import subprocess
import sys
import threading
import time

ARGV = ["/usr/bin/sbatch", "--hold", "--output=/dev/null", "--comment=[sp1;retries=1;ib=auto]", "--wrap=true"]


def output(*argv: str) -> str:
    """Return the output of a command."""
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def client(jobs: int) -> None:
    """Submit jobs, one after the other."""
    for _ in range(jobs):
        output(*ARGV)


def main() -> None:
    """Measure, print, and cancel the jobs."""
    clients, each = int(sys.argv[1]), int(sys.argv[2]) // int(sys.argv[1])
    clock = (~int(output("pgrep", "-o", "-x", "slurmctld")) << 3) | 2  # CPU clock of slurmctld: clock_getcpuclockid(3)
    threads = [threading.Thread(target=client, args=(each,)) for _ in range(clients)]
    before, start = time.clock_gettime(clock), time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took, used = time.perf_counter() - start, time.clock_gettime(clock) - before
    shown = output("scontrol", "show", "job", output(*ARGV, "--parsable"))
    print(json.dumps([clients * each / took, used / (clients * each), "sp1:{" in shown]))
    output("scancel", "--user=alice")


if __name__ == "__main__":
    main()
