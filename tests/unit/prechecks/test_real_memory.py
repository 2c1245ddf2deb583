"""`memory slurm`: RealMemory against the memory that is there; what cannot be told is skipped."""

from pathlib import Path

import pytest

import prechecks
from prechecks import Context, real_memory, slurmconf
from prechecks.slurmconf import Node

GB = 1 << 30
MB = 1 << 20


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
def test_judge(total: int, known: Node | None, verdict: str, words: str) -> None:
    """Slurm counts whole MiB, and as many as it says are enough."""
    found = real_memory.judge(total, known, "n1 in /c")
    assert found.verdict == verdict
    assert found.message.startswith(words)


def look(hook: str = "periodic", *, wanted: bool = True, path: Path | None = None) -> prechecks.Verdict:
    """The item in a round."""
    check = next(check for check in prechecks.CHECKS if check.item == "memory.slurm")
    settings = {"deadline_s": 30.0, "memory": {"slurm": wanted, "slurm_conf": path and str(path)}}
    (found,) = prechecks.run(Context(hook, "n1"), settings, checks=[check])
    return found


def test_the_first_file_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SLURM_CONF before the usual places, of which the last is slurmd's own copy."""
    first, usual, copy = (tmp_path / name for name in ("first", "usual", "copy"))
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
    assert look(path=tmp_path / "none").message == f"no slurm.conf here: {tmp_path}/none"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("NodeName=n1 RealMemory=64G\n", "invalid literal"),
        ("NodeName=n[1- RealMemory=1\n", "'n[1-' is no list of nodes"),
        ("Include gone.conf\nNodeName=n1 RealMemory=1\n", "No such file"),
    ],
)
def test_what_cannot_be_read_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str) -> None:
    """With the reason: it says nothing about the node."""
    path = tmp_path / "slurm.conf"
    path.write_text(text)
    monkeypatch.setenv("SLURM_CONF", str(path))
    found = look()
    assert found.verdict == "skipped"
    assert found.message.startswith(f"{path} cannot be read: ")
    assert words in found.message


def test_no_prolog_looks() -> None:
    """Slurm has compared them when slurmd registered; and a site may not want it at all."""
    assert look("prolog").message == "not looked at in the prolog hook"
    assert look(wanted=False).message == "not wanted on this site"
