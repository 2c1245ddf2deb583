"""Workers of an experiment as processes of their own, without Slurm and with a small supervisor."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prechecks import files
from slurm_plugin.experiment import claim, follow, journal, worker
from slurm_plugin.records.experiments import Algorithm, Experiment, Metric, Search, State
from slurm_plugin.slurm import Job
from tests import fakes

ROOT = Path(__file__).parents[1]
SPACE = {"lr": {"type": "double", "minval": 0, "maxval": 1}, "net": {"layers": 2}}
ENDED = "ended-jobs"  # a file with the ids of jobs that Slurm says are over; others run
# Runs the command, and records its end as the real one does. SIGINT and SIGTERM end the command.
SUPERVISOR = """
import json, os, signal, subprocess, sys
from pathlib import Path
plan, words = json.loads(sys.argv[3]), sys.argv[5:]
told = []
def forward(number, _frame):
    told.append(number)
    child.send_signal(signal.SIGTERM)
environ = {**os.environ, "CONTINUED": str(plan.get("continued", False))}
environ["SLURM_PLUGIN_CHECKPOINT"] = plan["checkpoint"]
child = subprocess.Popen(words, env=environ)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, forward)
code = child.wait()
code = 128 - code if code < 0 else code
own = Path(".slurm_plugin", os.environ["SLURM_JOB_ID"])
own.mkdir(parents=True, exist_ok=True)
end = {"code": code, "action": "fail" if code and not told else "finish", "told": bool(told), "phase": "program"}
extra = json.loads(os.environ.get("LINE", "{}"))
line = {"n": 0, "trial": plan["trial"], "cause": f"code {code}", "verdicts": {}, **end, **extra}
with (own / "attempts.jsonl").open("a") as file:
    file.write(json.dumps(line) + "\\n")
sys.exit(code)
"""


def create(directory: Path, **fields: Any) -> Path:
    """Make an experiment. `fields`: of the search, else of the experiment. Return its directory."""
    search = Search(Metric("loss"), SPACE, (Algorithm("random"),), trials=3, concurrent=0)
    search = search._replace(**{name: value for name, value in fields.items() if name in Search._fields})
    others = {name: value for name, value in fields.items() if name not in Search._fields}
    place = directory / "experiment"
    place.mkdir()
    (directory / "supervisor.py").write_text(SUPERVISOR)
    journal.create(place, Experiment("x", search)._replace(**others))
    return place


def started(place: Path, command: Sequence[str], index: int = 0, **environ: str) -> subprocess.Popen[bytes]:
    """Start the worker of a task of array 100, whose job is 101 + index."""
    words = [sys.executable, "-m", "tests.workers", str(place), *command]
    given = {
        "SLURM_JOB_ID": str(101 + index),
        "SLURM_ARRAY_JOB_ID": "100",
        "SLURM_ARRAY_TASK_ID": str(index),
        **environ,
    }
    with (place.parent / f"task-{index}.log").open("ab") as log:
        return subprocess.Popen(
            words,
            cwd=place.parent,
            env={**os.environ, "PYTHONPATH": str(ROOT), **given, **environ},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def work(place: Path, command: Sequence[str], index: int = 0, **environ: str) -> int:
    """Run a worker to its end. Return its exit code."""
    return started(place, command, index, **environ).wait()


def state(place: Path) -> State:
    """Return the state of the experiment now."""
    return journal.load(place)[1]


def log(place: Path, index: int = 0) -> str:
    """Return the log of a task."""
    path = place.parent / f"task-{index}.log"
    return path.read_text() if path.exists() else ""


def python(text: str) -> list[str]:
    """Return the command of a program. `say(loss, step)` reports a validation."""
    head = """
import json, os, sys, time
from pathlib import Path
metrics = Path(os.environ["SLURM_PLUGIN_METRICS"])
def line(**fields):
    with metrics.open("a") as file: file.write(json.dumps(fields) + "\\n")
def say(loss, step): line(kind="validation", step=step, metrics={"loss": loss})
"""
    return [sys.executable, "-c", head + text]


class Door(fakes.FakeSlurm):
    """A Slurm whose jobs run, but for those in a file."""

    def __init__(self, ended: Path) -> None:
        super().__init__()
        self.ended = ended

    def jobs(self, job_ids: Sequence[int] | None = None) -> Mapping[int, Job]:
        over = self.ended.read_text().split() if self.ended.exists() else []
        states = {each: "NODE_FAIL" if str(each) in over else "RUNNING" for each in job_ids or ()}
        return {each: fakes.job(each, state=now) for each, now in states.items()}

    def cancel(self, job_id: int) -> None:
        self.ended.with_name("cancelled").write_text(str(job_id))

    def job(self, job_id: int) -> Job:
        return self.jobs([job_id])[job_id]


def dies_at(number: int) -> None:
    """Make this process die just before its write of this number, or in the middle of it."""
    left = [number]

    def dying(module: Any, name: str) -> None:
        real = getattr(module, name)

        def call(*arguments: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                if name == "_write":
                    os.write(arguments[0], arguments[1][: len(arguments[1]) * 2 // 3])
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        setattr(module, name, call)

    writes = (journal, "_write"), (os, "fdatasync"), (files, "replace"), (follow, "record_in"), (claim, "record_in")
    for module, name in (*writes, (Path, "mkdir"), (subprocess, "Popen")):
        dying(module, name)


def main(directory: str, *command: str) -> int:
    """Run a worker in this process, as an array task would."""
    if number := os.environ.get("DIES_AT"):
        dies_at(int(number))
    follow.POLL_S = worker.HANDOVER_S = worker.LOOK_EVERY_S = 0.05  # type: ignore[misc]
    worker.API_S = float(os.environ.get("API_S", "60"))  # type: ignore[misc]
    worker.RETRY_EVERY_S, worker.RETRY_S = 0.05, 60.0  # type: ignore[misc]
    claim.ASK_EVERY_S = float(os.environ.get("ASK_EVERY_S", "0"))  # type: ignore[misc]
    place = Path(directory)
    plan = json.dumps({"mode": "single", **json.loads(os.environ.get("PLAN", "{}"))})
    words = ["job", "supervise", plan, "--", *command]
    supervisor = [sys.executable, str(place.parent / "supervisor.py")]
    task = worker.own_task(os.environ)
    with worker.Worker(place, words, task, Door(place.parent / ENDED), supervisor=supervisor) as found:
        return found.work()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
