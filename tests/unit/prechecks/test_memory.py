"""`memory`: its sizes, and errors that ECC has counted. `memory slurm`: the node's memory compared with RealMemory."""

from pathlib import Path
from typing import Any

import pytest

import prechecks
from prechecks import Context
from prechecks.checks import memory
from prechecks.measure import slurmconf
from prechecks.measure.slurmconf import Node
from slurm_plugin.node import disk_room
from tests.waiting import HANG_S

GB = 1 << 30
MB = 1 << 20
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
    """Failing values are reported. Sizes must be above their thresholds, errors not."""
    assert memory.judge(sizes, counted, NONE | wanted)[:2] == (verdict, message)


def test_errors(tmp_path: Path) -> None:
    """The form in Documentation/ABI/testing/sysfs-devices-edac. Other entries of the directory are ignored."""
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
    settings = {"deadline_s": HANG_S, "memory": NONE | own}
    (found,) = prechecks.run(Context("prolog", "n1"), settings, checks=[memory.Memory()])
    assert found.verdict == verdict, found


def test_what_is_available_is_no_fault_while_the_node_is_used() -> None:
    """It is a separate item, which drains nothing from a job's hooks. The periodic check looks for users first."""
    settings = {"deadline_s": HANG_S, "memory": NONE | {"available": 1 << 60, "total": 1}}
    checks = [memory.Memory(), memory.MemoryAvailable()]
    for hook, problem in (("prolog", "job_problem"), ("periodic", "node_problem")):
        whole, available = prechecks.run(Context(hook, "n1"), settings, checks=checks)
        assert (whole.verdict, available.verdict, available.problem) == ("ok", "failed", problem), hook
    assert "memory.available" not in prechecks.NODE_ITEMS
    assert disk_room.ITEMS["memory.available"] == "/dev/shm"


@pytest.mark.parametrize(
    ("total", "known", "verdict", "words"),
    [
        (4 * GB, Node(4096), "ok", "total 4 GB: 4096 MB, RealMemory 4096 MB"),
        (4 * GB + MB - 1, Node(4096), "ok", "total 4 GB: 4096 MB, RealMemory 4096 MB"),
        (4 * GB - 1, Node(4096), "failed", "total 3.9 GB: 4095 MB, RealMemory 4096 MB"),
        (9 * GB, Node(10000, 90.0), "ok", "total 9 GB: 9216 MB, RealMemory 10000 MB, of which 90 % must be"),
        (GB, Node(10000, 90.0), "failed", "total 1 GB: 1024 MB, RealMemory 10000 MB, of which 90 % must be"),
        (GB, Node(10000, overrides=True), "skipped", "SlurmdParameters=config_overrides: the node may have less"),
        (GB, Node(None), "skipped", "no RealMemory of n1 in /c"),
        (GB, None, "skipped", "there is no n1 in /c"),
    ],
)
def test_judge_of_real_memory(total: int, known: Node | None, verdict: str, words: str) -> None:
    """Slurm counts whole MiB, and needs no more than RealMemory."""
    found = memory.judge_slurm(total, known, "n1 in /c")
    assert found.verdict == verdict
    assert found.message.startswith(words)


def look(hook: str = "periodic", *, wanted: bool = True, path: Path | None = None) -> prechecks.Verdict:
    """Return the item's result in this hook."""
    check = next(check for check in prechecks.CHECKS if check.item == "memory.slurm")
    settings = {"deadline_s": HANG_S, "memory": {"slurm": wanted, "slurm_conf": path and str(path)}}
    (found,) = prechecks.run(Context(hook, "n1"), settings, checks=[check])
    return found


def test_the_first_file_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SLURM_CONF before the usual places; the last one is slurmd's own copy."""
    monkeypatch.chdir(tmp_path)  # a message has room for short names
    first, usual, copy = map(Path, ("first", "usual", "copy"))
    monkeypatch.setattr(slurmconf, "PLACES", (str(usual), str(copy)))
    monkeypatch.delenv("SLURM_CONF", raising=False)
    assert look()[1:4] == ("skipped", "node_problem", f"no slurm.conf here: {usual}, {copy}")
    copy.write_text("NodeName=n1 RealMemory=1\n")
    assert look().verdict == "ok"
    usual.write_text("NodeName=n1 RealMemory=999999999\n")
    assert look().verdict == "failed"
    monkeypatch.setenv("SLURM_CONF", str(first))
    assert look().verdict == "failed"
    first.write_text("NodeName=n[1-9]\n")
    assert look().message == f"no RealMemory of n1 in {first}"
    assert look(path=copy).verdict == "ok"
    assert look(path=Path("none")).message == "no slurm.conf here: none"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("NodeName=n1 RealMemory=64G\n", "invalid literal"),
        ("NodeName=n[1- RealMemory=1\n", "'n[1-' is no list of nodes"),
        ("Include gone.conf\nNodeName=n1 RealMemory=1\n", "No such file"),
    ],
)
def test_what_cannot_be_read_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str) -> None:
    """With the reason. It says nothing about the node."""
    path = tmp_path / "slurm.conf"
    path.write_text(text)
    monkeypatch.setenv("SLURM_CONF", str(path))
    found = look()
    assert found.verdict == "skipped"
    assert found.message.startswith(f"{path} cannot be read: ")
    assert words in found.message


def test_no_prolog_looks() -> None:
    """Slurm compared them when slurmd registered. A site may disable it."""
    assert look("prolog").message == "not run in the prolog hook"
    assert look(wanted=False).message == "not wanted on this site"
