"""The faults that can be made on one node, each undone and each recognised from the node itself.

Nothing is remembered: whether a fault is active is read from the machine, so a fault that somebody made or
mended by hand is seen too.
"""

import os
import resource
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slurm_plugin.errors import MissingError, SlurmPluginError
from slurm_plugin.sandbox import hungmount, init, machine

SHM: Final = "/dev/shm"  # noqa: S108 - the fault is about this very directory
SMALL_MB: Final = 512
LOW_MEMLOCK_BYTES: Final = 64 * 1024
SCRATCH: Final = "/scratch"
FUSE: Final = "/dev/fuse"
KMSG: Final = "/dev/kmsg"
# What the driver writes when a GPU falls off the bus; the kernel's number and time of the line stand before it.
XID: Final = "NVRM: Xid (PCI:0000:5f:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
FLAPPING: Final = "/run/flapping"
# For `command: {run: [/sandbox/bin/flapping]}`: it passes on a node without the file, else fails at every other look.
FLAPPING_CHECK: Final = f"""#!/bin/sh
[ -e {FLAPPING} ] || exit 0
if [ -s {FLAPPING} ]; then : >{FLAPPING}; echo "this look passes, the next one fails"; exit 0; fi
echo failed >{FLAPPING}; echo "this look fails, the next one passes"; exit 1
"""
DEADLINE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Node:
    """A node as faults see it: the host's pid of its PID 1 (None: dead), its own hosts file, and its GPUs."""

    name: str
    pid: int | None
    hosts: str
    gpus: int

    def root(self) -> int:
        """PID 1's pid. Raises SlurmPluginError when the node is dead."""
        if self.pid is None:
            raise SlurmPluginError(f"{self.name} is dead\n  run: slurm-plugin sandbox heal {self.name}")
        return self.pid

    def slurmd(self) -> int | None:
        """The host's pid of the node's slurmd."""
        found = () if self.pid is None else machine.children(self.pid, "slurmd")
        return found[0] if found else None

    def run(self, *argv: str) -> None:
        """Run a command in the node as root. Raises SlurmPluginError with what it said."""
        _run(machine.enter_argv(self.root(), argv))


@dataclass(frozen=True, slots=True)
class Fault:
    """`mend` is None where only starting the daemon or the machine again helps: the sandbox does that."""

    about: str
    make: Callable[[Node], None]
    mend: Callable[[Node], None] | None
    active: Callable[[Node], bool]


def _empty_hosts(node: Node) -> None:
    machine.inside(node.root(), "/etc/hosts").write_text("", encoding="utf-8")


def _restore_hosts(node: Node) -> None:
    machine.inside(node.root(), "/etc/hosts").write_text(node.hosts, encoding="utf-8")


def _hosts_empty(node: Node) -> bool:
    return machine.inside(node.root(), "/etc/hosts").stat().st_size == 0


def _resize(path: str, size: str) -> Callable[[Node], None]:
    return lambda node: node.run("mount", "-o", f"remount,size={size}", path)


def _small(path: str) -> Callable[[Node], bool]:
    def active(node: Node) -> bool:
        found = os.statvfs(machine.inside(node.root(), path))
        return found.f_blocks * found.f_frsize <= SMALL_MB * 1024**2

    return active


def _last_gpu(node: Node) -> str:
    if node.gpus == 0:
        raise SlurmPluginError("this sandbox has no GPUs\n  run: slurm-plugin sandbox up --gpus 4")
    return f"/dev/fakegpu{node.gpus - 1}"


def _cover_gpu(node: Node) -> None:
    # The name still exists, as on a node whose driver lost the card; only its kind of file is wrong.
    machine.inside(node.root(), "/dev/.no-gpu").write_text("", encoding="utf-8")
    node.run("mount", "--bind", "/dev/.no-gpu", _last_gpu(node))


def _uncover_gpu(node: Node) -> None:
    node.run("umount", _last_gpu(node))


def _gpu_covered(node: Node) -> bool:
    return node.gpus > 0 and not stat.S_ISCHR(machine.inside(node.root(), _last_gpu(node)).stat().st_mode)


def _set_memlock(node: Node, soft: int) -> None:
    pid = node.slurmd()
    if pid is None:
        raise SlurmPluginError(f"{node.name} has no slurmd\n  run: slurm-plugin sandbox heal {node.name}")
    hard = resource.prlimit(pid, resource.RLIMIT_MEMLOCK)[1]
    resource.prlimit(pid, resource.RLIMIT_MEMLOCK, (soft, hard))


def _lower_memlock(node: Node) -> None:
    _set_memlock(node, LOW_MEMLOCK_BYTES)


def _restore_memlock(node: Node) -> None:
    _set_memlock(node, machine.limits(node.root())["memlock"][0])


def _memlock_low(node: Node) -> bool:
    pid = node.slurmd()
    return pid is not None and resource.prlimit(pid, resource.RLIMIT_MEMLOCK)[0] == LOW_MEMLOCK_BYTES


def _kill_slurmd(node: Node) -> None:
    pid = node.slurmd()
    if pid is not None:
        os.kill(pid, signal.SIGKILL)


def _slurmd_dead(node: Node) -> bool:
    return node.slurmd() is None


def _kill_node(node: Node) -> None:
    if node.pid is not None:
        machine.end(node.pid)


def _node_dead(node: Node) -> bool:
    return node.pid is None


def _hang_scratch(node: Node) -> None:
    try:
        fd = os.open(FUSE, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise MissingError(f"a mount that hangs needs {FUSE}: {error.strerror}\n  run: modprobe fuse") from error
    try:
        program = Path(hungmount.__file__).read_text(encoding="utf-8")
        argv = [machine.PYTHON, "-I", "-S", "-", str(fd), SCRATCH]
        _run(machine.enter_argv(node.root(), argv), text=program, files=[fd])
    finally:
        os.close(fd)


def _let_go_of_scratch(node: Node) -> None:
    # First what takes the questions: then they have all failed, and umount's own ones do, too.
    deadline = time.monotonic() + DEADLINE_S
    while (left := machine.children(node.root(), hungmount.NAME)) and time.monotonic() < deadline:
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    while _scratch_hangs(node):  # made twice, it is there twice
        node.run("umount", "--lazy", SCRATCH)


def _scratch_hangs(node: Node) -> bool:
    # The table alone: whoever asked the mount itself would hang as well.
    table = Path(f"/proc/{node.root()}/mountinfo").read_text(encoding="utf-8", errors="replace")
    return f" - fuse {hungmount.NAME} " in table


def _write_xid(node: Node) -> None:
    # Numbers only grow, as the kernel's do, so a line after a heal is a new one.
    now = time.monotonic_ns() // 1000
    with machine.inside(node.root(), KMSG).open("a", encoding="ascii") as log:
        log.write(f"4,{now},{now},-;{XID}\n")


def _forget_xid(node: Node) -> None:
    machine.inside(node.root(), KMSG).write_text("", encoding="ascii")


def _xid_there(node: Node) -> bool:
    log = machine.inside(node.root(), KMSG)
    return log.exists() and "NVRM: Xid" in log.read_text(encoding="ascii", errors="replace")


def _begin_to_flap(node: Node) -> None:
    machine.inside(node.root(), FLAPPING).write_text("", encoding="ascii")


def _end_flapping(node: Node) -> None:
    machine.inside(node.root(), FLAPPING).unlink(missing_ok=True)


def _flaps(node: Node) -> bool:
    return machine.inside(node.root(), FLAPPING).exists()


def _link(state: str) -> Callable[[Node], None]:
    def change(node: Node) -> None:
        _run(["nsenter", "--target", str(node.root()), "--net", "--", "ip", "link", "set", "eth0", state])

    return change


def _link_down(node: Node) -> bool:
    flags = machine.inside(node.root(), "/sys/class/net/eth0/flags").read_text(encoding="ascii")
    return not int(flags, 16) & init.IFF_UP


FAULTS: Final[Mapping[str, Fault]] = {
    "dns": Fault("its /etc/hosts is empty: no name resolves", _empty_hosts, _restore_hosts, _hosts_empty),
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
    "gpu-missing": Fault("its last GPU's file is no device any more", _cover_gpu, _uncover_gpu, _gpu_covered),
    "memlock-low": Fault(
        "slurmd's soft limit of locked memory is 64 KiB", _lower_memlock, _restore_memlock, _memlock_low
    ),
    "hung-mount": Fault(
        f"{SCRATCH} never answers: what asks it cannot be killed", _hang_scratch, _let_go_of_scratch, _scratch_hangs
    ),
    "xid": Fault(f"an Xid 79 stands in the kernel log, {KMSG}", _write_xid, _forget_xid, _xid_there),
    "flapping": Fault("/sandbox/bin/flapping fails at every other look", _begin_to_flap, _end_flapping, _flaps),
    "slurmd-dead": Fault("slurmd is killed; running programs live on", _kill_slurmd, None, _slurmd_dead),
    "node-dead": Fault("the machine and all that runs on it is gone", _kill_node, None, _node_dead),
    "network-cut": Fault("eth0 is down; running programs live on", _link("down"), _link("up"), _link_down),
}


def active(node: Node) -> tuple[str, ...]:
    """The faults that this node has now. A dead machine has no other."""
    if node.pid is None:
        return ("node-dead",)
    try:
        return tuple(name for name, fault in FAULTS.items() if name != "node-dead" and fault.active(node))
    except (FileNotFoundError, ProcessLookupError):  # it died while we looked
        return ("node-dead",)


def _run(argv: list[str], *, text: str = "", files: Sequence[int] = ()) -> None:
    done = subprocess.run(
        argv, input=text, pass_fds=files, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    if done.returncode != 0:
        raise SlurmPluginError(f"{' '.join(argv)} failed: {done.stderr.strip()}")
