"""`priorities:` of the site file: what `normal`, `urgent` and `very-urgent` jobs are in Slurm."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from slurm_plugin.slurm.priority import NORMAL, WORDS
from slurm_plugin.spec.documents import Problem
from slurm_plugin.spec.policy_language import Word

_Cap = Annotated[int, Meta(ge=0, le=100_000, description="a whole number; 0: no cap")]


class Priority(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One word: the QOS of its jobs, or their partitions."""

    qos: Word | None = None
    partitions: Mapping[str, Word] = {}  # a partition of normal jobs -> that of the word's jobs
    per_user: _Cap = 0  # the most jobs of a user that are queued or running
    per_account: _Cap = 0


def problems(priorities: Mapping[str, Priority]) -> Iterator[Problem]:
    """Yield the problems that the types do not catch."""
    for word, each in priorities.items():
        place = ("priorities", word)
        if word not in WORDS:
            yield Problem(place, f"unknown; accepted: {', '.join(WORDS)}")
        elif bool(each.qos) == bool(each.partitions):
            yield Problem(place, "found both or none of qos and partitions; accepted: one of them")
        elif word == NORMAL and not each.qos:
            yield Problem(place, "found partitions; accepted: qos, to which a job returns")
    names = [name for word, each in priorities.items() if word != NORMAL for name in _names(each)]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Problem(
            ("priorities",), f"found {name} for two words; accepted: a QOS or a partition of its own for each"
        )


def _names(each: Priority) -> list[str]:
    return [*sorted({*each.partitions.values()}), *([f"qos {each.qos}"] if each.qos else [])]


def compiled(priorities: Mapping[str, Priority]) -> dict[str, Any]:
    """Return the plain values for slurm_plugin.slurm.priority."""
    return {word: msgspec.to_builtins(each) for word, each in priorities.items()}


def guarded(priorities: Mapping[str, Priority]) -> dict[str, dict[str, str]]:
    """Return kind -> name -> word of what users cannot request themselves."""
    words = {word: each for word, each in priorities.items() if word != NORMAL}
    return {
        "qos": {each.qos.lower(): word for word, each in words.items() if each.qos},
        "partition": {name: word for word, each in words.items() for name in each.partitions.values()},
    }
