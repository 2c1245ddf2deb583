"""Made-up states of a machine."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from slurm_plugin.site.files import Entry
from slurm_plugin.site.install.machine import Change, MachineState, Plan
from slurm_plugin.slurm.releases import RELEASES

ROOT, CONF, SPOOL = "/etc/slurm/slurm_plugin", "/etc/slurm/slurm.conf", "/var/spool/slurm_plugin"
LUA, OWN_LUA = "/etc/slurm/job_submit.lua", "/etc/slurm/job_submit.site.lua"
SLURM = (64030, 64030)
SITES_LUA = Entry(b"function slurm_job_submit() return 0 end\n", 0o640, *SLURM)


def file(text: str, mode: int = 0o644) -> Entry:
    """Return a file that root owns."""
    return Entry(text.encode(), mode)


def rendered(version: int = 1) -> dict[str, Entry]:
    """Return a small site directory."""
    fragment = (
        f"# lines\nProlog={ROOT}/hooks/prolog\nEpilogSlurmctld={ROOT}/hooks/epilog_slurmctld\nJobSubmitPlugins=lua\n"
    )
    return {
        "hooks": Entry(None, 0o755),
        "hooks/prolog": file(f"#!/bin/sh\n# {version}\n", 0o755),
        "slurm_plugin.pyz": Entry(b"PK\0%d" % version, 0o644),
        "compiled.json": file(f'{{"v": {version}}}\n'),
        "job_submit.lua": file(f"-- slurm_plugin {version}: grants\n"),
        "slurm.conf.fragment": file(fragment),
    }


def state(text: str = "ClusterName=a\n", entries: Mapping[str, Entry] | None = None, **fields: Any) -> MachineState:
    """Return a controller with this slurm.conf and these entries, without any of our files."""
    values: dict[str, Any] = {
        "root": ROOT,
        "conf": CONF,
        "beside": "/etc/slurm",
        "controller": True,
        "entries": {CONF: file(text), **(entries or {})},
        "included": {},
        "leading": frozenset(),
        "release": RELEASES[0],
        "spool": SPOOL,
        "spool_owner": SLURM,
    }
    return MachineState(**{**values, **fields})


def after(before: MachineState, plan: Plan, *, upto: int | None = None) -> MachineState:
    """Return the state after a plan's changes, or after the first of them."""
    entries = dict(before.entries)
    for change in plan.changes[:upto]:
        assert entries.get(change.path) == change.before, change.path
        if change.after is None:
            del entries[change.path]
        else:
            entries[change.path] = change.after
    return replace(before, entries=entries)


def paths(changes: tuple[Change, ...]) -> list[str]:
    """Return the changed paths in order."""
    return [change.path for change in changes]
