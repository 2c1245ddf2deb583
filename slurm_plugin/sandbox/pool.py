"""The sandboxes of tests: start one when a test needs it, restore it before the next test, remove it at the end."""

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from slurm_plugin.errors import SlurmPluginError, UsageError
from slurm_plugin.sandbox import machine, roots
from slurm_plugin.sandbox.image import SEEN
from slurm_plugin.sandbox.machine import Bind, parse_bind
from slurm_plugin.sandbox.sandbox import Sandbox

RESTORE_DEADLINE_S: Final = 300.0  # only a hang takes longer
# Directories that each machine has itself.
OWN: Final = tuple("/ /dev /etc /home /opt /proc /root /run /sys /tmp /usr /var /var/tmp".split())  # noqa: SIM905


class Pool:
    """The running sandboxes, one for each kind that a test needs."""

    def __init__(self, roots: Path, binds: Iterable[Bind]) -> None:
        """Start nothing. `roots`: the directory with roots of other releases."""
        self._roots, self._binds = roots, tuple(binds)
        self._boxes: dict[tuple[object, ...], Sandbox] = {}
        self._ends = ExitStack()

    def close(self) -> None:
        """Remove every sandbox."""
        self._ends.close()

    def ready(self, nodes: int, gpus: int, release: str, *, accounting: bool, hooks: bool) -> Sandbox:
        """Return a sandbox without jobs and faults, with every node idle. Raise SlurmPluginError."""
        kind = (nodes, gpus, release, accounting, hooks)
        box = self._boxes.get(kind)
        if box is None:
            root = find_root(release, self._roots)
            started = running(new_directory(), nodes, gpus, root, self._binds, hooks=hooks, accounting=accounting)
            box = self._boxes[kind] = self._ends.enter_context(started)
        else:
            restore(box)
        box.route_to_host()
        return box


def new_directory() -> Path:
    """Make an empty directory. Its path is short enough for a sandbox."""
    return Path(tempfile.mkdtemp(prefix="box-", dir=os.environ.get("TMPDIR", "/var/tmp")))  # noqa: S108


@contextmanager
def running(
    directory: Path,
    nodes: int,
    gpus: int,
    root: Path | None = None,
    binds: Iterable[Bind] = (),
    *,
    hooks: bool = True,
    accounting: bool = False,
) -> Iterator[Sandbox]:
    """Start a sandbox, and remove it at the end, also if SIGTERM ends the tests."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    box = Sandbox(directory)
    box.up(nodes, gpus, root, binds, hooks=hooks, accounting=accounting)
    try:
        yield box
    finally:
        box.down()


def find_root(release: str, directory: Path) -> Path | None:
    """Return the root directory with a release of Slurm, such as `26.05`; None for this machine's Slurm.

    `release` may also be the absolute path of a root. Raise UsageError if `directory` has no root with it.
    """
    if release.startswith("/"):
        return Path(release)
    own = machine.run(["slurmctld", "-V"]).stdout.split()[-1:] if shutil.which("slurmctld") else []
    if not release or any(version.startswith(f"{release}.") for version in own):
        return None
    found = {path: roots.read(path) for path in sorted(directory.glob("*"))}
    for path, built in found.items():
        if built and built.slurm.startswith(f"{release}."):
            return path
    have = ", ".join([*own, *(built.slurm for built in found.values() if built)]) or "none"
    raise UsageError(
        f"no Slurm {release} here; found: {have}\n"
        f"  run: slurm-plugin sandbox root {'|'.join(roots.SUITES)} {directory}/NAME"
    )


def visible(writable: Iterable[Path], prefix: Path, more: Iterable[str]) -> tuple[Bind, ...]:
    """Return the binds that show these directories in the machines, at the same paths.

    `prefix` is the virtual environment, `more` are lines SRC[:DST][:rw]. Leave out directories that are seen anyway,
    and those that each machine has itself.
    """
    found: list[Path] = []
    for path in (*writable, prefix):
        seen = any(path.is_relative_to(each) for each in found)
        seen |= path == prefix and path.parts[1:2] in SEEN
        if not seen and str(path) not in OWN:
            found.append(path)
    lines = (parse_bind(":".join(os.path.expanduser(part) for part in line.split(":"))) for line in more)  # noqa: PTH111
    return (*(Bind(str(path), str(path), writable=path != prefix) for path in found), *lines)


def cancel(box: Sandbox) -> list[str]:
    """Cancel every job that has not ended, and return the ids."""
    jobs = box.run(["squeue", "-h", "-o", "%A"], user="root").stdout.split()
    if jobs:
        box.run(["scancel", *jobs], user="root", check=False)
    return jobs


def heal(box: Sandbox) -> None:
    """Undo every fault."""
    for row in box.status().machines:
        if row.faults:
            box.heal_node(row.name)


def restore(box: Sandbox) -> None:
    """Heal every node, cancel every job, and resume the nodes. Raise SlurmPluginError if this does not succeed."""
    heal(box)
    deadline = time.monotonic() + RESTORE_DEADLINE_S
    while True:
        jobs = cancel(box)
        states = box.states()
        for name, state in states.items():
            if state != "idle" and not jobs:
                box.heal_node(name, resume=True)
        if not jobs and set(box.states().values()) == {"idle"}:
            return
        if time.monotonic() > deadline:
            raise SlurmPluginError(f"jobs {jobs}, nodes {states} {RESTORE_DEADLINE_S:.0f} s after a test")
        time.sleep(0.1)


def slurms_view(box: Sandbox) -> str:
    """Return what Slurm shows of jobs and nodes."""
    text = ""
    for words in (["squeue", "-o", "%i %T %u %N %r"], ["sinfo", "-N", "-o", "%N %T %E"]):
        with suppress(SlurmPluginError, subprocess.TimeoutExpired):
            text += box.run(words, user="root", timeout=30).stdout
    return text
