"""The items for NVIDIA's GPUs, on what nvidia-smi printed on real machines."""

import os
from pathlib import Path
from typing import Any

import pytest

import prechecks
from prechecks import Context, Finding, gpu, gpu_ecc, gpu_nvlink, gpu_processes, gpu_remap, nvidia, tool
from prechecks.gpu_processes import Process
from tests.unit.prechecks.vendor import captured, fake

CONTEXT = Context("prolog", "n1", gpus=(0,))
FAILED_TO_TALK = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n"
)


def rows(name: str, columns: int) -> tuple[tuple[str, ...], ...]:
    """The rows of a capture, none of whose lines is a complaint."""
    answer = nvidia.parse(captured(name), columns)
    assert answer.said == ()
    return answer.rows


def verdict(item: str, tool_path: str, context: Context = CONTEXT, **own: Any) -> prechecks.Verdict:
    """What the runner makes of the item with this tool."""
    check = next(check for check in prechecks.CHECKS if check.item == item)
    settings = {"deadline_s": 30.0, "gpu-check": {"device": "/dev/null%d", "count": None, "tool": tool_path}}
    (found,) = prechecks.run(context, settings | ({item: own} if item != "gpu-check" else {}), checks=[check])
    return found


def test_rows_and_complaints() -> None:
    """A bus id as the kernel writes it; what is no row is a complaint; the last column keeps its commas."""
    assert rows("nvidia-smi-ecc", 4) == (
        ("0000:83:00.0", "Enabled", "0", "0"),
        ("0000:01:00.0", "Enabled", "0", "0"),
        ("0000:0c:00.0", "[N/A]", "[N/A]", "[N/A]"),
    )
    answer = nvidia.parse(captured("nvidia-smi-lost"), 2)
    assert len(answer.rows) == 7
    assert answer.said == ("Unable to determine the device handle for GPU3: 0000:04:00.0: Unknown Error",)
    assert nvidia.parse("00000001:00:00.0, 7, a, b\n", 3).rows == (("0001:00:00.0", "7", "a, b"),)
    assert nvidia.bus("00010000:01:00.0") == "10000:01:00.0"


@pytest.mark.parametrize(("cell", "value"), [("0", 0), ("17", 17), ("[N/A]", None), ("N/A", None)])
def test_numbers(cell: str, value: int | None) -> None:
    """None where a GPU has no such counter."""
    assert nvidia.number(cell) == value


@pytest.mark.parametrize(("cell", "value"), [("No", False), ("Yes", True), ("0", False), ("1", True), ("[N/A]", None)])
def test_yes_and_no(cell: str, value: bool | None) -> None:
    """In the words of newer drivers and the digits of older ones."""
    assert nvidia.yes(cell) is value


@pytest.mark.parametrize("cell", ["[Unknown Error]", "[GPU is lost]", "[GPU requires reset]", "ERR!"])
def test_what_cannot_be_read_is_an_exception(cell: str) -> None:
    """Never a zero."""
    for read in (nvidia.number, nvidia.yes):
        with pytest.raises(ValueError, match=r"the driver says '.*' where"):
            read(cell)


def test_which_bus_id_a_device_file_has(tmp_path: Path) -> None:
    """The driver says; a GPU that it cannot number has none."""
    for name, text in (
        ("0000:65:00.0", captured("proc-driver-nvidia-information")),
        ("0000:17:00.0", "Model: x\nDevice Minor: \t 0\n"),
        ("0000:A1:00.0", "Model: x\n"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "information").write_text(text)
    assert nvidia.by_minor(str(tmp_path)) == {1: "0000:65:00.0", 0: "0000:17:00.0"}


def test_gpu_check_where_all_answer() -> None:
    """Then the tool has nothing to add; more than are looked for is fine, fewer is not."""
    answer = nvidia.parse(captured("nvidia-smi-temperature"), 2)
    assert gpu.judge_answer(answer, 3) is None
    assert gpu.judge_answer(answer, 1) is None
    found = gpu.judge_answer(answer, 8)
    assert found == Finding("failed", "3 of 8 GPUs answer", None, 8)


def test_gpu_check_of_a_lost_gpu() -> None:
    """Whatever number is wanted: the tool names it."""
    words = "Unable to determine the device handle for GPU3: 0000:04:00.0: Unknown Error"
    found = gpu.judge_answer(nvidia.parse(captured("nvidia-smi-lost"), 2), 8)
    assert found == Finding("failed", f"7 of 8 GPUs answer: {words}", words, 8)
    found = gpu.judge_answer(nvidia.parse(captured("nvidia-smi-lost"), 2), 1)
    assert found is not None
    assert found.verdict == "failed"


def test_gpu_check_of_a_gpu_that_must_be_reset() -> None:
    """It has a row, and no value in it; a GPU without a sensor has none either, and is fine."""
    found = gpu.judge_answer(nvidia.parse(captured("nvidia-smi-reset"), 2), 2)
    assert found == Finding("failed", "1 of 2 GPUs answer: 0000:19:00.0 GPU requires reset", None, 2)
    found = gpu.judge_answer(nvidia.parse(captured("nvidia-smi-reset"), 2), 1)
    assert found is not None, "one that is lost is the node's, whoever's job it is in"
    assert gpu.judge_answer(nvidia.parse("00000000:00:09.0, [N/A]\n", 2), 1) is None


@pytest.mark.parametrize(
    ("text", "status", "found"),
    [
        (captured("nvidia-smi-temperature"), 0, ("ok", "1 of 1 GPUs")),
        (
            captured("nvidia-smi-lost"),
            0,
            ("failed", "7 of 8 GPUs answer: Unable to determine the device ha"),
        ),
        (
            FAILED_TO_TALK,
            9,
            ("failed", "0 of 1 GPUs answer: NVIDIA-SMI has failed because it couldn't comm"),
        ),
        ("No devices were found\n", 6, ("failed", "0 of 1 GPUs answer: No devices were found")),
        ("Segmentation fault\n", 139, ("error", " ended with 139 and said: Segmentation fault")),
        ("", 0, ("error", " ended with 0 and said: nothing")),
    ],
)
def test_gpu_check_asks_the_tool(tmp_path: Path, text: str, status: int, found: tuple[str, str]) -> None:
    """Once the device files are there; a tool that says nothing of GPUs leaves it unknown."""
    (tmp_path / "gpu0").symlink_to("/dev/null")
    settings = {
        "deadline_s": 30.0,
        "gpu-check": {"device": f"{tmp_path}/gpu%d", "count": None, "tool": fake(tmp_path, "smi", text, status)},
    }
    (verdict,) = prechecks.run(CONTEXT, settings, checks=[gpu.GpuCheck()])
    assert verdict.verdict == found[0]
    assert found[1] in verdict.message


def test_inside_a_job_only_its_own_gpus_are_counted(tmp_path: Path) -> None:
    """Its cgroup may hide the others from the tool, though their device files are there."""
    for number in range(4):
        (tmp_path / f"gpu{number}").symlink_to("/dev/null")
    path = fake(tmp_path, "smi", captured("nvidia-smi-temperature"))
    settings = {"deadline_s": 30.0, "gpu-check": {"device": f"{tmp_path}/gpu%d", "count": 4, "tool": path}}
    for hook, word in (("prolog", "failed"), ("recheck", "ok")):
        context = Context(hook, "n1", gpus=(0, 1))
        (verdict,) = prechecks.run(context, settings, checks=[gpu.GpuCheck()])
        assert verdict.verdict == word, verdict


def test_without_the_tool_only_device_files_count(tmp_path: Path) -> None:
    """As on a node of another vendor's."""
    (tmp_path / "gpu0").symlink_to("/dev/null")
    for path in (None, f"{tmp_path}/none"):
        settings = {"deadline_s": 30.0, "gpu-check": {"device": f"{tmp_path}/gpu%d", "count": None, "tool": path}}
        (verdict,) = prechecks.run(CONTEXT, settings, checks=[gpu.GpuCheck()])
        assert (verdict.verdict, verdict.message) == ("ok", "1 of 1 GPUs")


@pytest.mark.parametrize("item", ["gpu-ecc", "gpu-remap", "gpu-processes", "gpu-xid"])
def test_without_the_tool_the_others_are_skipped(item: str, tmp_path: Path) -> None:
    """Not failed: the node has no GPU of NVIDIA's, or gpu-check says what is wrong."""
    found = verdict(item, f"{tmp_path}/none")
    assert (found.verdict, found.message) == ("skipped", f"not here: {tmp_path}/none")
    assert verdict(item, "").message == "the job uses no GPUs, or the site names no tool for them"
    assert verdict(item, f"{tmp_path}/none", CONTEXT._replace(gpus=())).message.startswith("the job uses no GPUs")


NO_LIMIT: dict[str, int | None] = {"volatile": None, "aggregate": None}


def test_ecc_fine() -> None:
    """A GPU without ECC passes, in words."""
    found = gpu_ecc.judge(rows("nvidia-smi-ecc", 4), {"volatile": 0, "aggregate": None})
    assert found == Finding(
        "ok",
        "no uncorrectable errors above the limits, ECC is off on 1 of 3 GPUs",
        "0000:83:00.0 volatile 0 aggregate 0, 0000:01:00.0 volatile 0 aggregate 0",
        "volatile 0",
    )


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"volatile": 0}, "uncorrectable errors: 0000:1a:00.0 3 volatile > 0: reset the GPU"),
        ({"volatile": 2, "aggregate": 4}, "uncorrectable errors: 0000:1a:00.0 3 volatile > 2, 0000:1a:00.0 5 aggre"),
        ({"volatile": 3, "aggregate": 5}, "no uncorrectable errors above the limits"),
        ({}, "no uncorrectable errors above the limits"),
    ],
)
def test_ecc_limits(limits: dict[str, int], message: str) -> None:
    """At most the limit passes; null asks for nothing."""
    answer = nvidia.parse("00000000:1A:00.0, Enabled, 3, 5\n00000000:1B:00.0, Enabled, 0, 0\n", 4)
    found = gpu_ecc.judge(answer.rows, NO_LIMIT | limits)
    assert found.message.startswith(message)
    assert (found.verdict == "failed") is message.startswith("uncorrectable")


def test_ecc_unknown() -> None:
    """A GPU that cannot say is not judged."""
    answer = nvidia.parse("00000000:52:00.0, Unknown Error, [Unknown Error], [Unknown Error]\n", 4)
    with pytest.raises(ValueError, match="Unknown Error"):
        gpu_ecc.judge(answer.rows, NO_LIMIT)


def test_ecc_of_the_tool(tmp_path: Path) -> None:
    """The whole way; a driver that cannot be reached is unknown here, gpu-check fails for it."""
    for status in (0, 15):  # it may fail for one GPU and answer for the others: gpu-check says so
        assert verdict("gpu-ecc", fake(tmp_path, "smi", captured("nvidia-smi-ecc"), status), volatile=0).verdict == "ok"
    found = verdict("gpu-ecc", fake(tmp_path, "smi", FAILED_TO_TALK, 9), volatile=0)
    assert found.verdict == "error"
    assert "ended with 9 and said: NVIDIA-SMI has failed" in found.message


def test_remap_fine() -> None:
    """What a GPU cannot do passes, in words."""
    found = gpu_remap.judge(rows("nvidia-smi-remap", 3), rows("nvidia-smi-pages", 2))
    assert found[:2] == ("ok", "nothing pending on 2 of 3 GPUs, the others cannot tell")
    assert gpu_remap.judge([], rows("nvidia-smi-pages", 2)).verdict == "ok"
    mig = rows("nvidia-smi-remap-mig", 3)
    assert gpu_remap.judge(mig, []).message == "nothing pending on 0 of 1 GPUs, the others cannot tell"


@pytest.mark.parametrize(
    ("remapped", "pages", "message"),
    [
        ("Yes, No", "[N/A]", "0000:52:00.0 a row remapping is pending: reset the GPU"),
        ("1, 0", "[N/A]", "0000:52:00.0 a row remapping is pending: reset the GPU"),
        ("No, Yes", "[N/A]", "0000:52:00.0 row remapping failed: replace the GPU"),
        ("Yes, Yes", "[N/A]", "0000:52:00.0 row remapping failed: replace the GPU"),
        ("[N/A], [N/A]", "Yes", "0000:52:00.0 pages wait to be retired: reset the GPU"),
    ],
)
def test_remap_pending_and_failed(remapped: str, pages: str, message: str) -> None:
    """Each with what to do. No public capture of the CSV was found with one; the words are those of healthy GPUs."""
    found = gpu_remap.judge(
        nvidia.parse(f"00000000:52:00.0, {remapped}\n", 3).rows, nvidia.parse(f"00000000:52:00.0, {pages}\n", 2).rows
    )
    assert found[:2] == ("failed", message)


def test_nvlink_status() -> None:
    """Two of six links are down."""
    up = gpu_nvlink.links(captured("nvidia-smi-nvlink-s-inactive"))
    assert up == {"GPU 3": [True, True, True, False, True, False]}
    assert gpu_nvlink.judge(up, 6, None, None)[:2] == ("failed", "GPU 3 has 4 of 6 links up")
    assert gpu_nvlink.judge(up, 4, None, None)[:2] == ("ok", "4 links up on 1 GPUs")
    up = gpu_nvlink.links(captured("nvidia-smi-nvlink-s"))
    assert gpu_nvlink.judge(up, 18, None, None)[:2] == ("ok", "18 links up on 1 GPUs")


def test_nvlink_all_inactive() -> None:
    """As nvidia-smi says it of a GPU with no link up."""
    up = gpu_nvlink.links("GPU 0: X (UUID: y)\n\t Unable to retrieve NVLink information as all links are inActive\n")
    assert gpu_nvlink.judge(up, 18, None, None).message == "GPU 0 has 0 of 18 links up"


def test_nvlink_errors() -> None:
    """Each counter against the limit; what is no counter of errors is passed over."""
    text = captured("nvidia-smi-nvlink-e")
    counted = gpu_nvlink.errors(text)
    assert len(counted) == 9
    assert gpu_nvlink.judge(None, None, counted, 0)[:2] == ("ok", "no error counter above 0")
    worse = gpu_nvlink.errors(
        text.replace("Link 1: Replay Errors: 0", "Link 1: Replay Errors: 12") + "Link 1: BER: 1e-9\n"
    )
    assert len(worse) == 9
    assert gpu_nvlink.judge(None, None, worse, 0)[:2] == ("failed", "GPU 0 Link 1 Replay 12 > 0")
    assert gpu_nvlink.judge(None, None, worse, 12).verdict == "ok"
    everywhere = gpu_nvlink.errors(text.replace("Errors: 0", "Errors: 1"))
    assert gpu_nvlink.judge(None, None, everywhere, 0).message.endswith("GPU 0 Link 1 CRC 1 > 0, and 3 more")


def test_nvlink_is_looked_at_where_the_site_says_so(tmp_path: Path) -> None:
    """A tool that names no GPU is unknown, not bad."""
    path = fake(tmp_path, "smi", captured("nvidia-smi-nvlink-s"))
    assert verdict("gpu-nvlink", path, links=None, errors=None).verdict == "skipped"
    assert verdict("gpu-nvlink", path, links=18, errors=None).verdict == "ok"
    assert verdict("gpu-nvlink", fake(tmp_path, "none", ""), links=18, errors=None).verdict == "error"


def test_processes_of_this_machine() -> None:
    """A process is looked up in /proc; one that has ended, or is not told, is none."""
    me = gpu_processes.about(("0000:00:09.0", str(os.getpid()), "python"))
    assert me is not None
    assert (me.pid, me.name) == (os.getpid(), "python")
    assert gpu_processes.about(("0000:00:09.0", "4194305", "gone")) is None
    assert gpu_processes.about(("0000:00:09.0", "[Insufficient Permissions]", "x")) is None


@pytest.mark.parametrize(
    ("cgroups", "job"),
    [
        ("0::/system.slice/n1_slurmstepd.scope/job_123/step_0/user/task_0\n", "123"),
        ("12:devices:/slurm/uid_1000/job_77/step_batch\n3:cpu:/\n", "77"),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", ""),
        ("0::/job_x/\n", ""),
    ],
)
def test_the_job_of_a_process(cgroups: str, job: str) -> None:
    """Slurm's cgroups of version 2, and 1; none for a process of a login."""
    assert gpu_processes.job(cgroups) == job


def test_strays() -> None:
    """Each with its pid, its user and its job; a daemon that the site accepts is none."""
    there = [Process("0000:00:09.0", int(pid), name, "ann", "") for _, pid, name in rows("nvidia-smi-compute-apps", 3)]
    found = gpu_processes.judge(there, ["nvidia-cuda-mps-server"], shared=False)
    assert found[:3] == (
        "failed",
        "left on the job's GPUs: pid 11327 of ann on 0000:00:09.0; pid 11328 of ann on 0000:00:09.0",
        "11327 /root/tools/memhog, 11328 /root/tools/memhog",
    )
    assert gpu_processes.judge(there, ["memhog"], shared=False)[:2] == ("ok", "no process on the job's GPUs")


def test_where_jobs_share_gpus() -> None:
    """Another job's process is fine, one of no job is not."""
    other = Process("0000:00:09.0", 7, "python", "bob", "12")
    assert gpu_processes.judge([other], [], shared=True).verdict == "ok"
    assert gpu_processes.judge([other], [], shared=False).message.endswith("pid 7 of bob, job 12, on 0000:00:09.0")
    assert gpu_processes.judge([other._replace(job="")], [], shared=True).verdict == "failed"
    many = gpu_processes.judge([other] * 5, [], shared=False)
    assert many.message.endswith(" and 2 more")


def test_only_processes_on_the_jobs_own_gpus_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the bus ids that the driver has for the job's device files."""
    path = fake(tmp_path, "smi", f"00000000:00:09.0, {os.getpid()}, /usr/bin/python3\n")
    monkeypatch.setattr(nvidia, "by_minor", lambda: {0: "0000:00:09.0", 1: "0000:00:0a.0"})
    own = {"accept": [], "shared": False}
    assert verdict("gpu-processes", path, CONTEXT, **own).verdict == "failed"
    assert verdict("gpu-processes", path, CONTEXT._replace(gpus=(1,)), **own).verdict == "ok"
    found = verdict("gpu-processes", path, CONTEXT._replace(gpus=(2,)), **own)
    assert found[:2] == ("gpu-processes", "error")
    assert found.message == "LookupError: /proc/driver/nvidia/gpus has no GPU with the minor number 2"
    assert verdict("gpu-processes", path, CONTEXT._replace(hook="recheck"), **own).verdict == "skipped"


def test_the_tool_is_asked_in_the_c_locale(tmp_path: Path) -> None:
    """With stdout and stderr apart, and the exit status."""
    program = tmp_path / "tool"
    program.write_text('#!/bin/sh\necho "$LC_ALL $1"; echo oops >&2; exit 3\n')
    program.chmod(0o755)
    assert tool.run(str(program), "x") == tool.Output(3, "C x\n", "oops\n")
    assert str(tool.useless("t", tool.Output(3, "", "oops\n"))) == "t ended with 3 and said: oops"
