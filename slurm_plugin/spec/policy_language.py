"""`policy:` and `priorities:` of the site file: types, and plain values for `policy_verdict` and job_submit.lua."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from slurm_plugin.records import durations
from slurm_plugin.slurm.changes import NORMAL, WORDS
from slurm_plugin.spec.documents import Problem
from slurm_plugin.spec.key_types import Fewest, Name, Retries

FIELDS: Final = (
    "user",
    "account",
    "partition",
    "qos",
    "reservation",
)  # fields of a rule's conditions, in the order in which messages list them
REQUIRED: Final = "required"  # the name of the rule from `policy.required`
LONGEST_MINUTES: Final = 10**8  # below slurm.INFINITE, and exact as a number in Lua

Word = Annotated[str, Meta(pattern=r"^[!-~]{1,128}\Z", description="a name of printable ASCII without blanks")]
Message = Annotated[
    str,
    Meta(pattern=r"^[^\x00-\x1f\x7f\ud800-\udfff]*\Z", max_length=400, description="one line of up to 400 characters"),
]
Hold = Annotated[
    str, Meta(pattern=r"^(0|[1-9][0-9]{0,6}[smhd])\Z", description="a time such as 30m, 4h or 2d; 0: none")
]
Given = Literal["account", "partition", "qos", "reservation", "nodes", "time"]


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the site file."""


class Defaults(Part, frozen=True):
    """The values for a job that does not set them."""

    account: Word | None = None
    partition: Word | None = None
    qos: Word | None = None
    reservation: Word | None = None
    time: str | None = None


class Names(Part, frozen=True):
    """Names by field. A job must match each field that is given."""

    user: tuple[Word, ...] = ()
    account: tuple[Word, ...] = ()
    partition: tuple[Word, ...] = ()
    qos: tuple[Word, ...] = ()
    reservation: tuple[Word, ...] = ()


class Limit(Part, frozen=True):
    """The largest values that a job may have."""

    nodes: Fewest | None = None
    time: str | None = None
    retries: Retries | None = None
    hold: Hold | None = None


class Rule(Part, frozen=True):
    """One rule: the jobs that it applies to, and its conditions."""

    name: Name
    when: Names = Names()
    required: tuple[Given, ...] = ()
    limit: Limit = Limit()
    allow: Names = Names()
    deny: Literal["yes", "no"] = "no"
    message: Message = ""


class Policy(Part, frozen=True):
    """The whole policy. An empty policy accepts every job unchanged."""

    on_error: Literal["accept", "refuse"] = "accept"
    defaults: Defaults = Defaults()
    required: tuple[Given, ...] = ()
    checks: tuple[Word, ...] = ()
    rules: tuple[Rule, ...] = ()


def problems(policy: Policy) -> Iterator[Problem]:
    """Yield the problems that the types of the fields do not catch; paths are those of the site file."""
    yield from _time(policy.defaults.time, ("policy", "defaults", "time"))
    for field in policy.required:
        if getattr(policy.defaults, field, None):
            yield Problem(("policy", "required"), f"found {field}, which has a default; keep one of the two")
    names = [REQUIRED] if policy.required else []
    for index, rule in enumerate(policy.rules):
        place = ("policy", "rules", str(index))
        if rule.name in names:
            yield Problem((*place, "name"), f"found {rule.name!r} a second time; accepted: a name of its own")
        names.append(rule.name)
        yield from _time(rule.limit.time, (*place, "limit", "time"))
        if rule.deny == "no" and not (rule.required or rule.allow != Names() or rule.limit != Limit()):
            yield Problem(place, "found a rule that says nothing; give required, limit, allow or deny: yes")
        if rule.deny == "yes" and (rule.required or rule.allow != Names() or rule.limit != Limit()):
            yield Problem(place, "found deny with other conditions; a denied job has none: make it two rules")


def _time(text: str | None, place: tuple[str, ...]) -> Iterator[Problem]:
    try:
        total = 60 if text is None else durations.seconds(text)
    except ValueError as error:
        yield Problem(place, f"found {text!r}; accepted: {error}")
        return
    if not 60 <= total < LONGEST_MINUTES * 60:
        yield Problem(place, f"found {text!r}; accepted: one minute or more, as Slurm counts")


def compiled(policy: Policy) -> dict[str, Any]:
    """Return the plain values for `policy_verdict` and job_submit.lua: times in whole minutes, no empty entries."""
    given = {field: value for field, value in msgspec.to_builtins(policy.defaults).items() if value is not None}
    rules = [Rule(REQUIRED, required=policy.required)] if policy.required else []
    return {
        "on_error": policy.on_error,
        "defaults": {**given, **({"time": _minutes(given["time"])} if "time" in given else {})},
        "rules": [_rule(rule) for rule in (*rules, *policy.rules)],
    }


def holds(policy: Policy) -> list[dict[str, Any]]:
    """Return the rules that limit how long a job holds its nodes. The job's supervisor enforces them."""
    return [
        {"name": rule.name, "when": _names(rule.when), "hold_s": hold_s(rule.limit.hold)}
        for rule in policy.rules
        if rule.limit.hold is not None
    ]


def hold_s(text: str) -> int:
    """Return the seconds of a hold; 0: no hold."""
    return 0 if text == "0" else durations.seconds(text)


def rules_jobs(policy: Policy) -> bool:
    """Return whether the policy judges jobs. The key `checks` alone does not: it concerns only the prolog."""
    return bool(policy.rules or policy.required or policy.defaults != Defaults())


def _rule(rule: Rule) -> dict[str, Any]:
    limit: Mapping[str, Any] = msgspec.to_builtins(rule.limit)
    whole: dict[str, Any] = {
        "name": rule.name,
        "when": _names(rule.when),
        "required": list(rule.required),
        "allow": _names(rule.allow),
        "deny": rule.deny == "yes",
        "message": rule.message,
        "nodes": limit["nodes"],
        "time": None if limit["time"] is None else _minutes(limit["time"]),
        "retries": limit["retries"],
    }
    return {key: value for key, value in whole.items() if value or (key == "retries" and value is not None)}


def _names(names: Names) -> dict[str, list[str]]:
    found = {field: list(getattr(names, field)) for field in FIELDS if getattr(names, field)}
    return {field: [*map(str.lower, each)] if field in ("account", "qos") else each for field, each in found.items()}


def _minutes(text: str) -> int:
    return durations.seconds(text) // 60


_Cap = Annotated[int, Meta(ge=0, le=100_000, description="a whole number; 0: no cap")]


class Priority(Part, frozen=True):
    """One word: the QOS of its jobs, or their partitions."""

    qos: Word | None = None
    partitions: Mapping[str, Word] = {}  # a partition of normal jobs -> that of the word's jobs
    per_user: _Cap = 0  # the most jobs of a user that are queued or running
    per_account: _Cap = 0


def priority_problems(priorities: Mapping[str, Priority]) -> Iterator[Problem]:
    """Yield the problems that the types do not catch."""
    for word, each in priorities.items():
        place = ("priorities", word)
        if word not in WORDS:
            yield Problem(place, f"unknown; accepted: {', '.join(WORDS)}")
        elif bool(each.qos) == bool(each.partitions):
            yield Problem(place, "found both or none of qos and partitions; accepted: one of them")
        elif word == NORMAL and not each.qos:
            yield Problem(place, "found partitions; accepted: qos, to which a job returns")
    names = [name for word, each in priorities.items() if word != NORMAL for name in _priority_names(each)]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Problem(
            ("priorities",), f"found {name} for two words; accepted: a QOS or a partition of its own for each"
        )


def _priority_names(each: Priority) -> list[str]:
    return [*sorted({*each.partitions.values()}), *([f"qos {each.qos}"] if each.qos else [])]


def compiled_priorities(priorities: Mapping[str, Priority]) -> dict[str, Any]:
    """Return the plain values for slurm_plugin.slurm.changes. Slurm's accounting has each QOS in lower case."""
    return {
        word: {**msgspec.to_builtins(each), "qos": each.qos and each.qos.lower()} for word, each in priorities.items()
    }


def guarded_priorities(priorities: Mapping[str, Priority]) -> dict[str, dict[str, str]]:
    """Return kind -> name -> word of what users cannot request themselves."""
    words = {word: each for word, each in priorities.items() if word != NORMAL}
    return {
        "qos": {each.qos.lower(): word for word, each in words.items() if each.qos},
        "partition": {name: word for word, each in words.items() for name in each.partitions.values()},
    }
