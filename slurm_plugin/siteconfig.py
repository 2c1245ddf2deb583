"""The site's own file, `/etc/slurm/slurm_plugin.yaml`: typed, with a default for everything, compiled to JSON."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

import prechecks
from slurm_plugin import validate, yamltext
from slurm_plugin.compiled import VERSION
from slurm_plugin.errors import UsageError
from slurm_plugin.token import MAX_RETRIES
from slurm_plugin.validate import Problem

DEFAULT_PATH = Path("/etc/slurm/slurm_plugin.yaml")
DEFAULT_ROOT = "/etc/slurm/slurm_plugin"
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(B|KB|MB|GB|TB)", re.ASCII)
_SECONDS = re.compile(r"([0-9]+(?:\.[0-9]+)?)(s|m)", re.ASCII)
_UNITS = {"B": 0, "KB": 1, "MB": 2, "GB": 3, "TB": 4}

Count = Annotated[int, Meta(ge=0, description="a whole number from 0")]
Retries = Annotated[int, Meta(ge=0, le=MAX_RETRIES, description=f"a whole number from 0 to {MAX_RETRIES}")]
Size = Annotated[str, Meta(pattern=rf"^{_SIZE.pattern}\Z", description="a size such as 512MB, 32GB or 1.5TB")]
Seconds = Annotated[str, Meta(pattern=rf"^{_SECONDS.pattern}\Z", description="a time such as 10s or 2m")]
Device = Annotated[str, Meta(pattern=r"^/[^%]*%d[^%]*\Z", description="a path with %d for the GPU's number")]
# Root's hooks hold these without quotes.
PlainPath = Annotated[
    str, Meta(pattern=r"^/[A-Za-z0-9._/+-]*\Z", description="an absolute path of letters, digits and ._/+-")
]


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the site file."""


class DiskSize(Record, frozen=True):
    """Available space must be more than this, in binary units; null: not checked. Seed values of row A3."""

    root: Size | None = "32GB"
    shm: Size | None = "1GB"
    cache: Size | None = "32GB"


class Ulimit(Record, frozen=True):
    """Soft limits must be more than this, in the units of `ulimit -a`. Seed values of row A4."""

    max_locked_memory_kb: Count = 16000
    open_files: Count = 1000000
    stack_size_kb: Count = 8000
    max_user_processes: Count = 1000000


class GpuCheck(Record, frozen=True):
    """The device file of GPU number %d, and how many a whole node has (null: only the job's own are looked at)."""

    device: Device = "/dev/nvidia%d"
    count: Count | None = None


class Dns(Record, frozen=True):
    """Files of names that must resolve, beside the job's hosts."""

    hosts_files: tuple[str, ...] = ("/etc/volcano/*.host",)


class Prechecks(Record, frozen=True, rename="kebab"):
    """Thresholds of the checks, the deadline for all of them together, and those that every job gets."""

    deadline: Seconds = "10s"
    mandatory: tuple[str, ...] = ()
    disk_size: DiskSize = DiskSize()
    ulimit: Ulimit = Ulimit()
    gpu_check: GpuCheck = GpuCheck()
    dns: Dns = Dns()


class SiteConfig(Record, frozen=True):
    """The whole site file."""

    infiniband_partitions: tuple[str, ...] = ()
    max_retries: Retries = MAX_RETRIES
    prechecks: Prechecks = Prechecks()
    python: PlainPath = "/usr/bin/python3"
    slurm_bin: PlainPath = "/usr/bin"
    command: PlainPath = f"{DEFAULT_ROOT}/bin/slurm-plugin"
    run_directory: PlainPath = "/run/slurm_plugin"
    spool_directory: PlainPath = "/var/spool/slurm_plugin"


def load(path: Path | None = None) -> SiteConfig:
    """Read the site file; without one, every default holds. Raises UsageError with everything that is wrong in it."""
    if path is None and not DEFAULT_PATH.exists():
        return SiteConfig()
    source = path or DEFAULT_PATH
    try:
        data = source.read_bytes()
    except OSError as error:
        raise UsageError(f"{source}: {error.strerror}\n  give the site file with: --config") from error
    document = yamltext.read(data, str(source)) if data.strip() else yamltext.Document({})
    config, problems = validate.record(document, SiteConfig)
    found = (*problems, *(_problems(config) if config else ()))
    validate.fail(found, document, str(source), so="nothing was done", again="slurm-plugin site render DIR")
    return config or SiteConfig()


def _problems(config: SiteConfig) -> Iterator[Problem]:
    """What is wrong beyond the type of each field."""
    items = [check.item for check in prechecks.CHECKS]
    for item in config.prechecks.mandatory:
        if item not in items:
            close = validate.nearest(item, items)
            yield Problem(("prechecks", "mandatory"), f"found {item!r}; accepted: {', '.join(items)}{close}")


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
            "mandatory": list(checks.mandatory),
            "disk-size": {name: None if size is None else size_bytes(size) for name, size in disks.items()},
            "ulimit": msgspec.to_builtins(checks.ulimit),
            "gpu-check": msgspec.to_builtins(checks.gpu_check),
            "dns": msgspec.to_builtins(checks.dns),
        },
    }


def size_bytes(text: str) -> int:
    """Bytes of `32GB`, `512MB`, ...; binary units, as `df -h` counts. Raises ValueError for any other text."""
    found = _SIZE.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is no size")
    return int(float(found[1]) * 1024 ** _UNITS[found[2]])


def seconds(text: str) -> float:
    """Seconds of `10s` or `2m`. Raises ValueError for any other text."""
    found = _SECONDS.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is no time")
    return float(found[1]) * (60 if found[2] == "m" else 1)
