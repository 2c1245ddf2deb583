"""The lines of slurm.conf: which of the site's give way, what ours say with them, and what only the site can tell.

Text in, text out. Where it cannot be told what a line means, or it stands where we do not write, the admin is asked.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from slurm_plugin.install import chain
from slurm_plugin.install.slurmconf import (
    BEGIN,
    DamagedError,
    Setting,
    includes,
    replaced,
    settings,
    value,
    with_block,
    without,
)

_LUA: Final = ("lua", "job_submit/lua")


@dataclass(frozen=True, slots=True)
class Lines:
    """slurm.conf as it should be. `chained`: the site's programs for each line of ours that calls a chain."""

    text: str
    chained: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    by_hand: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    configless: bool = False
    epilog_slurmctld_is_new: bool = False


def lines(
    text: str,
    fragment: Mapping[str, str],
    root: str,
    *,
    leading: Collection[str],
    lua_is_ours: bool,
    repeat: bool,
    included: Mapping[str, str | None],
) -> Lines:
    """The text with the lines of the fragment in it, in place of those that were of ours before.

    `leading`: lines whose program runs our hook already. `lua_is_ours`: the site has no job_submit.lua of its own, so
    that plug-in is there for ours. `repeat`: some lines may stand several times. `included`: the files that the text
    includes; None for one that cannot be read.
    """
    if _written_by_hand(text, fragment, leading):
        return Lines(text)
    back = taken_back(text, root, lua_is_ours=lua_is_ours)
    if back.by_hand:
        return back
    found = settings(back.text)
    by_hand = [*_elsewhere(fragment, included), *_unclear(fragment, found, repeat=repeat)]
    wanted: dict[str, str] = {}
    chained: dict[str, tuple[str, ...]] = {}
    away: list[Setting] = []
    for name, should in fragment.items():
        own = [each for each in found if each.name == name.lower()]
        if name in chain.HOOKS:
            if own and name in leading:
                continue
            chained |= {name: tuple(each.value for each in own)} if own else {}
            wanted[name] = f"{root}/chain/{chain.HOOKS[name]}" if own else should
        elif own and joined(own[-1].value, should) == own[-1].value:
            continue
        else:
            wanted[name] = joined(own[-1].value if own else "", should)
        away += own
    if by_hand:
        return Lines(text, by_hand=tuple(by_hand))
    parameters = value(found, "SlurmctldParameters").lower().split(",")
    return Lines(
        with_block(back.text, wanted, away),
        chained,
        notices=tuple(_notices(wanted, chained, found)),
        configless="enable_configless" in parameters,
        epilog_slurmctld_is_new=not value(settings(text), "EpilogSlurmctld"),
    )


def taken_back(text: str, root: str, *, lua_is_ours: bool) -> Lines:
    """The text without anything of ours: what we wrote, and what was written by hand and names our hooks alone."""
    try:
        text = without(text)
    except DamagedError as error:
        return Lines(text, by_hand=(f"slurm.conf: {error}: take out what is left of the block",))
    ours = {f"{root}/{place}/{hook}" for hook in chain.HOOKS.values() for place in ("hooks", "chain")}
    names = {name.lower() for name in chain.HOOKS}
    for each in reversed(settings(text)):  # from the end: earlier line numbers stay
        if each.name in names and each.value in ours and each.alone:
            text = replaced(text, each)
        if each.name == "jobsubmitplugins" and lua_is_ours and each.alone:
            words = [word for word in _words(each.value) if word.lower() not in _LUA]
            if words != _words(each.value):
                text = replaced(text, each, f"JobSubmitPlugins={','.join(words)}" if words else "")
    return Lines(text)


def _written_by_hand(text: str, fragment: Mapping[str, str], leading: Collection[str]) -> bool:
    """Whether an admin has written all of the lines, in his own way: then they stay as they are."""
    found = settings(text)
    given = {name: value(found, name) for name in fragment}
    fine = (
        given[name] and (name in leading or joined(given[name], should) == given[name])
        for name, should in fragment.items()
    )
    return BEGIN not in text and all(fine)


def joined(has: str, should: str) -> str:
    """Of a list with commas what is there and what is missing; of a number ours."""
    if should.isdigit():
        return should
    known = {word.lower().removeprefix("job_submit/") for word in _words(has)}
    missing = [word for word in _words(should) if word.lower() not in known]
    return ",".join([*_words(has), *missing]) if missing else has


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _elsewhere(fragment: Mapping[str, str], included: Mapping[str, str | None]) -> Iterator[str]:
    """Files that slurm.conf includes may hold such a line: it is not for us to edit them."""
    names = {name.lower(): name for name in fragment}
    for path, text in included.items():
        if text is None:
            yield f"{path}, which slurm.conf includes, cannot be read: it may hold lines that go with ours"
            continue
        for name in dict.fromkeys(names[each.name] for each in settings(text) if each.name in names):
            yield f"{path}, which slurm.conf includes, sets {name}: move that line to slurm.conf"
        if includes(text):
            yield f"{path}, which slurm.conf includes, includes others: name them in slurm.conf itself"


def _unclear(fragment: Mapping[str, str], found: tuple[Setting, ...], *, repeat: bool) -> Iterator[str]:
    names = {name.lower(): name for name in fragment}
    for name in fragment:
        times = sum(each.name == name.lower() for each in found)
        if times > 1 and not (repeat and name in chain.REPEATED):
            yield f"slurm.conf has {times} lines {name}, of which Slurm takes the last: leave that one"
    for each in found:
        if each.name not in names:
            continue
        name, line = names[each.name], f"slurm.conf, line {each.first + 1}"
        if not each.alone:
            yield f"{line}: {name} has a line with others, or an operator: give it a line of its own, {name}=VALUE"
        elif name in chain.HOOKS and not chain.runnable(name, each.value):
            kinds = "an absolute path, or a pattern," if name in chain.GLOBS else "an absolute path"
            yield f"{line}: {name}={each.value}: {kinds} of letters, digits and ._/+- can be chained"


def _notices(
    wanted: Mapping[str, str], chained: Mapping[str, tuple[str, ...]], found: tuple[Setting, ...]
) -> Iterator[str]:
    if "HealthCheckProgram" not in chained:
        return
    for name, key in (("HealthCheckInterval", "periodic.interval"), ("HealthCheckNodeState", "")):
        had = value(found, name)
        if name in wanted and had:
            keep = f"; to keep it, set {key} in the site file" if key and re.fullmatch(r"\d+", had) else ""
            yield f"your HealthCheckProgram runs by {name}={wanted[name]} then, not {had}{keep}"
