"""Where a look by hand happens: the site's settings with the file that they are from, and what stands for a job."""

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import prechecks
from hostfiles import HostfileError, nodelist
from slurm_plugin import compiled
from slurm_plugin.errors import MissingError, UsageError
from slurm_plugin.job import itself

DEFAULTS = "the defaults"
REMEMBER = "remember"  # of the settings that checks get: whether what they see is kept for the next look


class Site(NamedTuple):
    """The settings as hooks read them, and the file that they are from."""

    settings: Mapping[str, Any]
    source: str  # a path, or DEFAULTS


def site(config: Path | None) -> Site:
    """The site file `config`; without one the settings compiled on this machine, else the site file, else the defaults.

    Raises UsageError for a file that cannot be read or is not right, MissingError where a package is needed for it.
    """
    root = compiled.site_root() if itself.deployed() else compiled.DEFAULT_ROOT
    path = f"{root}/{compiled.FILE}"
    if config is None:
        try:
            return Site(compiled.read(root), path)
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            raise UsageError(f"{path} cannot be used: {error}\n  give a site file with: --config FILE") from error
    try:
        from slurm_plugin import siteconfig, sitefile  # noqa: PLC0415 - need packages that a node does without
    except ImportError as error:
        what = f"{config}: a site file cannot be read here" if config else f"{path} is not there"
        raise MissingError(f"{what}, only the node side is installed\n  run: pip install slurm_plugin") from error
    there = config or (sitefile.DEFAULT_PATH if sitefile.DEFAULT_PATH.exists() else None)
    return Site(siteconfig.compiled(siteconfig.load(config)), str(there or DEFAULTS))


def checked(settings: Mapping[str, Any], items: Sequence[str] | None = None) -> dict[str, Any]:
    """The settings of the checks for a look by hand: it sees what was remembered, and leaves it as it is.

    `items` that are asked for by name are mandatory, so they are looked at as for a job that needs them.
    """
    checks = settings["prechecks"]
    return {**checks, "mandatory": [*checks["mandatory"], *(items or ())], REMEMBER: False}


def context(hook: str, environ: Mapping[str, str], site: Site, *, partition: str = "") -> prechecks.Context:
    """What the checks may know here: in a step of a job that job; elsewhere, as for a job that has all GPUs.

    `partition`: as for a job there. An allocation alone is no job here: its shell may run anywhere.
    """
    inside = "SLURMD_NODENAME" in environ
    partition = partition or (environ.get("SLURM_JOB_PARTITION", "") if inside else "")
    own = environ.get("SLURM_STEP_GPUS") or environ.get("SLURM_JOB_GPUS", "") if inside else ""
    gpus = tuple(int(gpu) for gpu in own.split(",") if gpu.isdigit())
    if not inside:
        gpus = all_gpus(site.settings["prechecks"]["gpu-check"])
    return prechecks.Context(
        hook=hook,
        node=environ.get("SLURMD_NODENAME") or socket.gethostname().partition(".")[0],
        hosts=_hosts(environ) if inside else (),
        gpus=gpus,
        infiniband=partition in site.settings["infiniband_partitions"],
        partition=partition,
    )


def job(environ: Mapping[str, str]) -> int | None:
    """The job in whose step this is; None outside."""
    number = environ.get("SLURM_JOB_ID", "") if "SLURMD_NODENAME" in environ else ""
    return int(number) if number.isdigit() else None


def all_gpus(own: Mapping[str, Any]) -> tuple[int, ...]:
    """The numbers of the GPUs whose device files stand here, and with one of them of all that the site counts."""
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


def _hosts(environ: Mapping[str, str]) -> Sequence[str]:
    try:
        return tuple(nodelist.expand(environ.get("SLURM_JOB_NODELIST", "")))
    except HostfileError:
        return ()
