"""The verdict of the site's policy on a submission, as far as a client can judge: refusals and changes.

templates/site/job_submit_policy.lua.j2 has functions of the same names, with the same results and the same messages
(tests/unit/submit/test_policy_verdict.py). A policy is the value of `policy_language.compiled`.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from slurm_plugin.records import durations
from slurm_plugin.records.features import MOST_NODES
from slurm_plugin.spec.policy_language import FIELDS
from slurm_plugin.submit.wrapper import batch_script
from slurm_plugin.submit.wrapper.arguments import VARIABLES, parse

UNLIMITED: Final = 4294967295  # slurm.INFINITE, in minutes
CHANGES: Final = ("account", "partition", "qos", "reservation", "time")  # that a default may set, in this order
OPTIONS: Final = ("account", "partition", "qos", "reservation", "time", "nodes", "comment", "job-name", "clusters")
# The options that are also read from sbatch's input variables: these override the script, and arguments override them.
_FROM_VARIABLES: Final = frozenset((*CHANGES, "clusters"))
_HANDED_ON: Final = ("account", "qos", "reservation", "time", "comment", "job-name")
_NODES: Final = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", re.ASCII)
_LONGEST_SHOWN: Final = 60


class Facts(Struct, frozen=True):
    """The known facts of a job: its names by field, its size, and its time limit in minutes."""

    names: Mapping[str, tuple[str, ...]]  # FIELDS -> names; several partitions are possible
    given: frozenset[str] = frozenset()  # the options that the job gives
    least: int | None = None  # nodes
    most: int | None = None  # nodes; None: no upper bound
    time: int | None = None
    default_time: int | None = None  # default of its partition; None: unknown
    unknown: frozenset[str] = frozenset()  # FIELDS that only the controller can judge


class Verdict(Struct, frozen=True):
    """The result for a submission: refusals, changes as (field, value), and the most restarts (None: no limit).

    `because` names the source of each change: `defaults`, or `rule NAME`.
    """

    refusals: tuple[str, ...] = ()
    changes: tuple[tuple[str, str | int], ...] = ()
    retries: int | None = None
    because: Mapping[str, str] = {}


def submitted(policy: Mapping[str, Any], facts: Facts) -> Verdict:
    """Judge a new job: set its defaults, then apply every rule. The strictest limit wins."""
    defaults = {name: value for name in CHANGES if (value := policy["defaults"].get(name)) and name not in facts.given}
    names = {name: known(name, value) for name, value in defaults.items() if name != "time"}
    whole = replace(
        facts,
        names={**facts.names, **names},
        given=facts.given | defaults.keys(),
        unknown=facts.unknown - names.keys(),
        time=defaults.get("time", facts.time),
    )
    refusals: list[str] = []
    limits: dict[str, int] = {}
    because: dict[str, str] = {}
    for rule in policy["rules"]:
        matched = applies(rule, whole)
        if matched is None:
            continue
        where = f" ({', '.join(matched)})" if matched else ""
        tail = f"; {rule['message']}" if "message" in rule else ""
        refusals += [f"slurm_plugin: rule {rule['name']}{where}: {text}{tail}" for text in _refused(rule, whole)]
        for name, limit in _limits(rule, whole):
            if name not in limits or limit < limits[name]:
                limits[name], because[name] = limit, f"rule {rule['name']}"
    caps = ((name, limits[name]) for name in ("time", "nodes") if name in limits)
    because |= dict.fromkeys(defaults, "defaults")
    return Verdict(tuple(refusals), (*defaults.items(), *caps), limits.get("retries"), because)


def combine(parts: Sequence[Verdict]) -> Verdict:
    """Combine the refusals and changes of the components of a heterogeneous job."""
    refusals = dict.fromkeys(refusal for part in parts for refusal in part.refusals)
    changes = dict.fromkeys(change for part in parts for change in part.changes)
    because = {about: source for part in reversed(parts) for about, source in part.because.items()}
    return Verdict(tuple(refusals), tuple(changes), because=because)


class JobOptions(Struct, frozen=True):
    """The options of a job that a policy may use, as sbatch gets them."""

    options: Mapping[str, str]

    def get(self, name: str) -> str | None:
        """Return an option; None if it is missing or empty."""
        return self.options.get(name) or None

    @property
    def nodes(self) -> tuple[int | None, int | None]:
        """Return the fewest and the most nodes; (None, None) if they are missing or unreadable."""
        found = _NODES.fullmatch(self.options.get("nodes", ""))
        if not found:
            return None, None
        least, most = int(found[1]), int(found[2] or found[1])
        return (least or None, most or None) if max(least, most) <= MOST_NODES else (None, None)

    @property
    def minutes(self) -> int | None:
        """Return the time limit, rounded up as in Slurm; None if it is missing or unreadable."""
        text = self.options.get("time", "")
        if durations.unlimited(text):
            return UNLIMITED
        try:
            return math.ceil(durations.seconds(text) / 60)
        except ValueError:
            return None


def jobs(script: str, arguments: Sequence[str], environ: Mapping[str, str]) -> tuple[JobOptions, ...]:
    """Return the options from the script's directives, sbatch's input variables and the arguments; the last one wins.

    A policy judges each component of a heterogeneous job as a separate job. sbatch gives some options of the first
    component to the others, and its variables and arguments to all components.
    """
    parts: list[dict[str, str]] = [{}]
    for line in batch_script.first_block(script.encode("utf-8", "surrogateescape")):
        words = batch_script.words([line])
        if words and batch_script.begins_component(line):
            parts.append({})
            words = words[1:]
        parts[-1] |= _options(words)
    above = {
        option: environ[name] for name, option in VARIABLES.items() if option in _FROM_VARIABLES and environ.get(name)
    }
    above |= _options(arguments)
    handed_on = {name: value for name, value in parts[0].items() if name in _HANDED_ON}
    return tuple(JobOptions({**handed_on, **part, **above}) for part in parts)


def facts(job: JobOptions, user: str) -> Facts:
    """Return the facts that a client knows. It knows neither the user's default account nor the default partition."""
    names: dict[str, tuple[str, ...]] = {"user": (user,)}
    for name in ("account", "partition", "qos", "reservation"):
        if value := job.get(name):
            names[name] = known(name, value)
    least, most = job.nodes
    given = {name for name in ("account", "partition", "qos", "reservation", "nodes", "time") if job.get(name)}
    unknown = {"account", "partition", "qos"} - given
    return Facts(names, frozenset(given), least, most, job.minutes, unknown=frozenset(unknown))


def _options(words: Sequence[str]) -> dict[str, str]:
    """Return the options that a policy may use; none if sbatch refuses the words."""
    given = parse(words)
    return {each.name: each.value or "" for each in given.options if each.name in OPTIONS} if given else {}


def applies(rule: Mapping[str, Any], facts: Facts) -> list[str] | None:
    """Return the value that meets each condition, such as `user ann`; None if one is not met, or unknown."""
    matched = []
    for name in FIELDS:
        if wanted := rule.get("when", {}).get(name):
            met = next((each for each in facts.names.get(name, ()) if each in wanted), None)
            if name in facts.unknown or met is None:
                return None
            matched.append(f"{name} {shown(met)}")
    return matched


def _refused(rule: Mapping[str, Any], facts: Facts) -> Iterator[str]:
    """Yield a message for each violation of a rule."""
    for name in rule.get("required", ()):
        if name not in facts.given:
            yield f"{name}: missing; give --{name}"
    if rule.get("deny"):
        yield "not accepted"
    for name in FIELDS:
        accepted = rule.get("allow", {}).get(name)
        if accepted and name not in facts.unknown:
            others = [each for each in facts.names.get(name, ()) if each not in accepted]
            if others or not facts.names.get(name):
                found = shown(others[0]) if others else "none"
                yield f"{name}: found {found}; accepted: {', '.join(accepted)}"
    nodes = max(facts.least or 0, facts.most or 0)
    if "nodes" in rule and nodes > rule["nodes"]:
        yield f"nodes: found {nodes}; accepted: up to {rule['nodes']}"
    if "time" in rule and facts.time is not None and facts.time > rule["time"]:
        yield f"time: found {clock(facts.time)}; accepted: up to {clock(rule['time'])}"


def _limits(rule: Mapping[str, Any], facts: Facts) -> Iterator[tuple[str, int]]:
    """Yield the limits of a rule. Nodes and time are limited only if the job does not give them."""
    if "nodes" in rule and facts.most is None and (facts.least or 0) <= rule["nodes"]:
        yield "nodes", rule["nodes"]
    if "time" in rule and facts.time is None and facts.default_time is not None and facts.default_time > rule["time"]:
        yield "time", rule["time"]
    if "retries" in rule:
        yield "retries", rule["retries"]


def known(name: str, text: str) -> tuple[str, ...]:
    """Return the names in an option, accounts and QOS in lower case: Slurm's accounting ignores case."""
    data = text.encode("utf-8", "surrogateescape")
    if name in ("account", "qos"):
        data = data.lower()  # on bytes, so only ASCII letters change, as in Lua
    return tuple(filter(None, data.decode("utf-8", "surrogateescape").split(",")))


def shown(text: str) -> str:
    """Return a user's text for a message: printable ASCII, at most 60 bytes."""
    data = text.encode("utf-8", "surrogateescape")[:_LONGEST_SHOWN]
    return "".join(chr(byte) if 32 <= byte <= 126 else "?" for byte in data)


def clock(minutes: int) -> str:
    """Return minutes in Slurm's form, such as `1-02:30:00`."""
    if minutes == UNLIMITED:
        return "UNLIMITED"
    days, rest = divmod(minutes, 1440)
    hours, left = divmod(rest, 60)
    return f"{days}-{hours:02}:{left:02}:00" if days else f"{hours:02}:{left:02}:00"
