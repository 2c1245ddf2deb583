"""What benchmarks/diagnosis.py counts as right."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import diagnosis
from benchmarks.diagnosis import Tally, marked
from slurm_plugin.logs.diagnosis import Diagnosis
from slurm_plugin.logs.judge import Cause

LABEL = {"class": "gpu_hw", "blame": "node", "evidence": ""}
XID = "NVRM: Xid (PCI:0000:5f:00): 79, pid=7, name=python, GPU has fallen off the bus.\n"
CLOSED = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:59042\n"
COLUMNS = ("dir", "class", "blame", "culprit_rank", "culprit_node", "evidence", "evidence_file", "note")


def found(ranks: Sequence[int] = (), nodes: Sequence[str] = (), verdict: str = "exclude") -> Diagnosis:
    """A diagnosis of a broken GPU."""
    return Diagnosis(Cause("gpu_hw", "node", "sure", None, tuple(ranks), tuple(nodes), verdict), 4)


@pytest.mark.parametrize(
    ("label", "said", "right"),
    [
        ({"culprit": "rank 1"}, found([1]), True),
        ({"culprit": "rank 1"}, found([2]), False),
        ({"culprit": "local_rank 1"}, found([1]), True),
        ({"culprit": "n3"}, found([], ["n3"]), True),
        ({"culprit": "n3"}, found([], ["n30"]), False),
        ({"culprit": "n3<->10.2.0.5"}, found([], ["10.2.0.5"]), True),
        ({"culprit": "n3 task 0 (and n4 task 2 at once)"}, found([2]), True),
        ({"culprit": "10.0.0.1 device 1"}, found([1]), False),
        ({"culprit_rank": "3", "culprit_node": "node1"}, found([3], ["node0"]), True),
        ({"culprit_rank": "2,3", "culprit_node": "node1"}, found([3], ["node1"]), False),
        ({"culprit_rank": "", "culprit_node": "node1"}, found([3], ["node1"]), True),
        ({"culprit_rank": "-", "culprit_node": "-"}, found(), None),
        ({}, found(), None),
    ],
)
def test_the_culprit(label: dict[str, str], said: Diagnosis, right: bool | None) -> None:
    """In words, where one of those named is enough; in the columns of several nodes all ranks, else the node."""
    assert dict(marked({**LABEL, **label}, said)).get("culprit") is right


@pytest.mark.parametrize(
    ("label", "said", "wrong"),
    [
        ({"blame": "user"}, found([], ["n1"]), 1),
        ({"blame": "user"}, found([], ["n1"], "check"), 0),
        ({"blame": "user"}, found(), 0),
        ({"culprit": "n1"}, found([], ["n1"]), 0),
        ({"culprit": "n1"}, found([], ["n2"]), 1),
        ({"culprit_node": "node1"}, found([], ["node1", "node0"]), 1),
        ({"blame": "network", "culprit_rank": "3"}, found([], ["node0"]), 1),
        ({"blame": "network", "culprit_rank": "3"}, found([], ["node1"]), 0),
        ({"culprit": ""}, found([], ["n2"]), 0),  # the label does not say which
    ],
)
def test_a_wrong_exclude(label: dict[str, str], said: Diagnosis, wrong: int) -> None:
    """A node that has no fault, by the label or by the place of the rank that began it."""
    tally = Tally()
    tally.add({**LABEL, **label}, said, [Path(f"/x/node{rank // 2}/rank{rank}.err") for rank in range(4)])
    assert tally.wrong_excludes == wrong


def test_logs_of_several_nodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each directory is one failure; the rates, what was taken for what, and the alarms are printed."""
    rows = [
        ("01-gpu_hw", "gpu_hw", "node", "3", "node1", "fallen off", "node1/rank3.err", ""),
        ("03-gpu_hw", "gpu_hw", "node", "3", "node1", "fallen off", "rank3.err", ""),
        ("04-gpu_hw", "gpu_hw", "node", "3", "node1", "fallen off", "node0/rank3.err", ""),
        ("02-none", "none", "unknown", "", "", "", "", "it is broken, whatever the label says"),
    ]
    for name, *_ in rows:
        for rank in range(4):
            log = tmp_path / name / f"node{rank // 2}" / f"rank{rank}.err"
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text(XID if rank == 3 else CLOSED)
            log.with_suffix(".out").write_text("step 3\n")
    labels = tmp_path / "LABELS_MULTI.tsv"
    labels.write_text("".join("\t".join(row) + "\n" for row in (COLUMNS, *rows)))
    monkeypatch.setattr(sys, "argv", ["diagnosis.py", "--multi", str(labels), "--smallest", "--show"])
    diagnosis.main()
    said = capsys.readouterr().out.splitlines()
    begin = "02-none: class, blame, false alarm, exclude: found gpu_hw (node) (3,) ('node1',); "
    assert any(each.startswith(begin) for each in said)
    assert "class: 3 of 4 right, 75%" in said
    assert "evidence file: 2 of 3 right, 67%" in said
    assert "culprit: 3 of 3 right, 100%" in said
    assert said[-5:-1] == [
        "                           1   2",
        "  1 gpu_hw                 3   .",
        "  2 none                   1   .",
        "false alarms on healthy logs: 1; wrong excludes: 1",
    ]
