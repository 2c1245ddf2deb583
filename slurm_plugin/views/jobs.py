"""A list of jobs as a table and as records: pure functions of Slurm's answer and of the jobs' own records."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, tzinfo
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Final, NamedTuple

from hostfiles import nodelist
from slurm_plugin.errors import UsageError, printable
from slurm_plugin.records import history
from slurm_plugin.records.nearest import suggestion
from slurm_plugin.slurm import WAITING, Listed
from slurm_plugin.views import states
from slurm_plugin.views.columns import columns, cut, widest

SHOWN_IDLE: Final = 3  # jobs that get a separate warning
# Slurm's short forms of its states (squeue(1), JOB STATE CODES).
CODES: Final[Mapping[str, str]] = {
    "BOOT_FAIL": "BF", "CANCELLED": "CA", "COMPLETED": "CD", "COMPLETING": "CG", "CONFIGURING": "CF", "DEADLINE": "DL",
    "FAILED": "F", "NODE_FAIL": "NF", "OUT_OF_MEMORY": "OOM", "PENDING": "PD", "PREEMPTED": "PR", "REQUEUED": "RQ",
    "REQUEUE_FED": "RF", "REQUEUE_HOLD": "RH", "RESIZING": "RS", "RESV_DEL_HOLD": "RD", "REVOKED": "RV",
    "RUNNING": "R", "SIGNALING": "SI", "SPECIAL_EXIT": "SE", "STAGE_OUT": "SO", "STOPPED": "ST", "SUSPENDED": "S",
    "TIMEOUT": "TO",
}  # fmt: skip
COLOURS: Final[Mapping[str, str]] = {
    states.RUNNING: "green",
    **dict.fromkeys((states.RESTARTING, states.HELD_WORD), "yellow"),
    **dict.fromkeys((states.ERROR, states.EXPIRED), "red"),
    **dict.fromkeys((states.STOPPED, states.SUCCEEDED), "dim"),
}


class Facts(NamedTuple):
    """What the job's own directory tells. Its user writes it."""

    held: bool = False  # for debugging
    over_time: bool = False  # it failed because its time was over
    restarts: int = 0  # for a job whose comments Slurm no longer has
    step: int | None = None
    of: int | None = None  # all steps
    used: float | None = None  # mean utilisation of worker-0's accelerators, 0 to 1
    low: str = ""  # a warning that this is too low


NO_FACTS: Final = Facts()


class Row(NamedTuple):
    """A job in the list."""

    listed: Listed
    facts: Facts
    word: str  # of states.WORDS
    restarts: int


def row(listed: Listed, facts: Facts | None = None) -> Row:
    """Return a job with its word and its number of restarts."""
    facts = facts or NO_FACTS
    began = listed.job.restarts or listed.job.state not in WAITING  # else there is nothing to parse
    restarts = max(history.restarts(listed.job) if began else 0, facts.restarts)
    return Row(listed, facts, states.word(listed.job, held=facts.held, over_time=facts.over_time), restarts)


def is_idle(row: Row) -> bool:
    """Return whether a running job leaves its accelerators unused."""
    return row.word == states.RUNNING and bool(row.facts.low)


def form(row: Row) -> dict[str, Any]:
    """Return a job for --json."""
    (job, name, nodes, gpus, elapsed_s, limit_s, directory), facts = row.listed, row.facts
    times = {"submitted": job.submit_time, "starts": job.start_time, "ends": job.end_time}
    return {
        "job": job.id, "id": name, "name": job.name, "user": job.user, "partition": job.partition, "state": row.word,
        "slurm_state": job.state, "reason": job.reason, "nodes": nodes, "gpus": gpus, "elapsed_s": elapsed_s,
        "limit_s": limit_s, "restarts": row.restarts, "step": facts.step, "of": facts.of, "gpu_used": facts.used,
        "idle": is_idle(row), "node_list": job.nodes, "exit_code": job.exit_code, "signal": job.exit_signal,
        **{name: time.isoformat() if time else None for name, time in times.items()},
        "directory": directory,
    }  # fmt: skip


@lru_cache(4096)
def _took(seconds: int | None) -> str:
    """Return a duration without spaces: `3h20min`."""
    return "-" if seconds is None else history.duration(seconds).replace(" ", "")


def _step(row: Row) -> str:
    step, of = row.facts.step, row.facts.of
    return "-" if step is None else f"{step}/{of}" if of else str(step)


def _used(row: Row) -> str:
    used = row.facts.used
    return "-" if used is None else f"{used * 100:.0f}" + "!" * is_idle(row)


def _where(row: Row) -> str:
    job = row.listed.job
    return f"({job.reason})" if job.reason and (job.state in WAITING or not job.nodes) else job.nodes


def _exit(row: Row) -> str:
    job = row.listed.job
    if row.word not in states.OVER:
        return "-"
    return f"signal {job.exit_signal}" if job.exit_signal else "-" if job.exit_code is None else str(job.exit_code)


class Column(NamedTuple):
    """A column of the table."""

    text: Callable[[Row], Any]  # a text; of a column of times, a time or None
    key: Callable[[Row], Any]  # to sort by; None comes last
    right: bool = False  # aligned to the right
    is_time: bool = False


def _plain(value: Callable[[Row], str]) -> Column:
    return Column(value, value)


def _count(value: Callable[[Row], int]) -> Column:
    return Column(lambda row: str(value(row)), value, right=True)


def _time(value: Callable[[Row], datetime | None]) -> Column:
    return Column(value, value, is_time=True)


COLUMNS: Final[Mapping[str, Column]] = {
    "ID": Column(lambda row: row.listed.name, lambda row: row.listed.job.id),
    "NAME": _plain(lambda row: row.listed.job.name or ""),
    "USER": _plain(lambda row: row.listed.job.user),
    "PARTITION": _plain(lambda row: row.listed.job.partition or ""),
    "STATE": Column(
        lambda row: f"{row.word} {CODES.get(row.listed.job.state, row.listed.job.state)}",
        lambda row: states.WORDS.index(row.word),
    ),
    "NODES": _count(lambda row: row.listed.nodes),
    "GPUS": Column(lambda row: str(row.listed.gpus or "-"), lambda row: row.listed.gpus, right=True),
    "ELAPSED": Column(lambda row: _took(row.listed.elapsed_s), lambda row: row.listed.elapsed_s, right=True),
    "LIMIT": Column(lambda row: _took(row.listed.limit_s), lambda row: row.listed.limit_s, right=True),
    "RESTARTS": _count(lambda row: row.restarts),
    "STEP": Column(_step, lambda row: row.facts.step, right=True),
    "GPU%": Column(_used, lambda row: row.facts.used, right=True),
    "NODELIST(REASON)": Column(_where, _where),
    "SUBMITTED": _time(lambda row: row.listed.job.submit_time),
    "STARTS": _time(lambda row: row.listed.job.start_time),
    "ENDS": _time(lambda row: row.listed.job.end_time),
    "EXIT": Column(_exit, lambda row: row.listed.job.exit_code, right=True),
    "DIRECTORY": _plain(lambda row: row.listed.directory),
}
SHOWN: Final = tuple(COLUMNS)[:13]
# In a narrow terminal, these are cut to this length, in this order; then the next ones are left out, in this order.
SHORTER: Final = {"NODELIST(REASON)": 10, "NAME": 10}
LEFT_OUT: Final = ("PARTITION", "USER", "LIMIT", "NODES", "GPUS", "GPU%", "STEP", "RESTARTS")


def names(text: str, option: str = "--format") -> tuple[str, ...]:
    """Return the columns of `id,name,exit`, or those of the list and one more for `+exit`. Raise UsageError."""
    found = SHOWN if text.startswith("+") else ()
    for word in text.removeprefix("+").split(","):
        name = "NODELIST(REASON)" if word.lower() in ("nodelist", "reason") else word.strip().upper()
        if name not in COLUMNS:
            shown = ", ".join(each.lower().removesuffix("(reason)") for each in COLUMNS)
            close = suggestion(word, map(str.lower, COLUMNS))
            more = "; or +COLUMN for one more" if option == "--format" else ""
            raise UsageError(f"{option}: found {printable(word)!r}{close}\n  accepted: {shown}{more}")
        found = (*found, name) if name not in found else found
    return found


def states_of(text: str) -> frozenset[str]:
    """Return the words and Slurm's states of `running,error,TO`. Raise UsageError for another word."""
    slurms = {**{code: state for state, code in CODES.items()}, **{state: state for state in CODES}}
    found = []
    for word in text.split(","):
        given = word.strip()
        state = given.lower() if given.lower() in states.WORDS else slurms.get(given.upper())
        if state is None:
            close = suggestion(given, (*states.WORDS, *map(str.lower, slurms)))
            accepted = f"{', '.join(states.WORDS)}, or a state of Slurm's"
            raise UsageError(f"--state: found {printable(given)!r}{close}\n  accepted: {accepted}")
        found.append(state)
    return frozenset(found)


def chosen(
    jobs: Iterable[Listed], *, partitions: Collection[str] = (), name: str = "", nodes: Collection[str] = ()
) -> list[Listed]:
    """Return the jobs in one of these partitions, with a name that `name` matches, on one of these nodes."""
    return [
        each
        for each in jobs
        if not partitions or not {*partitions}.isdisjoint((each.job.partition or "").split(","))
        if not name or fnmatchcase(each.job.name or "", name)
        if not nodes or not {*nodes}.isdisjoint(nodelist.names(each.job.nodes))
    ]


def ordered(rows: Iterable[Row], keys: str) -> list[Row]:
    """Return the rows sorted by columns: `elapsed`, `-gpus,id` with the largest number of GPUs first.

    A job without a value comes last. Raise UsageError for an unknown column.
    """
    found = list(rows)
    for word in reversed(keys.split(",")):
        (name,) = names(word.removeprefix("-").removeprefix("+"), "--sort")
        key = COLUMNS[name].key
        has = sorted((each for each in found if key(each) is not None), key=key, reverse=word.startswith("-"))
        found = has + [each for each in found if key(each) is None]
    return found


def table(
    rows: Sequence[Row], shown: Sequence[str] = SHOWN, *, width: int = 0, zone: tzinfo | None = None, on: bool = False
) -> list[str]:
    """Return a head and a line for each job.

    `width`: of the terminal; 0 for any. In a narrow one, cut the longest texts, then leave out columns of SHOWN that
    were not asked for. `zone`: of the times; None for the user's.
    """
    cells = {name: [name, *_texts(COLUMNS[name], rows, zone)] for name in shown}
    widths = {name: widest(texts) for name, texts in cells.items()}
    for name in LEFT_OUT:
        if not width or _total(_least(widths)) <= width:
            break
        if tuple(shown[: len(SHOWN)]) == SHOWN:
            widths.pop(name, None)
    for name, least in SHORTER.items():
        if name in widths and width and (over := _total(widths) - width) > 0:
            widths[name] = max(min(least, widths[name]), widths[name] - over)
    fitted = (_fitted(cells[name], name, width) for name, width in widths.items())
    colours = [("bold",) * len(widths)]
    for each in rows if on else ():
        of = {"STATE": COLOURS.get(each.word, ""), "GPU%": "yellow" * is_idle(each)}
        colours.append(tuple(of.get(name, "") for name in widths))
    return columns([*zip(*fitted, strict=True)], colours, on=on)


def notes(rows: Iterable[Row]) -> list[str]:
    """Return a warning for each of the first jobs that leave their accelerators unused."""
    idle = [each for each in rows if is_idle(each)]
    lines = [
        printable(f"{each.listed.name}: {each.facts.low}; what helps: slurm-plugin why {each.listed.name}")
        for each in idle[:SHOWN_IDLE]
    ]
    return lines + [f"and {len(idle) - SHOWN_IDLE} more jobs with a low GPU%"] * (len(idle) > SHOWN_IDLE)


def _texts(column: Column, rows: Iterable[Row], zone: tzinfo | None) -> list[str]:
    """Return the cells of a column. An empty one is `-`."""
    text = column.text
    found = [text(each) for each in rows]
    if column.is_time:
        return [each.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S") if each else "-" for each in found]
    if not "".join(found).isprintable():
        found = [printable(each) for each in found]
    return [each or "-" for each in found]


def _least(widths: Mapping[str, int]) -> dict[str, int]:
    """Return the widths of the columns if the longest texts are cut."""
    return {name: min(each, SHORTER.get(name, each)) for name, each in widths.items()}


def _total(widths: Mapping[str, int]) -> int:
    return sum(widths.values()) + 2 * (len(widths) - 1)


def _fitted(texts: Sequence[str], name: str, width: int) -> list[str]:
    """Cut texts that are longer than `width`, and align numbers. The first text is the head."""
    if COLUMNS[name].right:
        return [each.rjust(width) for each in texts]
    head, *rest = texts
    short = [cut(each, width) for each in rest]
    return [head if len(head) <= width else head.partition("(")[0][:width], *short]
