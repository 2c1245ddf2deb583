"""Programs that fail under the launchers of MPI, DeepSpeed and Horovod, and the diagnosis of what those print."""

from dataclasses import dataclass

from tests.failures.cases import PYTHON

# Rank 2 of four does what the first argument says; the others wait until the launcher ends them. Hydra does not
# always do so: they get a time.
PLAIN = """\
import os, resource, signal, sys, time, json
names = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "HOROVOD_RANK", "RANK")
rank = int(next(os.environ[name] for name in names if name in os.environ))
print("step 1 loss 0.5", flush=True)
def fault(rank):
    exec(sys.argv[1])
if rank == 2:
    fault(rank)
time.sleep(float(sys.argv[2]) if len(sys.argv) > 2 else 300)
"""
WITH_MPI = """\
import ctypes, os, sys
from mpi4py import MPI
world = MPI.COMM_WORLD
if world.Get_rank() == 2:
    exec(sys.argv[1])
world.Barrier()
print("no error, 0 failed", flush=True)
"""
FOUR = ("-np", "4")
KEY = '{}["tokens"]'


@dataclass(frozen=True, slots=True)
class Case:
    """A command after the launcher's name. PYTHON stands for this interpreter."""

    name: str
    arguments: tuple[str, ...]
    failure: str
    whose: str = "user"
    ranks: tuple[int, ...] = ()
    text: str = ""


def plain(name: str, fault: str, failure: str, text: str = "", whose: str = "user") -> Case:
    """A program without MPI whose rank 2 fails."""
    return Case(name, (*FOUR, "PYTHON", "plain.py", fault), failure, whose, (2,), text)


def with_mpi(name: str, fault: str, failure: str, text: str = "") -> Case:
    """A program with MPI whose rank 2 fails; with `-m mpi4py` an exception ends all ranks."""
    return Case(name, (*FOUR, "PYTHON", "-m", "mpi4py", "mpi.py", fault), failure, "user", (2,), text)


# Not those of PyTorch, and those that end without a traceback: mpirun says only the exit code.
ERRORS = tuple(
    plain(each.name, each.fault, each.failure, each.text, each.whose)
    for each in PYTHON
    if each.fault and "torch" not in each.fault and each.text
)
OPEN_MPI = (
    *ERRORS,
    Case("key-tagged", ("--tag-output", *FOUR, "PYTHON", "plain.py", KEY), "user_code", "user", (2,), "KeyError"),
    plain("exit", "sys.exit(3)", "unknown", whose="unknown"),
    Case("shell", (*FOUR, "sh", "-c", "cat /data/nothere"), "missing_file", text="/data/nothere"),
    Case(
        "perl",
        ("--tag-output", *FOUR, "perl", "-e", "exec 'sleep', 9 if $ENV{OMPI_COMM_WORLD_RANK} != 2; die 'no cells'"),
        "user_code",
        ranks=(2,),
        text="no cells",
    ),
    plain("killed", "os.kill(os.getpid(), signal.SIGKILL)", "unknown", whose="unknown"),
    plain("segfault", "os.kill(os.getpid(), signal.SIGSEGV)", "segfault"),
    with_mpi("abort", KEY, "user_code", "KeyError"),
    with_mpi("argument", "world.Send(bytearray(4), dest=99)", "user_code", "MPI_ERR_RANK"),
    with_mpi("left", "os._exit(0)", "early_exit"),
    with_mpi("null", "ctypes.string_at(0)", "segfault", "Segmentation fault"),
    Case("healthy", (*FOUR, "PYTHON", "-m", "mpi4py", "mpi.py", "pass"), "none", "unknown"),
    Case("no-script", (*FOUR, "PYTHON", "gone.py"), "missing_file", text="gone.py"),
    Case("no-program", (*FOUR, "./gone"), "missing_file"),
    Case("no-format", ("-np", "2", "./garbage"), "import_env", text="Exec format error"),
    Case("slots", ("-np", "4000", "true"), "launcher_config", text="not enough slots"),
    Case("host", ("--hostfile", "hosts", "-np", "2", "true"), "net_name", "network", text="nothere"),
    Case("hostfile", ("--hostfile", "gone", "-np", "2", "true"), "launcher_config", text="hostfile"),
    Case("slots-word", ("--hostfile", "bad-hosts", "-np", "2", "true"), "launcher_config", text="hostfile"),
    Case("option", ("--no-such-option", "-np", "2", "true"), "launcher_config", text="unknown option"),
)
HYDRA = (
    Case("key", ("-n", "4", "PYTHON", "plain.py", KEY, "1"), "user_code", text="KeyError"),
    Case("segfault", ("-n", "4", "PYTHON", "plain.py", "os.kill(os.getpid(), signal.SIGSEGV)", "1"), "segfault"),
    Case("killed", ("-n", "4", "PYTHON", "plain.py", "os.kill(os.getpid(), 9)", "1"), "unknown", "unknown"),
    Case("no-program", ("-n", "4", "./gone"), "missing_file", text="gone"),
    Case("hostfile", ("-f", "gone", "-n", "2", "true"), "launcher_config", text="gone"),
)
