"""Edit the text of slurm.conf: replace lines of the site by ours, and list what the admin must edit.

The admin must edit ambiguous lines. Included files do not change: our block at the end of slurm.conf says their
parameters again, and Slurm takes the last. But of a parameter that may occur several times it takes all.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import slurm_plugin
from slurm_plugin.site.install.machine import MachineState
from slurm_plugin.site.slurmconf import (
    BEGIN,
    HOOKS,
    DamagedError,
    Setting,
    joined,
    replaced,
    settings,
    value,
    with_block,
    without,
    words,
)
from slurm_plugin.templates import render

GLOBS: Final = ("Prolog", "Epilog")  # their values may be patterns
REPEATED: Final = ("Prolog", "Epilog", "EpilogSlurmctld")  # may occur several times, if Release.hooks_repeat
_PROGRAM: Final = re.compile(r"/[A-Za-z0-9._/+-]+", re.ASCII)
_PATTERN: Final = re.compile(r"/[A-Za-z0-9._/+*?\[\]-]+", re.ASCII)
_LUA: Final = ("lua", "job_submit/lua")


@dataclass(frozen=True, slots=True)
class Lines:
    """The new text of slurm.conf. `chained`: parameter -> the programs of the site that its chain script runs."""

    text: str
    chained: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    by_hand: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    configless: bool = False
    epilog_slurmctld_is_new: bool = False


def lines(state: MachineState, fragment: Mapping[str, str]) -> Lines:
    """Insert the lines of the fragment into slurm.conf, and remove our earlier lines."""
    text = state.text
    try:
        before = settings(state.whole(text))
        if _written_by_hand(text, before, fragment, state.leading):
            return Lines(text)
        back = without_ours(state)
        if back.by_hand:
            return back
        every = settings(state.whole(back.text))
    except ValueError as error:
        return Lines(text, by_hand=(str(error),))
    found = settings(back.text)
    repeat = bool(state.release and state.release.hooks_repeat)
    elsewhere = {name: path for name in fragment if (path := _included(state.included, name))}
    by_hand = [*_unreadable(state.included), *_unclear(fragment, found, every, elsewhere, repeat=repeat)]
    wanted: dict[str, str] = {}
    chained: dict[str, tuple[str, ...]] = {}
    away: list[Setting] = []
    for name, should in fragment.items():
        own = [each for each in every if each.name == name.lower()]
        if name in HOOKS:
            if own and name in state.leading:
                continue
            several = repeat and name in REPEATED
            if several and name in elsewhere:  # Slurm runs them all; the hook of the included file stays
                wanted[name] = should
                continue
            chained |= {name: tuple(each.value for each in (own if several else own[-1:]))} if own else {}
            wanted[name] = f"{state.root}/chain/{HOOKS[name]}" if own else should
        elif own and joined(own[-1].value, should) == own[-1].value:
            continue
        else:
            wanted[name] = joined(own[-1].value if own else "", should)
        away += [each for each in found if each.name == name.lower()]
    if by_hand:
        return Lines(text, by_hand=tuple(by_hand))
    parameters = value(every, "SlurmctldParameters").lower().split(",")
    again = {name: path for name, path in elsewhere.items() if name in wanted}
    return Lines(
        with_block(back.text, wanted, away),
        chained,
        notices=(*_notices(wanted, chained, every), *_again(again, known=state.release is not None)),
        configless="enable_configless" in parameters,
        epilog_slurmctld_is_new=not value(before, "EpilogSlurmctld"),
    )


def without_ours(state: MachineState) -> Lines:
    """Remove our block, other lines that run only our hook, and the Lua plug-in if the site has no script."""
    text = state.text
    try:
        text = without(text)
    except DamagedError as error:
        return Lines(text, by_hand=(f"slurm.conf: {error}: take out what is left of the block",))
    ours = {f"{state.root}/{place}/{hook}" for hook in HOOKS.values() for place in ("hooks", "chain")}
    names = {name.lower() for name in HOOKS}
    for each in reversed(settings(text)):  # from the end, so that the line numbers stay valid
        if each.name in names and each.value in ours and each.alone:
            text = replaced(text, each)
        if each.name == "jobsubmitplugins" and not state.site_has_lua and each.alone:
            others = [word for word in words(each.value) if word.lower() not in _LUA]
            if others != words(each.value):
                text = replaced(text, each, f"JobSubmitPlugins={','.join(others)}" if others else "")
    return Lines(text)


def _written_by_hand(
    text: str, found: Collection[Setting], fragment: Mapping[str, str], leading: Collection[str]
) -> bool:
    """Return whether an admin has written all our lines: then slurm.conf does not change."""
    given = {name: value(found, name) for name in fragment}
    fine = (
        given[name] and (name in leading or joined(given[name], should) == given[name])
        for name, should in fragment.items()
    )
    return BEGIN not in text and all(fine)


def _unreadable(included: Mapping[str, str | None]) -> Iterator[str]:
    for path, text in included.items():
        if text is None:
            yield f"{path}, which slurm.conf includes, cannot be read: it may hold lines that go with ours"


def _included(included: Mapping[str, str | None], name: str) -> str:
    """Return the included file that sets a parameter; empty if there is none."""
    return next((path for path, text in included.items() if value(settings(text or ""), name)), "")


def _again(elsewhere: Mapping[str, str], *, known: bool) -> Iterator[str]:
    """Say which included files set our parameters, too, and what follows from that. `known`: Slurm's release is."""
    for path in dict.fromkeys(elsewhere.values()):
        names = ", ".join(name for name, where in elsewhere.items() if where == path)
        yield (
            f"{path} sets {names}, too; slurm.conf repeats that, and Slurm takes the last line (it may log "
            '"specified more than once"): after a change there, install again'
        )
    if not known and (names := ", ".join(name for name in REPEATED if name in elsewhere)):
        yield f"slurmctld does not answer: if it is 24.05 or later, start it and plan again, or your {names} runs twice"


def _unclear(
    fragment: Mapping[str, str],
    found: tuple[Setting, ...],
    every: tuple[Setting, ...],
    elsewhere: Mapping[str, str],
    *,
    repeat: bool,
) -> Iterator[str]:
    """Find ambiguous lines in slurm.conf, and programs that a chain script cannot call."""
    names = {name.lower(): name for name in fragment}
    for name, path in elsewhere.items():
        last, several = value(every, name), repeat and name in REPEATED
        if name in HOOKS and not several and last != value(found, name) and not runnable(name, last):
            yield f"{path}: {name}={last}: {_kinds(name)} of letters, digits and ._/+- can be chained"
    for name in fragment:
        times = sum(each.name == name.lower() for each in found)
        if times > 1 and not (repeat and name in REPEATED):
            yield f"slurm.conf has {times} lines {name}, of which Slurm takes the last: leave that one"
    for each in found:
        if each.name not in names:
            continue
        name, line = names[each.name], f"slurm.conf, line {each.first + 1}"
        if not each.alone:
            yield f"{line}: {name} has a line with others, or an operator: give it a line of its own, {name}=VALUE"
        elif name in HOOKS and not runnable(name, each.value):
            yield f"{line}: {name}={each.value}: {_kinds(name)} of letters, digits and ._/+- can be chained"


def _kinds(name: str) -> str:
    return "an absolute path, or a pattern," if name in GLOBS else "an absolute path"


def _notices(
    wanted: Mapping[str, str], chained: Mapping[str, tuple[str, ...]], found: tuple[Setting, ...]
) -> Iterator[str]:
    """Report the settings of the site's health check that our settings replace."""
    if "HealthCheckProgram" not in chained:
        return
    for name, key in (("HealthCheckInterval", "periodic.interval"), ("HealthCheckNodeState", "")):
        had = value(found, name)
        if name in wanted and had:
            keep = f"; to keep it, set {key} in the site file" if key and re.fullmatch(r"\d+", had) else ""
            yield f"your HealthCheckProgram runs by {name}={wanted[name]} then, not {had}{keep}"


def runnable(name: str, program: str) -> bool:
    """Return whether a chain script can contain this program, or this pattern, without quotes."""
    return bool((_PATTERN if name in GLOBS else _PROGRAM).fullmatch(program))


def chain(name: str, programs: Sequence[str], root: str) -> str:
    """Return the chain script of a parameter: it runs the site's programs in order, then our hook."""
    ours, glob = f"{root}/hooks/{HOOKS[name]}", name in GLOBS
    return render(
        "site/chain.sh.j2", version=slurm_plugin.__version__, line=name, programs=programs, ours=ours, glob=glob
    )
