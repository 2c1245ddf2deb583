"""The context of `slurm-plugin check`: the site's settings with their file, and the job or a substitute for it."""

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import prechecks
from hostfiles import nodelist
from slurm_plugin.errors import MissingError, UsageError
from slurm_plugin.records import site_settings

DEFAULTS = "the defaults"
REMEMBER = "remember"  # a setting of checks: keep the values for the next run


class Site(NamedTuple):
    """The settings as hooks read them, and their file."""

    settings: Mapping[str, Any]
    source: str  # one or two paths, or DEFAULTS


def site(config: Path | None) -> Site:
    """Return the settings of `config`, else those compiled on this machine, else the site file's and the user's own.

    Raise UsageError for a file that cannot be used, MissingError if a package that reads it is missing.
    """
    root = site_settings.site_root() if site_settings.deployed() else site_settings.DEFAULT_ROOT
    path = f"{root}/{site_settings.FILE}"
    if config is None:
        try:
            return Site(site_settings.read(root), path)
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            raise UsageError(f"{path} cannot be used: {error}\n  give a site file with: --config FILE") from error
    try:
        from slurm_plugin.site import compilation, configuration  # noqa: PLC0415 - need packages that nodes lack
        from slurm_plugin.spec import submit_config  # noqa: PLC0415 - needs packages that nodes lack
    except ImportError as error:
        what = f"{config}: a site file cannot be read here" if config else f"{path} is not there"
        raise MissingError(f"{what}, only the node side is installed\n  run: pip install slurm_plugin") from error
    settings = configuration.load(config) if config else configuration.load_for_user()
    files = (config,) if config else (submit_config.DEFAULT_PATH, submit_config.own_path())
    there = [str(path) for path in files if path and path.exists()]
    return Site(compilation.compile_site(settings), " and ".join(there) or DEFAULTS)


def checked(settings: Mapping[str, Any], items: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the settings with which the checks read the values that hooks saved, and change nothing.

    The named `items` are mandatory, so they run as for a job that needs them.
    """
    checks = settings["prechecks"]
    return {**checks, "mandatory": [*checks["mandatory"], *(items or ())], REMEMBER: False}


def context(hook: str, environ: Mapping[str, str], site: Site, *, partition: str = "") -> prechecks.Context:
    """Return the context of the checks: the step's job inside a step, elsewhere a job with all GPUs of the node.

    `partition`: check as for a job of this partition. The shell of an allocation is not a step: it may run anywhere.
    """
    inside = "SLURMD_NODENAME" in environ
    partition = partition or (environ.get("SLURM_JOB_PARTITION", "") if inside else "")
    own = environ.get("SLURM_STEP_GPUS") or environ.get("SLURM_JOB_GPUS", "") if inside else ""
    gpus = tuple(int(gpu) for gpu in own.split(",") if gpu.isdigit())
    if not inside:
        gpus = all_gpus(site.settings["prechecks"]["gpu-check"])
    return prechecks.Context(
        hook=hook,
        node=node(environ),
        hosts=tuple(nodelist.names(environ.get("SLURM_JOB_NODELIST", ""))) if inside else (),
        gpus=gpus,
        infiniband=partition in site.settings["infiniband_partitions"],
        partition=partition,
    )


def node(environ: Mapping[str, str]) -> str:
    """Return Slurm's name for this node inside a step; elsewhere the host's name."""
    return environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0]


def job(environ: Mapping[str, str]) -> int | None:
    """Return the id of the job of this step; None outside a step."""
    number = environ.get("SLURM_JOB_ID", "") if "SLURMD_NODENAME" in environ else ""
    return int(number) if number.isdigit() else None


def all_gpus(own: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the numbers of the GPUs with a device file. If there is one, add the numbers below the site's `count`."""
    directory, _, pattern = own["device"].rpartition("/")
    before, _, after = pattern.partition("%d")
    try:
        names = os.listdir(directory or "/")  # noqa: PTH208 - names are all that is asked for
    except OSError:
        names = []
    alike = [name for name in names if name.startswith(before) and name.endswith(after)]
    cut = [name[len(before) : len(name) - len(after)] for name in alike]
    found = {int(number) for number in cut if number.isdecimal()}
    return tuple(sorted(found | set(range(own["count"] or 0)))) if found else ()
