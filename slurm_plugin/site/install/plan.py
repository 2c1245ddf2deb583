"""Plan an installation, rollback or uninstallation from a MachineState. Read no files.

The changes of a plan are in order: the site directory before the files that name it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain as together

from slurm_plugin.records.site_settings import ARCHIVE, FILE
from slurm_plugin.site import archive, lua
from slurm_plugin.site.files import DIRECTORY, Entry, in_order
from slurm_plugin.site.install.equipment import COUNT
from slurm_plugin.site.install.lines import Lines, chain, lines, without_ours
from slurm_plugin.site.install.machine import (
    BACKUP,
    OURS,
    PREVIOUS,
    STALE,
    SWITCHES,
    UNFINISHED,
    Change,
    MachineState,
    Plan,
    top,
)
from slurm_plugin.site.slurmconf import HOOKS, fragment_lines


def install(state: MachineState, rendered: Mapping[str, Entry]) -> Plan:
    """Plan to deploy `rendered`, files by their names below the root, and to make Slurm call them.

    On a machine that is not a controller, change only the site directory.
    """
    wanted = lines(state, fragment_lines((rendered["slurm.conf.fragment"].content or b"").decode()))
    scripts = {f"chain/{HOOKS[name]}": chain(name, programs, state.root) for name, programs in wanted.chained.items()}
    whole = dict(rendered) | {name: Entry(made.encode(), 0o755) for name, made in scripts.items()}
    if scripts:
        whole["chain"] = DIRECTORY
    changes = list(_directory(state, whole))
    by_hand = [*wanted.by_hand, *(f"the site file: {each.text}" for each in state.unknown if not each.harmless)]
    if state.controller:
        by_hand += _lua_by_hand(state)
        changes += together(_spool(state), _lua(state, rendered), _conf(state, wanted.text))
    notices = [f"correct the site file: {each.text}" for each in state.unknown if each.harmless]
    if state.without_files:
        notices.append(
            f"gres.conf names no files of the GPUs of {state.without_files}: gpu-check looks for NVIDIA's there, and is"
            " skipped without NVIDIA's driver; for other GPUs, name their files there: File="
        )
    return Plan(tuple(changes), (*notices, *_after(state, changes, wanted)), tuple(by_hand))


def as_deployed(state: MachineState, rendered: Mapping[str, Entry]) -> Mapping[str, Entry]:
    """Return `rendered` with the deployed archive if both hold the same sources, whatever interpreter compiled them."""
    has, made = state.deployed.get(ARCHIVE), rendered[ARCHIVE]
    same = has and archive.same(has.content, made.content)
    return {**rendered, ARCHIVE: replace(made, content=has.content)} if has and same else rendered


def rollback(state: MachineState) -> Plan:
    """Plan to deploy the previous version. The current version becomes the previous one."""
    previous = state.of(f"{state.root}{PREVIOUS}")
    if FILE not in previous:
        return Plan(by_hand=(f"{state.root}{PREVIOUS} holds no version: there is none to go back to",))
    state = replace(state, unknown=())  # `unknown` is about the current site file, not the previous one
    return install(state, {name: found for name, found in previous.items() if top(name) != "chain"})


def uninstall(state: MachineState) -> Plan:
    """Plan to restore the machine. Remove the site directory last, and only if nothing needs it."""
    changes: list[Change] = []
    by_hand: tuple[str, ...] = ()
    notices = []
    if state.controller:
        back = without_ours(state)
        by_hand = back.by_hand
        changes += together(_conf(state, back.text), _lua_back(state))
    if any(change.path == state.conf for change in changes):
        notices.append("run: scontrol reconfigure")
        notices.append(f"run it again after that: {state.root} stays until no daemon and no job needs it")
    elif state.in_use:
        notices.append(f"{state.root} stays: {state.in_use}; run it again when that is over")
    else:
        changes += _removed(state)
        kept = sorted({top(name) for name in state.of(state.root)} - {*OURS, *SWITCHES})
        notices += [f"{state.root}/{name} is yours, and stays" for name in kept]
        if state.controller:
            notices.append(f"on every node, run: rm -r {state.root} /run/slurm_plugin")
    return Plan(tuple(changes), tuple(notices), by_hand)


def _spool(state: MachineState) -> Iterator[Change]:
    if state.spool_owner and state.spool not in state.entries:
        yield Change(state.spool, None, Entry(None, 0o700, *state.spool_owner))


def _lua(state: MachineState, rendered: Mapping[str, Entry]) -> Iterator[Change]:
    """Install our job_submit.lua, or a chain if the site has its own script; rename that script first."""
    found, own = state.entries.get(state.lua), state.entries.get(state.own_lua)
    ours = rendered["job_submit.lua"]
    if state.lua_kind == "calls ours":
        return
    if own is None and state.lua_kind == "own":
        yield Change(state.own_lua, None, found)
        own = found
    if own:
        text = lua.chain(state.own_lua, f"{state.root}/job_submit.lua", ours.content or b"")
        ours = Entry(text.encode(), 0o644)
    if found != ours:
        yield Change(state.lua, found, ours)


def _lua_back(state: MachineState) -> Iterator[Change]:
    if state.lua_kind != "ours":
        return
    own = state.entries.get(state.own_lua)
    yield Change(state.lua, state.entries[state.lua], own)
    if own:
        yield Change(state.own_lua, own, None)


def _lua_by_hand(state: MachineState) -> list[str]:
    if state.own_lua not in state.entries or state.lua_kind == "ours":
        return []
    there = "is not ours" if state.lua_kind else "is missing"
    return [f"{state.own_lua} exists, and {state.lua} {there}: keep one of them, as job_submit.lua"]


def _conf(state: MachineState, text: str) -> Iterator[Change]:
    found = state.entries[state.conf]
    made = replace(found, content=text.encode(errors="surrogateescape"))
    if made == found:
        return
    backup = f"{state.conf}{BACKUP}"
    if state.entries.get(backup) != found:
        yield Change(backup, state.entries.get(backup), found)
    yield Change(state.conf, found, made)


def _after(state: MachineState, changes: Iterable[Change], wanted: Lines) -> Iterator[str]:
    """Yield the next steps of the admin, in order."""
    root, paths = state.root, {change.path for change in changes}
    if any(path == root or path.startswith(f"{root}/") for path in paths):
        yield (
            f"copy {root} to every node and controller before slurm.conf names it: a node without it is drained;"
            f" for each, run: rsync -a {root}/ NODE:{root}/"
        )
    if state.conf not in paths or not state.controller:
        return
    others = f" ({', '.join(state.controllers)})" if len(state.controllers) > 1 else ""
    if wanted.configless:
        yield f"slurmctld serves slurm.conf (enable_configless): it is changed on the controllers{others} only"
    else:
        yield f"copy {state.conf} to every machine, as it must be the same on all{others}"
    yield from wanted.notices
    release = state.release
    if wanted.epilog_slurmctld_is_new and not (release and release.reconfigure_starts_epilog_slurmctld):
        yield "on the controllers, run: systemctl restart slurmctld  (22.05 runs no new EpilogSlurmctld before)"
    yield "run: scontrol reconfigure"
    if state.uncounted:
        yield (
            "later, have the periodic check find a GPU or a link that a node has lost: put into the site file what this"
            f" prints: srun -N{state.uncounted} {root}/bin/{COUNT} | slurm-plugin site equipment"
        )


def _directory(state: MachineState, wanted: Mapping[str, Entry]) -> Iterator[Change]:
    """Update the site directory file by file, and keep the previous version.

    Do not replace the directory itself: processes that run the previous code look for the kill switch in it.
    `UNFINISHED` exists during the update, so that an interrupted update is never kept as the previous version.
    """
    root, has = state.root, state.deployed
    stale = sorted((name for name in has if name not in wanted and top(name) in STALE), reverse=True)
    new = {name: entry for name, entry in wanted.items() if has.get(name) != entry}
    if state.entries.get(root) != DIRECTORY:
        yield Change(root, state.entries.get(root), DIRECTORY)
    flag, unfinished = f"{root}/{UNFINISHED}", UNFINISHED in state.of(root)
    if not (new or stale or unfinished):
        return
    if FILE in has and not unfinished:
        yield from _kept(state, has)
    if has:
        yield Change(flag, state.entries.get(flag), Entry(b"", 0o644))
    for name in in_order(new):
        yield Change(f"{root}/{name}", has.get(name), new[name])
    for name in stale:
        yield Change(f"{root}/{name}", has[name], None)
    if has:
        yield Change(flag, Entry(b"", 0o644), None)


def _kept(state: MachineState, has: Mapping[str, Entry]) -> Iterator[Change]:
    """Keep the deployed version as the previous version."""
    place = f"{state.root}{PREVIOUS}"
    before = state.of(place)
    if place not in state.entries:
        yield Change(place, None, DIRECTORY)
    for name in sorted(has):
        if before.get(name) != has[name]:
            yield Change(f"{place}/{name}", before.get(name), has[name])
    for name in sorted(before.keys() - has.keys(), reverse=True):
        yield Change(f"{place}/{name}", before[name], None)


def _removed(state: MachineState) -> Iterator[Change]:
    """Remove our files from the site directory, the previous version, and the spool if it holds at most its lock."""
    for place in (state.root, f"{state.root}{PREVIOUS}"):
        names = [name for name in state.of(place) if top(name) in (*OURS, *SWITCHES)]
        for name in sorted(names, reverse=True):
            yield Change(f"{place}/{name}", state.entries[f"{place}/{name}"], None)
        if place in state.entries and len(names) == len(state.of(place)):
            yield Change(place, state.entries[place], None)
    if state.controller and state.spool in state.entries:
        inside = state.of(state.spool)
        if set(inside) <= {"lock"}:
            for name, found in inside.items():
                yield Change(f"{state.spool}/{name}", found, None)
            yield Change(state.spool, state.entries[state.spool], None)
