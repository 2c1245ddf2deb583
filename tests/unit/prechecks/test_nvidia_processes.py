"""Processes on NVIDIA's GPUs: the job of each, and processes that an ended job has left."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from prechecks.checks import gpu_processes
from prechecks.checks.gpu_processes import GpuProcess
from prechecks.measure import nvidia, proc
from tests.unit.prechecks.smi import CONTEXT, rows, verdict
from tests.unit.prechecks.vendor import fake


def test_processes_of_this_machine() -> None:
    """A process is looked up in /proc. Ended or hidden ones are left out."""
    me = gpu_processes.look_up(("0000:00:09.0", str(os.getpid()), "python"))
    assert me is not None
    assert (me.pid, me.name) == (os.getpid(), "python")
    assert gpu_processes.look_up(("0000:00:09.0", "4194305", "gone")) is None
    assert gpu_processes.look_up(("0000:00:09.0", "[Insufficient Permissions]", "x")) is None


@pytest.mark.parametrize(
    ("cgroups", "job"),
    [
        ("0::/system.slice/n1_slurmstepd.scope/job_123/step_0/user/task_0\n", "123"),
        ("12:devices:/slurm/uid_1000/job_77/step_batch\n3:cpu:/\n", "77"),
        ("0::/system.slice/n1_slurmstepd.scope/s715M82HNH0K00/step_batch/user/task_special\n", "s715M82HNH0K00"),
        ("0::/system.slice/slurmstepd.scope/system\n", ""),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", ""),
        ("0::/job_x/\n", ""),
    ],
)
def test_the_job_of_a_process(cgroups: str, job: str) -> None:
    """From Slurm's cgroups of version 2 and 1, and those of 26.05. None for a login's process."""
    assert proc.job(cgroups) == job


def test_strays() -> None:
    """Each with its pid, user and job, except daemons that the site accepts."""
    there = [
        GpuProcess("0000:00:09.0", int(pid), name, "ann", "") for _, pid, name in rows("nvidia-smi-compute-apps", 3)
    ]
    found = gpu_processes.judge(there, ["nvidia-cuda-mps-server"], shared=False)
    assert found[:3] == (
        "failed",
        "left on the job's GPUs: pid 11327 of ann on 0000:00:09.0; pid 11328 of ann on 0000:00:09.0",
        "11327 11328: /root/tools/memhog",
    )
    assert gpu_processes.judge(there, ["memhog"], shared=False)[:2] == ("ok", "no process on the job's GPUs")


def test_where_jobs_share_gpus() -> None:
    """Another job's process is accepted, one without a job is not."""
    other = GpuProcess("0000:00:09.0", 7, "python", "bob", "12")
    assert gpu_processes.judge([other], [], shared=True).verdict == "ok"
    assert gpu_processes.judge([other], [], shared=False).message.endswith("pid 7 of bob, job 12, on 0000:00:09.0")
    assert gpu_processes.judge([other._replace(job="")], [], shared=True).verdict == "failed"
    many = gpu_processes.judge([other] * 5, [], shared=False)
    assert many.message.endswith(" and 2 more")


def test_only_processes_on_the_jobs_own_gpus_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the driver's bus ids of the job's device files."""
    path = fake(tmp_path, "smi", f"00000000:00:09.0, {os.getpid()}\n")
    monkeypatch.setattr(nvidia, "by_minor", lambda: {0: "0000:00:09.0", 1: "0000:00:0a.0"})
    own = {"accept": [], "shared": False}
    assert verdict("gpu-processes", path, CONTEXT, **own).verdict == "failed"
    assert verdict("gpu-processes", path, CONTEXT._replace(gpus=(1,)), **own).verdict == "ok"
    found = verdict("gpu-processes", path, CONTEXT._replace(gpus=(2,)), **own)
    assert found[:2] == ("gpu-processes", "error")
    assert found.message == "LookupError: /proc/driver/nvidia/gpus has no GPU with the minor number 2"
    assert verdict("gpu-processes", path, CONTEXT._replace(hook="recheck"), **own).verdict == "skipped"


SLURMD = "0::/system.slice/slurmd.service\n"
STEP = "0::/system.slice/slurmstepd.scope/job_{}/step_0/user/task_0\n"
TABLE = {
    "a running job's": ((71, 20001, 70), STEP.format(7), True),
    "a running job's daemon": ((71, 20001, 1), STEP.format(7), True),
    "an ended job's": ((71, 20001, 1), STEP.format(6), False),
    "a login's": ((71, 20001, 1), "0::/user.slice/user-20001.slice/session-3.scope\n", True),
    "root's": ((71, 0, 1), SLURMD, False),
}


@pytest.mark.parametrize(("process", "cgroup", "used"), TABLE.values(), ids=TABLE)
def test_whose_a_stray_is(
    process: tuple[int, int, int], cgroup: str, used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process of a logged-in user is not the node's fault. One of an ended job, or root's, is."""
    pid, uid, parent = process
    rows = [(1, 0, "systemd", 0), (50, 0, "slurmd", 1), (70, 0, "slurmstepd", 1), (pid, uid, "python3", parent)]
    table = {each: proc.Process(each, whose, name, "S", above) for each, whose, name, above in rows}
    texts = {50: SLURMD, 70: STEP.format(7).replace("user/task_0", "slurm"), pid: cgroup}
    monkeypatch.setattr(proc, "table", lambda _: table)
    monkeypatch.setattr(proc, "cgroup", texts.__getitem__)
    monkeypatch.setattr(proc, "title", lambda _: "slurmstepd: [7.0]")
    assert gpu_processes.in_use({pid}, 1000) is used


def test_where_nothing_is_known_of_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without slurmd a user's process counts as a login's; ended ones and system accounts' do not."""
    table = {71: proc.Process(71, 20001, "python3", "S", 1)}
    monkeypatch.setattr(proc, "table", lambda _: table)
    assert gpu_processes.in_use({71}, 1000)
    assert not gpu_processes.in_use({71, 72}, 1000)


def test_a_user_s_process_drains_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its failure keeps the job away."""
    path = fake(tmp_path, "smi", f"00000000:00:09.0, {os.getpid()}\n")
    monkeypatch.setattr(nvidia, "by_minor", lambda: {0: "0000:00:09.0"})
    for used, problem in ((True, "job_problem"), (False, "node_problem")):
        monkeypatch.setattr(gpu_processes, "in_use", lambda *_, used=used: used)
        assert verdict("gpu-processes", path, CONTEXT, accept=[], shared=False)[1:3] == ("failed", problem)


def test_a_name_with_a_line_break_forges_no_process(tmp_path: Path) -> None:
    """A user chooses the name of a process. The tool is not asked for it."""
    forged = "memhog\n00000000:00:0a.0, 1, init"
    script = f"import sys\nprint('00000000:00:09.0, {os.getpid()}' + (', ' + {forged!r}) * ('name' in sys.argv[1]))\n"
    tool = tmp_path / "smi"
    tool.write_text(f"#!{sys.executable}\n{script}")
    tool.chmod(0o755)
    ((bus, pid, name),) = gpu_processes.GpuProcesses().by_tool(str(tool), {})
    assert (bus, pid) == ("0000:00:09.0", str(os.getpid()))
    assert name == Path("/proc/self/cmdline").read_text().partition("\0")[0]


def test_a_process_that_ends_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no fault of the node, although nothing is known of it any longer."""
    process = subprocess.Popen(["sleep", "inf"])
    looked_up = gpu_processes.look_up

    def look_up(row: tuple[str, ...]) -> GpuProcess | None:
        found = looked_up(row)
        process.kill()
        process.wait()
        return found

    monkeypatch.setattr(gpu_processes, "look_up", look_up)
    monkeypatch.setattr(nvidia, "by_minor", lambda: {0: "0000:00:09.0"})
    settings = {"gpu-processes": {"accept": [], "shared": False}}
    rows = [("0000:00:09.0", str(process.pid), "python3")]
    assert gpu_processes.GpuProcesses().judge_result(rows, CONTEXT, settings).verdict == "ok"
