"""The site directory's part of a plan: made what it should be, the version before kept, and taken away."""

from collections.abc import Iterator, Mapping

from slurm_plugin.compiled import ARCHIVE, FILE
from slurm_plugin.install.standing import OURS, PREVIOUS, STALE, SWITCHES, UNFINISHED, Change, Entry, Standing, top


def directory(standing: Standing, wanted: Mapping[str, Entry]) -> Iterator[Change]:
    """The site directory made what it should be, file by file, and the version before kept.

    Not by exchanging directories: whoever runs the code of the version before goes on looking in this place for the
    kill switch. `UNFINISHED` stands while it goes on, so that half a version is never kept for a whole one.
    """
    root, has = standing.root, standing.deployed
    stale = sorted((name for name in has if name not in wanted and top(name) in STALE), reverse=True)
    new = [name for name, entry in wanted.items() if has.get(name) != entry]
    folder = Entry(None, 0o755)
    if standing.entries.get(root) != folder:
        yield Change(root, standing.entries.get(root), folder)
    flag, unfinished = f"{root}/{UNFINISHED}", UNFINISHED in standing.of(root)
    if not (new or stale or unfinished):
        return
    if FILE in has and not unfinished:
        yield from _kept(standing, has)
    if has:
        yield Change(flag, standing.entries.get(flag), Entry(b"", 0o644))
    for name in sorted(new, key=lambda name: (wanted[name].content is not None, _last(name))):
        yield Change(f"{root}/{name}", has.get(name), wanted[name])
    for name in stale:
        yield Change(f"{root}/{name}", has[name], None)
    if has:
        yield Change(flag, Entry(b"", 0o644), None)


def _last(name: str) -> tuple[int, str]:
    """The code before what calls it, as `site render` writes it."""
    order = (ARCHIVE, FILE)
    return (order.index(name) if name in order else len(order), name)


def _kept(standing: Standing, has: Mapping[str, Entry]) -> Iterator[Change]:
    place = f"{standing.root}{PREVIOUS}"
    before = standing.of(place)
    if place not in standing.entries:
        yield Change(place, None, Entry(None, 0o755))
    for name in sorted(has):
        if before.get(name) != has[name]:
            yield Change(f"{place}/{name}", before.get(name), has[name])
    for name in sorted(before.keys() - has.keys(), reverse=True):
        yield Change(f"{place}/{name}", before[name], None)


def removed(standing: Standing) -> Iterator[Change]:
    """Without what of ours stands in the site directory, the version before, and a spool that is empty."""
    for place in (standing.root, f"{standing.root}{PREVIOUS}"):
        names = [name for name in standing.of(place) if top(name) in (*OURS, *SWITCHES)]
        for name in sorted(names, reverse=True):
            yield Change(f"{place}/{name}", standing.entries[f"{place}/{name}"], None)
        if place in standing.entries and len(names) == len(standing.of(place)):
            yield Change(place, standing.entries[place], None)
    if standing.controller and standing.spool in standing.entries:
        inside = standing.of(standing.spool)
        if set(inside) <= {"lock"}:
            for name, found in inside.items():
                yield Change(f"{standing.spool}/{name}", found, None)
            yield Change(standing.spool, standing.entries[standing.spool], None)
