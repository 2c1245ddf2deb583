"""`inodes`: the judgement of the two numbers, and the numbers of this machine."""

import os
from pathlib import Path

import pytest

import prechecks
from prechecks import Context, Finding
from prechecks.checks import inodes
from tests.waiting import HANG_S

MANY = 16777216


@pytest.mark.parametrize(
    ("found", "finding"),
    [
        ((1000, 10000), Finding("ok", "1000 of 10000 inodes free", 1000, 0.01)),
        ((101, 10000), Finding("ok", "101 of 10000 inodes free", 101, 0.01)),
        ((100, 10000), Finding("failed", "100 of 10000 inodes free; more than 1 % must be", 100, 0.01)),
        ((0, MANY), Finding("failed", "0 of 16777216 inodes free; more than 1 % must be", 0, 0.01)),
        ((0, 0), Finding("ok", "a file system without inode counts", None, 0.01)),
        (None, Finding("ok", "no such directory", None, 0.01)),
    ],
)
def test_judge(found: tuple[int, int] | None, finding: Finding) -> None:
    """More than the share must be free. File systems without inodes pass, and so do missing ones."""
    assert inodes.judge(found, 0.01) == finding


def test_a_threshold_of_none_at_all() -> None:
    """With 0, one free inode is enough."""
    assert inodes.judge((1, MANY), 0).verdict == "ok"
    assert inodes.judge((0, MANY), 0).message == "0 of 16777216 inodes free; more than 0 % must be"


def test_inodes_of_this_machine(tmp_path: Path) -> None:
    """As in statvfs. A missing directory has none; proc reports 0 of 0."""
    found = inodes.inodes(str(tmp_path))
    assert found is not None
    assert 0 <= found[0] <= found[1] == os.statvfs(tmp_path).f_files
    assert inodes.inodes(str(tmp_path / "missing")) is None
    assert inodes.inodes("/proc") == (0, 0)


@pytest.mark.parametrize(("threshold", "verdict"), [(0.0, "ok"), (1.0, "failed"), (None, "skipped")])
def test_paths(tmp_path: Path, threshold: float | None, verdict: str) -> None:
    """Those that the site names for their space, with the path that fails; none named: skipped."""
    settings = {"deadline_s": HANG_S, "inodes": {"paths": threshold}, "disk-size": {"paths": [[str(tmp_path), 1]]}}
    (found,) = prechecks.run(Context("prolog", "n1"), settings, checks=[inodes.InodesPaths()])
    assert (found.verdict, found.problem) == (verdict, "job_problem")
    assert found.message.startswith("no further paths" if verdict == "skipped" else f"{tmp_path}: ")
    (found,) = prechecks.run(
        Context("periodic", "n1"), settings | {"disk-size": {"paths": []}}, checks=[inodes.InodesPaths()]
    )
    assert (found.verdict, found.problem) == ("skipped", "node_problem")


@pytest.mark.parametrize(("threshold", "verdict"), [(0.0, "ok"), (1.0, "failed"), (None, "skipped")])
def test_run(tmp_path: Path, threshold: float | None, verdict: str) -> None:
    """Through the runner: nowhere are all inodes free."""
    check = inodes.Inodes("root", str(tmp_path))
    settings = {"deadline_s": HANG_S, "inodes": {"root": threshold}}
    (found,) = prechecks.run(Context("prolog", "n1"), settings, checks=[check])
    assert (found.item, found.verdict) == ("inodes.root", verdict)
