"""A file system that fails, as that of a broken file server: the kernel hands each error to the program (fuse(4)).

Reading or writing each file gives an error. That of `hung` never answers until a signal ends the wait, as a mount of
NFS does.
"""

import errno
import os
import signal
import stat
import struct
from pathlib import Path

from slurm_plugin.sandbox import init
from slurm_plugin.sandbox.init import ANSWER, FUSE_INIT, INITIALISED, MAJOR, MAX_WRITE, MINOR

BROKEN, LOST = "/mnt/broken", "/mnt/lost"  # in a mount namespace, with an empty /mnt
HUNG = "hung"
FILES = {"disk": errno.EIO, "stale": errno.ESTALE, "full": errno.EDQUOT, HUNG: 0}  # in this order
ROOT = 1  # the node of the mount's directory; a file's is its place in FILES after that
PR_SET_PDEATHSIG = 1
# include/uapi/linux/fuse.h: opcodes; fuse_in_header, fuse_interrupt_in, fuse_attr, fuse_open_out
LOOKUP, FORGET, GETATTR, SETATTR, OPEN, READ, WRITE, RELEASE, FLUSH, INTERRUPT, BATCH_FORGET = (
    1, 2, 3, 4, 14, 15, 16, 18, 25, 36, 42,
)  # fmt: skip
REQUEST, NUMBER = struct.Struct("=IIQQ16x"), struct.Struct("=Q")
WITHOUT_CACHE = 1  # FOPEN_DIRECT_IO: the error comes from write(2) itself, not from a later one


def attributes(node: int) -> bytes:
    """The size and the mode of a node."""
    mode = stat.S_IFDIR | 0o755 if node == ROOT else stat.S_IFREG | 0o666
    return struct.pack("=QQ32x12xIIIIIII", node, 4096, mode, 1, 0, 0, 0, 4096, 0)


def answer(code: int, node: int, text: bytes) -> tuple[int, bytes]:
    """Return the error and the data that answer a request."""
    if code == FUSE_INIT:
        return 0, INITIALISED.pack(MAJOR, MINOR, 0, 0, 0, 0, MAX_WRITE, 1, 0, 0, 0)
    if code == LOOKUP:
        name = text.rstrip(b"\0").decode()
        if name not in FILES:
            return errno.ENOENT, b""
        found = ROOT + 1 + [*FILES].index(name)
        return 0, struct.pack("=QQQQII", found, 0, 0, 0, 0, 0) + attributes(found)
    if code in (GETATTR, SETATTR):
        return 0, struct.pack("=QII", 0, 0, 0) + attributes(node)
    if code == OPEN:
        return 0, struct.pack("=QII", 0, WITHOUT_CACHE, 0)
    if code in (READ, WRITE):
        return [*FILES.values()][node - ROOT - 1], b""
    return (0 if code in (RELEASE, FLUSH) else errno.ENOSYS), b""


def serve(fd: int) -> None:
    """Answer requests as long as the parent lives."""
    init.libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    def reply(number: int, error: int, data: bytes = b"") -> None:
        os.write(fd, ANSWER.pack(ANSWER.size + len(data), -error, number) + data)

    while True:
        request = os.read(fd, init.BUFFER)
        _, code, number, node = REQUEST.unpack_from(request)
        text = request[REQUEST.size :]
        if code == INTERRUPT:
            reply(NUMBER.unpack_from(text)[0], errno.EINTR)
        elif code not in (FORGET, BATCH_FORGET) and not (code in (READ, WRITE) and [*FILES][node - ROOT - 1] == HUNG):
            reply(number, *answer(code, node, text))


def mounted(place: str) -> int:
    """Mount the file system, and return its connection."""
    Path(place).mkdir()
    fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    init.hung_mount(fd, place)
    return fd


def make() -> int:
    """Mount a file system that fails, and one whose server is gone. Return the pid of the first one's server."""
    os.close(mounted(LOST))
    fd = mounted(BROKEN)
    if not (server := os.fork()):
        try:
            serve(fd)
        finally:
            os._exit(1)
    os.close(fd)
    return server
