"""The site's own file, `/etc/slurm/slurm_plugin.yaml`: typed, with a default for everything, compiled to JSON."""

import re
from pathlib import Path
from typing import Annotated, Any

import msgspec
import yaml
from msgspec import Meta

from prechecks import CHECKS
from slurm_plugin.compiled import VERSION
from slurm_plugin.errors import UsageError
from slurm_plugin.token import MAX_RETRIES

DEFAULT_PATH = Path("/etc/slurm/slurm_plugin.yaml")
DEFAULT_ROOT = "/etc/slurm/slurm_plugin"
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(B|KB|MB|GB|TB)", re.ASCII)
_SECONDS = re.compile(r"([0-9]+(?:\.[0-9]+)?)(s|m)", re.ASCII)
_UNITS = {"B": 0, "KB": 1, "MB": 2, "GB": 3, "TB": 4}

Count = Annotated[int, Meta(ge=0)]


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the site file."""


class DiskSize(Record, frozen=True):
    """Available space must be more than this, in binary units; null: not checked. Seed values of row A3."""

    root: str | None = "32GB"
    shm: str | None = "1GB"
    cache: str | None = "32GB"


class Ulimit(Record, frozen=True):
    """Soft limits must be more than this, in the units of `ulimit -a`. Seed values of row A4."""

    max_locked_memory_kb: Count = 16000
    open_files: Count = 1000000
    stack_size_kb: Count = 8000
    max_user_processes: Count = 1000000


class GpuCheck(Record, frozen=True):
    """The device file of GPU number %d, and how many a whole node has (null: only the job's own are looked at)."""

    device: str = "/dev/nvidia%d"
    count: Count | None = None


class Dns(Record, frozen=True):
    """Files of names that must resolve, beside the job's hosts."""

    hosts_files: tuple[str, ...] = ("/etc/volcano/*.host",)


class Prechecks(Record, frozen=True, rename="kebab"):
    """Thresholds of the checks, the deadline for all of them together, and those that every job gets."""

    deadline: str = "10s"
    mandatory: tuple[str, ...] = ()
    disk_size: DiskSize = DiskSize()
    ulimit: Ulimit = Ulimit()
    gpu_check: GpuCheck = GpuCheck()
    dns: Dns = Dns()


class SiteConfig(Record, frozen=True):
    """The whole site file."""

    infiniband_partitions: tuple[str, ...] = ()
    max_retries: Annotated[int, Meta(ge=0, le=MAX_RETRIES)] = MAX_RETRIES
    prechecks: Prechecks = Prechecks()
    python: str = "/usr/bin/python3"
    slurm_bin: str = "/usr/bin"
    command: str = f"{DEFAULT_ROOT}/bin/slurm-plugin"
    run_directory: str = "/run/slurm_plugin"
    spool_directory: str = "/var/spool/slurm_plugin"


def load(path: Path | None = None) -> SiteConfig:
    """Read the site file; without one, every default holds. Raises UsageError naming the path inside the file."""
    if path is None and not DEFAULT_PATH.exists():
        return SiteConfig()
    source = path or DEFAULT_PATH
    try:
        fields = yaml.safe_load(source.read_text(encoding="utf-8")) or {}
        config = msgspec.convert(fields, SiteConfig)
        compiled(config)
    except (OSError, yaml.YAMLError, ValueError) as error:
        raise UsageError(f"{source}: {error}\n  correct the file, then run the command again") from error
    return config


def compiled(config: SiteConfig) -> dict[str, Any]:
    """What hooks read: the same settings as plain JSON values, sizes in bytes, times in seconds."""
    checks = config.prechecks
    disks = msgspec.to_builtins(checks.disk_size)
    return {
        "v": VERSION,
        "infiniband_partitions": list(config.infiniband_partitions),
        "max_retries": config.max_retries,
        "slurm_bin": config.slurm_bin,
        "run_directory": config.run_directory,
        "spool_directory": config.spool_directory,
        "prechecks": {
            "deadline_s": seconds(checks.deadline),
            "mandatory": [_known(item) for item in checks.mandatory],
            "disk-size": {name: None if size is None else size_bytes(size) for name, size in disks.items()},
            "ulimit": msgspec.to_builtins(checks.ulimit),
            "gpu-check": msgspec.to_builtins(checks.gpu_check),
            "dns": msgspec.to_builtins(checks.dns),
        },
    }


def _known(item: str) -> str:
    """The id of a check, as it is."""
    items = [check.item for check in CHECKS]
    if item not in items:
        raise ValueError(f"{item!r} is no check; the checks are {', '.join(items)}")
    return item


def size_bytes(text: str) -> int:
    """Bytes of `32GB`, `512MB`, ...; binary units, as `df -h` counts."""
    found = _SIZE.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is no size; write it as 512MB, 32GB or 1.5TB")
    return int(float(found[1]) * 1024 ** _UNITS[found[2]])


def seconds(text: str) -> float:
    """Seconds of `10s` or `2m`."""
    found = _SECONDS.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is no time; write it as 10s or 2m")
    return float(found[1]) * (60 if found[2] == "m" else 1)
