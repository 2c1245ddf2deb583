"""The fabric check in jobs of the sandbox: a clock that the test sets, slow links, and the check's results."""

import json
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import OPEN_MPI, Job, workdir
from tests.cluster.programs import PYTHON, program
from tests.waiting import until

DEADLINE_S = 100_000.0  # the check's deadline. Tests of the deadline set the clock.
FLOOR_MBS = 0.01  # a link is slow below it, whatever the speed of the others: 6.5 s for the smallest exchange
SLOW = "tbf rate 64kbit burst 4kb limit 1mb"  # at most 0.0085 MB/s
# Run the check from the deployed zip, as the supervisor does. Write its results to found.json, and its input from the
# ranks to `heard`. If there is a file `late`, the deadline has passed.
DRIVER = f"""
import json, os, sys, time
from types import SimpleNamespace
sys.path.insert(0, "/etc/slurm/slurm_plugin/slurm_plugin.pyz")
from slurm_plugin.supervisor import fabric
from prechecks.fabric.judge import Thresholds
from hostfiles import from_slurm

def take(run, chunk, is_out, take=fabric._Run._take):
    take(run, chunk, is_out)
    with open("heard", "ab") as file:
        file.write(chunk)
fabric._Run._take = take
clock = lambda: time.monotonic() + os.path.exists("late") * {DEADLINE_S}
fabric.time = SimpleNamespace(monotonic=clock, sleep=time.sleep)
hosts, said = from_slurm(os.environ, 1).names, []
found = fabric.check(hosts, launcher=fabric.open_mpi(hosts), python=sys.argv[1], environ=os.environ,
                     deadline_s={DEADLINE_S}, thresholds=Thresholds(0.0, {FLOOR_MBS}), say=said.append)
with open("found.new", "w") as file:
    json.dump({{"said": said, "verdicts": {{name: list(v) for name, v in found.items()}}}}, file)
os.rename("found.new", "found.json")
while not os.path.exists("end"):
    time.sleep(0.1)
"""
# The python of the ranks. The rank on HOST does ACT when it reaches PHASE. A file `clock`, if there is one, has the
# ranks' time.
WRAPPER = """
import mmap, os, signal, struct, sys, time
sys.argv.pop(0)  # -c is next, then the code
sleep, write = time.sleep, os.write
if os.path.exists("clock"):
    with open("clock", "r+b") as file:
        page = mmap.mmap(file.fileno(), 8)
    time.monotonic = lambda: struct.unpack("d", page[:8])[0]
    os.sched_yield = lambda: sleep(0.0005)
def watched(file, text):
    done = write(file, text)
    if text == b"PHASE\\n" and os.uname().nodename == "HOST":
        ACT
    return done
os.write = watched
exec(sys.argv.pop(1))
"""
STOP = "os.kill(os.getpid(), signal.SIGSTOP)"
WAIT = """open("turn", "w").close()
        while not os.path.exists("go-on"): sleep(0.05)"""


@dataclass(frozen=True, slots=True)
class Found:
    """The results of the check, in a job that runs until the test ends it."""

    job: Job
    said: list[str]
    words: dict[str, str]  # host -> verdict
    messages: dict[str, str]


def start(box: Sandbox, name: str, python: str = PYTHON, nodes: int = 4, *, clock: bool = False) -> Job:
    """Submit alice's batch job. It runs the check when there is a file `go`, and ends when there is a file `end`."""
    driver = program(box, f"{name}.py", DRIVER)
    directory = workdir(box, name)
    if clock:
        (directory / "clock").write_bytes(struct.pack("d", 0))
        (directory / "clock").chmod(0o666)
    words = ["sbatch", "--parsable", f"--nodes={nodes}", f"--chdir=/home/alice/{name}", "--output=job.out"]
    wait = "touch runs; until [ -e go ]; do sleep 0.1; done"
    script = f"#!/bin/bash\n{wait}\nexec /usr/bin/python3 -I -S {driver} {python}\n"
    return Job(box, int(box.run(words, input=script, env=OPEN_MPI).stdout), directory)


def go(job: Job) -> Job:
    """Start the check."""
    job.until((job.directory / "runs").exists, "the job's start")
    (job.directory / "go").touch()
    return job


def finding(job: Job) -> Found:
    """Wait for the check's results."""
    until((job.directory / "found.json").exists, lambda: f"the verdicts; heard:\n{heard(job)}\n{job.log}")
    found = json.loads((job.directory / "found.json").read_text())
    verdicts = found["verdicts"].items()
    return Found(job, found["said"], {h: each[1] for h, each in verdicts}, {h: each[3] for h, each in verdicts})


def end(job: Job) -> None:
    """End the job."""
    (job.directory / "end").touch()
    assert job.end() == "COMPLETED", job.log


def heard(job: Job) -> str:
    """Return what the check has received from its ranks and its launcher so far."""
    file = job.directory / "heard"
    return file.read_text(errors="replace") if file.exists() else ""


def until_heard(job: Job, *signs: str) -> None:
    """Wait until the check has received these signs, `HOST EVENT`; repeated signs as often as given."""
    until(
        lambda: all(heard(job).count(f" {sign}") >= signs.count(sign) for sign in signs),
        lambda: f"{signs}; heard:\n{heard(job)}\n{job.log}",
    )


def turn_clock(job: Job, share: float) -> None:
    """Set the ranks' clock just past this share of their time."""
    with (job.directory / "clock").open("r+b") as file:
        file.write(struct.pack("d", share * (DEADLINE_S - 4) + 1.5))  # the runner keeps the last 4 s for itself


def wrapped(box: Sandbox, name: str, text: str) -> str:
    """Write a program of alice's that can replace `python3`."""
    directory = box.home("alice") / f"{name}-bin"
    directory.mkdir()
    path = directory / "python3"
    path.write_text(text)
    path.chmod(0o755)
    return f"/home/alice/{name}-bin/python3"


def acting(box: Sandbox, name: str, host: str, phase: str, act: str) -> str:
    """Return a python for the ranks. The rank on `host` acts in this phase."""
    code = WRAPPER.replace("PHASE", phase).replace("HOST", host).replace("ACT", act)
    return wrapped(box, name, f'#!/bin/sh\nexec {PYTHON} {program(box, f"in-{name}.py", code)} "$@"\n')


def steps(job: Job) -> list[str]:
    """Return the steps of the job that Slurm knows, without that of the batch script."""
    out = job.box.run(["squeue", "-h", "-s", "-j", str(job.id), "-o", "%i"]).stdout.split()
    return [step for step in out if not step.endswith((".batch", ".extern"))]


def ranks(job: Job) -> list[str]:
    """Return the nodes on which processes of the job's check still run."""
    found = []
    for node in ("n1", "n2", "n3", "n4"):
        words = ["pgrep", "-u", "alice", "-f", "fabric/program.py|fabric program|orted"]
        found += [node] if job.box.run(words, user="root", node=node, check=False).stdout else []
    return found


def left_nothing(found: Found) -> None:
    """Wait until no step and no process of the check is left. Assert that the job still runs."""
    found.job.until(lambda: not steps(found.job), "the end of mpirun's steps")
    found.job.until(lambda: not ranks(found.job), "the end of the ranks")
    assert found.job.state == "RUNNING"


@contextmanager
def shaped(box: Sandbox, node: str, *lines: str) -> Iterator[Callable[[], None]]:
    """Yield a function that slows a link down: traffic from `node` through eth0 gets these queues of tc."""
    pid = next(row.pid for row in box.status().machines if row.name == node)

    def tc(line: str) -> subprocess.CompletedProcess[str]:
        argv = ["nsenter", "--target", str(pid), "--net", "--", "tc", *line.split()]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    def shape() -> None:
        for line in lines:
            done = tc(line)
            assert done.returncode == 0, done.stderr

    try:
        yield shape
    finally:
        tc("qdisc del dev eth0 root")
