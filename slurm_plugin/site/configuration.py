"""The site file, `/etc/slurm/slurm_plugin.yaml`: its types, its defaults and its accepted values."""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

import prechecks
from hostfiles import HostfileError, nodelist
from prechecks import check
from prechecks.check import Setting
from slurm_plugin.records import durations, features
from slurm_plugin.records.nearest import suggestion
from slurm_plugin.records.node_drains import MOST_PAST
from slurm_plugin.records.site_settings import LEASE_S, LOST_S
from slurm_plugin.records.token import MAX_RETRIES
from slurm_plugin.spec import documents, submit_config
from slurm_plugin.spec.documents import Document, Problem
from slurm_plugin.spec.policy_language import Hold, Part, hold_s
from slurm_plugin.spec.submit_config import PlainPath, SubmitConfig

LEAST_SILENCE_S, LONGEST_SILENCE_S = round(LEASE_S), 3600  # range of `node_timeout`; the least is a node's lease
# Minimum of `stage_in.keep`, time for a job to use the copy that it made, and of `logs.keep`.
LEAST_KEPT_S: Final = 3600
LONGEST_INTERVAL_S: Final = 65535  # slurmctld refuses to start with a longer HealthCheckInterval
LONGEST_DEADLINE_S: Final = 60  # a prolog must end within MessageTimeout, which is rarely longer
OFF: Final = "no"  # in place of a check's settings: no hook runs the check
_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(B|KB|MB|GB|TB)", re.ASCII)
_SECONDS: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(s|m)", re.ASCII)
_SPACE: Final = re.compile(rf"(/[^\0\n]*?) ({_SIZE.pattern})", re.ASCII)
_POWERS: Final = {"B": 0, "KB": 1, "MB": 2, "GB": 3, "TB": 4}
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)

Count = Annotated[int, Meta(ge=0, description="a whole number from 0")]
Positive = Annotated[int, Meta(ge=1, description="a whole number from 1")]
Drains = Annotated[int, Meta(ge=0, le=MOST_PAST, description=f"a whole number from 0 to {MOST_PAST}")]
Retries = Annotated[int, Meta(ge=0, le=MAX_RETRIES, description=f"a whole number from 0 to {MAX_RETRIES}")]
Size = Annotated[str, Meta(pattern=rf"^{_SIZE.pattern}\Z", description="a size such as 512MB, 32GB or 1.5TB")]
Seconds = Annotated[str, Meta(pattern=rf"^{_SECONDS.pattern}\Z", description="a time such as 10s or 2m")]
Device = Annotated[str, Meta(pattern=r"^/[^%]*%d[^%]*\Z", description="a path with %d for the GPU's number")]
Share = Annotated[float, Meta(ge=0, le=1, description="a number from 0 to 1")]
AbsolutePath = Annotated[str, Meta(pattern=r"^/[^\0\n]*\Z", description="an absolute path")]


def size_bytes(text: str) -> int:
    """Return the bytes of `32GB` or `512MB`. Units are binary, as in `df -h`. Raise ValueError for any other text."""
    found = _SIZE.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is no size")
    return int(float(found[1]) * 1024 ** _POWERS[found[2]])


def space(text: str) -> tuple[str, int]:
    """Return the path and the bytes of `/scratch 100GB`. Raise ValueError for any other text."""
    found = _SPACE.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is no path and size")
    return found[1], size_bytes(found[2])


def seconds(text: str) -> float:
    """Return the seconds of `10s` or `2m`. Raise ValueError for any other text."""
    found = _SECONDS.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is no time")
    return float(found[1]) * (60 if found[2] == "m" else 1)


def _port(text: str) -> int:
    """Return a port number. Raise ValueError for any other text."""
    if not _PORT.fullmatch(text) or int(text) > 65535:
        raise ValueError(f"{text!r} is no port")
    return int(text)


class Kind(NamedTuple):
    """How one kind of check setting (prechecks.check) is written in the site file and passed to hooks."""

    type: Any  # in the site file
    plain: Callable[[Any], Any] = lambda same: same  # converts a value for hooks; in a list, each item
    accepted: str = ""  # for the message if `plain` raises ValueError


KINDS: Final[Mapping[str, Kind]] = {
    check.SIZE: Kind(Size, size_bytes),
    check.SECONDS: Kind(Seconds, seconds),
    check.SPACES: Kind(tuple[str, ...], space, "a path and a size such as /scratch 100GB"),
    check.COUNT: Kind(Count),
    check.PORTS: Kind(tuple[str, ...], _port, "a number from 1 to 65535"),
    check.SHARE: Kind(Share),
    check.TEXT: Kind(str),
    check.TEXTS: Kind(tuple[str, ...]),
    check.PATH: Kind(AbsolutePath),
    check.PATHS: Kind(tuple[AbsolutePath, ...]),
    check.DEVICE: Kind(Device),
    check.FLAG: Kind(Literal["yes", "no"], lambda word: word == "yes"),
    check.NODES: Kind(str, nodelist.expand, "a node list such as n[1-4]"),
}


def plain(each: Setting, value: Any) -> Any:
    """Convert a value of the site file to the form that hooks read."""
    convert = KINDS[each.kind].plain
    if isinstance(value, list | tuple):
        return [convert(text) for text in value]
    return None if value is None else convert(value)


def _accepted(each: Setting) -> Any:
    """Return the type of one setting in the site file."""
    words: Any = Literal.__getitem__(each.accepted) if each.accepted else None
    kind = KINDS[each.kind].type if words is None else tuple[words, ...] if each.kind == check.TEXTS else words
    return kind | None if each.optional or each.default is None else kind


def _part(section: str, settings: Mapping[str, Setting]) -> Any:
    """Define the type of a check's section: its own settings and those that every check has."""
    every = {**settings, **check.COMMON}
    fields = [(name.replace("-", "_"), _accepted(each), each.default) for name, each in every.items()]
    name, names = section.title().replace("-", ""), {name.replace("-", "_"): name for name in every}
    words = {"accepted": f"{OFF}, or {{SETTING: VALUE}} with {', '.join(every)}"}
    return msgspec.defstruct(
        name, fields, bases=(Part,), frozen=True, forbid_unknown_fields=True, rename=names, namespace=words
    )


if TYPE_CHECKING:
    Prechecks: TypeAlias = Any
else:
    _PARTS = {section: _part(section, settings) for section, settings in prechecks.SECTIONS.items()}
    # One deadline for all checks of a run together, the checks that every job gets, and a section for each check.
    Prechecks = msgspec.defstruct(
        "Prechecks",
        [
            ("deadline", Seconds, "10s"),
            ("mandatory", tuple[str, ...], ()),
            *((section.replace("-", "_"), part, part()) for section, part in _PARTS.items()),
        ],
        bases=(Part,),
        frozen=True,
        forbid_unknown_fields=True,
        rename="kebab",
    )


class Periodic(Part, frozen=True):
    """The periodic check: its interval, and the number of failures or passes in a row before it acts."""

    interval: Seconds = "5m"
    failures: Positive = 3  # before a drain, for checks with shared or temporary causes
    passes: Positive = 3  # before it resumes a node that slurm_plugin drained


class Recovery(Part, frozen=True):
    """The recovery of jobs whose node failed."""

    queue_timeout: str = "30m"  # longest wait in the queue, unless the spec sets another
    node_timeout: Seconds = f"{LOST_S:g}s"  # time without a heartbeat before a running job treats a node as lost
    nice: Count = 1000  # subtracted from the Nice of a job whose node was drained or died


class BurnIn(Part, frozen=True):
    """The test that a node must pass before the periodic check resumes it."""

    command: tuple[str, ...] = ()  # a program and its arguments; empty: no burn-in
    deadline: Hold = "30m"  # then it is killed, and counts as failed
    before: Literal["resume"] = "resume"


class Logs(Part, frozen=True):
    """The records and logs of jobs."""

    keep: str = "30d"  # time after a job's end before `slurm-plugin clean` removes them
    diagnosis: Hold = "2s"  # longest time to diagnose the logs of a failed attempt; 0: do not diagnose them


class Equipment(Part, frozen=True):
    """The devices that these nodes should have. Checks compare them with those that exist."""

    gpus: Count = 0
    device: Device | None = None  # instead of gpu-check.device
    interfaces: tuple[str, ...] = ()


class SiteConfig(SubmitConfig, frozen=True):
    """The whole site file."""

    infiniband_partitions: tuple[str, ...] = ()
    max_retries: Retries = MAX_RETRIES
    max_hold: Hold = "4h"  # longest hold of the nodes of a job whose command failed
    max_grace: Hold = "1h"  # longest time for a program to save before it is killed
    extend_time: Hold = "0"  # how much longer than at first an owner may make the limit of a running job
    drain_cap: Share = 0.1  # share of a partition, at least one node, that slurm_plugin may drain
    repeat_drains: Drains = 3  # drains by different jobs in 30 days after which only an admin resumes a node; 0: never
    dry_run: Literal["yes", "no"] = "no"  # yes: only log drains and resumes, and write them to Comment
    notify: PlainPath | None = None  # program to run on each drain, resume and hold: COMMAND EVENT NODE|JOB TEXT
    metrics_directory: PlainPath | None = None  # the directory of node_exporter's textfile collector
    gpu_job_map: tuple[Literal["dcgm", "jobstats"], ...] = ()  # exporters that label the metrics of a GPU with its job
    periodic: Periodic = Periodic()
    burn_in: BurnIn = BurnIn()
    repair: Mapping[str, tuple[Literal["gpu-reset", "reboot", "report"], ...]] = {}  # item -> steps
    recovery: Recovery = Recovery()
    logs: Logs = Logs()
    prechecks: Prechecks = Prechecks()
    equipment: Mapping[str, Equipment] = {}  # node list -> the devices of each of these nodes
    sbatch: Mapping[str, str] = {}  # defaults for scripts that `slurm-plugin sbatch` submits
    clean: tuple[AbsolutePath, ...] = ("/dev/shm",)  # noqa: S108 - the epilog removes files of ended jobs there
    python: PlainPath = "/usr/bin/python3"
    slurm_bin: PlainPath = "/usr/bin"
    run_directory: PlainPath = "/run/slurm_plugin"
    spool_directory: PlainPath = "/var/spool/slurm_plugin"


def load(path: Path | None = None) -> SiteConfig:
    """Read the site file, or return the defaults if there is none. Raise UsageError with all problems in it."""
    source = str(path or submit_config.DEFAULT_PATH)
    return _record(_with_checks_off(submit_config.read(path)), source, submit_config.AGAIN)


def check_own(own: Document, where: str) -> Document:
    """Return a user's own file, with its checks that are off. Raise UsageError with all problems in it."""
    own = _with_checks_off(own)
    _record(own, where, submit_config.OWN_AGAIN)
    return own


def load_for_user() -> SiteConfig:
    """Read the site file, and below it this user's own. Raise UsageError with all problems in a file."""
    site, (own, where) = _with_checks_off(submit_config.read(None)), submit_config.read_own()
    config = _record(site, str(submit_config.DEFAULT_PATH), submit_config.AGAIN)
    if not own.fields:
        return config
    merged = submit_config.below(site.fields, check_own(own, where).fields)
    return _record(Document(merged), where, submit_config.OWN_AGAIN)


def _record(document: Document, source: str, again: str) -> SiteConfig:
    config, problems = documents.record(document, SiteConfig)
    found = (*problems, *(_problems(config) if config else ()))
    documents.fail(found, document, source, so="nothing was done", again=again)
    return config or SiteConfig()


def _with_checks_off(document: Document) -> Document:
    """For each check set to `no`, set an empty list of hooks."""
    parts = document.fields.get("prechecks")
    if not isinstance(parts, dict):
        return document
    off: dict[str, Any] = {
        name: {"hooks": []} for name, part in parts.items() if part == OFF and name in prechecks.SECTIONS
    }
    return Document({**document.fields, "prechecks": {**parts, **off}}, document.lines)


def _problems(config: SiteConfig) -> Iterator[Problem]:
    """Find problems beyond the type of each field."""
    yield from submit_config.problems(config)
    yield from _mandatory(config.prechecks)
    yield from _equipment(config.equipment)
    yield from _burn_in(config.burn_in)
    yield from _repair(config.repair)
    if not 1 <= seconds(config.periodic.interval) <= LONGEST_INTERVAL_S:
        text = f"found {config.periodic.interval!r}; accepted: a time from 1s to {LONGEST_INTERVAL_S}s"
        yield Problem(("periodic", "interval"), text)
    if not 1 <= seconds(config.prechecks.deadline) <= LONGEST_DEADLINE_S:
        text = f"found {config.prechecks.deadline!r}; accepted: a time from 1s to {LONGEST_DEADLINE_S}s"
        yield Problem(("prechecks", "deadline"), f"{text}, below MessageTimeout of slurm.conf")
    if not LEAST_SILENCE_S <= seconds(config.recovery.node_timeout) <= LONGEST_SILENCE_S:
        text = f"found {config.recovery.node_timeout!r}; accepted: {LEAST_SILENCE_S}s to {LONGEST_SILENCE_S}s"
        yield Problem(("recovery", "node_timeout"), text)
    if hold_s(config.logs.diagnosis) > LONGEST_DEADLINE_S:
        text = f"found {config.logs.diagnosis!r}; accepted: 0, or a time up to {LONGEST_DEADLINE_S}s"
        yield Problem(("logs", "diagnosis"), text)
    try:
        durations.wait(config.recovery.queue_timeout)
    except ValueError as error:
        text = f"found {config.recovery.queue_timeout!r}; accepted: {error}"
        yield Problem(("recovery", "queue_timeout"), text)
    for key, text in (("stage_in", config.stage_in.keep), ("logs", config.logs.keep)):
        try:
            if durations.seconds(text) < LEAST_KEPT_S:
                raise ValueError("1h or more, as 90s, 30m, 4h, 2d")
        except ValueError as error:
            yield Problem((key, "keep"), f"found {text!r}; accepted: {error}")
    for key, wrong in features.of_a_site(config.sbatch):
        yield Problem((features.OF_A_SITE, key), wrong)
    parts = msgspec.to_builtins(config.prechecks)
    for section, settings in prechecks.SECTIONS.items():
        for name, each in {**settings, **check.COMMON}.items():
            for text in _setting_problems(each, parts[section][name]):
                yield Problem(("prechecks", section, name), text)


def _mandatory(checks: Any) -> Iterator[Problem]:
    """Find mandatory checks that do not exist or that no hook runs."""
    place = ("prechecks", "mandatory")
    sections = {check.item: check.section or check.item for check in prechecks.CHECKS}
    for item in checks.mandatory:
        if item not in sections:
            close = suggestion(item, sections)
            yield Problem(place, f"found {item!r}; accepted: {', '.join(sections)}{close}")
        elif getattr(checks, sections[item].replace("-", "_")).hooks == ():
            yield Problem(place, f"found {item!r}, which is switched off; accepted: items that a hook runs")


def _burn_in(own: BurnIn) -> Iterator[Problem]:
    """Find a program without a path, and a deadline that no program meets."""
    if own.command and not own.command[0].startswith("/"):
        text = f"found {own.command[0]!r}; accepted: an absolute path, then arguments"
        yield Problem(("burn_in", "command"), text)
    if not hold_s(own.deadline):
        yield Problem(("burn_in", "deadline"), f"found {own.deadline!r}; accepted: a time such as 30m or 4h")


def _repair(repair: Mapping[str, tuple[str, ...]]) -> Iterator[Problem]:
    """Find items that do not exist, and steps after a report, which is the last one."""
    items = [check.item for check in prechecks.CHECKS]
    for item, steps in repair.items():
        if item not in items:
            yield Problem(("repair", item), f"found {item!r}; accepted: {', '.join(items)}{suggestion(item, items)}")
        if "report" in steps[:-1]:
            yield Problem(("repair", item), f"found {', '.join(steps)}; accepted: report as the last step")


def _equipment(equipment: Mapping[str, Equipment]) -> Iterator[Problem]:
    """Find keys that are not node lists, and nodes that occur twice."""
    seen: set[str] = set()
    for nodes in equipment:
        try:
            names = nodelist.expand(nodes)
        except HostfileError as error:
            yield Problem(("equipment", nodes), f"found {error}; accepted: a node list such as n[1-4]")
            continue
        if twice := sorted(seen & set(names)):
            yield Problem(("equipment", nodes), f"found {twice[0]} a second time; accepted: each node once")
        seen.update(names)


def _setting_problems(each: Setting, value: Any) -> Iterator[str]:
    """Find problems in the values of one setting."""
    for text in value if isinstance(value, list | tuple) else (value,):
        try:
            plain(each, text)
        except ValueError as error:
            found = error if isinstance(error, HostfileError) else repr(text)
            yield f"found {found}; accepted: {KINDS[each.kind].accepted}"
