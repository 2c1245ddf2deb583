"""The checks of Ascend, Cambricon and AMD devices, on output of their tools from real machines."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import prechecks
from prechecks import Check, Context
from prechecks.checks import accelerators
from tests.unit.prechecks.vendor import captured, fake
from tests.waiting import HANG_S

HEALTHY = ("OK", "Warning")
judge_mlu = functools.partial(accelerators.judge_errors, "Cambricon cards", "memory errors")
judge_amd = functools.partial(accelerators.judge_errors, "AMD GPUs", "uncorrectable errors")


def verdict(check: Check, **own: Any) -> prechecks.Verdict:
    """Return the runner's verdict."""
    (found,) = prechecks.run(Context("prolog", "n1"), {"deadline_s": HANG_S, check.item: own}, checks=[check])
    return found


def test_npu_of_one_chip_a_card() -> None:
    """The table of processes below the cards has no chips."""
    found = accelerators.npu_chips(captured("npu-smi-910b3"))
    assert found == dict.fromkeys((f"{card}.0" for card in range(8)), "OK")
    assert accelerators.judge_npu(found, 8, HEALTHY)[:2] == ("ok", "8 of 8 Ascend chips")
    assert accelerators.judge_npu(found, 16, HEALTHY)[:2] == ("failed", "8 of 16 Ascend chips")


def test_npu_of_two_chips_a_card() -> None:
    """Each chip counts."""
    found = accelerators.npu_chips(captured("npu-smi-ascend910"))
    assert found == dict.fromkeys(("0.0", "0.1", "1.0", "1.1"), "OK")


def test_the_name_of_a_process_is_no_device() -> None:
    """Users name their processes, also with line breaks and bars."""
    row = "| 2       0                 | 1333928       |                          | 37709                   |\n"
    npus = captured("npu-smi-910b3").replace(row, row.replace("|                      ", "| \n| 9 A|Alarm|") + row)
    assert npus != captured("npu-smi-910b3")
    assert accelerators.npu_chips(npus) == accelerators.npu_chips(captured("npu-smi-910b3"))
    none = "|  No running processes found                                                  |"
    forged = "|  0     /   1333928 python\n| 9 / MLU|x|7|\n                                   100 MiB |"
    mlus = captured("cnmon").replace(none, forged)
    assert mlus != captured("cnmon")
    assert accelerators.mlu_cards(mlus) == {"0": None, "1": None}


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
    """A capture with one chip's word replaced: no public capture of a faulty chip was found."""
    text = captured("npu-smi-910b3").replace(
        "5     910B3               | OK      ", f"5     910B3               | {health:8}"
    )
    assert accelerators.judge_npu(accelerators.npu_chips(text), 8, healthy)[:2] == (verdict, message)


def test_npu_unknown() -> None:
    """A chip that cannot be queried is not bad, and neither is output without chips."""
    with pytest.raises(ValueError, match=r"the health of chip 0\.0 is 'UNKNOWN'"):
        accelerators.judge_npu({"0.0": "UNKNOWN"}, 1, HEALTHY)


def test_npu_of_the_tool(tmp_path: Path) -> None:
    """Skipped without a count, unknown without the tool."""
    path = fake(tmp_path, "npu-smi", captured("npu-smi-910b3"))
    check = accelerators.NpuCheck()
    assert verdict(check, count=None, tool=path, healthy=HEALTHY).message == "the site sets no count"
    assert verdict(check, count=8, tool=path, healthy=HEALTHY).verdict == "ok"
    assert verdict(check, count=8, tool=f"{tmp_path}/none", healthy=HEALTHY).verdict == "error"
    broken = fake(tmp_path, "broken", "dcmi module initialize failed. ret is -8005\n", 255)
    found = verdict(check, count=8, tool=broken, healthy=HEALTHY)
    assert (found.verdict, found.message[-60:]) == (
        "error",
        "with 255 and said: dcmi module initialize failed. ret is -8005"[-60:],
    )


def test_mlu() -> None:
    """Without ECC nothing is counted. An older cnmon has other columns."""
    assert accelerators.mlu_cards(captured("cnmon")) == {"0": None, "1": None}
    assert accelerators.mlu_cards(captured("cnmon-mlu220")) == {"0": None}
    found = accelerators.mlu_cards(captured("cnmon-ecc"))
    assert found == {"0": 0, "1": 0}
    assert judge_mlu(found, 2, 0)[:2] == ("ok", "2 of 2 Cambricon cards")
    assert judge_mlu(found, 8, 0)[:2] == ("failed", "2 of 8 Cambricon cards")
    assert judge_mlu({"0": 3, "1": None}, 2, 0)[:2] == ("failed", "1 of 2 Cambricon cards: 0 3 memory errors > 0")
    assert judge_mlu({"0": 3}, 1, None).verdict == "ok"


def test_mlu_of_the_tool(tmp_path: Path) -> None:
    """Output without a card is unknown."""
    path = fake(tmp_path, "cnmon", captured("cnmon-ecc"))
    assert verdict(accelerators.MluCheck(), count=2, tool=path, errors=0).verdict == "ok"
    assert verdict(accelerators.MluCheck(), count=2, tool=fake(tmp_path, "none", "no card\n", 1)).verdict == "error"


def test_amd() -> None:
    """Both forms. A GPU without a count passes."""
    assert accelerators.amd_gpus(captured("amd-smi-metric-rocm7")) == {"0": 0, "1": 0}
    assert accelerators.amd_gpus(captured("amd-smi-metric-rocm6")) == {"0": 0}
    assert accelerators.amd_gpus(
        '[{"gpu": 0, "ecc": "N/A"}, {"gpu": 1, "ecc": {"total_uncorrectable_count": "N/A"}}]'
    ) == {
        "0": None,
        "1": None,
    }
    assert judge_amd({"0": 0, "1": 2}, 2, 0)[:2] == ("failed", "1 of 2 AMD GPUs: 1 2 uncorrectable errors > 0")
    assert judge_amd({"0": 0, "1": 2}, 2, 2)[:2] == ("ok", "2 of 2 AMD GPUs")
    assert judge_amd({"0": None}, 8, 0)[:2] == ("failed", "1 of 8 AMD GPUs")
    assert judge_amd({}, 8, 0)[:2] == ("failed", "0 of 8 AMD GPUs")


@pytest.mark.parametrize("text", ["", "ERROR: no driver", "{}", "[1]", '{"gpu_data": {"0": 1}}'])
def test_amd_unknown(text: str) -> None:
    """Another form of output is not a bad node."""
    with pytest.raises(ValueError):
        accelerators.amd_gpus(text)


def test_amd_of_the_tool(tmp_path: Path) -> None:
    """With the tool's whole output."""
    path = fake(tmp_path, "amd-smi", captured("amd-smi-metric-rocm7"))
    assert verdict(accelerators.AmdCheck(), count=2, tool=path, errors=0).verdict == "ok"
    assert verdict(accelerators.AmdCheck(), count=2, tool=fake(tmp_path, "none", "", 1), errors=0).verdict == "error"
