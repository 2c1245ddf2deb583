"""Jobs as their records tell of them, for the tests and the pictures of reports. They are seeded."""

import math
import random
from datetime import UTC, datetime
from typing import Any, Final

from hostfiles import nodelist
from slurm_plugin.records.progress_file import Point
from slurm_plugin.records.usage import Accelerator, Sample
from slurm_plugin.slurm import Job
from slurm_plugin.views.report.story import Drain, Facts
from tests.experiments import HOSTILE
from tests.fakes import job

BEGAN: Final = 1_780_000_000.0  # 2026-05-28 20:26:40 UTC
GIB: Final = 1 << 30
DIAGNOSIS: Final[dict[str, Any]] = {
    "v": 1, "class": "gpu_hw", "says": "a fault of an accelerator or its driver", "whose": "node",
    "confidence": "sure", "ranks": [2], "of": 8, "nodes": {"n2": "exclude"}, "place": None,
    "evidence": {"file": "/home/ada/run.out", "line": 12, "byte": 900, "text": "RuntimeError: CUDA error: device lost",
                 "signature": "cuda-lost", "time": None},
    "means": "a GPU is not there any more", "fix": ["check the node's GPUs: slurm-plugin check gpu-check"],
    "retry": True, "beside": "", "step": "step 23", "others": [], "clocks": {}, "unread": [], "cut": False,
}  # fmt: skip


def moment(at: float) -> datetime:
    """Return a time as Slurm's answers have it."""
    return datetime.fromtimestamp(at, UTC)


def utc(at: float) -> str:
    """Return a time as records have it."""
    return moment(at).isoformat(timespec="milliseconds")


def line(number: int, nodes: str, times: tuple[float, ...], **fields: Any) -> dict[str, Any]:
    """Return an attempt. `times`: start, program's start and end, end; in seconds after BEGAN."""
    start, first, last, end = (BEGAN + each for each in times)
    return {
        "n": number, "restart": 0, "nodes": nodes, "launch": "task", "slots": 2, "start": utc(start), "end": utc(end),
        "phase": "program", "code": 0, "cause": "the program ended with exit code 0", "progress": None,
        "program": [utc(first), utc(last)], "checkpoint": None, "verdicts": {}, "action": "finish", **fields,
    }  # fmt: skip


def ended(number: int = 17, **fields: Any) -> Job:
    """Return a job that has succeeded."""
    known = {"state": "COMPLETED", "nodes": "n[1,3-5]", "name": "demo", "partition": "batch", "user": "ada"}
    return job(number, **{**known, "submit_time": moment(BEGAN - 4), **fields})


def samples(nodes: list[str], attempt: int, start: float, end: float, every: float, seed: int) -> list[Sample]:
    """Return the use of these nodes, with two accelerators each."""
    draw, found, at = random.Random(seed), [], start  # noqa: S311
    while at < end:
        for place, node in enumerate(nodes):
            level = 0.9 - 0.35 * math.exp(-(at - start) / (0.05 * (end - start)))
            cards = tuple(
                Accelerator(index, min(max(level + draw.gauss(0, 0.04), 0), 1), 61.5 * GIB, 80 * GIB, 300 + 380 * level)
                for index in range(2)
            )
            found.append(
                Sample(at, attempt, node, place, 0.42 + draw.gauss(0, 0.03), 96 * GIB, 4e8 * draw.random(), 3e7, cards)
            )
        at += every
    return found


def points(attempt: int, first: int, start: float, end: float, step_s: float, seed: int, of: int = 60) -> list[Point]:
    """Return the steps of a program."""
    draw, found, at, step = random.Random(seed), [], start, first  # noqa: S311
    while at < end and step <= of:
        found.append(Point(at, attempt, step, of, step_s * (1 + draw.gauss(0, 0.03))))
        at, step = at + step_s, step + 1
    return found


def demo(**fields: Any) -> Facts:
    """Return a job of four nodes, one of which lost a GPU: it ran again on a spare."""
    fault = "gpu-check: 1 of 2 GPUs"
    cause = f"the program failed with exit code 1, and n2 {fault}"
    first = line(0, "n[1-4]", (0, 2.1, 7.0, 13.2), code=1, cause=cause, action="again", verdicts={"n2": fault},
                 checkpoint=utc(BEGAN + 6.2), diagnosis=DIAGNOSIS)  # fmt: skip
    second = line(1, "n[1,3-5]", (13.2, 15.3, 23.0, 23.1))
    b = BEGAN
    return Facts(
        17,
        b + 30,
        [first, second],
        ended(),
        samples(["n1", "n2", "n3", "n4"], 0, b + 2.5, b + 7, 0.5, 1)
        + samples(["n1", "n3", "n4", "n5"], 1, b + 15.5, b + 23, 0.5, 2),
        points(0, 1, b + 2.3, b + 7, 0.2, 3) + points(1, 21, b + 15.4, b + 23, 0.19, 4),
        [Drain("n2", b + 12.0, None, fault)],
        checks={
            0: ["dns: ok on n[1-5]", "disk-size root: ok on n[1-5]", "gpu-check: ok on n[1-5]",
                "n2 gpu-check: failed: 1 of 2 GPUs"],
        },
        excerpts={0: [(-1, "step 23 loss 0.0231"), (0, "RuntimeError: CUDA error: device lost"), (1, "Traceback")]},
        says=("it ended: its program ended with exit code 0",),
        then=("slurm-plugin why n2", "slurm-plugin logs 17"),
    )._replace(**fields)  # fmt: skip


def large(nodes: int = 128, attempts: int = 20, hour: float = 3600.0) -> Facts:
    """Return a job of many nodes that was restarted many times, each time without the node that failed."""
    names = [f"gpu{number:04}" for number in range(1, nodes + attempts + 1)]
    found, use, steps, drained, at = [], [], [], [], BEGAN
    for number in range(attempts):
        out = names[number * 5 % nodes]
        fault = "gpu-xid: Xid 79: the GPU has fallen off the bus"
        own = nodelist.fold([each for each in names[: nodes + number] if each not in drained][:nodes])
        wait = 1800.0 if number % 4 == 3 else 0.0
        length = hour * (1 + number % 5)
        last = number == attempts - 1
        found.append(
            line(
                number, own, tuple(each - BEGAN for each in (at, at + 90, at + length, at + length + 60)),
                restart=(number + 1) // 4, code=0 if last else 1,
                cause="the program ended with exit code 0"
                if last
                else f"the program failed with exit code 1, and {out} {fault}",
                action="finish" if last else "requeue" if number % 4 == 3 else "again",
                verdicts={} if last else {out: fault},
                checkpoint=None if last else utc(at + length - 400),
                **({} if last else {"diagnosis": DIAGNOSIS}),
            )
        )  # fmt: skip
        use += samples([f"gpu{each:04}" for each in range(1, 9)], number, at + 100, at + length, 120, number)
        steps += points(number, number * 900 + 1, at + 100, at + length, 30, number, of=90_000)
        drained.append(out)
        at += length + 60 + wait
    return Facts(
        4711,
        at + 60,
        found,
        ended(4711, name="llama-70b", nodes=names[0]),
        use,
        steps,
        [Drain(node, BEGAN + 3600 * (place + 1), None, "gpu-xid: Xid 79") for place, node in enumerate(drained[:-1])],
        checks={number: [f"{item}: ok on {names[0]}" for item in ("dns", "mounts")] for number in range(attempts)},
        excerpts={number: [(each, "x" * 120) for each in range(-3, 4)] for number in range(attempts)},
        then=("slurm-plugin logs 4711",),
    )


def hostile() -> Facts:
    """Return a job whose user wrote the records."""
    bad: dict[str, Any] = {
        "n": HOSTILE, "restart": HOSTILE, "nodes": HOSTILE, "start": utc(BEGAN), "end": utc(BEGAN + 5), "code": HOSTILE,
        "phase": HOSTILE, "cause": HOSTILE * 50, "action": HOSTILE, "verdicts": {HOSTILE: HOSTILE * 50},
        "program": [HOSTILE], "checkpoint": HOSTILE,
        "diagnosis": {**DIAGNOSIS, "means": HOSTILE, "fix": [HOSTILE * 9], "step": HOSTILE, "nodes": {HOSTILE: "x"},
                      "evidence": {"file": HOSTILE, "text": HOSTILE, "line": HOSTILE}, "clocks": {"x": None}},
    }  # fmt: skip
    more = {**bad, "n": 2, "nodes": "n[1-3]", "program": [utc(BEGAN), utc(BEGAN + 2)], "checkpoint": utc(BEGAN + 1)}
    return Facts(
        17,
        BEGAN + 60,
        [bad, more, {"n": 10**400, "start": [], "end": 10**400}, {"end": utc(BEGAN - 9e8), "start": utc(BEGAN)}],
        ended(name=HOSTILE, user=HOSTILE, partition=HOSTILE),
        [Sample(BEGAN + 1, 2, HOSTILE, 0, 1e308, 1e308, 0.0, 1e308, (Accelerator(0, 1e308, 0.0),))],
        [Point(BEGAN + 1, 2, 10**30, None, 1e308)],
        [Drain(HOSTILE, BEGAN + 2, None, HOSTILE)],
        checks={2: [HOSTILE]},
        excerpts={2: [(0, HOSTILE)]},
        says=(HOSTILE,),
        then=(HOSTILE,),
    )
