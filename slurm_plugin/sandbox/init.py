"""PID 1 of a sandbox machine: it builds the machine's private root, then reaps processes and serves /dev/log.

Run as `python3 -I -S init.py MARKER DIRECTORY NAME` (machine.py). Standard library only and small, because a sandbox of
100 nodes runs it 101 times. The first process makes the namespaces, prints the host's pid of the second, and exits. The
second is the machine: if it is killed, the kernel ends all processes and mounts of the machine.

Run as `python3 -I -S - FD PATH` in a machine, with this text as its input (faults.py), it mounts a file system that
never answers, like that of a dead NFS server. FD is an open /dev/fuse. A process stays that reads every request and
answers only the first, FUSE_INIT. Callers wait in the kernel, and no signal ends the wait. If that process dies, the
kernel answers all requests with an error, so that no caller outlives its machine (fuse(4)).
"""

# pathlib would cost each PID 1 a megabyte:
# ruff: noqa: PTH101, PTH102, PTH103, PTH110, PTH112, PTH114, PTH115, PTH120, PTH123, PTH208, PTH211

import contextlib
import ctypes
import json
import os
import signal
import socket
import stat
import struct
import sys

# mount(2), umount2(2), sched.h
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 1 << 12, 1 << 14, 1 << 18
MNT_DETACH = 2
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x0002_0000, 0x0400_0000, 0x0800_0000
CLONE_NEWPID, CLONE_NEWNET = 0x2000_0000, 0x4000_0000

# Limits, not reservations. They exceed the checks' default thresholds, so that the checks pass as on a real node.
ROOT_SIZE, CACHE_SIZE, SHM_SIZE, SCRATCH_SIZE = "64g", "64g", "2g", "64g"
DEVICES = {
    "null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0),
}  # fmt: skip
FAKE_GPU = (1, 3)  # behaves as /dev/null
READY = b"1"
HUNG = "hung-mount"  # the name of the process, and the source in the mount table
# include/uapi/linux/fuse.h: fuse_in_header begins with len, opcode, unique; fuse_out_header; fuse_init_out
FUSE_INIT, MAJOR, MINOR, MAX_WRITE = 26, 7, 31, 4096
REQUEST, ANSWER = struct.Struct("=IIQ"), struct.Struct("=IiQ")
INITIALISED = struct.Struct("=IIIIHHIIHHI28x")
BUFFER = 1 << 17

libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *args: object) -> None:
    """Make a system call. Raises OSError with the call and its arguments."""
    if getattr(libc, name)(*args) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}{args}: {os.strerror(code)}")


def mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """Call mount(2)."""
    call(
        "mount",
        source.encode(),
        target.encode(),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        data.encode(),
    )


def bind(source: str, target: str, *, writable: bool) -> None:
    """Bind a directory or file to a target. Make the target if it is missing."""
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    elif not os.path.exists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    mount(source, target, None, MS_BIND)
    if not writable:
        mount("none", target, None, MS_REMOUNT | MS_BIND | MS_RDONLY)


def build_root(root: str, spec: dict) -> None:  # type: ignore[type-arg]
    """Fill `root`, an empty directory. The programs of the base are read-only, all else is private to the machine."""
    base = spec["base"]
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    mount("root", root, "tmpfs", 0, f"size={ROOT_SIZE},mode=755")
    for name in sorted(os.listdir(base)):
        source, target = f"{base.rstrip('/')}/{name}", f"{root}/{name}"
        if name not in ("usr", "bin", "sbin", "opt") and not name.startswith("lib"):
            continue
        if os.path.islink(source):
            os.symlink(os.readlink(source), target)
        elif os.path.isdir(source):
            bind(source, target, writable=False)
    for path, mode in (
        ("tmp", 0o1777), ("var/tmp", 0o1777), ("var/log", 0o755), ("var/lib", 0o755), ("var/spool", 0o755),
        ("run/lock", 0o1777), ("root", 0o700), ("cache", 0o755), ("proc", 0o555), ("sys", 0o555), ("dev", 0o755),
        ("scratch", 0o755), ("etc", 0o755), ("home", 0o755), (".etc/upper", 0o755), (".etc/work", 0o700),
    ):  # fmt: skip
        os.makedirs(f"{root}/{path}")
        os.chmod(f"{root}/{path}", mode)
    os.symlink("../run", f"{root}/var/run")
    overlay = f"lowerdir={spec['etc']},upperdir={root}/.etc/upper,workdir={root}/.etc/work"
    mount("etc", f"{root}/etc", "overlay", 0, overlay)
    mount("cache", f"{root}/cache", "tmpfs", MS_NOSUID | MS_NODEV, f"size={CACHE_SIZE},mode=1777")
    mount("scratch", f"{root}/scratch", "tmpfs", MS_NOSUID | MS_NODEV, f"size={SCRATCH_SIZE},mode=1777")
    mount("proc", f"{root}/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    mount("sysfs", f"{root}/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY)
    build_dev(f"{root}/dev", spec["gpus"])
    for each in spec["binds"]:
        bind(each["source"], root + each["target"], writable=each["writable"])
        if each["target"].startswith("/root/"):
            os.chmod(f"{root}/root", 0o711)  # noqa: S103 - users may pass through to that path only


def build_dev(dev: str, gpus: int) -> None:
    """Make a private /dev, with the fake GPUs."""
    mount("dev", dev, "tmpfs", MS_NOSUID, "size=1m,mode=755")
    gpu_files = {f"fakegpu{index}": FAKE_GPU for index in range(gpus)}
    for name, (major, minor) in (DEVICES | gpu_files).items():
        os.mknod(f"{dev}/{name}", stat.S_IFCHR | 0o666, os.makedev(major, minor))
        os.chmod(f"{dev}/{name}", 0o666)  # noqa: S103 - as every /dev has it; mknod's mode is subject to the umask
    for name, target in (
        ("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"), ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"), ("ptmx", "pts/ptmx"),
    ):  # fmt: skip
        os.symlink(target, f"{dev}/{name}")
    os.close(os.open(f"{dev}/kmsg", os.O_CREAT | os.O_WRONLY, 0o644))  # a private kernel log, empty
    for name in ("pts", "shm", "mqueue"):
        os.mkdir(f"{dev}/{name}")
    mount("devpts", f"{dev}/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620,gid=5")
    mount("shm", f"{dev}/shm", "tmpfs", MS_NOSUID | MS_NODEV, f"size={SHM_SIZE},mode=1777")
    mount("mqueue", f"{dev}/mqueue", "mqueue", MS_NOSUID | MS_NODEV | MS_NOEXEC)


def enter_root(root: str) -> None:
    """Make `root` the root of this mount namespace and detach every mount of the host."""
    os.chdir(root)
    call("pivot_root", b".", b".")  # the old root is stacked on the new one, see pivot_root(2), NOTES
    call("umount2", b".", MNT_DETACH)
    os.chdir("/")


def reap(*_: object) -> None:
    """Reap every child that has ended. The machine's orphans are children of PID 1."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def live(directory: str, name: str, ready: int) -> None:
    """Build the machine, report that it is ready, and serve /dev/log until killed."""
    os.setsid()
    os.umask(0o022)
    with open(f"{directory}/machines/{name}.json", encoding="utf-8") as file:
        spec = json.load(file)
    syslog = os.open(f"{directory}/log/{name}.syslog", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
    socket.sethostname(name)
    build_root(f"{directory}/root", spec)
    enter_root(f"{directory}/root")
    # Write bytes: in another root this Python does not find its encodings.
    with contextlib.suppress(OSError), open("/proc/sys/net/unix/max_dgram_qlen", "wb") as file:
        file.write(b"512")  # the value of systemd, so that bursts of lines are not lost
    log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    log.bind("/dev/log")
    os.chmod("/dev/log", 0o666)  # noqa: S103 - as every system logger has it
    signal.signal(signal.SIGCHLD, reap)
    os.write(ready, READY)
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.close(ready)
    while True:
        os.write(syslog, log.recv(65536).rstrip(b"\0\n") + b"\n")


def hung_mount(fd: int, path: str) -> None:
    """Mount the file system of the FUSE connection `fd` over a directory, for all users. Raises OSError."""
    options = f"fd={fd},rootmode=40755,user_id=0,group_id=0,allow_other"
    mount(HUNG, path, "fuse", MS_NOSUID | MS_NODEV, options)


def swallow(fd: int) -> None:
    """Read every request. Answer only the first, FUSE_INIT: before this answer, a signal can end a wait."""
    while True:
        _, operation, number = REQUEST.unpack_from(os.read(fd, BUFFER))
        if operation == FUSE_INIT:
            answer = INITIALISED.pack(MAJOR, MINOR, 0, 0, 0, 0, MAX_WRITE, 1, 0, 0, 0)
            os.write(fd, ANSWER.pack(ANSWER.size + len(answer), 0, number) + answer)


def hang(fd: int, path: str) -> None:
    """Mount a file system that never answers, and leave a process that reads its requests."""
    with open("/proc/self/comm", "w", encoding="ascii") as file:
        file.write(HUNG)
    hung_mount(fd, path)
    if os.fork() == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        swallow(fd)


def main() -> int:
    """Start a machine in new namespaces, and print its pid when it is ready; or mount a hanging file system."""
    if sys.argv[0] == "-":
        hang(int(sys.argv[1]), sys.argv[2])
        return 0
    _, _, directory, name = sys.argv
    got, ready = os.pipe()
    call("unshare", CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET)
    pid = os.fork()
    if pid == 0:
        os.close(got)
        live(directory, name, ready)
    os.close(ready)
    if os.read(got, 1) != READY:
        os.waitpid(pid, 0)
        return 1
    print(pid)
    return 0


if __name__ == "__main__":
    sys.exit(main())
