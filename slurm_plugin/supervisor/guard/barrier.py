"""The barrier: every node of the job reads root's report, checks as the job's user, and answers.

The supervisor asks the guards (`slurm_plugin.supervisor.guard.server`). Their step starts after the prolog of every
node, so it is a barrier. `text` writes the question, `answer` answers it on a node, `answers` reads all answers.
"""

import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import prechecks
from hostfiles import HostfileError, nodelist, npu
from prechecks.measure import nvidia
from prechecks.verdict import ERROR, FAILED, JOB_PROBLEM, OK, SKIPPED, TIMEOUT
from slurm_plugin.records import node_directory, site_settings
from slurm_plugin.supervisor.decide import Condition, Health
from slurm_plugin.supervisor.guard import processes

# srun keeps lines of different nodes whole only up to MAX_MSG_LEN, 1024 bytes (slurmd/slurmstepd/io.c).
CHUNK = 600
LINE = "slurm_plugin-answer"
ANSWER_S = 15.0  # time for the start of the step, added to the deadline of the checks
DEVICES_S = 160.0  # hccn_tool may take 10 s for each of 16 devices
DEVICES, KERNEL, NOTE = "devices", "kernel", "note"  # keys that an answer has in addition to those of a report
KERNEL_BYTES = 8192  # of the newest lines of the kernel's log
_OF_A_JOB = re.compile(r"/job_(\d+)/")  # the control group in the out-of-memory killer's line
_OF_A_USER = re.compile(r"\b(?:uid=|UID:)(\d+)")
# What the node's slurmstepd says if the program of a step does not exist there.
_ABSENT = re.compile(r"^slurmstepd-(\S+): error: execve\(\): (.+): No such file or directory$", re.MULTILINE)
_OF_SLURM = ("srun: ", "slurmstepd-")
_NUMBER = re.compile(r"[0-9]{1,6}", re.ASCII)
_RANK = {SKIPPED: 0, OK: 1, TIMEOUT: 2, ERROR: 2, FAILED: 3}
_UNKNOWN = (TIMEOUT, ERROR)


@dataclass(frozen=True, slots=True)
class Request:
    """The question to every node."""

    hook: str  # barrier: before a launch; recheck: after a failure
    job_id: int
    directory: str  # the run's directory on each node (node_directory.joined_names)
    run_directory: str
    hosts: str  # the job's node list
    infiniband: bool
    check: bool  # whether this job requested checks
    settings: Mapping[str, Any]  # the site's thresholds
    task_script: str | None = None  # the script that TaskProlog sources
    devices: bool = False  # whether the rank table needs the node's Ascend devices
    prolog: str = ""  # the job's own TaskProlog, which srun runs in each task; empty: slurm.conf's
    interface: str = ""  # the variable with the interface for the tasks, if the node's name is a loopback address
    gpus: Mapping[str, Sequence[int]] = field(default_factory=dict)  # of each node, if the guards' steps have none
    partition: str = ""  # of the job
    kernel_s: float = 0.0  # how long ago the attempt began whose lines of the kernel are wanted; 0: none


@dataclass(frozen=True, slots=True)
class Answers:
    """The report of each node; None for a node without a readable answer in time."""

    reports: Mapping[str, prechecks.Report | None]
    complaint: str  # the error output of srun
    devices: tuple[str, ...] = ()  # the nodes' lines about their Ascend devices, in the order of the reports
    notes: Mapping[str, str] = field(default_factory=dict)  # what a node says for the job's log
    kernel: Mapping[str, str] = field(default_factory=dict)  # what the kernel of a node wrote

    @property
    def none(self) -> bool:
        """Whether no node answered. If so, the step is broken, not the nodes."""
        return not any(self.reports.values())


def deadline_s(request: Request) -> float:
    """Return the seconds that the nodes may take, including the start of their step."""
    return float(request.settings["deadline_s"]) + ANSWER_S + (DEVICES_S if request.devices else 0.0)


def text(request: Request) -> str:
    """Write the request as one line."""
    return json.dumps(asdict(request))


def answers(hosts: Sequence[str], said: Mapping[str, str], complaint: str) -> Answers:
    """Read the nodes' answers. `said`: the complete text of each node that answered."""
    reports: dict[str, prechecks.Report | None] = dict.fromkeys(hosts)
    more: dict[str, Mapping[str, Any]] = {}
    for node, words in said.items():
        with suppress(prechecks.PrecheckError):
            report = prechecks.Report.from_json(words)
            if report.node == node and node in reports:
                reports[node], more[node] = report, json.loads(words)

    def each(key: str) -> dict[str, str]:
        return {node: str(more[node][key]) for node in reports if node in more and more[node].get(key)}

    return Answers(reports, complaint, tuple(each(DEVICES).values()), each(NOTE), each(KERNEL))


def answer_lines(number: int, node: str, words: str) -> list[str]:
    """Split an answer into ASCII lines that srun keeps whole."""
    parts = [words[start : start + CHUNK] for start in range(0, len(words), CHUNK)]
    return [f"{LINE} {number} {node} {index} {len(parts)} {part}" for index, part in enumerate(parts, 1)]


def parse_line(line: str) -> tuple[int, str, int, int, str] | None:
    """Return number of the question, node, index of the part, number of parts, and text; None for another line."""
    words = line.split(" ", 5)
    if len(words) != 6 or words[0] != LINE or not all(map(_NUMBER.fullmatch, (words[1], words[3], words[4]))):
        return None
    return int(words[1]), words[2], int(words[3]), int(words[4]), words[5]


def answer(request: Request, number: int) -> None:
    """Run the checks if they are requested, and print this node's answer."""
    node = os.environ["SLURMD_NODENAME"]
    verdicts = _verdicts(request, node) if request.check else ()
    script, more = request.task_script, {DEVICES: ""}
    if request.devices or request.interface:
        from slurm_plugin.supervisor import network  # noqa: PLC0415 - only some modes need it
    if request.interface and (found := network.loopback(nodelist.expand(request.hosts))):
        address, _, own = found.partition(" ")
        more[NOTE] = f"its name is {address} there, which no other node can reach: see /etc/hosts"
        if own and script:  # without a script the tasks' environment does not come from TaskProlog
            script += f'[ "${{{request.interface}-}}" ] || echo export {request.interface}={own}\n'
            more[NOTE] += f"; the tasks get {request.interface}={own}, unless it is set"
        elif own:
            more[NOTE] += f"; set {request.interface}={own} in `env`"
    if request.interface and (first := nodelist.expand(request.hosts)[0]) != node:
        try:
            network.own_address(first)
        except HostfileError as error:  # rank 0 listens there
            more[NOTE] = "; ".join(filter(None, (more.get(NOTE), str(error))))
    if request.devices:
        try:
            more[DEVICES] = network.device_line(node, os.environ, alone=nodelist.expand(request.hosts) == [node])
            script = f"{script or ''}echo export {npu.VISIBLE}={npu.visible(more[DEVICES])}\n"
        except HostfileError as error:
            verdicts = (*verdicts, prechecks.Verdict("npu-devices", FAILED, JOB_PROBLEM, str(error)))
    if script is not None:
        verdicts = (*verdicts, *_write_task_file(request, script))
    report = json.loads(prechecks.Report(node, request.job_id, request.hook, time.time(), verdicts).to_json())
    if request.kernel_s:
        more[KERNEL] = kernel_lines(request.job_id, request.kernel_s)
    for line in answer_lines(number, node, json.dumps({**report, **more})):
        print(f"{line}\n", end="", flush=True)  # a single write, even with PYTHONUNBUFFERED


def kernel_lines(job_id: int, seconds: float) -> str:
    """Return the newest lines that this node's kernel wrote in the last `seconds`, as dmesg prints them.

    Leave out lines about processes of other jobs and users. Return no line if this user may not read the kernel's log
    (kernel.dmesg_restrict).
    """
    from prechecks.checks import gpu_xid  # noqa: PLC0415 - a question before a launch needs none

    found, since_us = [], (time.monotonic() - seconds) * 1e6
    with suppress(OSError):
        for record in gpu_xid.records():
            head, _, line = record.partition(";")
            level, _, at = [*head.split(","), "", "", ""][:3]
            if not (level.isdigit() and int(level) < gpu_xid.PROGRAMS and at.isdigit() and int(at) >= since_us):
                continue
            job, user = _OF_A_JOB.search(line), _OF_A_USER.search(line)
            if (not job or int(job[1]) == job_id) and (not user or int(user[1]) == os.getuid()):
                found.append(f"[{int(at) / 1e6:.6f}] {line}")
    return "\n".join(found)[-KERNEL_BYTES:]


def _verdicts(request: Request, node: str) -> tuple[prechecks.Verdict, ...]:
    """Return the verdicts in the report of root's prolog. If there is none, or at a recheck, run all checks here.

    `ulimit` depends on the user, so this process always measures it. In a step without GPUs Slurm may refuse access to
    them, so the driver would report that they are missing: check only their files.
    """
    gpus, settings = nvidia.of_job(os.environ, "SLURM_STEP_GPUS", "SLURM_JOB_GPUS"), request.settings
    if not gpus and (others := request.gpus.get(node)):
        gpus = tuple(others)
        settings = {**settings, "gpu-check": {**settings.get("gpu-check", {}), "tool": None}}
    context = prechecks.Context(
        hook=request.hook,
        node=node,
        hosts=tuple(nodelist.expand(request.hosts)),
        gpus=gpus,
        infiniband=request.infiniband,
        partition=request.partition,
    )
    published = _published(request) if request.hook == "barrier" else None
    if published is None:
        return prechecks.run(context, settings)
    own = prechecks.run(context, request.settings, items=("ulimit",))
    return merged(published.items, own)


def merged(first: Sequence[prechecks.Verdict], second: Sequence[prechecks.Verdict]) -> tuple[prechecks.Verdict, ...]:
    """Merge two rounds of verdicts. For an item in both, keep the worse verdict."""
    worst = {verdict.item: verdict for verdict in first}
    for verdict in second:
        known = worst.get(verdict.item)
        if known is None or _RANK[verdict.verdict] > _RANK[known.verdict]:
            worst[verdict.item] = verdict
    return tuple(worst.values())


def _published(request: Request) -> prechecks.Report | None:
    """Return the report of root's prolog for this run; None if root wrote none."""
    for directory in request.directory.split(node_directory.SEPARATOR):
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
    """Write the file for TaskProlog on this node. Return a verdict only if that fails.

    Remove the folders that other jobs of the user have left in /tmp, for example when their first node died.
    """
    with suppress(OSError):
        left, job = node_directory.other_spares(request.directory), os.environ.get("SLURM_JOB_ID", "")
        if left and job and not processes.has_other_job(job):
            for each in left:
                node_directory.remove_spare(each)
    try:
        node_directory.write_user_file(
            node_directory.user_folder(request.run_directory, request.directory), node_directory.TASK_FILE, script
        )
    except OSError as error:
        what = f"{error.filename}: {error.strerror}; is the site's Prolog installed on this node?"
        return (prechecks.Verdict("task-prolog", FAILED, JOB_PROBLEM, what),)
    if request.prolog and not os.access(request.prolog, os.X_OK):
        what = f"cannot run {request.prolog}: is the job's directory shared with this node, and not mounted noexec?"
        return (prechecks.Verdict("task-prolog", FAILED, JOB_PROBLEM, what),)
    return ()


def conditions(found: Answers) -> dict[str, Health]:
    """Return the health of every node. If no node answered, all are `unknown`."""
    silent = Health("unknown" if found.none else "unreachable", "did not answer")
    python = site_settings.plugin_command()[0]
    lines = [line for line in found.complaint.splitlines() if not line.startswith(_OF_SLURM)]
    if any(python in line for line in lines) and not found.none:  # a Python of another version, or without a library
        silent = Health("job_problem", f"cannot run slurm_plugin with {python}: {lines[0].removeprefix(f'{python}: ')}")
    absent = {name: Health("job_problem", f"has no {path}") for name, path in _ABSENT.findall(found.complaint)}
    every = {name: health(report) if report else absent.get(name, silent) for name, report in found.reports.items()}
    return {name: replace(each, kernel=found.kernel.get(name, "")) for name, each in every.items()}


def health(report: prechecks.Report) -> Health:
    """Return a node's health from its report."""
    failed = [verdict for verdict in report.items if verdict.failed]
    if failed:
        condition: Condition = "node_problem" if prechecks.node_problems(failed) else "job_problem"
        return Health(condition, "; ".join(f"{verdict.keyword}: {verdict.message}" for verdict in failed))
    return Health("unknown" if any(verdict.verdict in _UNKNOWN for verdict in report.items) else "ok")
