"""The site's own file, `/etc/slurm/slurm_plugin.yaml`: typed, with a default for everything, compiled to JSON."""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

import prechecks
from hostfiles import HostfileError, nodelist
from prechecks import setting
from prechecks.setting import Setting
from slurm_plugin import compiled as deployed
from slurm_plugin import durations, sitefile, validate
from slurm_plugin.compiled import VERSION, fingerprint
from slurm_plugin.job.lease import LEASE_S, LOST_S
from slurm_plugin.nearest import suggestion
from slurm_plugin.policy import language
from slurm_plugin.policy.language import Hold
from slurm_plugin.sitefile import PlainPath, Record, SubmitConfig
from slurm_plugin.token import MAX_RETRIES
from slurm_plugin.validate import Problem
from slurm_plugin.wrapper import features

LEAST_SILENCE_S, LONGEST_SILENCE_S = round(LEASE_S), 3600  # of `node_timeout`: no less than a node's lease lasts
LEAST_KEPT_S: Final = 3600  # of `stage_in`: longer than a job takes from its copy to its first look at it
LONGEST_INTERVAL_S: Final = 65535  # of HealthCheckInterval: slurmctld does not start with a longer one
LONGEST_DEADLINE_S: Final = 60  # a prolog should end within MessageTimeout, and no site's is much longer
DEFAULT_ROOT = deployed.DEFAULT_ROOT
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(B|KB|MB|GB|TB)", re.ASCII)
_PORT = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)
_SECONDS = re.compile(r"([0-9]+(?:\.[0-9]+)?)(s|m)", re.ASCII)
_SPACE = re.compile(rf"(/[^\0\n]*?) ({_SIZE.pattern})", re.ASCII)
_UNITS = {"B": 0, "KB": 1, "MB": 2, "GB": 3, "TB": 4}

Count = Annotated[int, Meta(ge=0, description="a whole number from 0")]
Positive = Annotated[int, Meta(ge=1, description="a whole number from 1")]
Retries = Annotated[int, Meta(ge=0, le=MAX_RETRIES, description=f"a whole number from 0 to {MAX_RETRIES}")]
Size = Annotated[str, Meta(pattern=rf"^{_SIZE.pattern}\Z", description="a size such as 512MB, 32GB or 1.5TB")]
Seconds = Annotated[str, Meta(pattern=rf"^{_SECONDS.pattern}\Z", description="a time such as 10s or 2m")]
Device = Annotated[str, Meta(pattern=r"^/[^%]*%d[^%]*\Z", description="a path with %d for the GPU's number")]
Share = Annotated[float, Meta(ge=0, le=1, description="a number from 0 to 1")]
AbsolutePath = Annotated[str, Meta(pattern=r"^/[^\0\n]*\Z", description="an absolute path")]


# What the site file accepts for each kind of setting that a check has (prechecks.setting).
KINDS: Final[Mapping[str, Any]] = {
    setting.SIZE: Size,
    setting.SECONDS: Seconds,
    setting.SPACES: tuple[str, ...],
    setting.COUNT: Count,
    setting.PORTS: tuple[str, ...],
    setting.SHARE: Share,
    setting.TEXT: str,
    setting.TEXTS: tuple[str, ...],
    setting.PATH: AbsolutePath,
    setting.PATHS: tuple[AbsolutePath, ...],
    setting.DEVICE: Device,
    setting.FLAG: Literal["yes", "no"],
    setting.NODES: str,
}


def _accepted(each: Setting) -> Any:
    """The type of one setting in the site file."""
    words: Any = Literal.__getitem__(each.accepted) if each.accepted else None
    kind = KINDS[each.kind] if words is None else tuple[words, ...] if each.kind == setting.TEXTS else words
    return kind | None if each.optional or each.default is None else kind


def _part(section: str, settings: Mapping[str, Setting]) -> Any:
    """A part of the site file with these settings and those that every check has."""
    every = {**settings, **setting.COMMON}
    fields = [(name.replace("-", "_"), _accepted(each), each.default) for name, each in every.items()]
    name, names = section.title().replace("-", ""), {name.replace("-", "_"): name for name in every}
    return msgspec.defstruct(name, fields, bases=(Record,), frozen=True, forbid_unknown_fields=True, rename=names)


if TYPE_CHECKING:
    Prechecks: TypeAlias = Any
else:
    _PARTS = {section: _part(section, settings) for section, settings in prechecks.SECTIONS.items()}
    # The time for all checks of one round together, the items that every job gets, and a part for each check.
    Prechecks = msgspec.defstruct(
        "Prechecks",
        [
            ("deadline", Seconds, "10s"),
            ("mandatory", tuple[str, ...], ()),
            *((section.replace("-", "_"), part, part()) for section, part in _PARTS.items()),
        ],
        bases=(Record,),
        frozen=True,
        forbid_unknown_fields=True,
        rename="kebab",
    )


class Periodic(Record, frozen=True):
    """HealthCheckProgram: how often it looks, and how often in a row something must be so before it acts."""

    interval: Seconds = "5m"
    failures: Positive = 3  # of an item whose causes many nodes share
    passes: Positive = 3  # before a node that we drained is back


class Recovery(Record, frozen=True):
    """Jobs that were requeued because of us."""

    queue_timeout: str = "30m"  # how long such a job may wait, unless its spec says otherwise
    node_timeout: Seconds = f"{LOST_S:g}s"  # for how long one of a running job may be silent until it counts as lost
    nice: Count = 1000  # by how much its Nice is lowered where a drain of ours, or a node's death, is the cause


class SiteConfig(SubmitConfig, frozen=True):
    """The whole site file."""

    infiniband_partitions: tuple[str, ...] = ()
    max_retries: Retries = MAX_RETRIES
    max_hold: Hold = "4h"  # of a job's nodes after its command has failed
    drain_cap: Share = 0.1  # of a partition's nodes, and at least one, may be out by our doing
    dry_run: Literal["yes", "no"] = "no"  # yes: nothing is drained or resumed; log and Comment say what would be
    notify: PlainPath | None = None  # called for each drain, resume and hold: COMMAND EVENT NODE|JOB WORDS
    metrics_directory: PlainPath | None = None  # of node_exporter's textfile collector
    periodic: Periodic = Periodic()
    recovery: Recovery = Recovery()
    prechecks: Prechecks = Prechecks()
    sbatch: Mapping[str, str] = {}  # features of every script that `slurm-plugin sbatch` submits
    clean: tuple[AbsolutePath, ...] = ("/dev/shm",)  # noqa: S108 - what is cleaned of others' files
    python: PlainPath = "/usr/bin/python3"
    slurm_bin: PlainPath = "/usr/bin"
    run_directory: PlainPath = "/run/slurm_plugin"
    spool_directory: PlainPath = "/var/spool/slurm_plugin"


def load(path: Path | None = None) -> SiteConfig:
    """Read the site file; without one, every default holds. Raises UsageError with everything that is wrong in it."""
    document = sitefile.read(path)
    config, problems = validate.record(document, SiteConfig)
    found = (*problems, *(_problems(config) if config else ()))
    validate.fail(found, document, str(path or sitefile.DEFAULT_PATH), so="nothing was done", again=sitefile.AGAIN)
    return config or SiteConfig()


def _problems(config: SiteConfig) -> Iterator[Problem]:
    """What is wrong beyond the type of each field."""
    yield from sitefile.problems(config)
    items = [check.item for check in prechecks.CHECKS]
    for item in config.prechecks.mandatory:
        if item not in items:
            close = suggestion(item, items)
            yield Problem(("prechecks", "mandatory"), f"found {item!r}; accepted: {', '.join(items)}{close}")

    if not 1 <= seconds(config.periodic.interval) <= LONGEST_INTERVAL_S:
        text = f"found {config.periodic.interval!r}; accepted: a time from 1s to {LONGEST_INTERVAL_S}s"
        yield Problem(("periodic", "interval"), text)
    if not 1 <= seconds(config.prechecks.deadline) <= LONGEST_DEADLINE_S:
        text = f"found {config.prechecks.deadline!r}; accepted: a time from 1s to {LONGEST_DEADLINE_S}s"
        yield Problem(("prechecks", "deadline"), f"{text}, below MessageTimeout of slurm.conf")
    if not LEAST_SILENCE_S <= seconds(config.recovery.node_timeout) <= LONGEST_SILENCE_S:
        text = f"found {config.recovery.node_timeout!r}; accepted: {LEAST_SILENCE_S}s to {LONGEST_SILENCE_S}s"
        yield Problem(("recovery", "node_timeout"), text)
    try:
        durations.wait(config.recovery.queue_timeout)
    except ValueError as error:
        text = f"found {config.recovery.queue_timeout!r}; accepted: {error}"
        yield Problem(("recovery", "queue_timeout"), text)
    try:
        if durations.seconds(config.stage_in.keep) < LEAST_KEPT_S:
            raise ValueError("1h or more, as 90s, 30m, 4h, 2d")
    except ValueError as error:
        yield Problem(("stage_in", "keep"), f"found {config.stage_in.keep!r}; accepted: {error}")
    for key, wrong in features.of_a_site(config.sbatch):
        yield Problem((features.OF_A_SITE, key), wrong)
    for section, settings in prechecks.SECTIONS.items():
        part = msgspec.to_builtins(getattr(config.prechecks, section.replace("-", "_")))
        for name, each in {**settings, **setting.COMMON}.items():
            for text in _wrong(each, part[name]):
                yield Problem(("prechecks", section, name), text)


def _wrong(own: Setting, value: Any) -> Iterator[str]:
    """What is wrong with the texts of one setting, each for itself."""
    if own.kind == setting.NODES and value is not None:
        try:
            nodelist.expand(value)
        except HostfileError as error:
            yield f"found {error}; accepted: a node list such as n[1-4]"
    if own.kind == setting.SPACES:
        for text in value:
            if not _SPACE.fullmatch(text):
                yield f"found {text!r}; accepted: a path and a size such as /scratch 100GB"
    if own.kind == setting.PORTS:
        for text in value:
            if not _PORT.fullmatch(text) or int(text) > 65535:
                yield f"found {text!r}; accepted: a number from 1 to 65535"


class SiteFile(NamedTuple):
    """Where a site file is, and what tells it from another one; `crc32` is None where there was none."""

    path: str
    crc32: int | None


def site_file(path: Path | None = None) -> SiteFile:
    """The file that `load` reads."""
    where = str((path or sitefile.DEFAULT_PATH).absolute())
    return SiteFile(where, fingerprint(where))


def compiled(config: SiteConfig, source: SiteFile | None = None) -> dict[str, Any]:
    """What hooks read: the same settings as plain JSON values, sizes in bytes, times in seconds; and their source."""
    return {
        "v": VERSION,
        "site_file": source and source._asdict(),
        "infiniband_partitions": list(config.infiniband_partitions),
        "max_retries": config.max_retries,
        "check_partitions": list(config.policy.checks),
        "max_hold_s": language.hold_s(config.max_hold),
        "hold_rules": language.holds(config.policy),
        "drain_cap": config.drain_cap,
        "dry_run": config.dry_run == "yes",
        "notify": config.notify or "",
        "metrics_directory": config.metrics_directory or "",
        "periodic": {"failures": config.periodic.failures, "passes": config.periodic.passes},
        "recovery": {
            "queue_timeout_s": durations.wait(config.recovery.queue_timeout),
            "nice": config.recovery.nice,
            "node_timeout_s": seconds(config.recovery.node_timeout),
        },
        "stage_in": {
            "directory": config.stage_in.directory or "",
            "keep_s": durations.seconds(config.stage_in.keep),
        },
        "clean": list(config.clean),
        "sbatch": dict(config.sbatch),
        "command": config.command,
        "slurm_bin": config.slurm_bin,
        "run_directory": config.run_directory,
        "spool_directory": config.spool_directory,
        "prechecks": {
            "deadline_s": seconds(config.prechecks.deadline),
            "mandatory": list(config.prechecks.mandatory),
            "state": f"{config.run_directory}/state",  # what checks remember from one time to the next
            **{section: _compiled(section, config.prechecks) for section in prechecks.SECTIONS},
        },
    }


def _compiled(section: str, checks: Any) -> dict[str, Any]:
    """One part as its check reads it; of the settings that every check has those that the site has set."""
    part = msgspec.to_builtins(getattr(checks, section.replace("-", "_")))
    own = {name: _plain(each, part[name]) for name, each in prechecks.SECTIONS[section].items()}
    common = {name: _plain(each, part[name]) for name, each in setting.COMMON.items() if part[name] is not None}
    return {**own, **common}


def _plain(each: Setting, value: Any) -> Any:
    """A value of the site file as hooks read it."""
    if value is None:
        return None
    plain: Mapping[str, Callable[[Any], Any]] = {
        setting.SIZE: size_bytes,
        setting.SECONDS: seconds,
        setting.PORTS: lambda texts: [int(text) for text in texts],
        setting.SPACES: lambda texts: [space(text) for text in texts],
        setting.FLAG: lambda word: word == "yes",
        setting.NODES: nodelist.expand,
        setting.TEXTS: list,
        setting.PATHS: list,
    }
    return plain.get(each.kind, lambda same: same)(value)


def size_bytes(text: str) -> int:
    """Bytes of `32GB`, `512MB`, ...; binary units, as `df -h` counts. Raises ValueError for any other text."""
    found = _SIZE.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is no size")
    return int(float(found[1]) * 1024 ** _UNITS[found[2]])


def space(text: str) -> tuple[str, int]:
    """The path and the bytes of `/scratch 100GB`. Raises ValueError for any other text."""
    found = _SPACE.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is no path and size")
    return found[1], size_bytes(found[2])


def seconds(text: str) -> float:
    """Seconds of `10s` or `2m`. Raises ValueError for any other text."""
    found = _SECONDS.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is no time")
    return float(found[1]) * (60 if found[2] == "m" else 1)
