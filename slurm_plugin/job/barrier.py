"""The barrier: every node of the job reads root's report, checks as the job's user, and answers.

The guards (`slurm_plugin.job.guard`) are asked; their step waits for every node's prolog, which makes it a barrier.
`text` makes one line for all of them, `answer` what each does with it, `answers` what became of that.
"""

import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import prechecks
from hostfiles import HostfileError, nodelist, npu
from prechecks.verdict import ERROR, FAILED, JOB_PROBLEM, OK, SKIPPED, TIMEOUT
from slurm_plugin.decide import Condition, Health
from slurm_plugin.hooks import node_directory
from slurm_plugin.job import taskfile

# srun mixes the lines of different nodes whole only up to MAX_MSG_LEN, 1024 bytes (slurmd/slurmstepd/io.c).
CHUNK = 600
LINE = "slurm_plugin-answer"
ANSWER_S = 15.0  # for the step to start, beyond what the checks may take
DEVICES_S = 160.0  # hccn_tool may take its 10 s for each of 16 devices
DEVICES = "devices"  # one key more than a report has
_NUMBER = re.compile(r"[0-9]{1,6}", re.ASCII)
_RANK = {SKIPPED: 0, OK: 1, TIMEOUT: 2, ERROR: 2, FAILED: 3}
_UNKNOWN = (TIMEOUT, ERROR)


@dataclass(frozen=True, slots=True)
class Request:
    """What every node is asked."""

    hook: str  # barrier: before a launch; recheck: after a failure
    job_id: int
    directory: str  # the run's directory on each node (taskfile.joined)
    run_directory: str
    hosts: str  # the job's node list
    infiniband: bool
    check: bool  # whether this job asked for checks
    settings: Mapping[str, Any]  # the site's thresholds
    task_script: str | None = None  # what the TaskProlog is to source
    devices: bool = False  # whether a rank table needs to know the node's Ascend devices


@dataclass(frozen=True, slots=True)
class Answers:
    """What the nodes said: a report each, None for one that gave no (readable) answer in time."""

    reports: Mapping[str, prechecks.Report | None]
    complaint: str  # what srun itself said
    devices: tuple[str, ...] = ()  # the nodes' lines about their Ascend devices, in the order of the reports

    @property
    def none(self) -> bool:
        """Whether not one node answered: then the asking is broken, not the nodes."""
        return not any(self.reports.values())


def deadline_s(request: Request) -> float:
    """How long the nodes may take, the start of their step included."""
    return float(request.settings["deadline_s"]) + ANSWER_S + (DEVICES_S if request.devices else 0.0)


def text(request: Request) -> str:
    """The request as one line."""
    return json.dumps(asdict(request))


def answers(hosts: Sequence[str], said: Mapping[str, str], complaint: str) -> Answers:
    """What the nodes said, from the whole texts of those that did."""
    reports: dict[str, prechecks.Report | None] = dict.fromkeys(hosts)
    devices: dict[str, str] = {}
    for node, words in said.items():
        with suppress(prechecks.PrecheckError):
            report = prechecks.Report.from_json(words)
            if report.node == node and node in reports:
                reports[node] = report
                devices[node] = str(json.loads(words).get(DEVICES, ""))
    lines = tuple(devices[node] for node in reports if devices.get(node))
    return Answers(reports, complaint, lines)


def split(number: int, node: str, words: str) -> list[str]:
    """An answer to a question as lines that srun keeps whole; ASCII."""
    parts = [words[start : start + CHUNK] for start in range(0, len(words), CHUNK)]
    return [f"{LINE} {number} {node} {index} {len(parts)} {part}" for index, part in enumerate(parts, 1)]


def part(line: str) -> tuple[int, str, int, int, str] | None:
    """Question, node, which part of how many and its text; None for a line that is no part of an answer."""
    words = line.split(" ", 5)
    if len(words) != 6 or words[0] != LINE or not all(map(_NUMBER.fullmatch, (words[1], words[3], words[4]))):
        return None
    return int(words[1]), words[2], int(words[3]), int(words[4]), words[5]


def answer(request: Request, number: int) -> None:
    """One node's answer, on stdout."""
    node = os.environ["SLURMD_NODENAME"]
    verdicts = _verdicts(request, node) if request.check else ()
    script, devices = request.task_script, ""
    if request.devices:
        from slurm_plugin.job import ascend  # noqa: PLC0415 - what no other mode needs

        try:
            devices = ascend.line(node, os.environ, alone=nodelist.expand(request.hosts) == [node])
            script = f"{script or ''}echo export {npu.VISIBLE}={npu.visible(devices)}\n"
        except HostfileError as error:
            verdicts = (*verdicts, prechecks.Verdict("npu-devices", FAILED, JOB_PROBLEM, str(error)))
    if script is not None:
        verdicts = (*verdicts, *_write_task_file(request, script))
    report = json.loads(prechecks.Report(node, request.job_id, request.hook, time.time(), verdicts).to_json())
    for line in split(number, node, json.dumps({**report, DEVICES: devices})):
        print(f"{line}\n", end="", flush=True)  # one write, with PYTHONUNBUFFERED too: no other's comes between


def _verdicts(request: Request, node: str) -> tuple[prechecks.Verdict, ...]:
    """Root's verdicts where its prolog left them (limits are the user's own, so measured again), else ours."""
    gpus = os.environ.get("SLURM_STEP_GPUS") or os.environ.get("SLURM_JOB_GPUS", "")
    context = prechecks.Context(
        hook=request.hook,
        node=node,
        hosts=tuple(nodelist.expand(request.hosts)),
        gpus=tuple(int(gpu) for gpu in gpus.split(",") if gpu.isdigit()),
        infiniband=request.infiniband,
    )
    published = _published(request) if request.hook == "barrier" else None
    if published is None:
        return prechecks.run(context, request.settings)
    own = prechecks.run(context, request.settings, items=("ulimit",))
    return merged(published.items, own)


def merged(first: Sequence[prechecks.Verdict], second: Sequence[prechecks.Verdict]) -> tuple[prechecks.Verdict, ...]:
    """Two rounds of verdicts as one, the worse of the two for an item that is in both."""
    worst = {verdict.item: verdict for verdict in first}
    for verdict in second:
        known = worst.get(verdict.item)
        if known is None or _RANK[verdict.verdict] > _RANK[known.verdict]:
            worst[verdict.item] = verdict
    return tuple(worst.values())


def _published(request: Request) -> prechecks.Report | None:
    """The report of root's prolog for this run; None where there is none that root wrote."""
    for directory in request.directory.split(taskfile.BETWEEN):
        path = f"{request.run_directory}/jobs/{directory}/{node_directory.REPORT}"
        try:
            with open(path, encoding="utf-8") as file:  # noqa: PTH123
                if os.fstat(file.fileno()).st_uid != 0:
                    return None
                return prechecks.Report.from_json(file.read())
        except (OSError, prechecks.PrecheckError):
            continue
    return None


def _write_task_file(request: Request, script: str) -> tuple[prechecks.Verdict, ...]:
    """Put the TaskProlog's file where only this user writes on this node; a verdict only where that fails."""
    try:
        taskfile.write(taskfile.folder(request.run_directory, request.directory), taskfile.TASK_FILE, script)
    except OSError as error:
        what = f"{error.filename}: {error.strerror}; is the site's Prolog installed on this node?"
        return (prechecks.Verdict("task-prolog", FAILED, JOB_PROBLEM, what),)
    return ()


def conditions(found: Answers) -> dict[str, Health]:
    """Every node's condition; where none answers, nothing is known of any."""
    silent = Health("unknown") if found.none else Health("unreachable", "did not answer")
    return {name: health(report) if report else silent for name, report in found.reports.items()}


def health(report: prechecks.Report) -> Health:
    """A node's condition from its answer."""
    failed = [verdict for verdict in report.items if verdict.failed]
    if failed:
        condition: Condition = "node_problem" if prechecks.node_problems(failed) else "job_problem"
        return Health(condition, "; ".join(f"{verdict.keyword}: {verdict.message}" for verdict in failed))
    return Health("unknown" if any(verdict.verdict in _UNKNOWN for verdict in report.items) else "ok")
