"""Find the `slurm-plugin` that batch scripts call, and what a cluster without one lacks. Standard library only."""

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from slurm_plugin.errors import MissingError, SlurmPluginError
from slurm_plugin.records import site_settings

if TYPE_CHECKING:
    from slurm_plugin.slurm import Slurm

NOT_INSTALLED: Final = "no admin has installed slurm_plugin on this cluster"
CONFIG_S: Final = 5.0  # for slurmctld's settings, which a submission does not need


def for_scripts(wanted: str) -> str:
    """Return the `slurm-plugin` that batch scripts call: `wanted` (the deployed one), else the one that runs now.

    If neither exists, return one beside Python or on the PATH. Raise MissingError if there is none.
    """
    import shutil  # noqa: PLC0415 - slow to import, and needed only here

    beside = os.path.join(os.path.dirname(sys.executable), "slurm-plugin")  # noqa: PTH118, PTH120
    running = os.path.abspath(sys.argv[0])  # noqa: PTH100
    if wanted and os.path.exists(wanted):  # noqa: PTH110
        return wanted
    if os.path.basename(running) == "slurm-plugin" and os.path.exists(running):  # noqa: PTH110, PTH119
        return running
    found = beside if os.path.exists(beside) else shutil.which("slurm-plugin")  # noqa: PTH110
    if not found:
        raise MissingError(
            f"{wanted} does not exist, and batch scripts need a slurm-plugin command\n"
            "  deploy it with: slurm-plugin site install --apply; or install the package: pip install slurm_plugin"
        )
    return found


def interpreter(command: str) -> str:
    """Return the Python of a command that pip has made, whose package each node must be able to import.

    Return an empty string for the deployed command, which says itself what it lacks.
    """
    try:
        with open(command, "rb") as file:  # noqa: PTH123
            first = os.fsdecode(file.readline(256)).strip()
    except OSError:
        return ""
    path = first.removeprefix("#!")
    is_python = os.path.basename(path).startswith("python") and not set(path) & set(" \t")  # noqa: PTH119
    return path if first.startswith("#!/") and is_python else ""


def options(environ: Mapping[str, str]) -> str:
    """Return the options of Python for a batch script.

    -P: see site_settings.plugin_command. -E: PYTHONHOME and PYTHONPATH, as of a module, are for the program. Without -E
    if Python finds slurm_plugin by such a variable.
    """
    own = os.path.dirname(site_settings.__file__)  # noqa: PTH120
    given = ":".join(environ.get(name, "") for name in ("PYTHONPATH", "PYTHONUSERBASE")).split(":")
    ways = (os.path.abspath, os.path.realpath)  # a directory there may have links to the packages
    found = any(way(own).startswith(f"{way(each)}/") for each in given if each for way in ways)
    return "-P" if found else "-EP"


def is_plain(command: str, door: "Callable[..., Slurm]") -> bool:
    """Return whether no admin has installed slurm_plugin on this cluster: slurm.conf names none of its files.

    Ask slurmctld once, only if this machine has no deployed command. False if it does not answer within CONFIG_S.
    """
    if os.path.exists(command):  # noqa: PTH110
        return False
    try:
        slurm = door(deadline_s=CONFIG_S, say=lambda _line: None)
        return not site_settings.names_hooks(slurm.config(), command.removesuffix("/bin/slurm-plugin"))
    except SlurmPluginError:
        return False


def without_installation(wanted: Any, command: str, door: "Callable[..., Slurm]") -> str:
    """Return what a spec or a script asks for and a cluster without an installation lacks; empty for nothing.

    `wanted`: a Spec, or the Features of a script.
    """
    lacks = {
        "retries": f"the job restarts itself, at most {wanted.retries} times, and bad nodes are not drained",
        "queue_timeout": "nothing ends the wait in the queue after a restart",
        "grow": "the job does not move to more nodes",
        "performance": "a slow job does not move to other nodes",
    }
    slow = getattr(wanted, "performance", None)
    asked = {"performance": slow and slow.action == "reschedule"}
    found = [f"\n  {key}: {text}" for key, text in lacks.items() if asked.get(key, getattr(wanted, key, None))]
    if not found or not is_plain(command, door):
        return ""
    return f"{NOT_INSTALLED}: what it has says slurm-plugin doctor{''.join(found)}"
