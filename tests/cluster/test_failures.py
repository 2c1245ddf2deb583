"""Failures of plain jobs on a real Slurm, and the diagnosis of their logs."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurm_plugin.logs import library
from slurm_plugin.logs.diagnosis import of_files
from slurm_plugin.sandbox import Sandbox
from tests.cluster.jobs import Job
from tests.cluster.plain import sbatch
from tests.failures.mpi import ERRORS, PLAIN

pytestmark = pytest.mark.cluster

SIGNATURES = library.load()
FOUR = "srun --label --nodes=2 --ntasks=4 --kill-on-bad-exit=1"


@dataclass(frozen=True, slots=True)
class Case:
    """A batch script on two nodes, and what its log must get."""

    script: str
    failure: str
    whose: str = "user"
    ranks: tuple[int, ...] = ()
    text: str = ""
    node: bool = False  # whether the node of that rank, or the faulty one, must be named
    options: tuple[str, ...] = ()


def python(fault: str, last: str = "time.sleep(300)") -> str:
    """Four tasks of which task 2 does this."""
    program = f"import os, signal, sys, time\nif os.environ['SLURM_PROCID'] == '2': {fault}\n{last}\n"
    return f"cat >a.py <<'END'\n{program}END\n{FOUR} python3 -u a.py"


# The real one where the machines have it, else a stand-in.
APPTAINER = f"""command -v apptainer >/dev/null || {{
cat >apptainer <<'END'
{Path(__file__).with_name("apptainer.sh").read_text(encoding="utf-8")}
END
chmod +x apptainer; PATH=$PWD:$PATH; }}"""
# A task on srun's own node sends it the signal of Ctrl-C until it ends.
CTRL_C = """cat >a.sh <<'END'
[ $SLURM_PROCID = 0 ] || exec sleep 300
trap '' INT
while kill -INT $(cat srun.pid); do sleep 0.1; done
END
exec sh -c 'echo $$ >srun.pid; exec srun --nodes=2 --ntasks=2 sh a.sh'"""
# The page of a file that another process has cut short is not there, as in a /dev/shm that is full.
BUS = "import mmap; f = open('x', 'w+'); f.truncate(8192); m = mmap.mmap(f.fileno(), 8192); f.truncate(0); m[4096] = 1"
CASES: Mapping[str, Case] = {
    "key": Case(python("{}['tokens']"), "user_code", "user", (2,), "KeyError: 'tokens'", node=True),
    "exit": Case(python("sys.exit(3)"), "unknown", "unknown", (2,)),  # srun says only the exit code
    "killed": Case(python("os.kill(os.getpid(), 9)"), "unknown", "unknown", (2,)),
    "segfault": Case(python("os.kill(os.getpid(), 11)"), "segfault", "user", (2,), node=True),
    "bus": Case(python(BUS), "shm", "node", (2,), "Bus error", node=True),
    "import": Case(python("import nothere_xyz"), "import_env", "user", (2,), "nothere_xyz"),
    "file": Case(python("open('/data/nothere')"), "missing_file", "user", (2,), "/data/nothere"),
    "disk": Case(python("os.write(os.open('/dev/full', os.O_WRONLY), b'x')"), "disk_full", "fs", (2,), "Errno 28"),
    "memory": Case(python("bytearray(1 << 60)"), "host_oom", "user", (2,), "MemoryError"),
    "name": Case(
        python("import socket; socket.gethostbyname('nothere.invalid')"), "net_name", "network", (2,), "gaierror"
    ),
    "no-program": Case("srun ./gone", "missing_file", text="gone"),
    "no-format": Case("printf '\\0x' >bad; chmod +x bad; srun ./bad", "launcher_config", text="xec format error"),
    "not-executable": Case("touch bad; srun ./bad", "permission", text="ermission denied"),
    "option": Case("srun --no-such-option true", "launcher_config", text="option"),
    "too-many": Case("srun --nodes=9 true", "launcher_config"),
    "plugin": Case("srun --mpi=nothere true", "launcher_config", text="MPI"),
    "hostfile": Case(
        "echo nothere slots=2 >hosts; mpirun --hostfile hosts -np 2 true", "launcher_config", text="hostfile"
    ),
    "container": Case(f"{APPTAINER}; apptainer exec ./gone.sif true", "launcher_config", text="gone.sif"),
    "ctrl-c": Case(CTRL_C, "cancelled", text="srun: "),
    "command": Case("nothere_xyz", "import_env", text="nothere_xyz"),
    "interrupt": Case("kill -INT $$", "none", "unknown"),
    "healthy": Case(f"{FOUR} echo 'error: 0, failed: 0, nan_count: 0, Killed: 0, retrying'", "none", "unknown"),
    "cancelled": Case("srun sleep 300", "cancelled", text="CANCELLED AT"),
    "time": Case("srun sleep 300", "time_limit", "scheduler", text="DUE TO TIME LIMIT", options=("--time=1",)),
}


def wrong(job: Job, name: str, case: Case, node: str = "") -> str:
    """Compare the diagnosis of the job's log with what it must be; return what differs."""
    found = of_files([job.directory / "job.out"], SIGNATURES).cause
    said = (found.failure, found.whose, found.ranks)
    good = said == (case.failure, case.whose, case.ranks)
    good &= case.text in (found.event.text if found.event else "")
    good &= found.verdict != "exclude" or found.failure == "node_down"
    good &= not case.node or (bool(found.nodes) and found.nodes == ((node,) if node else found.nodes))
    return "" if good else f"{name}: {found}\n{job.log}"


@pytest.mark.full  # 25 s
def test_failures(cluster: Sandbox) -> None:
    """The class, whose it is, and the task that began it."""
    jobs = {
        name: sbatch(cluster, f"failure-{name}", "--nodes=2", "--ntasks=4", *case.options, script=case.script)
        for name, case in CASES.items()
    }
    cancelled = jobs["cancelled"]
    cancelled.until(lambda: "sleep" in steps(cancelled), "its step runs")
    cluster.run(["scancel", str(cancelled.id)])
    for name, job in jobs.items():
        job.end()
        if CASES[name].failure in ("cancelled", "time_limit"):  # Slurm's last line comes after the job's end
            job.until(lambda log=job: "CANCELLED AT" in log.log, "the end of its log")
    assert "".join(wrong(job, name, CASES[name]) for name, job in jobs.items()) == ""


@pytest.mark.full  # over 5 s: a step for each
def test_python_errors(cluster: Sandbox) -> None:
    """Each exception of note on task 2 of four leads to its class and that task, as under the other launchers."""
    errors = [each for each in ERRORS if "import yaml" not in each.arguments[-1]]  # the sandbox has no PyYAML
    script = f"cat >plain.py <<'END'\n{PLAIN}\nEND\n"
    for each in errors:
        words = shlex.join(["python3", "-u", "plain.py", each.arguments[-1]])
        step = shlex.join(["sh", "-c", f"PMI_RANK=$SLURM_PROCID exec {words}"])
        script += f"{FOUR} {step} >{each.name}.out 2>&1\n"
    job = sbatch(cluster, "failure-python", "--nodes=2", "--ntasks=4", script=script)
    job.end()
    differs = []
    for each in errors:
        log = job.directory / f"{each.name}.out"
        found = of_files([log], SIGNATURES).cause
        said = (found.failure, found.whose, found.ranks)
        if said != (each.failure, each.whose, each.ranks) or not found.event or each.text not in found.event.text:
            differs.append(f"{each.name}: {found}\n{log.read_text()}")
    assert differs == []


def steps(job: Job) -> str:
    """The names of the job's steps that run."""
    return job.box.run(["squeue", "--steps", "-h", "-j", str(job.id), "-o", "%j"]).stdout


@pytest.mark.full  # over 5 s
@pytest.mark.parametrize("fault", ["node-dead", "network-cut"])
def test_a_node_that_is_lost(cluster: Sandbox, fault: str) -> None:
    """The node that Slurm's launcher names, whatever the others complain of."""
    script = "srun sh -c 'echo begun; sleep 300'"
    job = sbatch(cluster, f"failure-{fault}", "--nodes=2", "--ntasks=2", "--no-kill", script=script)
    job.until(lambda: job.log.count("begun\n") == 2, "both tasks run")  # squeue shows the step before that
    lost = max(job.nodes)  # the batch script runs on the first
    cluster.break_node(lost, fault)
    job.until(lambda: "error" in job.log, "srun notices")
    job.end()
    assert wrong(job, fault, Case("", "node_down", "node", node=True), lost) == ""
