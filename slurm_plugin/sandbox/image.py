"""What the machines of a sandbox share, prepared once: their base /etc, accounts, our own program, requirements."""

import os
import resource
import shutil
import sys
from pathlib import Path
from typing import Final

import slurm_plugin
from slurm_plugin.errors import MissingError
from slurm_plugin.sandbox import rootsteps
from slurm_plugin.sandbox.machine import PYTHON, Bind

USERS: Final = {"alice": 20001, "bob": 20002}
# Made by Debian's packages; where Slurm was built by hand, the machines get them all the same.
SERVICES: Final = {"slurm": 20010, "munge": 20011}
PROGRAMS: Final = ("slurmctld", "slurmd", "munged", "sinfo", "scontrol", "setpriv", "prlimit", "env")
HOST_PROGRAMS: Final = ("ip", "nsenter")
BIN_DIRECTORIES: Final = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin")
# Not for other machines' eyes, or theirs alone to say, or of no use there.
NOT_COPIED: Final = shutil.ignore_patterns(
    "shadow*", "gshadow*", "*-", ".pwd.lock", "ssh", "sudoers*", "munge", "slurm", "slurm-llnl", "hosts", "hostname",
    "resolv.conf", "mtab", "fstab", "machine-id", "private", "cron*", "systemd", "apt", "java*",
)  # fmt: skip


def require(base: Path) -> None:
    """Raise MissingError naming what is missing and how to get it."""
    if os.geteuid() != 0:
        raise MissingError(
            "the sandbox makes namespaces, mounts and accounts of its own, which only root may"
            f"\n  run: sudo {sys.executable} -m slurm_plugin sandbox up"
        )
    missing = [name for name in HOST_PROGRAMS if shutil.which(name) is None]
    missing += [name for name in PROGRAMS if not any((base / where / name).exists() for where in BIN_DIRECTORIES)]
    if not Path(PYTHON).exists():
        missing.append(PYTHON)
    if missing:
        where = "" if base == Path("/") else f" in {base}"
        root = "" if base == Path("/") else f"chroot {base} "
        raise MissingError(
            f"not found{where}: {', '.join(missing)}"
            f"\n  run: {root}apt-get install slurm-wlm munge iproute2 util-linux python3"
        )


def soft_limits() -> dict[str, int]:
    """This process's own soft limits in the site file's units (KiB or counts); -1 is unlimited."""
    units = {
        "max_locked_memory_kb": (resource.RLIMIT_MEMLOCK, 1024),
        "open_files": (resource.RLIMIT_NOFILE, 1),
        "stack_size_kb": (resource.RLIMIT_STACK, 1024),
        "max_user_processes": (resource.RLIMIT_NPROC, 1),
    }
    values = {name: (resource.getrlimit(number)[0], unit) for name, (number, unit) in units.items()}
    return {name: -1 if soft == resource.RLIM_INFINITY else soft // unit for name, (soft, unit) in values.items()}


def write_etc(base: Path, out: Path, hosts: str) -> None:
    """The /etc below every machine's own: the base's, less secrets, with the sandbox's hosts and accounts."""
    shutil.copytree(base / "etc", out, symlinks=True, ignore=NOT_COPIED)
    (out / "hosts").write_text(hosts, encoding="utf-8")
    (out / "resolv.conf").write_text("", encoding="utf-8")
    (out / "machine-id").write_text("0" * 31 + "1\n", encoding="utf-8")
    for name in ("passwd", "group"):
        path = out / name
        path.write_text(add_accounts(path.read_text(encoding="utf-8"), name), encoding="utf-8")
    switch = out / "nsswitch.conf"
    text = switch.read_text(encoding="utf-8") if switch.exists() else ""
    switch.write_text(name_service(text), encoding="utf-8")


def add_accounts(text: str, database: str) -> str:
    """`passwd` or `group` with the sandbox's accounts added; those that exist stay as they are."""
    have = {line.partition(":")[0] for line in text.splitlines()}
    lines = []
    for name, number in (USERS | SERVICES).items():
        if name in have:
            continue
        home, shell = (f"/home/{name}", "/bin/bash") if name in USERS else ("/nonexistent", "/usr/sbin/nologin")
        lines.append(
            f"{name}:x:{number}:{number}::{home}:{shell}\n" if database == "passwd" else f"{name}:x:{number}:\n"
        )
    return text + "".join(lines)


def name_service(text: str) -> str:
    """nsswitch.conf in which accounts and hosts come from files, as on a node that no directory service serves."""
    own = {"passwd": "files", "group": "files", "shadow": "files", "gshadow": "files", "hosts": "files dns"}
    kept = [line for line in text.splitlines() if line.partition(":")[0].strip() not in own]
    return "".join(f"{name}: {value}\n" for name, value in own.items()) + "\n".join(kept) + "\n"


def account(passwd: str, name: str) -> tuple[int, int]:
    """(uid, gid) of an account in the text of a passwd file. Raises KeyError."""
    for line in passwd.splitlines():
        fields = line.split(":")
        if fields[0] == name:
            return int(fields[2]), int(fields[3])
    raise KeyError(name)


def program_binds() -> tuple[Bind, ...]:
    """Our own program and its interpreter, so that `slurm-plugin` works in a machine for everybody.

    They are bound where every user can reach them, also when the checkout stands below a private /root.
    """
    prefix = Path(sys.prefix)
    package = Path(slurm_plugin.__file__).resolve().parent
    binds = [Bind(str(prefix), "/sandbox/venv")]
    if not package.is_relative_to(prefix.resolve()):
        names = ("slurm_plugin", "prechecks", "hostfiles", "templates", "examples")
        found = [package.parent / name for name in names if (package.parent / name).is_dir()]
        binds += [Bind(str(path), f"/sandbox/src/{path.name}") for path in found]
    interpreter = Path(sys.base_prefix).resolve()
    if interpreter.parts[1:2] not in (("usr",), ("opt",)):
        binds.append(Bind(str(interpreter), str(interpreter)))
    return tuple(binds)


def python(base: Path) -> str:
    """The root's own interpreter: that of the venv with pyslurm where `sandbox root` made one."""
    venv = f"{rootsteps.VENV}/bin/python3"
    # A link, which leads to a file of the root, not of this machine.
    return venv if base != Path("/") and os.path.lexists(f"{base}{venv}") else PYTHON


def program_wrapper(base: Path) -> str:
    """/sandbox/bin/slurm-plugin. Another root's Python cannot use our interpreter's packages: it needs its own."""
    program = "/sandbox/venv/bin/python3" if base == Path("/") else python(base)
    return f'#!/bin/sh\nPYTHONPATH=/sandbox/src${{PYTHONPATH:+:$PYTHONPATH}} exec {program} -m slurm_plugin "$@"\n'
