"""Read the compiled site file, which hooks and jobs use in place of the YAML.

Also names and times that several programs share. Standard library only.
"""

from __future__ import annotations

import os
import stat
import sys

TYPE_CHECKING = False  # as in `typing`; `typing` and `pathlib` would cost a prolog 7 ms
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Final

VERSION: Final = 1
FILE: Final = "compiled.json"
ARCHIVE: Final = "slurm_plugin.pyz"  # the code (slurm_plugin/site/archive.py)
LOCAL: Final = "/etc/"  # below it neither a user nor a file server can block root
MAX_BYTES: Final = 1 << 20  # of a site file
DEFAULT_ROOT: Final = "/etc/slurm/slurm_plugin"
KILL_SWITCH: Final = "DISABLED"  # while this file exists beside FILE, no hook does anything

# Settings that an earlier release did not compile. A package replaces the code and keeps the settings.
LATER: Final = {"gpu_job_map": [], "repeat_drains": 3, "burn_in": {"command": [], "deadline_s": 0.0}, "repair": {}}

# Slurm gives a node to another job when the epilog on that node has ended. A requeued job may start only some seconds
# after its epilogs on all nodes. So the shell script of EpilogSlurmctld reserves the nodes for root: Python would be
# too late. The worker (slurm_plugin.controller) deletes the reservation when the job is pending. A false mark in a
# user's token gains nothing: it reserves only nodes without another job, and only until the job may start.
RESERVATION_PREFIX: Final = "slurm_plugin_"  # the job id and the restart count follow in the reservation's name
RESERVATION_MADE: Final = "SLURM_PLUGIN_RESERVED"  # the script sets this variable if it made a reservation
RESERVATION_S: Final = 60  # after this time Slurm ends the reservation
# If only the mark requests the reservation: less than KillWait, for which a user's job can keep its nodes anyway.
RESERVATION_BY_WORD_S: Final = 20


# The lease of a node: how long its ranks may run without a beat, which the supervisor sends to each guard every BEAT_S.
BEAT_S: Final = 2.0
LEASE_S: Final = 12.0  # after the last beat the ranks of a node are stopped
LOST_S: Final = 60.0  # default silence of a node after which the supervisor treats it as lost
ANSWERS_A_BEAT: Final = 64  # most guards (one process on each node) that answer the same beat
LONGEST_PERIOD: Final = 8  # most beats until every guard has answered
# If only the supervisor's node is cut off, ranks may continue this long after `LOST_S` of silence. By then the
# supervisor has missed the answers of all guards and stopped its beats, and the lease of its node has expired.
CUT_OFF_S: Final = LONGEST_PERIOD * BEAT_S + LEASE_S


def beat_period(nodes: int) -> int:
    """Return the number of beats in which each guard of a job with `nodes` nodes answers once."""
    return min(LONGEST_PERIOD, -(-nodes // ANSWERS_A_BEAT))


def site_root() -> str:
    """Return the site directory of this code: the directory of the zip that Python imports from.

    The shell script of a hook opens the zip before Python starts, so a hook keeps its code if a new zip replaces it.
    """
    return os.path.dirname(os.path.realpath(sys.path[0]))  # noqa: PTH120


def deployed() -> bool:
    """Return whether this code runs from a site directory, even an incomplete one."""
    return os.path.exists(f"{site_root()}/{ARCHIVE}")  # noqa: PTH110


def plugin_command() -> list[str]:
    """Return the command that runs this code on another node: the deployed copy, or the installed package.

    -P: the job's directory may have a file with the name of a module, such as `types.py`. -E if this process has it.
    """
    option = "-EP" if sys.flags.ignore_environment else "-P"
    return [f"{site_root()}/bin/slurm-plugin"] if deployed() else [sys.executable, option, "-m", "slurm_plugin"]


def names_hooks(config: Mapping[str, str], root: str = DEFAULT_ROOT) -> bool:
    """Return whether the settings of slurmctld name a file of the site directory `root`."""
    return any(value.startswith(f"{root}/") for value in config.values())


def read(root: str) -> dict[str, Any]:
    """Return the settings compiled into `root`.

    Raises OSError if the file cannot be read, ValueError if it is not the plugin's or has another version.
    """
    from prechecks import quickjson  # noqa: PLC0415 - `json` imports `re`: 8 ms for every submission

    path = f"{root}/{FILE}"
    with open(path, encoding="utf-8") as file:  # noqa: PTH123
        settings = quickjson.loads(file.read())
    if not isinstance(settings, dict) or settings.get("v") != VERSION:
        raise ValueError(f"{path}: not a version {VERSION} file; run: slurm-plugin site install --apply")
    return {**LATER, **settings}


def slurm_bin() -> str:
    """Return the directory of Slurm's commands that the deployed site sets; empty if there is none, or unreadable."""
    try:
        return str(read(site_root()).get("slurm_bin", "")) if deployed() else ""
    except (OSError, ValueError):
        return ""


def fingerprint(path: str) -> int | None:
    """Return a checksum of a site file; None if it cannot be opened or is not a regular file."""
    from binascii import crc32  # noqa: PLC0415 - a C module that is part of most interpreters

    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        return crc32(file.read(MAX_BYTES)) if stat.S_ISREG(os.fstat(fd).st_mode) else None


def stale(settings: Mapping[str, Any], *, anywhere: bool = False) -> str:
    """Return a warning if this node's site file differs from the compiled one; empty if it is equal or absent.

    Compare contents, because a copy has other times. `anywhere`: also if the file is not below LOCAL; prologs must not
    read it then, because a file server may hang.
    """
    known: dict[str, Any] = settings.get("site_file") or {}
    here = fingerprint(known["path"]) if known and (anywhere or str(known["path"]).startswith(LOCAL)) else None
    if here is None or here == known["crc32"]:
        return ""
    return f"{known['path']} was changed since it was deployed; run: slurm-plugin site install --apply"
