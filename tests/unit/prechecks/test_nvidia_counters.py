"""Errors, remapped rows and links of NVIDIA's GPUs, on output of nvidia-smi from real machines."""

from pathlib import Path

import pytest

from prechecks import Finding
from prechecks.checks import gpu_ecc, gpu_nvlink, gpu_remap
from prechecks.measure import nvidia
from tests.unit.prechecks.smi import FAILED_TO_TALK, rows, verdict
from tests.unit.prechecks.vendor import captured, fake

NO_LIMIT: dict[str, int | None] = {"volatile": None, "aggregate": None}


def test_ecc_fine() -> None:
    """A GPU without ECC passes, with a message."""
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
    """A value at the limit passes. null disables the limit."""
    answer = nvidia.parse("00000000:1A:00.0, Enabled, 3, 5\n00000000:1B:00.0, Enabled, 0, 0\n", 4)
    found = gpu_ecc.judge(answer.rows, NO_LIMIT | limits)
    assert found.message.startswith(message)
    assert (found.verdict == "failed") is message.startswith("uncorrectable")


def test_ecc_unknown() -> None:
    """A GPU without an answer is not judged."""
    answer = nvidia.parse("00000000:52:00.0, Unknown Error, [Unknown Error], [Unknown Error]\n", 4)
    with pytest.raises(ValueError, match="Unknown Error"):
        gpu_ecc.judge(answer.rows, NO_LIMIT)


def test_ecc_of_the_tool(tmp_path: Path) -> None:
    """With the tool's output. An unreachable driver is unknown here; gpu-check fails for it."""
    for status in (0, 15):  # it may fail for one GPU and answer for the others: gpu-check says so
        assert verdict("gpu-ecc", fake(tmp_path, "smi", captured("nvidia-smi-ecc"), status), volatile=0).verdict == "ok"
    found = verdict("gpu-ecc", fake(tmp_path, "smi", FAILED_TO_TALK, 9), volatile=0)
    assert found.verdict == "error"
    assert "ended with 9 and said: NVIDIA-SMI has failed" in found.message


def test_remap_fine() -> None:
    """A GPU without this feature passes, with a message."""
    found = gpu_remap.judge(rows("nvidia-smi-remap", 3), rows("nvidia-smi-pages", 2))
    assert found[:2] == ("ok", "nothing pending on 2 of 3 GPUs, the others do not report it")
    assert gpu_remap.judge([], rows("nvidia-smi-pages", 2)).verdict == "ok"
    mig = rows("nvidia-smi-remap-mig", 3)
    assert gpu_remap.judge(mig, []).message == "nothing pending on 0 of 1 GPUs, the others do not report it"


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
    """Each with a remedy. No public capture with a fault was found; the words are those of healthy GPUs."""
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
    """nvidia-smi's text for a GPU with no link up."""
    up = gpu_nvlink.links("GPU 0: X (UUID: y)\n\t Unable to retrieve NVLink information as all links are inActive\n")
    assert gpu_nvlink.judge(up, 18, None, None).message == "GPU 0 has 0 of 18 links up"


def test_nvlink_errors() -> None:
    """Each counter against the limit. Others are ignored."""
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
    """Output without a GPU is unknown, not bad."""
    path = fake(tmp_path, "smi", captured("nvidia-smi-nvlink-s"))
    assert verdict("gpu-nvlink", path, links=None, errors=None).verdict == "skipped"
    assert verdict("gpu-nvlink", path, links=18, errors=None).verdict == "ok"
    assert verdict("gpu-nvlink", fake(tmp_path, "none", ""), links=18, errors=None).verdict == "error"
