"""A machine of a sandbox: start, find, enter and end it. Only /proc shows which machines run."""

import json
import os
import resource
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from slurm_plugin.errors import MissingError, SlurmPluginError, UsageError

MARKER: Final = "slurm_plugin-sandbox-machine"
INIT: Final = Path(__file__).with_name("init.py")
PYTHON: Final = "/usr/bin/python3"
PASSED_ON: Final = ("SLURM_PLUGIN_BACKEND",)  # variables that machines get from the caller
START_DEADLINE_S: Final = 120.0
COMMAND_DEADLINE_S: Final = 180.0
END_DEADLINE_S: Final = 60.0
# The limits of programs in a machine are those of `up`, not those of the shell that calls `sandbox run`.
LIMITS: Final = {
    "memlock": resource.RLIMIT_MEMLOCK,
    "nofile": resource.RLIMIT_NOFILE,
    "nproc": resource.RLIMIT_NPROC,
    "stack": resource.RLIMIT_STACK,
}


@dataclass(frozen=True, slots=True)
class Bind:
    """A directory or file of the host that a machine mounts at `target`."""

    source: str
    target: str
    writable: bool = False


def parse_bind(text: str) -> Bind:
    """Parse `SRC`, `SRC:DST`, `SRC:rw` or `SRC:DST:rw`. Without `rw` the path is read-only. Raise UsageError."""
    parts = text.split(":")
    writable = len(parts) > 1 and parts[-1] == "rw"
    paths = parts[:-1] if writable else parts
    if len(paths) not in (1, 2) or not all(path.startswith("/") for path in paths):
        raise UsageError(f"bind {text!r}: SRC[:DST][:rw] with absolute paths is accepted")
    return Bind(paths[0], paths[-1], writable)


@dataclass(frozen=True, slots=True)
class Spec:
    """The description of a machine for its PID 1, in DIRECTORY/machines/NAME.json."""

    name: str
    address: str
    base: str
    etc: str
    gpus: int
    binds: tuple[Bind, ...]

    def to_json(self) -> str:
        """Return the text that init.py and `load_spec` read."""
        return json.dumps(asdict(self), indent=1)


def load_spec(directory: Path, name: str) -> Spec:
    """Read the description that `up` wrote. Raises OSError if there is none."""
    fields = json.loads((directory / "machines" / f"{name}.json").read_text(encoding="utf-8"))
    return Spec(**fields | {"binds": tuple(Bind(**each) for each in fields["binds"])})


def start(directory: Path, spec: Spec) -> int:
    """Start the machine and return the host's pid of its PID 1 when its root is ready.

    Raises MissingError if this kernel or container refuses namespaces or mounts.
    """
    (directory / "machines" / f"{spec.name}.json").write_text(spec.to_json(), encoding="utf-8")
    argv = [PYTHON, "-I", "-S", str(INIT), MARKER, str(directory), spec.name]
    # PID 1 keeps stderr open until it is ready, so reading to the end also waits for PID 1.
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        cwd="/", env={}, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            out, err = process.communicate(timeout=START_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise SlurmPluginError(f"machine {spec.name} did not start in {START_DEADLINE_S:.0f} s") from None
    if process.returncode != 0:
        last = err.strip().splitlines()[-1:] or ["no message"]
        raise MissingError(
            f"machine {spec.name} did not start: {last[0]}\n"
            "  the sandbox needs a kernel and a container that let root make namespaces and mount overlay,"
            " tmpfs, proc and sysfs\n  run it on a virtual machine, or in a container started with --privileged"
        )
    return int(out)


def find(directory: Path) -> dict[str, int]:
    """Return the running machines of the sandbox in `directory`: name -> the host's pid of PID 1."""
    return {name: pid for pid, name, depth in _processes(directory) if depth > 1}


def end_all(directory: Path) -> int:
    """Kill every machine of this sandbox, also unfinished ones, and wait. Return the number of killed processes."""
    seen: set[int] = set()
    deadline = time.monotonic() + END_DEADLINE_S
    while pids := {pid for pid, _, _ in _processes(directory)}:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        seen |= pids
        if time.monotonic() > deadline:
            raise SlurmPluginError(
                f"processes {sorted(pids)} of {directory} do not end; look at /proc/PID/stack, then run down again"
            )
        time.sleep(0.02)
    return len(seen)


def end(pid: int) -> None:
    """Kill one machine by its PID 1. Wait until the kernel has ended it, END_DEADLINE_S at most."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + END_DEADLINE_S
    while _alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)


def children(pid: int, comm: str) -> tuple[int, ...]:
    """Return the host's pids of the children of `pid` named `comm`. A machine's daemons are children of its PID 1.

    Debian's daemons are links to programs such as `slurmd-wlm`. Since Slurm 24.11 a reconfigure
    changes a daemon's name to that of the program.
    """
    found, names = [], (comm.encode(), f"{comm}-wlm".encode())
    for number in _pids():  # /proc/PID/task/*/children may omit a child while another one ends
        name, _, rest = _read(number, "stat").partition(b"(")[2].rpartition(b")")
        if name in names:
            state, parent = rest.split()[:2]
            if int(parent) == pid and state not in (b"Z", b"X"):
                found.append(number)
    return tuple(sorted(found))


def inside(pid: int, path: str) -> Path:
    """Return the host's path of a path in a machine."""
    return Path(f"/proc/{pid}/root{path}")


def limits(pid: int) -> dict[str, tuple[int, int]]:
    """Return the soft and hard limits of the process `pid`, by the names in LIMITS."""
    return {name: resource.prlimit(pid, number) for name, number in LIMITS.items()}


def run(argv: Sequence[str], *, text: str = "", files: Sequence[int] = ()) -> subprocess.CompletedProcess[str]:
    """Run a command of the host in a clean environment, as root, with `text` on stdin."""
    return subprocess.run(
        argv, input=text, pass_fds=files, env=environment("root", {}), capture_output=True,
        text=True, timeout=COMMAND_DEADLINE_S, check=False, cwd="/", start_new_session=True,
    )  # fmt: skip


def command(argv: Sequence[str], *, text: str = "", files: Sequence[int] = ()) -> str:
    """Run a command as `run` does, and return its output. Raise SlurmPluginError with its errors."""
    done = run(argv, text=text, files=files)
    if done.returncode != 0:
        raise SlurmPluginError(f"{' '.join(argv)} failed: {done.stderr.strip()}")
    return done.stdout


def enter_argv(pid: int, argv: Sequence[str], *, user: str = "root", directory: str = "/") -> list[str]:
    """Return the command that runs `argv` in a machine, as `user`, with the machine's limits and no signal ignored.

    A caller that a shell started with `&` ignores SIGINT. Without the reset slurmd and every job would ignore it too.
    """
    words = ["nsenter", "--target", str(pid), "--mount", "--uts", "--ipc", "--net", "--pid", "--", "prlimit"]
    for name, (soft, hard) in limits(pid).items():
        words.append(f"--{name}={_limit(soft)}:{_limit(hard)}")
    if user != "root":
        words += ["setpriv", "--reuid", user, "--regid", user, "--init-groups", "--"]
    return [*words, "env", "--default-signal", f"--chdir={directory}", "--", *argv]


def environment(user: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the clean environment of a program in a machine. Only PASSED_ON and TERM come from the caller."""
    home = "/root" if user == "root" else f"/home/{user}"
    return {name: environ[name] for name in PASSED_ON if name in environ} | {
        "HOME": home,
        "USER": user,
        "LOGNAME": user,
        "SHELL": "/bin/bash",
        "PATH": "/sandbox/bin:/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
        "LANG": "C.UTF-8",
        "TERM": environ.get("TERM", "dumb"),
        "SLURM_CONF": "/etc/slurm/slurm.conf",
    }


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else str(value)


def _alive(pid: int) -> bool:
    try:
        rest = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2]
    except OSError:
        return False
    return rest.split()[0] not in "ZX"


def _pids() -> Iterator[int]:
    return map(int, filter(str.isdigit, os.listdir("/proc")))  # noqa: PTH208 - three times as fast as pathlib


def _read(pid: int, name: str) -> bytes:
    """Return the beginning of a file in /proc/PID; empty if the process has ended."""
    try:
        with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:  # noqa: PTH123
            return file.read(4096)
    except OSError:
        return b""


def name_of(pid: int, directory: Path) -> str | None:
    """Return a machine's name if `pid` is root's process that starts the machine or is its PID 1; else None."""
    words = _read(pid, "cmdline").split(b"\0")
    if words[4:6] != [MARKER.encode(), os.fsencode(directory)] or len(words) < 7:
        return None
    with suppress(OSError):
        return words[6].decode() if Path(f"/proc/{pid}").stat().st_uid == 0 else None
    return None


def _processes(directory: Path) -> list[tuple[int, str, int]]:
    """Return (pid, machine, depth of the PID namespace) of each machine's starter and PID 1."""
    found = []
    for pid in _pids():
        if pid == os.getpid() or (name := name_of(pid, directory)) is None:
            continue
        spid = [line for line in _read(pid, "status").splitlines() if line.startswith(b"NSpid:")]
        if spid:
            found.append((pid, name, len(spid[0].split()) - 1))
    return found
