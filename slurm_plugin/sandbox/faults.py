"""The faults of a node: how to make, undo and recognise each of them.

No file records the faults: the state of the machine shows the active ones, even if a user made or undid one by hand.
"""

import os
import resource
import signal
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slurm_plugin.errors import MissingError, SlurmPluginError
from slurm_plugin.sandbox import init, machine, network, store

SHM: Final = "/dev/shm"  # noqa: S108 - the fault is about this very directory
SMALL_MB: Final = 512
LOW_MEMLOCK_BYTES: Final = 64 * 1024
SCRATCH: Final = "/scratch"
FUSE: Final = "/dev/fuse"
KMSG: Final = "/dev/kmsg"
# The driver's line for a GPU that falls off the bus, without the kernel's number and time.
XID: Final = "NVRM: Xid (PCI:0000:5f:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
FLAPPING: Final = "/run/flapping"
# A check for the site file: `command: {run: [/sandbox/bin/flapping]}`. While FLAPPING exists, every second run fails.
FLAPPING_CHECK: Final = f"""#!/bin/sh
[ -e {FLAPPING} ] || exit 0
if [ -s {FLAPPING} ]; then : >{FLAPPING}; echo "this look passes, the next one fails"; exit 0; fi
echo failed >{FLAPPING}; echo "this look fails, the next one passes"; exit 1
"""
DEADLINE_S: Final = 60.0
IFF_UP: Final = 1  # netdevice(7)


@dataclass(frozen=True, slots=True)
class Node:
    """A node to break. `pid`: the host's pid of its PID 1, None if it is dead. `hosts`: the text of its /etc/hosts."""

    name: str
    pid: int | None
    hosts: str
    gpus: int
    sandbox: Path = store.DEFAULT_DIRECTORY

    def root(self) -> int:
        """Return the host's pid of PID 1. Raises SlurmPluginError if the node is dead."""
        if self.pid is None:
            raise SlurmPluginError(f"{self.name} is dead\n  run: {self.healing()}")
        return self.pid

    def healing(self) -> str:
        """Return the command that heals the node."""
        return store.command(self.sandbox, f"heal {self.name}")

    def slurmd(self) -> int | None:
        """Return the host's pid of the node's slurmd; None if it does not run."""
        found = () if self.pid is None else machine.children(self.pid, "slurmd")
        return found[0] if found else None

    def run(self, *argv: str) -> None:
        """Run a command in the node as root. Raises SlurmPluginError with its stderr if it fails."""
        machine.command(machine.enter_argv(self.root(), argv))


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault. `mend` is None if the sandbox must restart the daemon or the machine to undo it."""

    about: str
    make: Callable[[Node], object]
    mend: Callable[[Node], object] | None
    active: Callable[[Node], bool]


def _write(path: str) -> Callable[[Node], object]:
    """Return a function that empties a file, or makes an empty file."""
    return lambda node: machine.inside(node.root(), path).write_bytes(b"")


def _restore_hosts(node: Node) -> None:
    machine.inside(node.root(), "/etc/hosts").write_text(node.hosts, encoding="utf-8")


def _hosts_empty(node: Node) -> bool:
    return machine.inside(node.root(), "/etc/hosts").stat().st_size == 0


def _resize(path: str, size: str) -> Callable[[Node], object]:
    return lambda node: node.run("mount", "-o", f"remount,size={size}", path)


def _small(path: str) -> Callable[[Node], bool]:
    def active(node: Node) -> bool:
        found = os.statvfs(machine.inside(node.root(), path))
        return found.f_blocks * found.f_frsize <= SMALL_MB * 1024**2

    return active


def _last_gpu(node: Node) -> str:
    if node.gpus == 0:
        anew = " && ".join(store.command(node.sandbox, words) for words in ("down", "up --gpus 4"))
        raise SlurmPluginError(f"this sandbox has no GPUs\n  run: {anew}")
    return f"/dev/fakegpu{node.gpus - 1}"


def _cover_gpu(node: Node) -> None:
    # As on a node whose driver has lost the card, the file stays, but it is not a device.
    machine.inside(node.root(), "/dev/.no-gpu").write_bytes(b"")
    node.run("mount", "--bind", "/dev/.no-gpu", _last_gpu(node))


def _gpu_covered(node: Node) -> bool:
    return node.gpus > 0 and not stat.S_ISCHR(machine.inside(node.root(), _last_gpu(node)).stat().st_mode)


def _set_memlock(node: Node, soft: int) -> None:
    pid = node.slurmd()
    if pid is None:
        raise SlurmPluginError(f"{node.name} has no slurmd\n  run: {node.healing()}")
    hard = resource.prlimit(pid, resource.RLIMIT_MEMLOCK)[1]
    resource.prlimit(pid, resource.RLIMIT_MEMLOCK, (soft, hard))


def _memlock_low(node: Node) -> bool:
    pid = node.slurmd()
    return pid is not None and resource.prlimit(pid, resource.RLIMIT_MEMLOCK)[0] == LOW_MEMLOCK_BYTES


def _kill_slurmd(node: Node) -> None:
    pid = node.slurmd()
    if pid is not None:
        os.kill(pid, signal.SIGKILL)


def _kill_node(node: Node) -> None:
    if node.pid is not None:
        machine.end(node.pid)


def _hang_scratch(node: Node) -> None:
    try:
        fd = os.open(FUSE, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise MissingError(f"a mount that hangs needs {FUSE}: {error.strerror}\n  run: modprobe fuse") from error
    try:
        program = Path(init.__file__).read_text(encoding="utf-8")
        argv = [machine.PYTHON, "-I", "-S", "-", str(fd), SCRATCH]
        machine.command(machine.enter_argv(node.root(), argv), text=program, files=[fd])
    finally:
        os.close(fd)


def _let_go_of_scratch(node: Node) -> None:
    # First kill the process that reads the requests. Then all requests fail, and umount does not hang.
    deadline = time.monotonic() + DEADLINE_S
    while (left := machine.children(node.root(), init.HUNG)) and time.monotonic() < deadline:
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    while _scratch_hangs(node):  # the fault may have been made twice
        node.run("umount", "--lazy", SCRATCH)


def _scratch_hangs(node: Node) -> bool:
    # Read only the mount table: a request to the mount itself would hang.
    table = Path(f"/proc/{node.root()}/mountinfo").read_text(encoding="utf-8", errors="replace")
    return f" - fuse {init.HUNG} " in table


def _write_xid(node: Node) -> None:
    # The numbers increase, as in the kernel, so that checks treat a line after `heal` as new.
    now = time.monotonic_ns() // 1000
    with machine.inside(node.root(), KMSG).open("a", encoding="ascii") as log:
        log.write(f"4,{now},{now},-;{XID}\n")


def _xid_there(node: Node) -> bool:
    log = machine.inside(node.root(), KMSG)
    return log.exists() and "NVRM: Xid" in log.read_text(encoding="ascii", errors="replace")


def _link(state: str) -> Callable[[Node], object]:
    return lambda node: network.batch([f"link set eth0 {state}"], node.root())


def _link_down(node: Node) -> bool:
    flags = machine.inside(node.root(), "/sys/class/net/eth0/flags").read_text(encoding="ascii")
    return not int(flags, 16) & IFF_UP


FAULTS: Final[Mapping[str, Fault]] = {
    "dns": Fault("its /etc/hosts is empty: no name resolves", _write("/etc/hosts"), _restore_hosts, _hosts_empty),
    "shm-full": Fault(
        f"{SHM} has {SMALL_MB} MiB",
        _resize(SHM, f"{SMALL_MB}m"),
        _resize(SHM, init.SHM_SIZE),
        _small(SHM),
    ),
    "cache-full": Fault(
        f"/cache has {SMALL_MB} MiB",
        _resize("/cache", f"{SMALL_MB}m"),
        _resize("/cache", init.CACHE_SIZE),
        _small("/cache"),
    ),
    "root-full": Fault(
        f"/ has {SMALL_MB} MiB", _resize("/", f"{SMALL_MB}m"), _resize("/", init.ROOT_SIZE), _small("/")
    ),
    "gpu-missing": Fault(
        "its last GPU's file is no device", _cover_gpu, lambda node: node.run("umount", _last_gpu(node)), _gpu_covered
    ),
    "memlock-low": Fault(
        "slurmd's soft limit of locked memory is 64 KiB",
        lambda node: _set_memlock(node, LOW_MEMLOCK_BYTES),
        lambda node: _set_memlock(node, machine.limits(node.root())["memlock"][0]),
        _memlock_low,
    ),
    "hung-mount": Fault(
        f"{SCRATCH} never answers: its users cannot be killed",
        _hang_scratch,
        _let_go_of_scratch,
        _scratch_hangs,
    ),
    "xid": Fault(f"an Xid 79 is in the kernel log, {KMSG}", _write_xid, _write(KMSG), _xid_there),
    "flapping": Fault(
        "/sandbox/bin/flapping fails every other time",
        _write(FLAPPING),
        lambda node: machine.inside(node.root(), FLAPPING).unlink(missing_ok=True),
        lambda node: machine.inside(node.root(), FLAPPING).exists(),
    ),
    "slurmd-dead": Fault(
        "slurmd is killed; running programs go on", _kill_slurmd, None, lambda node: node.slurmd() is None
    ),
    "node-dead": Fault("the machine and its processes are gone", _kill_node, None, lambda node: node.pid is None),
    "network-cut": Fault("eth0 is down; running programs go on", _link("down"), _link("up"), _link_down),
}


def active(node: Node) -> tuple[str, ...]:
    """Return the active faults of a node; if it is dead, only `node-dead`."""
    if node.pid is None:
        return ("node-dead",)
    try:
        return tuple(name for name, fault in FAULTS.items() if name != "node-dead" and fault.active(node))
    except (FileNotFoundError, ProcessLookupError):  # the machine has just ended
        return ("node-dead",)
