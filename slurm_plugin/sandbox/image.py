"""The parts that all machines of a sandbox share: /etc, accounts, slurm_plugin. Also the requirements of `up`."""

import os
import re
import resource
import shutil
import sys
from pathlib import Path
from typing import Final

import slurm_plugin
from slurm_plugin.errors import MissingError
from slurm_plugin.sandbox import rootsteps
from slurm_plugin.sandbox.machine import PYTHON, Bind
from slurm_plugin.site.files import OLDEST_PYTHON

USERS: Final = {"alice": 20001, "bob": 20002, "carol": 20003}
TEAM: Final = ("team", 20100, ("alice", "bob"))  # a group: its name, its number, its members
# Debian's packages make these accounts; machines need them even if Slurm was built by hand.
SERVICES: Final = {"slurm": 20010, "munge": 20011}
PROGRAMS: Final = ("slurmctld", "slurmd", "munged", "sinfo", "scontrol", "setpriv", "prlimit", "env")
ACCOUNTING: Final = ("slurmdbd", "sacctmgr", "mariadb", "mariadbd", "mariadb-install-db", "my_print_defaults")
# For releases whose python3 is too old: RHEL 8 and 9, Ubuntu 22.04.
NEWER: Final = tuple(f"/usr/bin/python3.{minor}" for minor in (12, 11, 13, 14))
HOST_PROGRAMS: Final = ("ip", "nsenter")
# A checkout has templates and examples beside these packages, a wheel has them inside the packages.
PACKAGES: Final = ("slurm_plugin", "prechecks", "hostfiles")
SEEN: Final = (("usr",), ("opt",))  # directories of the host that all machines have
BIN_DIRECTORIES: Final = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin")
# Files of /etc that are secret, different on each machine, or useless in a sandbox.
NOT_COPIED: Final = shutil.ignore_patterns(
    "shadow*", "gshadow*", "*-", ".pwd.lock", "ssh", "sudoers*", "munge", "slurm", "slurm-llnl", "hosts", "hostname",
    "resolv.conf", "mtab", "fstab", "machine-id", "private", "cron*", "systemd", "apt", "java*",
)  # fmt: skip


def require(base: Path, *, accounting: bool = False) -> None:
    """Raise MissingError if the user is not root, or if a program is missing."""
    if os.geteuid() != 0:
        raise MissingError(
            "the sandbox makes namespaces, mounts and accounts of its own, which only root may"
            f"\n  run: sudo {sys.executable} -m slurm_plugin sandbox up"
        )
    missing = [name for name in HOST_PROGRAMS if shutil.which(name) is None]
    missing += [name for name in (*PROGRAMS, *(ACCOUNTING if accounting else ())) if not has(base, name)]
    if not Path(PYTHON).exists():
        missing.append(PYTHON)
    if missing:
        where = "" if base == Path("/") else f" in {base}"
        root = "" if base == Path("/") else f"chroot {base} "
        raise MissingError(
            f"not found{where}: {', '.join(missing)}"
            f"\n  run: {root}apt-get install slurm-wlm munge iproute2 util-linux python3"
            + (" slurmdbd mariadb-server-core mariadb-client-core" if accounting else "")
        )


def soft_limits() -> dict[str, int]:
    """Return the soft limits of this process in the units of the site file (KiB or counts); -1 is unlimited."""
    units = {
        "max_locked_memory_kb": (resource.RLIMIT_MEMLOCK, 1024),
        "open_files": (resource.RLIMIT_NOFILE, 1),
        "stack_size_kb": (resource.RLIMIT_STACK, 1024),
        "max_user_processes": (resource.RLIMIT_NPROC, 1),
    }
    values = {name: (resource.getrlimit(number)[0], unit) for name, (number, unit) in units.items()}
    return {name: -1 if soft == resource.RLIM_INFINITY else soft // unit for name, (soft, unit) in values.items()}


# Not a shell script: dash would drop exported functions, and `submit` passes the environment to jobs.
WRAPPER = """\
#!{python}
import os
import sys

PACKAGES = "/sandbox/src"
sys.path.insert(0, PACKAGES)
others = os.environ.get("PYTHONPATH")
os.environ["PYTHONPATH"] = f"{{PACKAGES}}:{{others}}" if others else PACKAGES
from slurm_plugin.__main__ import main

sys.exit(main())
"""


def write_etc(base: Path, out: Path, hosts: str) -> None:
    """Write the /etc that all machines share: the base's without secrets, with the sandbox's hosts and accounts."""
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
    """Return `passwd` or `group` with the sandbox's accounts added. Existing accounts do not change."""
    have = {line.partition(":")[0] for line in text.splitlines()}
    lines = []
    for name, number in (USERS | SERVICES).items():
        if name in have:
            continue
        home, shell = (f"/home/{name}", "/bin/bash") if name in USERS else ("/nonexistent", "/usr/sbin/nologin")
        lines.append(
            f"{name}:x:{number}:{number}::{home}:{shell}\n" if database == "passwd" else f"{name}:x:{number}:\n"
        )
    group, gid, members = TEAM
    if database == "group" and group not in have:
        lines.append(f"{group}:x:{gid}:{','.join(members)}\n")
    return text + "".join(lines)


def name_service(text: str) -> str:
    """Return nsswitch.conf that reads accounts and hosts from files, as on a node without a directory service."""
    own = {"passwd": "files", "group": "files", "shadow": "files", "gshadow": "files", "hosts": "files dns"}
    kept = [line for line in text.splitlines() if line.partition(":")[0].strip() not in own]
    return "".join(f"{name}: {value}\n" for name, value in own.items()) + "\n".join(kept) + "\n"


def account(passwd: str, name: str) -> tuple[int, int]:
    """Return (uid, gid) of an account in the text of a passwd file. Raises KeyError."""
    for line in passwd.splitlines():
        fields = line.split(":")
        if fields[0] == name:
            return int(fields[2]), int(fields[3])
    raise KeyError(name)


def program_binds() -> tuple[Bind, ...]:
    """Return the binds of slurm_plugin and its interpreter, so that every user of a machine can run `slurm-plugin`.

    All users can read the targets, even if the sources are below a private /root. The packages are separate from the
    venv, for the Python of another root. The interpreter keeps its path: the venv's links and its library path contain
    that path.
    """
    prefix = Path(sys.prefix)
    package = Path(slurm_plugin.__file__).resolve().parent
    names = PACKAGES if package.is_relative_to(prefix.resolve()) else (*PACKAGES, "templates", "examples")
    found = [package.parent / name for name in names if (package.parent / name).is_dir()]
    binds = [Bind(str(prefix), "/sandbox/venv"), *(Bind(str(path), f"/sandbox/src/{path.name}") for path in found)]
    interpreters = dict.fromkeys((Path(sys.base_prefix), Path(sys.base_prefix).resolve()))  # uv uses a link
    return (*binds, *(Bind(str(each), str(each)) for each in interpreters if each.parts[1:2] not in SEEN))


def python(base: Path) -> str:
    """Return the interpreter of a root: that of the pyslurm venv if `sandbox root` made one."""
    venv = f"{rootsteps.VENV}/bin/python3"
    # lexists: the link leads to a file of the root, not of this machine.
    if base != Path("/") and os.path.lexists(f"{base}{venv}"):
        return venv
    return next((found for found in (PYTHON, *NEWER) if _is_new(base, found)), PYTHON)


def _is_new(base: Path, python: str) -> bool:
    """Follow an interpreter's links in the root. Return whether the name of the target has a new enough version."""
    path = python
    for _ in range(8):
        link = base / path.lstrip("/")
        if not link.is_symlink():
            break
        path = os.path.normpath(Path(path).parent / link.readlink())
    found = re.fullmatch(r"python3\.(\d+)", Path(path).name)
    return bool(found) and (base / path.lstrip("/")).exists() and (3, int(found[1] if found else 0)) >= OLDEST_PYTHON


def program_wrapper(base: Path) -> str:
    """Return the text of /sandbox/bin/slurm-plugin. The Python of another root needs that root's packages."""
    return WRAPPER.format(python=_program(base))


def python_wrapper(base: Path) -> str:
    """Return the text of /sandbox/bin/python, with the packages of the venv that ran `up`, or of the root."""
    return f'#!/bin/sh\nexec {_program(base)} "$@"\n'


def _program(base: Path) -> str:
    return "/sandbox/venv/bin/python3" if base == Path("/") else python(base)


def has(base: Path, program: str) -> bool:
    """Return whether the root has a program, or a link with its name, on the machines' PATH."""
    return any(os.path.lexists(base / where / program) for where in BIN_DIRECTORIES)
