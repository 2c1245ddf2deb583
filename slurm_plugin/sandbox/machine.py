"""One machine of a sandbox: started, found again by its PID 1, entered, ended. No state file: /proc is the truth."""

import json
import os
import resource
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from slurm_plugin.errors import MissingError, SlurmPluginError

MARKER: Final = "slurm_plugin-sandbox-machine"
INIT: Final = Path(__file__).with_name("init.py")
PYTHON: Final = "/usr/bin/python3"
PASSED_ON: Final = ("SLURM_PLUGIN_BACKEND",)  # of the caller's environment, into machines
START_DEADLINE_S: Final = 20.0
END_DEADLINE_S: Final = 15.0
# What a program in a machine inherits, whatever shell `sandbox run` was typed in: the limits that `up` ran with.
LIMITS: Final = {
    "memlock": resource.RLIMIT_MEMLOCK,
    "nofile": resource.RLIMIT_NOFILE,
    "nproc": resource.RLIMIT_NPROC,
    "stack": resource.RLIMIT_STACK,
}


@dataclass(frozen=True, slots=True)
class Bind:
    """A directory or file of the host, seen in a machine at `target`."""

    source: str
    target: str
    writable: bool = False


@dataclass(frozen=True, slots=True)
class Spec:
    """What PID 1 needs to build a machine; kept as DIRECTORY/machines/NAME.json."""

    name: str
    address: str
    base: str
    etc: str
    gpus: int
    binds: tuple[Bind, ...]

    def to_json(self) -> str:
        """The text that init.py and `load_spec` read."""
        binds = [[bind.source, bind.target, bind.writable] for bind in self.binds]
        return json.dumps(asdict(self) | {"binds": binds}, indent=1)


def load_spec(directory: Path, name: str) -> Spec:
    """The machine NAME as it was written at `up`. Raises OSError where there is none."""
    fields = json.loads((directory / "machines" / f"{name}.json").read_text(encoding="utf-8"))
    binds = tuple(Bind(source, target, writable) for source, target, writable in fields.pop("binds"))
    return Spec(**fields, binds=binds)


def start(directory: Path, spec: Spec) -> int:
    """Start the machine and return the host's pid of its PID 1, once its root stands.

    Raises MissingError where this kernel or container refuses namespaces or mounts.
    """
    (directory / "machines" / f"{spec.name}.json").write_text(spec.to_json(), encoding="utf-8")
    argv = [PYTHON, "-I", "-S", str(INIT), MARKER, str(directory), spec.name]
    # PID 1 keeps stderr until it is ready, so reading to the end also waits for it.
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
    """The machines of the sandbox in `directory` that live now: name -> the host's pid of PID 1."""
    return {name: pid for pid, name, depth in _processes(directory) if depth > 1}


def end_all(directory: Path) -> int:
    """Kill every machine of this sandbox, half-started ones too; return how many there were once all are gone."""
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
    """Kill one machine by its PID 1 and wait until the kernel has ended all of it."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + END_DEADLINE_S
    while _alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)


def children(pid: int, comm: str) -> tuple[int, ...]:
    """Host pids of the direct children of `pid` named `comm`: a machine's daemons are its PID 1's children.

    Debian's daemons are links to `slurmd-wlm` and the like, the name they have after a reconfigure of 24.11 and later.
    """
    found, names = [], (comm, f"{comm}-wlm")
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            name, _, rest = (entry / "stat").read_text(errors="replace").partition("(")[2].rpartition(")")
            state, parent = rest.split()[:2]
            if name in names and int(parent) == pid and state not in "ZX":
                found.append(int(entry.name))
    return tuple(sorted(found))


def inside(pid: int, path: str) -> Path:
    """The host's way to a path inside a machine."""
    return Path(f"/proc/{pid}/root{path}")


def limits(pid: int) -> dict[str, tuple[int, int]]:
    """(soft, hard) of LIMITS as PID 1 has them."""
    return {name: resource.prlimit(pid, number) for name, number in LIMITS.items()}


def enter_argv(pid: int, argv: Sequence[str], *, user: str = "root", directory: str = "/") -> list[str]:
    """The command that runs `argv` inside a machine, as `user`, with the machine's own limits."""
    words = ["nsenter", "--target", str(pid), "--mount", "--uts", "--ipc", "--net", "--pid", "--", "prlimit"]
    for name, (soft, hard) in limits(pid).items():
        words.append(f"--{name}={_limit(soft)}:{_limit(hard)}")
    if user != "root":
        words += ["setpriv", "--reuid", user, "--regid", user, "--init-groups", "--"]
    return [*words, "env", f"--chdir={directory}", "--", *argv]


def environment(user: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The clean environment of a program in a machine; of the caller's own only PASSED_ON and TERM are passed."""
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


def _processes(directory: Path) -> list[tuple[int, str, int]]:
    """(pid, machine, depth of its PID namespace) of root's processes that carry our marker and this directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or entry.name == str(os.getpid()):
            continue
        with suppress(OSError):
            words = (entry / "cmdline").read_text(errors="replace").split("\0")
            if words[4:6] != [MARKER, str(directory)] or entry.stat().st_uid != 0:
                continue
            status = (entry / "status").read_text(errors="replace")
            depth = next(len(line.split()) - 1 for line in status.splitlines() if line.startswith("NSpid:"))
            found.append((int(entry.name), words[6], depth))
    return found
