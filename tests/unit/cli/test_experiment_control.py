"""`slurm-plugin experiment pause|resume|...|list` as a user types them, with a fake Slurm and real directories."""

import json
from pathlib import Path
from unittest.mock import Mock

import pytest

from slurm_plugin.experiment import control, journal
from slurm_plugin.slurm import SlurmAwayError, SlurmError, Submitted
from tests import fakes
from tests.unit.cli.searches import Door, said

TRIAL = [{"e": "new", "n": 1, "values": {"lr": 0.1}}, {"e": "take", "n": 1, "task": "17_0", "job": 18}]
VERBS = {
    ("pause",): ("paused; 1 running trial ending as they would, 12 left\n", [("hold", 17)]),
    ("resume",): ("its tasks go on with the 12 trials that are left\n", [("release", 17)]),
    ("stop",): ("no new trial begins; 1 running trial ending as they would\n", []),
    ("cancel",): ("cancelled\n", [("cancel", 17)]),
    ("concurrency", "4"): ("4 trials at once\n", [("update_job", 17, {"ArrayTaskThrottle": "4"})]),
    ("extend", "--trials=3"): ("its budget is 15 trials now; its tasks go on with the 15 trials that are left\n", []),
}


@pytest.mark.parametrize(("words", "does"), VERBS.items())
@pytest.mark.parametrize("name", ["lr", "17", "17_3", "./lr"])
def test_verbs(
    name: str,
    words: tuple[str, ...],
    does: tuple[str, list[object]],
    home: Path,
    door: Door,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each takes the experiment's directory, its name, or its array's id, and says what happens now."""
    said(capsys, "submit", "lr.yaml")
    with (book := journal.Journal(home / "lr")).locked():
        book.append(*TRIAL)
    verb, *rest = words
    code, out, err = said(capsys, verb, name, *rest)
    assert (code, out[: len(does[0]) + 4], err) == (0, f"lr: {does[0]}", "")
    assert door.changes[1:] == does[1]
    code, out, err = said(capsys, verb, name, *rest, "--json")
    assert {"v": 1, "experiment": str(home / "lr"), "asked": verb, "array": None, "tasks": 0}.items() <= json.loads(
        out
    ).items()


def test_more_tasks_beside_those_that_wait(
    home: Path, door: Door, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`extend` says how many it has submitted beside how many, or why Slurm has accepted none."""
    said(capsys, "submit", "lr.yaml")
    door.names = {"17_0": 17}
    monkeypatch.setattr(door, "submit", Mock(return_value=Submitted(18)))
    begins, left = "lr: its budget is 13 trials now; ", "its tasks go on with the 14 trials that are left"
    tasks = "submitted array 18, 1 task beside the 1 of earlier arrays, for 13 trials"
    assert said(capsys, "extend", "lr", "--trials=1") == (0, f"{begins}{tasks}\n", "")
    monkeypatch.setattr(door, "submit", Mock(side_effect=SlurmError("full")))
    begins = begins.replace("13", "14")
    assert said(capsys, "extend", "lr", "--trials=1")[1] == f"{begins}{left}\n  no further task was submitted: full\n"


def test_a_verb_that_fails(
    home: Path, door: Door, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 1 with the next command; wrong usage has 2, and so has a Slurm that does not answer."""
    code, _, err = said(capsys, "pause", "none")
    assert (code, err.endswith("  yours are: slurm-plugin experiment list\n")) == (1, True)
    said(capsys, "submit", "lr.yaml")
    assert said(capsys, "concurrency", "lr", "0")[0] == 2
    code, _, err = said(capsys, "puase", "lr")
    assert (code, err.splitlines()[0]) == (2, "Usage: slurm-plugin experiment [OPTIONS] COMMAND [ARGS]...")
    assert err.endswith("Error: found no command puase; try: slurm-plugin experiment pause\n")
    door.refusals["hold", 17] = 1
    assert said(capsys, "pause", "lr")[0] == 1
    assert journal.load(home / "lr")[1].paused
    monkeypatch.setattr(control, "living", _away)
    assert said(capsys, "resume", "lr") == (2, "", "slurm-plugin: no answer\n")
    assert not journal.load(home / "lr")[1].paused


def test_list(home: Path, door: Door, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest first. Without a task of Slurm's, an experiment with trials left is interrupted."""
    assert said(capsys, "list") == (0, "", "found no experiment; begin with: slurm-plugin experiment submit FILE\n")
    said(capsys, "submit", "lr.yaml")
    said(capsys, "submit", "lr.yaml")
    with (book := journal.Journal(home / "lr")).locked():
        book.append(*TRIAL, {"e": "report", "n": 1, "time": 1, "value": 0.25})
    code, out, _ = said(capsys, "list")
    assert out.splitlines() == [
        "NAME  STATE    DONE  RUNNING  LEFT  BEST  DIRECTORY",
        f"lr    queued   0     0        12          {home}/lr-2",
        f"lr    running  0     1        12    0.25  {home}/lr",
    ]
    door.known_jobs[17] = fakes.job(17, state="CANCELLED")
    (home / "lr-2" / "experiment.json").unlink()
    code, out, _ = said(capsys, "list", "--json")
    (found,) = json.loads(out)["experiments"]
    assert (code, found["state"], found["left"], found["directory"]) == (0, "interrupted", 12, str(home / "lr"))
    monkeypatch.setattr(control, "living", _away)
    assert json.loads(said(capsys, "list", "--json")[1])["experiments"][0]["state"] == "running"


def _away(*_: object) -> None:
    raise SlurmAwayError("no answer")


def test_repair(home: Path, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """It says what it found."""
    said(capsys, "submit", "lr.yaml")
    assert said(capsys, "repair", "lr") == (0, "0 trials\n  nothing was missing\n", "")
