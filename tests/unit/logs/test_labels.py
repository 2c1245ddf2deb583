"""Logs that people have labelled, if they are beside this checkout: how often the diagnosis is right."""

import csv
from pathlib import Path

import pytest

from benchmarks.diagnosis import Tally
from slurm_plugin.logs import library
from slurm_plugin.logs.diagnosis import of_files

LABELS = next(
    (path for above in Path(__file__).parents if (path := above / "shared/logs/labels.tsv").exists()), Path("/nowhere")
)
LEAST = {"class": 0.85, "blame": 0.9, "culprit": 1.0}


@pytest.mark.skipif(not LABELS.exists(), reason="no labelled logs beside this checkout: shared/logs/labels.tsv")
def test_labelled_logs() -> None:
    """Class, blame and culprit are right often enough; no healthy log gets a cause, no node is excluded wrongly."""
    signatures, tally = library.load(), Tally()
    with LABELS.open(encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            log = LABELS.parent / row["file"]
            tally.add(row, of_files([log], signatures), [log])
    assert {name: tally.right[name] >= least * tally.asked[name] > 0 for name, least in LEAST.items()} == dict.fromkeys(
        LEAST, True
    )
    assert (tally.false_alarms, tally.wrong_excludes) == (0, 0)
