"""A submission under a policy: what is refused, what is changed. The functions of the same names in
templates/site/job_submit.lua.j2 say the same in the same words (tests/unit/policy/test_both.py).

Nothing is asked here: a policy is the plain value of `language.compiled`, and facts are values.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from slurm_plugin.policy.language import FIELDS

UNLIMITED: Final = 4294967295  # slurm.INFINITE, in minutes
CHANGES: Final = ("account", "partition", "qos", "reservation", "time")  # what a default may set, in this order
_LONGEST_SHOWN: Final = 60


class Facts(Struct, frozen=True):
    """What is known of a job: names by what they are names of, the size, and the minutes."""

    names: Mapping[str, tuple[str, ...]]  # of FIELDS; a partition may be several, an absent one is none
    given: frozenset[str] = frozenset()  # what the job says itself
    least: int | None = None  # nodes
    most: int | None = None  # nodes; None: as many as Slurm likes
    time: int | None = None
    default_time: int | None = None  # what its partition gives without a time; None where that is not known
    granted: int | None = None  # restarts, of a job that is edited
    unknown: frozenset[str] = frozenset()  # of FIELDS: left to who knows


class Refusal(Struct, frozen=True):
    """Why a job is not accepted: the words, and what they are about."""

    rule: str
    about: str
    value: int | None
    text: str


class Verdict(Struct, frozen=True):
    """What becomes of a submission. `changes` are shown as (what, value); `retries` is None for no limit; `because`
    says of each of them who wants it: `defaults`, or `rule NAME`."""

    refusals: tuple[Refusal, ...] = ()
    changes: tuple[tuple[str, str | int], ...] = ()
    retries: int | None = None
    _caps: Mapping[str, int] = {}
    because: Mapping[str, str] = {}


def submitted(policy: Mapping[str, Any], facts: Facts) -> Verdict:
    """The verdict on a new job: its defaults are set, then every rule looks at it."""
    set_here = {name: value for name in CHANGES if (value := policy["defaults"].get(name)) and name not in facts.given}
    names = {name: known(name, value) for name, value in set_here.items() if name != "time"}
    whole = replace(
        facts,
        names={**facts.names, **names},
        given=facts.given | set_here.keys(),
        unknown=facts.unknown - names.keys(),
        time=set_here.get("time", facts.time),
    )
    found = judge(policy["rules"], whole)
    caps = ((name, found._caps[name]) for name in ("time", "nodes") if name in found._caps)
    because = {**found.because, **dict.fromkeys(set_here, "defaults")}
    return replace(found, changes=(*set_here.items(), *caps), because=because)


def together(parts: Sequence[Verdict]) -> Verdict:
    """The verdict on a heterogeneous job, whose components are judged each by itself."""
    refusals = dict.fromkeys(refusal for part in parts for refusal in part.refusals)
    changes = dict.fromkeys(change for part in parts for change in part.changes)
    limits = [part.retries for part in parts if part.retries is not None]
    because = {about: who for part in reversed(parts) for about, who in part.because.items()}
    return Verdict(tuple(refusals), tuple(changes), min(limits, default=None), because=because)


def judge(rules: Sequence[Mapping[str, Any]], facts: Facts) -> Verdict:
    """What all the rules say of these facts; the strictest limit counts."""
    refusals: list[Refusal] = []
    caps: dict[str, int] = {}
    retries: int | None = None
    because: dict[str, str] = {}
    for rule in rules:
        matched = applies(rule, facts)
        if matched is None:
            continue
        where = f" ({', '.join(matched)})" if matched else ""
        tail = f"; {rule['message']}" if "message" in rule else ""
        for about, value, text in _refused(rule, facts):
            words = f"slurm_plugin: rule {rule['name']}{where}: {text}{tail}"
            refusals.append(Refusal(rule["name"], about, value, words))
        for name, limit in _capped(rule, facts):
            if name not in caps or limit < caps[name]:
                caps[name], because[name] = limit, f"rule {rule['name']}"
        if "retries" in rule and (retries is None or rule["retries"] < retries):
            retries, because["retries"] = rule["retries"], f"rule {rule['name']}"
    return Verdict(tuple(refusals), retries=retries, _caps=caps, because=because)


def applies(rule: Mapping[str, Any], facts: Facts) -> list[str] | None:
    """What of the job meets each of the rule's conditions; None where one is not met, or not known to be."""
    matched = []
    for name in FIELDS:
        if wanted := rule.get("when", {}).get(name):
            met = next((each for each in facts.names.get(name, ()) if each in wanted), None)
            if name in facts.unknown or met is None:
                return None
            matched.append(f"{name} {shown(met)}")
    return matched


def _refused(rule: Mapping[str, Any], facts: Facts) -> Iterator[tuple[str, int | None, str]]:
    """What the rule refuses: about what, which number, the words."""
    for name in rule.get("required", ()):
        if name not in facts.given:
            yield f"required {name}", None, f"{name}: missing; give --{name}"
    if rule.get("deny"):
        yield "deny", None, "not accepted"
    for name in FIELDS:
        accepted = rule.get("allow", {}).get(name)
        if accepted and name not in facts.unknown:
            others = [each for each in facts.names.get(name, ()) if each not in accepted]
            if others or not facts.names.get(name):
                found = shown(others[0]) if others else "none"
                yield name, None, f"{name}: found {found}; accepted: {', '.join(accepted)}"
    nodes = max(facts.least or 0, facts.most or 0)
    if "nodes" in rule and nodes > rule["nodes"]:
        yield "nodes", nodes, f"nodes: found {nodes}; accepted: up to {rule['nodes']}"
    if "time" in rule and facts.time is not None and facts.time > rule["time"]:
        yield "time", facts.time, f"time: found {clock(facts.time)}; accepted: up to {clock(rule['time'])}"
    if "retries" in rule and facts.granted is not None and facts.granted > rule["retries"]:
        yield "retries", facts.granted, f"retries: found {facts.granted} granted; accepted: up to {rule['retries']}"


def _capped(rule: Mapping[str, Any], facts: Facts) -> Iterator[tuple[str, int]]:
    """The limits that a job gets which does not say how much it wants."""
    if "nodes" in rule and facts.most is None and (facts.least or 0) <= rule["nodes"]:
        yield "nodes", rule["nodes"]
    if "time" in rule and facts.time is None and facts.default_time is not None and facts.default_time > rule["time"]:
        yield "time", rule["time"]


def known(name: str, text: str) -> tuple[str, ...]:
    """The names in what a job says; Slurm's accounting tells no upper from lower case."""
    data = text.encode("utf-8", "surrogateescape")
    if name in ("account", "qos"):
        data = data.lower()  # of bytes: ASCII alone, as Lua's
    return tuple(filter(None, data.decode("utf-8", "surrogateescape").split(",")))


def shown(text: str) -> str:
    """A name of a user's as a message shows it: printable ASCII, at most 60 bytes."""
    data = text.encode("utf-8", "surrogateescape")[:_LONGEST_SHOWN]
    return "".join(chr(byte) if 32 <= byte <= 126 else "?" for byte in data)


def clock(minutes: int) -> str:
    """Minutes as sbatch reads and squeue shows them: `1-02:30:00`."""
    if minutes == UNLIMITED:
        return "UNLIMITED"
    days, rest = divmod(minutes, 1440)
    hours, left = divmod(rest, 60)
    return f"{days}-{hours:02}:{left:02}:00" if days else f"{hours:02}:{left:02}:00"
