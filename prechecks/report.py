"""The written forms of verdicts: report (JSON), metrics, log line, drain reason. See docs/reference/contract.md."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable

from prechecks import quickjson
from prechecks.verdict import (
    ERROR,
    FAILED,
    NODE_PROBLEM,
    PROBLEMS,
    SKIPPED,
    TIMEOUT,
    VERDICTS,
    PrecheckError,
    Verdict,
    one_line,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from typing import Any

    JOBS: re.Pattern[str]

VERSION = 1
OURS = "slurm_plugin: "  # prefix of slurm_plugin's drain reasons; slurm_plugin undoes only these drains
LOG = "[slurm_plugin]"

_NUMBER = (int, float)
_SCALAR = (int, float, str, type(None))
_REPORT = {"node": (str,), "job": (int, type(None)), "hook": (str,), "time": _NUMBER, "items": (list,)}
_ITEM = {
    "item": (str,),
    "verdict": (str,),
    "problem": (str,),
    "message": (str,),
    "value": _SCALAR,
    "threshold": _SCALAR,
    "seconds": _NUMBER,
}

_HELP = {
    "failed": "Whether the item failed at this hook's last check: 1 or 0.",
    "unknown": "Whether the item could not tell (timeout or error) at this hook's last check: 1 or 0.",
    "seconds": "How long the item took at this hook's last check.",
    "last_look_timestamp_seconds": "When this hook last ran the checks, in seconds of the epoch.",
}


def __getattr__(name: str) -> re.Pattern[str]:
    """Compile JOBS, the pattern of `[job 123]` in a drain reason, on first use: importing `re` takes 8 ms."""
    if name != "JOBS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import re  # noqa: PLC0415

    found = globals()["JOBS"] = re.compile(r" \[job [0-9]+\]", re.ASCII)
    return found


class Report(namedtuple("Report", "node job hook time items")):
    """All verdicts of one run of the checks on one node. `job` is None outside a job, `time` is in epoch seconds."""

    __slots__ = ()
    node: str
    job: int | None
    hook: str
    time: float
    items: tuple[Verdict, ...]

    def to_json(self) -> str:
        """Return one line of ASCII JSON."""
        fields = {**self._asdict(), "items": [verdict._asdict() for verdict in self.items]}
        return quickjson.dumps({"v": VERSION, **fields})

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Parse a report. Ignore unknown keys: a later release may add some. Raise PrecheckError if invalid."""
        try:
            fields = quickjson.loads(text)
        except (ValueError, RecursionError) as error:
            raise PrecheckError(f"a report that is not JSON: {error}") from error
        version = fields.get("v") if isinstance(fields, dict) else None
        if version != VERSION or isinstance(version, bool):
            raise PrecheckError(f"a report of version {version!r}; this reads version {VERSION}")
        report = _typed(fields, _REPORT, "report")
        items = tuple(_verdict(item) for item in report.pop("items"))
        return cls(items=items, **report)

    def metrics(self) -> str:
        """Return the text that Prometheus reads ("Exposition formats", version 0.0.4); skipped items have no sample.

        The gauges are `slurm_plugin_check_<name>{hook="periodic",item="disk-size.shm"}`.
        """
        items = [verdict for verdict in self.items if verdict.verdict != SKIPPED]
        values: dict[str, list[tuple[str, float]]] = {
            "failed": [(verdict.item, int(verdict.verdict == FAILED)) for verdict in items],
            "unknown": [(verdict.item, int(verdict.verdict in (TIMEOUT, ERROR))) for verdict in items],
            "seconds": [(verdict.item, verdict.seconds) for verdict in items],
            "last_look_timestamp_seconds": [("", self.time)],
        }
        lines = []
        for name, samples in values.items():
            lines += [f"# HELP slurm_plugin_check_{name} {_HELP[name]}", f"# TYPE slurm_plugin_check_{name} gauge"]
            for item, value in samples:
                labels = f'hook="{self.hook}"' + (f',item="{item}"' if item else "")
                lines.append(f"slurm_plugin_check_{name}{{{labels}}} {value}")
        return "\n".join(lines) + "\n"


def _verdict(fields: Any) -> Verdict:
    found = Verdict(**_typed(fields, _ITEM, "item"))
    for word, words in ((found.verdict, VERDICTS), (found.problem, PROBLEMS)):
        if word not in words:
            raise PrecheckError(f"{found.item}: {word!r} is none of {', '.join(words)}")
    return found


def _typed(fields: Any, types: dict[str, tuple[type, ...]], what: str) -> dict[str, Any]:
    """Return the keys in `types`. Raise PrecheckError if one is missing or has another type. A bool is not a number."""
    if not isinstance(fields, dict):
        raise PrecheckError(f"a report's {what} is {type(fields).__name__}; an object is wanted")
    for name, accepted in types.items():
        if name not in fields:
            raise PrecheckError(f"a report's {what} lacks {name!r}")
        if not isinstance(fields[name], accepted) or isinstance(fields[name], bool):
            wanted = " or ".join(kind.__name__ for kind in accepted)
            raise PrecheckError(f"a report's {name!r} is {type(fields[name]).__name__}; {wanted} is wanted")
    return {name: fields[name] for name in types}


def line(node: str, verdict: Verdict) -> str:
    """Return the log line: `[slurm_plugin] n2 disk-size shm: failed: 512 MB < 1 GB`."""
    return f"{LOG} {node} {verdict.keyword}: {verdict.verdict}: {one_line(verdict.message)}"


def node_problems(verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """Return the verdicts that drain a node: failed node problems. `timeout` and `error` mean unknown, not bad."""
    return tuple(verdict for verdict in verdicts if verdict.failed and verdict.problem == NODE_PROBLEM)


def _part(message: str) -> str:
    """Return the message without the texts that have a meaning in a reason: a process may be named ` [job 7]`.

    `; ` separates the items, `[job` begins the id of a job, and scontrol may strip `"`.
    """
    return one_line(message).replace("; ", ", ").replace("[job", "(job").replace('"', "'")


def reason_parts(reason: str) -> dict[str, str]:
    """Return the parts of a plugin reason by the keyword of the item."""
    found = filter(None, __getattr__("JOBS").sub("", reason).removeprefix(OURS).split("; "))
    return {part.partition(": ")[0]: part for part in found}


def reason(verdicts: Iterable[Verdict], job: int | None) -> str:
    """Return the drain reason, `slurm_plugin: gpu-check: 3 of 4 GPUs [job 123]`; empty if nothing drains."""
    bad = node_problems(verdicts)
    if not bad:
        return ""
    found = "; ".join(f"{verdict.keyword}: {_part(verdict.message)}" for verdict in bad)
    return f"{OURS}{found}" + (f" [job {job}]" if job is not None else "")
