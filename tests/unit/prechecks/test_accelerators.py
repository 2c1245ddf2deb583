"""The items for Ascend, Cambricon and AMD, on what their tools printed on real machines."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import prechecks
from prechecks import Check, Context, amd, mlu, npu
from tests.unit.prechecks.vendor import captured, fake

HEALTHY = ("OK", "Warning")


def verdict(check: Check, **own: Any) -> prechecks.Verdict:
    """What the runner makes of it."""
    (found,) = prechecks.run(Context("prolog", "n1"), {"deadline_s": 30.0, check.item: own}, checks=[check])
    return found


def test_npu_of_one_chip_a_card() -> None:
    """The table of processes below has no chips."""
    found = npu.parse(captured("npu-smi-910b3"))
    assert found == dict.fromkeys((f"{card}.0" for card in range(8)), "OK")
    assert npu.judge(found, 8, HEALTHY)[:2] == ("ok", "8 of 8 Ascend chips")
    assert npu.judge(found, 16, HEALTHY)[:2] == ("failed", "8 of 16 Ascend chips")


def test_npu_of_two_chips_a_card() -> None:
    """Each counts."""
    found = npu.parse(captured("npu-smi-ascend910"))
    assert found == dict.fromkeys(("0.0", "0.1", "1.0", "1.1"), "OK")


@pytest.mark.parametrize(
    ("health", "healthy", "verdict", "message"),
    [
        ("Warning", HEALTHY, "ok", "8 of 8 Ascend chips"),
        ("Warning", ("OK",), "failed", "7 of 8 Ascend chips: 5.0 Warning"),
        ("Alarm", HEALTHY, "failed", "7 of 8 Ascend chips: 5.0 Alarm"),
        ("Critical", HEALTHY, "failed", "7 of 8 Ascend chips: 5.0 Critical"),
    ],
)
def test_npu_health(health: str, healthy: Sequence[str], verdict: str, message: str) -> None:
    """The capture with another word for one chip: no public one was found with a sick chip."""
    text = captured("npu-smi-910b3").replace(
        "5     910B3               | OK      ", f"5     910B3               | {health:8}"
    )
    assert npu.judge(npu.parse(text), 8, healthy)[:2] == (verdict, message)


def test_npu_unknown() -> None:
    """A chip that cannot be asked is not a bad one, and neither is a tool that says nothing of chips."""
    with pytest.raises(ValueError, match=r"the health of chip 0\.0 is 'UNKNOWN'"):
        npu.judge({"0.0": "UNKNOWN"}, 1, HEALTHY)


def test_npu_of_the_tool(tmp_path: Path) -> None:
    """Skipped without a count, unknown without the tool."""
    path = fake(tmp_path, "npu-smi", captured("npu-smi-910b3"))
    check = npu.NpuCheck()
    assert verdict(check, count=None, tool=path, healthy=HEALTHY).message == "the site does not say how many a node has"
    assert verdict(check, count=8, tool=path, healthy=HEALTHY).verdict == "ok"
    assert verdict(check, count=8, tool=f"{tmp_path}/none", healthy=HEALTHY).verdict == "error"
    broken = fake(tmp_path, "broken", "dcmi module initialize failed. ret is -8005\n", 255)
    found = verdict(check, count=8, tool=broken, healthy=HEALTHY)
    assert (found.verdict, found.message[-60:]) == (
        "error",
        "with 255 and said: dcmi module initialize failed. ret is -8005"[-60:],
    )


def test_mlu() -> None:
    """Without ECC there is nothing to count; an older cnmon has other columns."""
    assert mlu.parse(captured("cnmon")) == {"0": None, "1": None}
    assert mlu.parse(captured("cnmon-mlu220")) == {"0": None}
    found = mlu.parse(captured("cnmon-ecc"))
    assert found == {"0": 0, "1": 0}
    assert mlu.judge(found, 2, 0)[:2] == ("ok", "2 of 2 Cambricon cards")
    assert mlu.judge(found, 8, 0)[:2] == ("failed", "2 of 8 Cambricon cards")
    assert mlu.judge({"0": 3, "1": None}, 2, 0)[:2] == ("failed", "1 of 2 Cambricon cards: 0 3 memory errors > 0")
    assert mlu.judge({"0": 3}, 1, None).verdict == "ok"


def test_mlu_of_the_tool(tmp_path: Path) -> None:
    """A tool that names no card is unknown."""
    path = fake(tmp_path, "cnmon", captured("cnmon-ecc"))
    assert verdict(mlu.MluCheck(), count=2, tool=path, errors=0).verdict == "ok"
    assert verdict(mlu.MluCheck(), count=2, tool=fake(tmp_path, "none", "no card\n", 1)).verdict == "error"


def test_amd() -> None:
    """Both forms; a GPU without a count passes."""
    assert amd.parse(captured("amd-smi-metric-rocm7")) == {"0": 0, "1": 0}
    assert amd.parse(captured("amd-smi-metric-rocm6")) == {"0": 0}
    assert amd.parse('[{"gpu": 0, "ecc": "N/A"}, {"gpu": 1, "ecc": {"total_uncorrectable_count": "N/A"}}]') == {
        "0": None,
        "1": None,
    }
    assert amd.judge({"0": 0, "1": 2}, 2, 0)[:2] == ("failed", "1 of 2 AMD GPUs: 1 2 uncorrectable errors > 0")
    assert amd.judge({"0": 0, "1": 2}, 2, 2)[:2] == ("ok", "2 of 2 AMD GPUs")
    assert amd.judge({"0": None}, 8, 0)[:2] == ("failed", "1 of 8 AMD GPUs")
    assert amd.judge({}, 8, 0)[:2] == ("failed", "0 of 8 AMD GPUs")


@pytest.mark.parametrize("text", ["", "ERROR: no driver", "{}", "[1]", '{"gpu_data": {"0": 1}}'])
def test_amd_unknown(text: str) -> None:
    """Another form is not a bad node."""
    with pytest.raises(ValueError):
        amd.parse(text)


def test_amd_of_the_tool(tmp_path: Path) -> None:
    """The whole way."""
    path = fake(tmp_path, "amd-smi", captured("amd-smi-metric-rocm7"))
    assert verdict(amd.AmdCheck(), count=2, tool=path, errors=0).verdict == "ok"
    assert verdict(amd.AmdCheck(), count=2, tool=fake(tmp_path, "none", "", 1), errors=0).verdict == "error"
