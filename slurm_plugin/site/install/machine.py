"""Inspect this machine before an installation, and perform a plan on it.

Each file is replaced as a whole. If a file has changed since the inspection, nothing is changed.
"""

import os
import pwd
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prechecks import files
from prechecks.measure import slurmconf
from slurm_plugin.errors import MissingError, SlurmPluginError, UsageError
from slurm_plugin.logs import signature
from slurm_plugin.records import token
from slurm_plugin.records.site_settings import ARCHIVE, FILE, KILL_SWITCH
from slurm_plugin.site import lua
from slurm_plugin.site.configuration import SiteConfig
from slurm_plugin.site.doctor import measure, site_names
from slurm_plugin.site.files import Entry, plain_path
from slurm_plugin.site.install import equipment
from slurm_plugin.site.slurmconf import HOOKS, DamagedError, Setting, settings, value, without
from slurm_plugin.slurm import ENDED, Slurm, releases
from slurm_plugin.slurm.releases import Release

PREVIOUS: Final = ".previous"  # suffix of the site directory: the previous version
BACKUP: Final = ".before-slurm_plugin"  # suffix of slurm.conf: the file before the last change
UNFINISHED: Final = "UNFINISHED"  # exists in the site directory during a change
# Our names at the top of the site directory. An installation removes those in STALE that it does not render.
STALE: Final = ("chain",)
OURS: Final = ("bin", "hooks", ARCHIVE, FILE, signature.FILE, "job_submit.lua", "slurm.conf.fragment", *STALE)
SWITCHES: Final = (KILL_SWITCH, UNFINISHED)  # our files that are not part of a version
ROLES = ("controller", "node")


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one path. None: the path does not exist."""

    path: str
    before: Entry | None
    after: Entry | None


@dataclass(frozen=True, slots=True)
class Plan:
    """Changes in order, and notices for the admin. `by_hand`: edits that the admin must make first."""

    changes: tuple[Change, ...] = ()
    notices: tuple[str, ...] = ()
    by_hand: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MachineState:
    """The state of this machine. Paths are absolute.

    `conf`: the real path of slurm.conf. `beside`: the directory of Slurm's other files: that of slurm.conf, or of
    the link to it. `included`: path -> text of an included file, None if it cannot be read; also of files that they
    include. `leading`: the parameters
    whose program belongs to the site and runs our hook. `spool_owner`: SlurmUser. `in_use`: why the site directory is
    still needed. `unknown`: the settings of the site file with names that Slurm does not know. `uncounted`: the number
    of nodes, or 0 if the site file lists equipment. `without_files`: the nodes with GPUs without known device files.
    """

    root: str
    conf: str
    beside: str
    controller: bool
    entries: Mapping[str, Entry]
    included: Mapping[str, str | None]
    leading: frozenset[str]
    release: Release | None
    spool: str
    spool_owner: tuple[int, int] | None
    controllers: tuple[str, ...] = ()
    in_use: str = ""
    unknown: tuple[site_names.Unknown, ...] = ()
    uncounted: int = 0
    without_files: str = ""

    @property
    def text(self) -> str:
        """The text of slurm.conf."""
        return (self.entries[self.conf].content or b"").decode(errors="surrogateescape")

    def whole(self, text: str) -> str:
        """Return a text of slurm.conf with the included files in their place. Raise ValueError for an endless chain."""
        return _whole(f"{self.beside}/{Path(self.conf).name}", text, self.included.get, self.release)

    @property
    def lua(self) -> str:
        """The path at which slurmctld reads job_submit.lua."""
        return f"{self.beside}/job_submit.lua"

    @property
    def own_lua(self) -> str:
        """The path of the site's own script while our script loads it."""
        return f"{self.beside}/{lua.OWN}"

    @property
    def lua_kind(self) -> str | None:
        """The kind of job_submit.lua (`lua.kind`); None if there is no such file."""
        found = self.entries.get(self.lua)
        return lua.kind(found.content or b"") if found else None

    @property
    def site_has_lua(self) -> bool:
        """Whether the site has its own job_submit.lua."""
        return self.lua_kind not in (None, "ours") or self.own_lua in self.entries

    def of(self, folder: str) -> dict[str, Entry]:
        """Return the entries below a directory by their relative paths."""
        above = f"{folder}/"
        return {path.removeprefix(above): found for path, found in self.entries.items() if path.startswith(above)}

    @property
    def deployed(self) -> dict[str, Entry]:
        """The files of the deployed version, by names below the site directory."""
        return {name: found for name, found in self.of(self.root).items() if top(name) in OURS}


def top(name: str) -> str:
    """Return the first part of a relative path."""
    return name.partition("/")[0]


def inspect(root: str, conf: str | None, role: str | None, config: SiteConfig, slurm: Slurm) -> MachineState:
    """Inspect the machine. If `conf` or `role` is None, find it. If Slurm does not answer, leave fields empty.

    Raise MissingError if there is no slurm.conf. Raise UsageError for a link in place of a file or directory.
    """
    plain_path("root", root)
    given = _conf(conf)
    path, directory = os.path.realpath(given), str(Path(given).absolute().parent)
    text = Path(path).read_bytes().decode(errors="surrogateescape")
    included: dict[str, str | None] = {}

    def read(name: str) -> str | None:
        return included.setdefault(name, measure.text(name))

    daemons = measure.config(slurm)
    release = releases.of(daemons.get("SLURM_VERSION", ""))
    with suppress(DamagedError):
        text = without(text)
    try:
        found = settings(_whole(f"{directory}/{Path(path).name}", text, read, release))
    except ValueError:  # the plan reports it
        found = settings(text)
    hosts = tuple(each.value.partition("(")[0] for each in found if each.name == "slurmctldhost")
    here = measure.is_controller(hosts, os.uname().nodename)
    files = [path, path + BACKUP, f"{directory}/job_submit.lua", f"{directory}/{lua.OWN}"]
    places = [root, root + PREVIOUS, config.spool_directory]
    nodes = measure.nodes(slurm)
    names = site_names.known(nodes, found)
    return MachineState(
        root=root,
        conf=path,
        beside=directory,
        controller=here if role is None else role == "controller",
        entries=dict(_entries(files, places)),
        included=included,
        leading=frozenset(_leading(found, root)),
        release=release,
        spool=config.spool_directory,
        spool_owner=_account(value(found, "SlurmUser") or "root"),
        controllers=hosts,
        in_use=_in_use(slurm, daemons, root),
        uncounted=0 if config.equipment else len(names.nodes),
        without_files=equipment.without_files(nodes, config, f"{directory}/gres.conf"),
        unknown=site_names.unknown(config, names),
    )


def _whole(path: str, text: str, read: Callable[[str], str | None], release: Release | None) -> str:
    """Return `text`, of slurm.conf at `path`, with the included files in their place; those that are None are empty."""
    beside_first = bool(release and release.includes_beside_slurm_conf)
    lines = slurmconf.lines(path, lambda name: text if name == path else read(name) or "", beside_first=beside_first)
    return "".join(f"{line}\n" for line in lines)


def entry(path: str) -> Entry | None:
    """Return the entry of a path; None if it does not exist. Raise UsageError if it is not a file or directory."""
    try:
        found = os.lstat(path)
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            raise UsageError(f"{path} is neither a file nor a directory: replace it by what it leads to")
        content = None if stat.S_ISDIR(found.st_mode) else Path(path).read_bytes()
    except FileNotFoundError:  # also one that the worker of the spool has removed meanwhile
        return None
    return Entry(content, stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid)


def _entries(names: list[str], places: list[str]) -> Iterator[tuple[str, Entry]]:
    try:
        for path in [*names, *places, *(str(path) for place in places for path in sorted(Path(place).rglob("*")))]:
            found = entry(path)
            if found:
                yield path, found
    except PermissionError as error:
        raise UsageError(f"{error.filename} cannot be read ({error.strerror}): run it as root") from error


def _conf(given: str | None) -> str:
    """Return `given`, or the first file of SLURM_CONF and slurmconf.PLACES. Raise MissingError."""
    tried = [given] if given else list(filter(None, (os.environ.get("SLURM_CONF"), *slurmconf.PLACES)))
    for path in tried:
        if Path(path).is_file():
            return path
    raise MissingError(
        f"slurm.conf is not there: {', '.join(tried)}\n"
        "  try --slurm-conf PATH; or install on a controller, and copy the directory from there"
    )


def _leading(found: tuple[Setting, ...], root: str) -> Iterator[str]:
    """Yield the parameters whose program belongs to the site and runs our hook."""
    for name, hook in HOOKS.items():
        ours = f"{root}/hooks/{hook}"
        own = [each.value for each in found if each.name == name.lower() and not each.value.startswith(f"{root}/")]
        if own and measure.leads(own, ours):
            yield name


def _account(user: str) -> tuple[int, int] | None:
    """Return the uid and gid of SlurmUser, a name or a number; None if it is unknown on this machine."""
    try:
        found = pwd.getpwuid(int(user)) if user.isdigit() else pwd.getpwnam(user)
    except KeyError:
        return None
    return found.pw_uid, found.pw_gid


def _in_use(slurm: Slurm, daemons: Mapping[str, str], root: str) -> str:
    """Return why the site directory is still needed; empty if it is not."""
    if not daemons:
        return "slurmctld does not answer, so it may still be in use"
    names = [f"{name}={text}" for name, text in daemons.items() if text.startswith(f"{root}/")]
    if names:
        return f"slurmctld uses {names[0]} until: scontrol reconfigure"
    try:
        ours = [job.id for job in slurm.jobs().values() if token.OPENING in job.comment and job.state not in ENDED]
    except SlurmPluginError as error:
        return error.one_line
    more = f" and {len(ours) - 1} more" if len(ours) > 1 else ""
    return f"not ended yet: job {min(ours)}{more} of slurm_plugin" if ours else ""


def perform(plan: Plan, root: str) -> None:
    """Make the changes in order. After an interruption, run it again for the remaining changes.

    Raise UsageError if the user is not root, or if others can replace `root`. Raise SlurmPluginError if a
    file differs from the plan, before any change, or if a change fails.
    """
    if os.geteuid() != 0:
        raise UsageError("only root can change what root's hooks run: run it as root")
    above = Path(root).parent
    while not above.is_dir():
        above = above.parent
    found = files.exposed(str(above))
    if found:
        raise UsageError(
            f"others than root can change {found}, above {root}\n  no hook runs from there: chown root, chmod go-w"
        )
    first: dict[str, Change] = {}
    for change in plan.changes:
        first.setdefault(change.path, change)
    for change in first.values():
        if entry(change.path) != change.before:
            raise SlurmPluginError(f"{change.path} differs from the plan; nothing was changed: run it again")
    for change in plan.changes:
        try:
            _make(change)
        except OSError as error:
            raise SlurmPluginError(
                f"{change.path}: {error.strerror}\n  the changes before it are made; run it again for the rest"
            ) from error


def _make(change: Change) -> None:
    path, after = change.path, change.after
    if after is None:
        if change.before is not None and change.before.content is None:
            with suppress(OSError):  # keep a directory that is not empty or a mount point
                os.rmdir(path)  # noqa: PTH106
        else:
            os.unlink(path)  # noqa: PTH108
    elif after.content is None:
        if change.before is None:
            os.mkdir(path, 0o700)  # noqa: PTH102
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchown(fd, after.uid, after.gid)
            os.fchmod(fd, after.mode)
        finally:
            os.close(fd)
    else:
        files.replace(path, after.content, mode=after.mode, uid=after.uid, gid=after.gid, durable=True)
