"""What is written of verdicts: the report (JSON), the log line, the drain reason. Forms: docs/contract.md."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable

from prechecks import quickjson
from prechecks.errors import PrecheckError
from prechecks.verdict import NODE_PROBLEM, Verdict, one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from typing import Any

    JOBS: re.Pattern[str]

VERSION = 1
OURS = "slurm_plugin: "  # a drain reason that begins so is ours to undo, and no other
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


def __getattr__(name: str) -> object:
    """JOBS: how a reason of ours names the jobs that it is about. Made when it is asked for, as `re` costs 8 ms."""
    if name != "JOBS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import re  # noqa: PLC0415

    found = globals()["JOBS"] = re.compile(r" \[job [0-9]+\]", re.ASCII)
    return found


class Report(namedtuple("Report", "node job hook time items")):
    """All verdicts of one run of the checks on one node; `job` is None outside a job, `time` seconds of the epoch."""

    __slots__ = ()
    node: str
    job: int | None
    hook: str
    time: float
    items: tuple[Verdict, ...]

    def to_json(self) -> str:
        """One line of ASCII JSON."""
        fields = {**self._asdict(), "items": [verdict._asdict() for verdict in self.items]}
        return quickjson.dumps({"v": VERSION, **fields})

    @classmethod
    def from_json(cls, text: str) -> Report:
        """The report in `text`. Keys of a later writer are passed over. PrecheckError where ours are not right."""
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


def _verdict(fields: Any) -> Verdict:
    return Verdict(**_typed(fields, _ITEM, "item"))


def _typed(fields: Any, types: dict[str, tuple[type, ...]], what: str) -> dict[str, Any]:
    """The keys that `types` names, each of one of its types; a bool is no number here."""
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
    """The log line: `[slurm_plugin] n2 disk-size shm: failed: 512 MB < 1 GB`."""
    return f"{LOG} {node} {verdict.keyword}: {verdict.verdict}: {one_line(verdict.message)}"


def node_problems(verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """The verdicts that drain a node: failed ones, of causes that nodes do not share. Unknown is not bad."""
    return tuple(verdict for verdict in verdicts if verdict.failed and verdict.problem == NODE_PROBLEM)


def _part(message: str) -> str:
    """A message as one part of a reason: `; ` stands between those, and scontrol takes a quotation mark at the end."""
    return one_line(message).replace("; ", ", ").replace('"', "'")


def reason(verdicts: Iterable[Verdict], job: int | None) -> str:
    """The drain reason: `slurm_plugin: gpu-check: 3 of 4 GPUs [job 123]`; empty where nothing drains the node."""
    bad = node_problems(verdicts)
    if not bad:
        return ""
    found = "; ".join(f"{verdict.keyword}: {_part(verdict.message)}" for verdict in bad)
    return f"{OURS}{found}" + (f" [job {job}]" if job is not None else "")
