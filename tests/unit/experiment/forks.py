"""Runs programs in forks of one process that has imported PyTorch: a program then costs less than its import.

    python -m tests.unit.experiment.forks      reads requests, answers each with a number

A request is a line of JSON: a Program, to start it; the answer is its pid. Or a pid, to wait for it; the answer is its
exit code. Several ranks are forked by PyTorch's own launcher, with the settings of `torchrun --standalone`.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[3]
HANG_S: Final = 300  # then the program is killed
PRELOADED: Final = (
    "torch._dynamo", "torch.distributed.run", "torch.distributed.elastic.rendezvous.c10d_rendezvous_backend",
    "torch.utils.tensorboard", "slurm_plugin.experiment.runner.core", "slurm_plugin.experiment.runner.loop",
)  # fmt: skip


class Program(NamedTuple):
    """A module with its arguments, to run on this number of ranks. `output`: the file for what it prints."""

    module: str
    arguments: list[str]
    ranks: int
    directory: str
    environ: dict[str, str]
    output: str


class Fork:
    """A program that was started, with what the tests use of subprocess.Popen."""

    def __init__(self, program: Program) -> None:
        """Start it."""
        self.args, self._output = program, Path(program.output)
        self.pid = _ask(program)
        self.returncode: int | None = None

    def communicate(self, timeout: float) -> tuple[str, None]:
        """Wait until it ends, for HANG_S at most. Return its output."""
        if self.returncode is None:
            self.returncode = _ask(self.pid)
        return self._output.read_text(errors="replace"), None

    def kill(self) -> None:
        """Kill it if it runs."""
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)
            self.returncode = _ask(self.pid)


@cache
def _server() -> "subprocess.Popen[str]":
    """Start the process that forks. It ends with this one."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "PYTHON"))}
    process = subprocess.Popen(
        [sys.executable, "-m", __name__], cwd=ROOT, env={**clean, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    atexit.register(process.communicate)
    return process


def _ask(request: object) -> int:
    """Send a request. Return the answer."""
    process = _server()
    assert process.stdin
    assert process.stdout
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    return int(process.stdout.readline())


def main() -> None:
    """Answer requests until there are no more."""
    for name in PRELOADED:
        importlib.import_module(name)
    assert "determined" not in sys.modules  # which one a program gets is its own matter
    gc.freeze()  # a collection in a fork would copy PyTorch's pages
    for line in sys.stdin:
        request = json.loads(line)
        answer = _ended(request) if isinstance(request, int) else _forked(Program(*request))
        print(answer, flush=True)


def _ended(pid: int) -> int:
    """Wait for a program. Return its exit code; -N: it died of signal N."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _forked(program: Program) -> int:
    """Start a program. Return its pid."""
    pid = os.fork()
    if not pid:
        _become(program)
    return pid


def _become(program: Program) -> None:
    """Run the program in this process, and end."""
    signal.alarm(HANG_S)
    log = os.open(program.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o666)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, nothing), (1, log), (2, log)):
        os.dup2(source, target)
    os.chdir(program.directory)
    os.environ.clear()
    os.environ.update(program.environ)
    given = program.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [program.directory, *given, *(each for each in sys.path if each not in ("", str(ROOT)))]
    work = _launched if program.ranks > 1 else _run
    os._exit(_code(lambda: work(program)))


def _code(work: Callable[[], int]) -> int:
    """Do the work, and end it as an interpreter does: exit code 1 after an error."""
    try:
        code = work()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - an interpreter prints KeyboardInterrupt too
        traceback.print_exc()
        code = 1
    gc.collect()  # delete what an interpreter deletes at its end
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _run(program: Program) -> int:
    """Run the module as `python -m` does."""
    sys.argv = [program.module, *program.arguments]
    runpy.run_module(program.module, run_name="__main__", alter_sys=True)
    return 0


def _launched(program: Program) -> int:
    """Be the launcher of the ranks."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=program.ranks, run_id=f"forks-{os.getpid()}", max_restarts=0,
        rdzv_backend="c10d", rdzv_endpoint="localhost:0", start_method="fork", monitor_interval=0.1,
    )  # fmt: skip
    try:
        elastic_launch(config, _rank)(program)
    except ChildFailedError:
        traceback.print_exc()
        return 1
    return 0


def _rank(program: Program) -> None:
    """Be one rank."""
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):  # the launcher's handlers
        signal.signal(each, signal.default_int_handler if each == signal.SIGINT else signal.SIG_DFL)
    signal.alarm(HANG_S)
    if code := _code(lambda: _run(program)):
        os._exit(code)  # else the launcher waits for what this function returns


if __name__ == "__main__":
    main()
