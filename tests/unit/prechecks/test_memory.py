"""`memory`: sizes, and the errors that ECC has counted."""

from pathlib import Path
from typing import Any

import pytest

import prechecks
from prechecks import Context, memory

GB = 1 << 30
# The head of /proc/meminfo of a machine with 24 GB, Linux 6.18.
MEMINFO = """\
MemTotal:       24684096 kB
MemFree:        20265416 kB
MemAvailable:   22752896 kB
Buffers:           64956 kB
"""
NONE = {"total": None, "available": None, "uncorrectable": None, "correctable": None}
TWO = {"mc0": {"uncorrectable": 0, "correctable": 7}, "mc1": {"uncorrectable": 3, "correctable": 0}}
FINE = {"mc0": {"uncorrectable": 0}, "mc1": {"uncorrectable": 0}}


def test_parse() -> None:
    """In bytes."""
    assert memory.parse(MEMINFO.splitlines()) == {"total": 24684096 * 1024, "available": 22752896 * 1024}


@pytest.mark.parametrize(
    ("sizes", "counted", "wanted", "verdict", "message"),
    [
        ({"total": 256 * GB, "available": GB}, {}, {"total": 250 * GB}, "ok", "total 256 GB > 250 GB"),
        ({"total": 192 * GB, "available": GB}, {}, {"total": 250 * GB}, "failed", "total 192 GB < 250 GB"),
        ({"total": GB, "available": GB}, {}, {"available": GB}, "failed", "available 1 GB not > 1 GB"),
        ({}, {}, {"uncorrectable": 0}, "ok", "no ECC counters"),
        ({}, FINE, {"uncorrectable": 0}, "ok", "no more errors than accepted of mc0, mc1"),
        ({}, TWO, {"uncorrectable": 0, "correctable": 7}, "failed", "3 uncorrectable memory errors of mc1"),
        (
            {"total": GB, "available": GB},
            TWO,
            {"total": 2 * GB, "uncorrectable": 3, "correctable": 6},
            "failed",
            "total 1 GB < 2 GB, 7 correctable memory errors of mc0, more than 6",
        ),
    ],
)
def test_judge(sizes: Any, counted: Any, wanted: Any, verdict: str, message: str) -> None:
    """What fails is named; sizes must be more than their thresholds, errors no more than theirs."""
    assert memory.judge(sizes, counted, NONE | wanted)[:2] == (verdict, message)


def test_errors(tmp_path: Path) -> None:
    """The form of Documentation/ABI/testing/sysfs-devices-edac; other entries of the directory are passed over."""
    for name, ue, ce in (("mc0", "0\n", "12\n"), ("mc1", "1\n", "0\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ue_count").write_text(ue)
        (tmp_path / name / "ce_count").write_text(ce)
    (tmp_path / "power").mkdir()
    (tmp_path / "uevent").write_text("")
    assert memory.errors(["uncorrectable", "correctable"], str(tmp_path)) == {
        "mc0": {"uncorrectable": 0, "correctable": 12},
        "mc1": {"uncorrectable": 1, "correctable": 0},
    }
    assert memory.errors(["uncorrectable"], str(tmp_path / "missing")) == {}


@pytest.mark.parametrize(
    ("own", "verdict"),
    [
        ({"total": 1}, "ok"),
        ({"total": 1 << 60}, "failed"),
        ({"available": 1, "correctable": 1 << 40}, "ok"),
        ({}, "skipped"),
    ],
)
def test_memory_of_this_machine(own: dict[str, int], verdict: str) -> None:
    """Through the runner."""
    settings = {"deadline_s": 30.0, "memory": NONE | own}
    (found,) = prechecks.run(Context("prolog", "n1"), settings, checks=[memory.Memory()])
    assert found.verdict == verdict, found
