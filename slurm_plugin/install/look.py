"""What stands on this machine of what an installation changes: files, owners, slurm.conf and who still needs us."""

import os
import pwd
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from slurm_plugin import siteconfig
from slurm_plugin.doctor import measure
from slurm_plugin.errors import MissingError, SlurmPluginError, UsageError
from slurm_plugin.install import chain
from slurm_plugin.install.slurmconf import DamagedError, Setting, includes, settings, value, without
from slurm_plugin.install.standing import BACKUP, PREVIOUS, Entry, Standing
from slurm_plugin.site import plain_path
from slurm_plugin.siteconfig import SiteConfig
from slurm_plugin.slurm import ENDED, Slurm, releases

ROLES = ("controller", "node")
PLACES = (
    "/etc/slurm/slurm.conf",
    "/run/slurm/conf/slurm.conf",
)  # the second: what slurmd has of slurmctld (configless)


def standing(root: str, conf: str | None, role: str | None, config: SiteConfig, slurm: Slurm | None) -> Standing:
    """All of it. `conf` and `role` are found where they are None; without a door, or an answer, less is known.

    Raises MissingError where there is no slurm.conf, UsageError for a link where a directory is to be changed.
    """
    plain_path("root", root)
    given = _conf(conf)
    path, directory = os.path.realpath(given), str(Path(given).absolute().parent)
    text = Path(path).read_bytes().decode(errors="surrogateescape")
    try:
        found = settings(without(text))
    except DamagedError:
        found = settings(text)
    hosts = tuple(each.value.partition("(")[0] for each in found if each.name == "slurmctldhost")
    here = measure.is_controller({f"SlurmctldHost[{i}]": host for i, host in enumerate(hosts)}, os.uname().nodename)
    names = [path, path + BACKUP, f"{directory}/job_submit.lua", f"{directory}/{chain.OWN_LUA}"]
    places = [root, root + PREVIOUS, config.spool_directory]
    daemons = _daemons(slurm)
    return Standing(
        root=root,
        conf=path,
        beside=directory,
        controller=here if role is None else role == "controller",
        entries=dict(_entries(names, places)),
        included={name: _text(Path(directory, name)) for name in includes(text)},
        leading=frozenset(_leading(found, root)),
        release=releases.of(daemons.get("SLURM_VERSION", "")),
        spool=config.spool_directory,
        spool_owner=_account(value(found, "SlurmUser") or "root"),
        controllers=hosts,
        in_use=_in_use(slurm, daemons, root),
    )


def rendered(config: SiteConfig, root: str, site_file: siteconfig.SiteFile | None, canary: str) -> dict[str, Entry]:
    """The site directory as it should be, by name below it. Raises as `render_site` does."""
    found = measure.rendered(config, root, site_file, canary)
    return {name: Entry(each.content, stat.S_IMODE(each.mode)) for name, each in found.items() if name != "."}


def entry(path: str) -> Entry | None:
    """What stands at a path. Raises UsageError for a link, and for what is neither file nor directory."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        raise UsageError(f"{path} is neither a file nor a directory: put what it leads to in its place")
    content = None if stat.S_ISDIR(found.st_mode) else Path(path).read_bytes()
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
    """Where Slurm finds its configuration."""
    tried = [given] if given else list(filter(None, (os.environ.get("SLURM_CONF"), *PLACES)))
    for path in tried:
        if Path(path).is_file():
            return path
    raise MissingError(
        f"slurm.conf is not there: {', '.join(tried)}\n"
        "  try --slurm-conf PATH; or install on a controller, and copy the directory from there"
    )


def _leading(found: tuple[Setting, ...], root: str) -> Iterator[str]:
    for name, hook in chain.HOOKS.items():
        ours = f"{root}/hooks/{hook}"
        own = [each.value for each in found if each.name == name.lower() and not each.value.startswith(f"{root}/")]
        if own and measure.leads(own, ours):
            yield name


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _account(user: str) -> tuple[int, int] | None:
    """SlurmUser's ids, by its name or its number; None where this machine does not know it."""
    try:
        found = pwd.getpwuid(int(user)) if user.isdigit() else pwd.getpwnam(user)
    except KeyError:
        return None
    return found.pw_uid, found.pw_gid


def _daemons(slurm: Slurm | None) -> Mapping[str, str]:
    """slurmctld's settings; nothing where it does not answer, or Slurm's commands are not here."""
    try:
        return slurm.config() if slurm else {}
    except SlurmPluginError:
        return {}


def _in_use(slurm: Slurm | None, daemons: Mapping[str, str], root: str) -> str:
    """Who needs the site directory, in words; empty for nobody."""
    if not slurm or not daemons:
        return "slurmctld does not answer, so who needs it is not known"
    names = [f"{name}={text}" for name, text in daemons.items() if text.startswith(f"{root}/")]
    if names:
        return f"slurmctld has {names[0]} until it is told: scontrol reconfigure"
    try:
        ours = [job.id for job in slurm.jobs().values() if "[sp1;" in job.comment and job.state not in ENDED]
    except SlurmPluginError as error:
        return error.one_line
    more = f" and {len(ours) - 1} more" if len(ours) > 1 else ""
    return f"job {min(ours)}{more} of ours is not over" if ours else ""
