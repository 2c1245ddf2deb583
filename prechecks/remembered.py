"""What a check has seen before on this node, in `<run directory>/state/<item>.json`.

`samples` is a list of [seconds since boot, {counter: value}], `boot` the boot that they are of. Root writes the file,
whole or not at all; users may read it. The seconds are CLOCK_BOOTTIME, which nobody sets back (clock_gettime(2)). The
boot is /proc/sys/kernel/random/boot_id (Documentation/admin-guide/sysctl/kernel.rst): another one has other counters.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    Sample = tuple[float, Mapping[str, int]]

BOOT_ID = "/proc/sys/kernel/random/boot_id"
MAX_CHARACTERS = 1 << 20  # 13 samples of 8 counters of 8 ports are 30 kB
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FRESH_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def recall(state: str, item: str, now: float) -> list[Sample]:
    """The samples of this boot before `now`, oldest first. `state` is the directory.

    None where nothing was kept, in a file that is not root's, and in one that is cut short. Raises OSError where the
    directory is a link, or not root's.
    """
    try:
        fd = opened(state, make=False)
    except FileNotFoundError:
        return []
    try:
        text = read(fd, f"{item}.json")
    finally:
        os.close(fd)
    return parse(text, boot_id(), now)


def keep(state: str, item: str, samples: Sequence[Sample]) -> None:
    """Put these samples in the place of those before, if we are root; nothing is kept for others. Raises OSError."""
    if os.geteuid() != 0:
        return
    fd = opened(state, make=True)
    try:
        write(fd, f"{item}.json", json.dumps({"boot": boot_id(), "samples": samples}))
    finally:
        os.close(fd)


def parse(text: str, boot: str, now: float) -> list[Sample]:
    """The samples in a file's text; none where it is not all there, or of another boot."""
    try:
        found = json.loads(text)
        samples = [
            (float(at), {str(name): int(value) for name, value in seen.items()}) for at, seen in found["samples"]
        ]
        if found["boot"] != boot:
            return []
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return []
    return sorted((sample for sample in samples if sample[0] < now), key=lambda sample: sample[0])


def boot_id() -> str:
    with open(BOOT_ID, encoding="ascii") as file:  # noqa: PTH123 - as in prechecks.gpu
        return file.read().strip()


def opened(state: str, *, make: bool) -> int:
    """The open directory; refused where it is a link, or where it or the run directory above it is not root's."""
    run_directory, _, name = state.rpartition("/")
    if make and not os.path.isdir(run_directory):  # noqa: PTH112 - as in slurm_plugin.hooks.node_directory
        os.makedirs(run_directory, exist_ok=True)  # noqa: PTH103
        os.chmod(run_directory, 0o755)  # noqa: PTH101, S103 - whatever the umask was: tasks find their file in here
    fds = [os.open(run_directory, _DIRECTORY)]
    try:
        _roots(fds[0], run_directory)
        if make:
            with suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=fds[0])
        fds.append(os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=fds[0]))
        _roots(fds[1], state)
        if make:
            os.fchmod(fds[1], 0o755)  # whatever the umask was
        return os.dup(fds[1])
    finally:
        for fd in fds:
            os.close(fd)


def _roots(fd: int, path: str) -> None:
    if os.fstat(fd).st_uid != 0:
        raise PermissionError(f"{path}: not owned by root; remove it")


def read(directory: int, file: str) -> str:
    """The text of a file of root's; empty where there is none, and for a link in its place: the next write takes it."""
    try:
        fd = os.open(file, _FILE, dir_fd=directory)
    except OSError:
        return ""
    with os.fdopen(fd, encoding="utf-8", errors="replace") as stream:
        return "" if os.fstat(fd).st_uid else stream.read(MAX_CHARACTERS)


def write(directory: int, file: str, text: str) -> None:
    """Put the file there as a whole; several prologs may do so at once, and the last one stays."""
    fresh = f".{file}.{os.getpid()}"
    with suppress(FileNotFoundError):
        os.unlink(fresh, dir_fd=directory)  # of a check with this number that was killed there
    with os.fdopen(os.open(fresh, _FRESH_FILE, 0o644, dir_fd=directory), "w", encoding="utf-8") as stream:
        stream.write(text)
        os.fchmod(stream.fileno(), 0o644)  # whatever the umask was
    os.rename(fresh, file, src_dir_fd=directory, dst_dir_fd=directory)
