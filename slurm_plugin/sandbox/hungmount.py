"""A mount that never answers, as one of a dead NFS server: what asks it waits in the kernel and no signal ends it.

Run in a machine as `python3 -I -S - FD PATH` with this text as its input (faults.py); standard library only. FD is an
open /dev/fuse. It mounts, leaves a process behind that takes every question and answers none, and ends. When that
process dies the kernel answers all of them with an error, so nothing outlives its machine (fuse(4)).
"""

import ctypes
import os
import struct
import sys

NAME = "hung-mount"  # of the process, and the source in the mount table
MS_NOSUID, MS_NODEV = 2, 4
# include/uapi/linux/fuse.h: fuse_in_header begins with len, opcode, unique; fuse_out_header; fuse_init_out
FUSE_INIT, MAJOR, MINOR, MAX_WRITE = 26, 7, 31, 4096
ASKED, ANSWER = struct.Struct("=IIQ"), struct.Struct("=IiQ")
INITIALISED = struct.Struct("=IIIIHHIIHHI28x")
BUFFER = 1 << 17


def mount(fd: int, path: str) -> None:
    """Mount it over a directory, for all users. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={fd},rootmode=40755,user_id=0,group_id=0,allow_other"
    flags = ctypes.c_ulong(MS_NOSUID | MS_NODEV)
    if libc.mount(NAME.encode(), path.encode(), b"fuse", flags, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), f"mount {path}: {os.strerror(ctypes.get_errno())}")


def swallow(fd: int) -> None:
    """Take every question and answer only the kernel's first one: before that it would wait where a signal ends it."""
    while True:
        _, operation, number = ASKED.unpack_from(os.read(fd, BUFFER))
        if operation == FUSE_INIT:
            answer = INITIALISED.pack(MAJOR, MINOR, 0, 0, 0, 0, MAX_WRITE, 1, 0, 0, 0)
            os.write(fd, ANSWER.pack(ANSWER.size + len(answer), 0, number) + answer)


def main() -> int:
    """Mount, and leave the other end behind."""
    fd = int(sys.argv[1])
    with open("/proc/self/comm", "w", encoding="ascii") as file:  # noqa: PTH123 - as in init.py
        file.write(NAME)
    mount(fd, sys.argv[2])
    if os.fork():
        return 0
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    swallow(fd)
    return 1


if __name__ == "__main__":
    sys.exit(main())
