"""What would be changed on this machine, and what the admin does himself: worked out from what stands. Reads nothing.

The order of a plan's changes is that in which they are made: the site directory before whatever names it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain as together

from slurm_plugin import archive
from slurm_plugin.compiled import ARCHIVE, FILE
from slurm_plugin.install import chain
from slurm_plugin.install.directory import directory, removed
from slurm_plugin.install.lines import Lines, lines, taken_back
from slurm_plugin.install.standing import BACKUP, OURS, PREVIOUS, SWITCHES, Change, Entry, Plan, Standing, top


def install(standing: Standing, rendered: Mapping[str, Entry]) -> Plan:
    """What makes a site directory, as it was rendered, the one that Slurm runs.

    `rendered` is by name below the root. On a machine that is no controller that directory is all.
    """
    text = _text(standing, standing.conf)
    wanted = lines(
        text,
        _fragment(rendered),
        standing.root,
        leading=standing.leading,
        lua_is_ours=_site_has_no_lua(standing),
        repeat=bool(standing.release and standing.release.hooks_repeat),
        included=standing.included,
    )
    scripts = {
        f"chain/{chain.HOOKS[name]}": chain.script(name, programs, standing.root)
        for name, programs in wanted.chained.items()
    }
    whole = dict(rendered) | {name: Entry(made.encode(), 0o755) for name, made in scripts.items()}
    if scripts:
        whole["chain"] = Entry(None, 0o755)
    changes = list(directory(standing, whole))
    by_hand = list(wanted.by_hand)
    if standing.controller:
        by_hand += _lua_by_hand(standing)
        changes += together(_spool(standing), _lua(standing, rendered), _conf(standing, wanted.text))
    notices = tuple(_after(standing, changes, wanted))
    return Plan(tuple(changes), notices, tuple(by_hand))


def as_deployed(standing: Standing, rendered: Mapping[str, Entry]) -> Mapping[str, Entry]:
    """What was rendered, but with the deployed code where that is the same, compiled by whichever interpreter."""
    has, made = standing.deployed.get(ARCHIVE), rendered[ARCHIVE]
    same = has and has.content and archive.code(has.content) == archive.code(made.content or b"")
    return {**rendered, ARCHIVE: replace(made, content=has.content)} if has and same else rendered


def rollback(standing: Standing) -> Plan:
    """What makes the version before the one that Slurm runs; the one that runs now is then the one before."""
    previous = standing.of(f"{standing.root}{PREVIOUS}")
    if FILE not in previous:
        return Plan(by_hand=(f"{standing.root}{PREVIOUS} holds no version: there is none to go back to",))
    return install(standing, {name: found for name, found in previous.items() if top(name) != "chain"})


def uninstall(standing: Standing) -> Plan:
    """What puts back what was there; the files that hooks are go once nothing needs them any more."""
    changes: list[Change] = []
    by_hand: tuple[str, ...] = ()
    notices = []
    if standing.controller:
        back = taken_back(_text(standing, standing.conf), standing.root, lua_is_ours=_site_has_no_lua(standing))
        by_hand = back.by_hand
        changes += together(_conf(standing, back.text), _lua_back(standing))
    if any(change.path == standing.conf for change in changes):
        notices.append("run: scontrol reconfigure")
        notices.append(f"run it again after that: {standing.root} stays until no daemon and no job of ours needs it")
    elif standing.in_use:
        notices.append(f"{standing.root} stays: {standing.in_use}; run it again when that is over")
    else:
        changes += removed(standing)
        kept = sorted({top(name) for name in standing.of(standing.root)} - {*OURS, *SWITCHES})
        notices += [f"{standing.root}/{name} is yours, and stays" for name in kept]
        if standing.controller:
            notices.append(f"on every node, run: rm -r {standing.root} /run/slurm_plugin")
    return Plan(tuple(changes), tuple(notices), by_hand)


def _spool(standing: Standing) -> Iterator[Change]:
    if standing.spool_owner and standing.spool not in standing.entries:
        yield Change(standing.spool, None, Entry(None, 0o700, *standing.spool_owner))


def _lua(standing: Standing, rendered: Mapping[str, Entry]) -> Iterator[Change]:
    """job_submit.lua beside slurm.conf: ours, or a chain where the site has its own, which is moved aside once."""
    found, own = standing.entries.get(standing.lua), standing.entries.get(standing.own_lua)
    ours = rendered["job_submit.lua"]
    if found and not chain.lua_is_ours(found.content or b"") and b"pcall(grant" in (found.content or b""):
        return  # the site has our functions in its own
    if own is None and found and not chain.lua_is_ours(found.content or b""):
        yield Change(standing.own_lua, None, found)
        own = found
    if own:
        text = chain.lua(standing.own_lua, f"{standing.root}/job_submit.lua", ours.content or b"")
        ours = Entry(text.encode(), 0o644)
    if found != ours:
        yield Change(standing.lua, found, ours)


def _lua_back(standing: Standing) -> Iterator[Change]:
    found, own = standing.entries.get(standing.lua), standing.entries.get(standing.own_lua)
    if found is None or not chain.lua_is_ours(found.content or b""):
        return
    yield Change(standing.lua, found, own)
    if own:
        yield Change(standing.own_lua, own, None)


def _lua_by_hand(standing: Standing) -> list[str]:
    found, own = standing.entries.get(standing.lua), standing.entries.get(standing.own_lua)
    if not own or (found and chain.lua_is_ours(found.content or b"")):
        return []
    there = "another than ours" if found else "not there"
    return [f"{standing.own_lua} stands there, and {standing.lua} is {there}: leave one of them, as job_submit.lua"]


def _site_has_no_lua(standing: Standing) -> bool:
    """Whether job_submit.lua, where there is one, is ours alone."""
    found = standing.entries.get(standing.lua)
    mine = found is None or chain.lua_is_ours(found.content or b"")
    return mine and standing.own_lua not in standing.entries


def _conf(standing: Standing, text: str) -> Iterator[Change]:
    found = standing.entries[standing.conf]
    made = replace(found, content=text.encode(errors="surrogateescape"))
    if made == found:
        return
    backup = f"{standing.conf}{BACKUP}"
    if standing.entries.get(backup) != found:
        yield Change(backup, standing.entries.get(backup), found)
    yield Change(standing.conf, found, made)


def _after(standing: Standing, changes: Iterable[Change], wanted: Lines) -> Iterator[str]:
    """What the admin does next, in that order."""
    root, paths = standing.root, {change.path for change in changes}
    if any(path == root or path.startswith(f"{root}/") for path in paths):
        yield (
            f"copy {root} to every node and controller before slurm.conf names it: a node without it is drained;"
            f" for each, run: rsync -a {root}/ NODE:{root}/"
        )
    if standing.conf not in paths or not standing.controller:
        return
    others = f" ({', '.join(standing.controllers)})" if len(standing.controllers) > 1 else ""
    if wanted.configless:
        yield f"slurmctld serves slurm.conf (enable_configless): it is changed on the controllers{others} only"
    else:
        yield f"copy {standing.conf} to every machine, as it must be the same on all{others}"
    yield from wanted.notices
    release = standing.release
    if wanted.epilog_slurmctld_is_new and not (release and release.reconfigure_starts_epilog_slurmctld):
        yield "on the controllers, run: systemctl restart slurmctld  (22.05 runs no new EpilogSlurmctld before)"
    yield "run: scontrol reconfigure"


def _fragment(rendered: Mapping[str, Entry]) -> dict[str, str]:
    text = (rendered["slurm.conf.fragment"].content or b"").decode()
    return dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))


def _text(standing: Standing, path: str) -> str:
    return (standing.entries[path].content or b"").decode(errors="surrogateescape")
