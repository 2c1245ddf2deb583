"""Usage and progress of a job: bounded files of a user, which readers do not trust."""

import json
import os
from itertools import pairwise
from pathlib import Path

import pytest

from slurm_plugin.records import job_directory, progress_file, usage
from slurm_plugin.records.progress_file import Point
from slurm_plugin.records.usage import Accelerator, Sample

START = 1_800_000_000.0
HOSTILE = [
    "",
    "[1]",
    "7",
    "null",
    '{"step": 1}',
    '{"t": null, "step": 1}',
    '{"t": NaN, "step": 1}',
    '{"t": 1e400, "step": 1}',
    '{"t": -1, "step": 1}',
    '{"t": true, "step": 1}',
    '{"t": "1", "step": 1}',
    '{"t": ' + "9" * 300 + ', "step": 1}',
    '{"t": 1, "step": ' + "9" * 5000 + "}",
    "[" * 5000,
    "{cut off",
]


def sample(at: float, worker: int = 0, used: float | None = 0.25, attempt: int = 0, cards: int = 8) -> Sample:
    """Return a sample of one node."""
    found = tuple(Accelerator(index, used, 6e10, 8e10, 310.5) for index in range(cards))
    return Sample(START + at, attempt, f"n{worker + 1}", worker, 0.5, 1e9, 2e6, 3e6, found)


def test_a_sample_is_read_as_it_was_written(tmp_path: Path) -> None:
    """A value that is not known is left out."""
    path = tmp_path / usage.FILE
    samples = [sample(0), Sample(START, 1, "n2", accelerators=(Accelerator(3),))]
    usage.write(path, samples, 2)
    assert usage.read(path) == samples
    assert json.loads(path.read_text().splitlines()[1]) == {
        "v": 1,
        "t": START,
        "attempt": 1,
        "node": "n2",
        "accelerators": [{"index": 3}],
    }


def test_a_point_is_read_as_it_was_written(tmp_path: Path) -> None:
    """The last one from the end of the file."""
    path = tmp_path / progress_file.FILE
    points = [Point(START + number, 0, number, 5000, 0.25) for number in range(1000)]
    progress_file.write(path, points)
    assert progress_file.read(path) == points
    assert progress_file.last(path) == points[-1]
    assert progress_file.recent(path) == points[-len(progress_file.recent(path)) :]
    assert 10 < len(progress_file.recent(path)) < 100
    assert points[-1].text == "999/5000"
    assert points[-1].text != Point(START, 0, 999).text == "999"


def test_a_long_job(tmp_path: Path) -> None:
    """The file is bounded, tells of the whole time, and half of it is of worker 0."""
    path, nodes, rounds = tmp_path / usage.FILE, 16, 200
    for number in range(rounds):
        usage.write(path, [sample(30 * number, worker) for worker in range(nodes)], nodes)
        assert path.stat().st_size <= job_directory.SERIES_BYTES
    samples = usage.read(path)
    own = [each for each in samples if each.worker == 0]
    assert (samples[0].t, samples[-1].t) == (START, START + 30 * (rounds - 1))
    assert len(own) == rounds
    assert {each.node for each in samples} == {f"n{number}" for number in range(1, nodes + 1)}
    assert usage.mean(samples) == usage.mean(samples, worker=0) == pytest.approx(0.25)


def test_lines_are_thinned_out_evenly() -> None:
    """Each attempt and node keeps a line for each time slot, or, if these are too many, the newest lines stay."""
    lines = [({"t": START + 10 * number, "attempt": 0}, 10.0) for number in range(1000)]
    kept = [line["t"] for line in job_directory.thinned(lines, 5000)]
    assert {round(second - first) for first, second in pairwise(kept)} == {80}
    many = [({"t": START, "attempt": 0, "node": f"n{number}"}, 10.0) for number in range(1000)]
    assert 0 < len(job_directory.thinned(many, 5000)) < 100


@pytest.mark.parametrize("line", HOSTILE)
def test_hostile_lines_are_left_out(tmp_path: Path, line: str) -> None:
    """The others are read."""
    path, good = tmp_path / "series", Point(START, 0, 7)
    progress_file.write(path, [good])
    with path.open("a") as file:
        file.write(f"{line}\n")
    progress_file.write(path, [good])
    assert progress_file.read(path) == [good, good]
    assert [each.t for each in usage.read(path)][-1] == START


def test_hostile_values_are_not_known() -> None:
    """Also values of a wrong type inside a line."""
    line = '{"t":1,"node":[],"attempt":"x","cpu":NaN,"memory":-1,"read":true,"accelerators":[7,{"used":9,"watts":"x"}]}'
    found = usage.sample(json.loads(line))
    assert found == Sample(1.0, 0, "", accelerators=(Accelerator(0), Accelerator(1, 1.0)))
    assert usage.sample({"t": 1, "accelerators": "x"}) == Sample(1.0, 0, "")


def test_what_is_no_file_of_the_user_is_not_read(tmp_path: Path) -> None:
    """A link, a pipe, a directory, a missing file, another user's file."""
    good, link, fifo = tmp_path / "good", tmp_path / "link", tmp_path / "fifo"
    progress_file.write(good, [Point(START, 0, 7)])
    link.symlink_to(good)
    os.mkfifo(fifo)
    assert [progress_file.last(path) for path in (link, fifo, tmp_path, tmp_path / "none")] == [None] * 4
    assert progress_file.last(good, os.geteuid()) is not None
    assert progress_file.last(good, os.geteuid() + 1) is None


def test_the_mean_of_worker_0() -> None:
    """Below one half after 10 minutes of an attempt it is a warning, which says node, mean and time."""
    span = [30.0 * number for number in range(21)]
    cases = [
        ([sample(at) for at in span[:15]], None),
        ([sample(at, used=0.5) for at in span], None),
        ([sample(at, used=None) for at in span], None),
        ([sample(at, worker=1) for at in span], None),
        ([sample(at) for at in span] + [sample(700, attempt=1)], None),
        ([sample(at, cards=0) for at in span], None),
        ([], None),
        ([sample(at) for at in span], "the accelerators of n1 were used 25% of the last 10 min 0 s"),
        (
            [sample(at, used=0.0) for at in span[:10]] + [sample(at, used=0.4) for at in [*span[10:], 630.0]],
            "the accelerators of n1 were used 22% of the last 10 min 30 s",
        ),
    ]
    for samples, text in cases:
        means = {0: usage.Mean(), 1: usage.Mean()}
        counted = [means[each.attempt].added(each) for each in samples]
        for each in (samples, counted, counted[-1:] if text else []):  # the last one alone tells it
            low = usage.low(each)
            assert (low and low.text) == (text if each else None)


def test_the_newest_samples(tmp_path: Path) -> None:
    """They tell the warning also of a job with many nodes."""
    path, counted = tmp_path / usage.FILE, usage.Mean()
    for number in range(25):
        usage.write(path, [counted.added(sample(30 * number, worker)) for worker in range(70)], 70)
        found = usage.recent(path)
        assert any(each.worker == 0 for each in found)
    assert usage.low(found) == usage.low(usage.read(path)) == usage.Low("n1", 0.25, 720.0)
    assert usage.recent(tmp_path / "none") == []


def test_the_time_that_is_left() -> None:
    """From the newest points of the attempt, or from the time of a step that the program gave."""
    points = [Point(START + 10 * number, 0, 5 * number, 1000, 0.1) for number in range(40)]
    assert progress_file.left_s(points) == (1000 - 195) * 2.0
    assert progress_file.left_s(points[:1]) == pytest.approx(100.0)
    assert progress_file.left_s([Point(START, 0, 5, 1000)]) is None
    assert progress_file.left_s([Point(START, 0, 5, None, 1.0)]) is None
    assert progress_file.left_s([]) is None
    assert progress_file.left_s([*points, Point(START + 400, 1, 150, 1000, 3.0)]) == 850 * 3.0
    assert progress_file.left_s([Point(START, 0, 7, 5, 1.0)]) == 0.0
