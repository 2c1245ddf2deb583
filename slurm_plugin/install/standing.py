"""What stands on a machine, and what would be changed there: values alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from slurm_plugin.compiled import ARCHIVE, FILE, KILL_SWITCH
from slurm_plugin.install import chain
from slurm_plugin.slurm.releases import Release

PREVIOUS: Final = ".previous"  # behind the site directory's name: the version before
BACKUP: Final = ".before-slurm_plugin"  # behind slurm.conf's: the file as it was before the last change
UNFINISHED: Final = "UNFINISHED"  # stands in the site directory while it is being changed
# What is ours in the site directory, at its top; STALE: and goes where this version has it no more.
STALE: Final = ("chain", "lib", "lib.new", "lib.old")
OURS: Final = ("bin", "hooks", ARCHIVE, FILE, "job_submit.lua", "slurm.conf.fragment", *STALE)
SWITCHES: Final = (KILL_SWITCH, UNFINISHED)  # ours too, and of no version


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, or a directory, which has no content."""

    content: bytes | None
    mode: int
    uid: int = 0
    gid: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """One path: what stands there, None for nothing, and what will."""

    path: str
    before: Entry | None
    after: Entry | None


@dataclass(frozen=True, slots=True)
class Plan:
    """Changes in their order; what else there is to do, and to know; what must be edited first, for it is not clear."""

    changes: tuple[Change, ...] = ()
    notices: tuple[str, ...] = ()
    by_hand: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Standing:
    """What stands on this machine. Paths are absolute.

    `conf` is slurm.conf itself, where `beside` may hold a link to it: there Slurm looks for its other files.
    `included`: the files that it includes, None where one cannot be read. `leading`: the lines whose program, of the
    site's, runs our hook. `spool_owner`: SlurmUser. `in_use`: who still needs the site directory, in words.
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

    @property
    def lua(self) -> str:
        """Where slurmctld looks for job_submit.lua."""
        return f"{self.beside}/job_submit.lua"

    @property
    def own_lua(self) -> str:
        """Where the site's own stands while ours loads it."""
        return f"{self.beside}/{chain.OWN_LUA}"

    def of(self, folder: str) -> dict[str, Entry]:
        """What stands in a directory, by its name in there."""
        above = f"{folder}/"
        return {path.removeprefix(above): found for path, found in self.entries.items() if path.startswith(above)}

    @property
    def deployed(self) -> dict[str, Entry]:
        """The version in the site directory."""
        return {name: found for name, found in self.of(self.root).items() if top(name) in OURS}


def top(name: str) -> str:
    """The first part of a relative path."""
    return name.partition("/")[0]
