"""`slurm-plugin experiment submit` and `preview` as a user types them, with a fake Slurm and real directories."""

import json
import sys
from pathlib import Path

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.experiment import journal
from slurm_plugin.slurm import SlurmError, own_name
from slurm_plugin.slurm.resources import Limit
from slurm_plugin.submit import render
from tests.unit.cli.searches import SPEC, Door, said


@pytest.mark.parametrize("words", [["experiment", "submit"], ["submit"]])
def test_submit(words: list[str], home: Path, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """Both commands make the same directory, and submit the script in it."""
    assert main([*words, "lr.yaml"]) == 0
    assert capsys.readouterr() == ("17\n", "")
    directory = home / "lr"
    script = (directory / "job.sh").read_text()
    assert door.changes == [("submit", script, ("--array=0-11%2",), str(home))]
    assert f'"$slurm_plugin" experiment work {directory} -- \\\n    job supervise' in script
    assert "#SBATCH --array=0-11%2\n" in script
    assert f"#SBATCH --output={directory}/tasks/%A_%a.log\n" in script
    assert "\n    -- ./train --lr '{lr}' || {\n" in script
    assert (directory / "experiment.yaml").read_text() == SPEC
    experiment, state = journal.load(directory)
    assert (experiment.name, experiment.search.trials, state.arrays) == ("lr", 12, (17,))
    assert sorted(path.name for path in directory.iterdir() if path.name[0] != ".") == [
        "cluster", "experiment.json", "experiment.yaml", "job.sh", "journal.jsonl", "tasks", "trials",
    ]  # fmt: skip


def test_submit_json_and_a_second_one(home: Path, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """The next directory has a number. The user's own is taken as it is."""
    for directory, more in (("lr", []), ("lr-2", []), ("x/own", ["--directory", "x/own"])):
        assert main(["experiment", "submit", "--json", "lr.yaml", *more]) == 0
        assert json.loads(capsys.readouterr().out) == {
            "v": 1, "experiment": str(home / directory), "array": 17, "tasks": 12, "trials": 12, "notes": [],
        }  # fmt: skip
    code, _, err = said(capsys, "submit", "--directory", "lr", "lr.yaml")
    assert (code, "found an experiment there" in err) == (2, True)


def test_dry_run(home: Path, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """The script, and nothing is made."""
    code, out, _ = said(capsys, "submit", "--dry-run", "lr.yaml")
    assert (code, door.changes, (home / "lr").exists()) == (0, [], False)
    assert out.startswith("#!/bin/bash\n#SBATCH --job-name=lr\n")
    assert f"experiment work {home}/lr -- " in out


def test_a_refused_submission_leaves_nothing(home: Path, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither a directory nor a line in the register."""
    door.settings["MaxArraySize"] = "0"
    assert said(capsys, "submit", "lr.yaml")[0] == 1
    door.settings["MaxArraySize"] = "1001"
    (home / "lr.yaml").write_text(SPEC.replace("name: lr", "name: lr\nworkdir: missing"))
    assert said(capsys, "submit", "lr.yaml")[0] == 2
    (home / "lr.yaml").write_text(SPEC.replace("{lr}", "{rl}"))
    code, _, err = said(capsys, "submit", "lr.yaml")
    assert (code, "found {rl}; accepted: lr" in err) == (2, True)
    assert sorted(path.name for path in home.iterdir()) == ["lr.yaml", "site.yaml"]


def test_fewer_tasks_than_trials(home: Path, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """Within the site's limits."""
    door.settings["MaxArraySize"] = "5"
    code, out, _ = said(capsys, "submit", "--json", "lr.yaml")
    assert (code, json.loads(out)["tasks"], json.loads(out)["trials"]) == (0, 5, 12)


ASHA = """lr: adaptive_asha; loss, smaller is better
  64 trials, 8 at once; a trial trains at most 9,000 batches
  BRACKET  TRIALS  AT ONCE  RUNGS
  1        45      3        140 562 2250 9000
  2        14      3        562 2250 9000
  3        5       2        2250 9000
  LENGTH         TRIALS
  140 batches    34
  562 batches    20
  2,250 batches  7
  9,000 batches  3
  all trials together: 576,000 batches, at least 49,466
"""
GRID = """lr: grid; loss, smaller is better
  2 trials, 2 at once; a trial runs until its program ends
  the grid:
    lr: [0.0001, 0.1]
"""


def test_preview(home: Path, door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """How many trials train how long. Nothing is asked of Slurm, and no file is made."""
    (home / "lr.yaml").write_text(
        SPEC.replace("random", "adaptive_asha\n  max_length: 9000\n  unit: batches")
        .replace("trials: 12", "trials: 64")
        .replace("concurrent: 2", "concurrent: 8")
    )
    assert said(capsys, "preview", "lr.yaml") == (0, ASHA, "")
    code, out, _ = said(capsys, "preview", "--json", "lr.yaml")
    assert (code, json.loads(out)["trials"], door.changes, door.questions) == (0, 64, [], [])
    (home / "lr.yaml").write_text(
        SPEC.replace("random", "grid").replace("-1}", "-1, count: 2}").replace("  trials: 12\n", "")
    )
    assert said(capsys, "preview", "lr.yaml") == (0, GRID, "")


def test_a_person_is_told_what_comes_next(
    home: Path, door: Door, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a terminal: the directory, how many tasks there are and why not more, the next commands."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    door.limits = [Limit(5, "MaxSubmitJobs=8 of account lab, of which 3 are used")]
    code, out, err = said(capsys, "submit", "lr.yaml")
    assert (code, out) == (0, "17\n")
    assert err.splitlines() == [
        "  lr: 12 trials, 5 tasks, as MaxSubmitJobs=8 of account lab, of which 3 are used; a task takes several trials",
        f"  its directory: {home}/lr",
        f"  how it goes: slurm-plugin experiment status {home}/lr",
        f"  the best so far: slurm-plugin experiment best {home}/lr",
        f"  more at once: slurm-plugin experiment concurrency {home}/lr N",
    ]
    assert door.questions == [("submit_limits", (own_name(), "", ""))]


def test_what_cannot_be_submitted(
    home: Path, door: Door, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path that sbatch would read as a pattern, stdin, --wait, a site's template without the worker's line."""
    code, _, err = said(capsys, "submit", "--directory", "a%b", "lr.yaml")
    assert (code, "found %; in the path of a log sbatch reads a pattern" in err) == (2, True)
    assert said(capsys, "submit", "-")[0] == 2
    assert main(["submit", "--wait", "lr.yaml"]) == 2
    assert "slurm-plugin experiment status" in capsys.readouterr().err
    monkeypatch.setattr(render, "script", lambda *_: "#!/bin/bash\ntrue\n")
    code, _, err = said(capsys, "submit", "lr.yaml")
    assert (code, "the site's template job/single.sh.j2" in err, (home / "lr").exists()) == (1, True, False)


@pytest.mark.parametrize(
    "words",
    [["submit"], ["submit", "--dry-run"], ["experiment", "submit"], ["experiment", "submit", "--dry-run"], ["render"]],
)
def test_what_the_cluster_lacks(
    words: list[str], home: Path, door: Door, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said before the job is submitted, and of a script that is only printed."""
    text = "name: a\nmode: single\ncommand: ./a\n"
    (home / "job.yaml").write_text((SPEC if words[0] == "experiment" else text) + "retries: 2\n")
    before = list[str]()

    def refuse(*_: object, **__: object) -> None:
        before.append(capsys.readouterr().err)
        raise SlurmError("not now")

    monkeypatch.setattr(door, "submit", refuse)
    main([*words, "job.yaml"])
    lacks = before[0] if before else capsys.readouterr().err
    assert "  retries: the job restarts itself, at most 2 times" in lacks
    assert bool(before) is (words[-1] == "submit")
