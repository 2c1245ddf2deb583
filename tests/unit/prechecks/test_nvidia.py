"""The checks of NVIDIA's GPUs, on output of nvidia-smi from real machines."""

from pathlib import Path

import pytest

import prechecks
from prechecks import Context, Finding
from prechecks.checks import gpu
from prechecks.measure import nvidia, system
from tests.unit.prechecks.smi import CONTEXT, FAILED_TO_TALK, rows, verdict
from tests.unit.prechecks.vendor import captured, fake
from tests.waiting import HANG_S


def test_rows_and_complaints() -> None:
    """A bus id as the kernel writes it. Other text is an error message. The last column keeps its commas."""
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
    """None if a GPU has no such counter."""
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
    """From the driver. A GPU without a number has none."""
    for name, text in (
        ("0000:65:00.0", captured("proc-driver-nvidia-information")),
        ("0000:17:00.0", "Model: x\nDevice Minor: \t 0\n"),
        ("0000:A1:00.0", "Model: x\n"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "information").write_text(text)
    assert nvidia.by_minor(str(tmp_path)) == {1: "0000:65:00.0", 0: "0000:17:00.0"}


def test_gpu_check_where_all_answer() -> None:
    """Then the tool adds nothing. More than expected pass, fewer fail."""
    answer = nvidia.parse(captured("nvidia-smi-temperature"), 2)
    assert gpu.judge_answer(answer, 3) is None
    assert gpu.judge_answer(answer, 1) is None
    found = gpu.judge_answer(answer, 8)
    assert found == Finding("failed", "3 of 8 GPUs answer", None, 8)


def test_gpu_check_of_a_lost_gpu() -> None:
    """Whatever number is expected: the tool reports it."""
    words = "Unable to determine the device handle for GPU3: 0000:04:00.0: Unknown Error"
    found = gpu.judge_answer(nvidia.parse(captured("nvidia-smi-lost"), 2), 8)
    assert found == Finding("failed", f"7 of 8 GPUs answer: {words}", words, 8)
    found = gpu.judge_answer(nvidia.parse(captured("nvidia-smi-lost"), 2), 1)
    assert found is not None
    assert found.verdict == "failed"


def test_gpu_check_of_a_gpu_that_must_be_reset() -> None:
    """It has a row without a value. A GPU without a sensor has no value either, and is good."""
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
    """If the device files exist. Output without GPUs gives unknown."""
    (tmp_path / "gpu0").symlink_to("/dev/null")
    settings = {
        "deadline_s": HANG_S,
        "gpu-check": {"device": f"{tmp_path}/gpu%d", "count": None, "tool": fake(tmp_path, "smi", text, status)},
    }
    (verdict,) = prechecks.run(CONTEXT, settings, checks=[gpu.GpuCheck()])
    assert verdict.verdict == found[0]
    assert found[1] in verdict.message


def test_inside_a_job_only_its_own_gpus_are_counted(tmp_path: Path) -> None:
    """Its cgroup may hide the others from the tool, but not their device files."""
    for number in range(4):
        (tmp_path / f"gpu{number}").symlink_to("/dev/null")
    path = fake(tmp_path, "smi", captured("nvidia-smi-temperature"))
    settings = {"deadline_s": HANG_S, "gpu-check": {"device": f"{tmp_path}/gpu%d", "count": 4, "tool": path}}
    for hook, word in (("prolog", "failed"), ("recheck", "ok")):
        context = Context(hook, "n1", gpus=(0, 1))
        (verdict,) = prechecks.run(context, settings, checks=[gpu.GpuCheck()])
        assert verdict.verdict == word, verdict


def test_without_the_tool_only_device_files_count(tmp_path: Path) -> None:
    """As on a node of another vendor."""
    (tmp_path / "gpu0").symlink_to("/dev/null")
    for path in (None, f"{tmp_path}/none"):
        settings = {"deadline_s": HANG_S, "gpu-check": {"device": f"{tmp_path}/gpu%d", "count": None, "tool": path}}
        (verdict,) = prechecks.run(CONTEXT, settings, checks=[gpu.GpuCheck()])
        assert (verdict.verdict, verdict.message) == ("ok", "1 of 1 GPUs")


@pytest.mark.parametrize("item", ["gpu-ecc", "gpu-remap", "gpu-processes", "gpu-xid"])
def test_without_the_tool_the_others_are_skipped(item: str, tmp_path: Path) -> None:
    """Not failed: the node has no GPU of NVIDIA's, or gpu-check reports the fault."""
    found = verdict(item, f"{tmp_path}/none")
    assert (found.verdict, found.message) == ("skipped", f"not here: {tmp_path}/none")
    assert verdict(item, "").message == "the job uses no GPUs, or the site names no tool for them"
    assert verdict(item, f"{tmp_path}/none", CONTEXT._replace(gpus=())).message.startswith("the job uses no GPUs")


def test_the_tool_is_asked_in_the_c_locale(tmp_path: Path) -> None:
    """With separate stdout and stderr, and the exit status."""
    program = tmp_path / "tool"
    program.write_text('#!/bin/sh\necho "$LC_ALL $1"; echo oops >&2; exit 3\n')
    program.chmod(0o755)
    assert system.run(str(program), "x") == system.Output(3, "C x\n", "oops\n")


def test_a_tool_that_writes_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is killed before it fills the memory. What the tool would say is unknown."""
    monkeypatch.setattr(system, "MOST_BYTES", 1000)
    program = tmp_path / "smi"
    program.write_text("#!/bin/sh\nyes | head -c 1000000\n")
    program.chmod(0o755)
    found = verdict("gpu-ecc", str(program), volatile=0, aggregate=None)
    assert (found.verdict, found.message) == ("error", f"ValueError: {program} wrote more than 1000 bytes")
    assert str(system.useless("t", system.Output(3, "", "oops\n"))) == "t ended with 3 and said: oops"
