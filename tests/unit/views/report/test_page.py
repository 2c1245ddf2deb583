"""The page of a job as text. tests/consumers/test_report_page.py opens it in a browser."""

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.records.progress_file import Point
from slurm_plugin.records.usage import Accelerator, Sample
from slurm_plugin.views.report import curves, plane
from slurm_plugin.views.report.page import page
from slurm_plugin.views.report.plane import Plane
from slurm_plugin.views.report.story import Facts, build_story
from slurm_plugin.views.report.timeline import in_words, span, timeline
from tests import reports
from tests.elements import Elements
from tests.experiments import HOSTILE
from tests.reports import BEGAN, ended, line

GOLDEN = Path(__file__).parents[3] / "golden"


def written(facts: Facts) -> str:
    """Return the page of a job, with times in UTC."""
    return page(build_story(facts), zone=UTC)


@pytest.mark.parametrize(("nodes", "attempts", "most"), [(128, 20, 250_000), (1000, 60, 500_000)])
def test_size(nodes: int, attempts: int, most: int) -> None:
    """128 nodes and 20 attempts are far below 500 KB; of more nodes several share a row."""
    text = written(reports.large(nodes, attempts))
    assert len(text.encode()) < most
    assert text.count('class="row"') <= 129
    assert ("Each row is" in text) == (nodes + attempts > 128)


def test_nothing_is_fetched() -> None:
    """The only addresses are those of shapes on the page; no handler in an attribute; the policy names the script."""
    text = written(reports.demo())
    found = Elements(text)
    assert {each[:3] for each in found.addresses} == {"#i-"}
    assert not [name for name in found.names if name.startswith("on")]
    assert not {"img", "link", "iframe", "object", "base", "form"} & set(found.tags)
    assert "http" not in text.replace("http-equiv", "")


def test_hostile_text_is_escaped() -> None:
    """In each place where text of a user is shown; it is cut, and coordinates stay numbers."""
    text = written(reports.hostile())
    tags = Elements(text).tags
    assert (tags.count("script"), tags.count("img")) == (1, 0)
    assert "\x1b" not in text
    assert text.count("&lt;script&gt;alert(1)") > 10
    assert len(text) < 60_000
    assert not re.search(r'(?:x|y|x1|width|d)="[^"]*(?:nan|inf)', text)


@pytest.mark.parametrize(
    "facts",
    [
        Facts(17, BEGAN),
        Facts(17, BEGAN + 5, job=ended(state="PENDING", nodes="")),
        Facts(17, BEGAN + 5, job=ended(state="PENDING", nodes="", submit_time=None)),
        Facts(17, BEGAN + 5, [line(0, "n1", (0, 0, 0, 0))], None),
        Facts(17, BEGAN + 5, [line(0, "n[", (0, 1, 2, 3))], None),
        reports.demo(samples=[Sample(BEGAN + 3, 0, "n1", 0, 0.0, None, 0.0)], points=[Point(BEGAN + 3, 0, 0)]),
        reports.demo(points=[Point(BEGAN + 3, 0, 5, None, 0.0), Point(BEGAN + 3, 0, 5, None, 0.0)]),
    ],
)
def test_little_is_known(facts: Facts) -> None:
    """A job without attempts, samples or times has a page."""
    text = written(facts)
    assert "<h1>Job 17" in text
    assert not re.search(r'="[^"]*(?:nan|inf)[%"]', text)


def test_the_timeline() -> None:
    """The whole figure of the demo: rows, bands, marks, lines, labels. Each tag is on a line of its own."""
    story = build_story(reports.demo())
    found = timeline(story, Plane(*span(story), UTC)).replace("><", ">\n<") + "\n"
    assert found == (GOLDEN / "report-timeline.html").read_text(encoding="utf-8")


def test_the_timeline_in_words() -> None:
    """A screen reader gets a sentence for each attempt."""
    assert in_words(build_story(reports.demo())) == (
        "Attempt 0 on n[1-4]: 13 s, again: the program failed with exit code 1, and n2 gpu-check: 1 of 2 GPUs. "
        "Attempt 1 on n[1,3-5]: 10 s, ended: the program ended with exit code 0."
    )


def test_a_long_first_wait() -> None:
    """Of ten days in the queue and an hour of work the chart shows the work."""
    facts = Facts(17, BEGAN + 4000, [line(0, "n1", (0, 9, 3500, 3600))], ended(submit_time=reports.moment(BEGAN - 9e5)))
    assert span(build_story(facts)) == (BEGAN - 540, BEGAN + 3600)


def test_bands_of_neighbours_are_one_box() -> None:
    """n1 and n3 to n5 of the second attempt: two boxes for its checks, its program and its end."""
    text = written(reports.demo())
    (group,) = re.findall(r'<g data-a="1">(.*?)</g>', text)
    assert re.findall(r'<rect class="(\w+)"', group) == ["checks", "checks", "program", "program", "checks", "checks"]
    assert re.findall(r'height="([\d.]+)"', group) == ["24", "72"] * 3


@pytest.mark.parametrize(
    ("seconds", "zone", "labels"),
    [
        (30, UTC, ["20:26:40", "20:26:45", "20:26:50", "20:26:55", "20:27:00", "20:27:05", "20:27:10"]),
        (3600, UTC, ["20:30", "20:40", "20:50", "21:00", "21:10", "21:20"]),
        (3600, timezone(timedelta(hours=5, minutes=30)), ["02:00", "02:10", "02:20", "02:30", "02:40", "02:50"]),
        (86400, UTC, ["28 May 21:00", "29 May 00:00", "29 May 03:00", "29 May 06:00", "29 May 09:00", "29 May 12:00",
                      "29 May 15:00", "29 May 18:00"]),
        (10 * 86400, UTC, ["30 May", "01 Jun", "03 Jun", "05 Jun", "07 Jun"]),
        (0.5, UTC, ["20:26:40"]),
    ],
)  # fmt: skip
def test_ticks(seconds: float, zone: timezone, labels: list[str]) -> None:
    """Round times of the reader's clock."""
    assert [words for _, words in Plane(BEGAN, BEGAN + seconds, zone).ticks()] == labels


@pytest.mark.parametrize(
    ("begin", "labels"),
    [
        ("2026-03-28T18:00+01:00", ["28 Mar 18:00", "29 Mar 00:00", "29 Mar 06:00", "29 Mar 12:00"]),
        ("2026-10-24T18:00+02:00", ["24 Oct 18:00", "25 Oct 00:00", "25 Oct 06:00", "25 Oct 12:00"]),
    ],
)
def test_ticks_across_a_change_of_the_zone(zone: Callable[[str], None], begin: str, labels: list[str]) -> None:
    """In the zone of the machine, as in any other, each label is what the clock shows at its place."""
    zone("CET-1CEST,M3.5.0,M10.5.0/3")
    on = Plane(start := datetime.fromisoformat(begin).timestamp(), start + 43 * 3600)
    assert [words for _, words in on.ticks()][:4] == labels
    assert all(on.when(at).endswith(f" {words[-5:]}:00") for at, words in on.ticks())


def test_labels_that_would_overlap() -> None:
    """Those that fit into a narrow plane are always shown, others in wider ones, and some never."""
    rows = [(float(x), "start", "attempt 12") for x in (0, 10, 20, 50, 51)]
    assert plane.spaced(rows) == ["", "no", "w", "", "no"]
    assert plane.spaced([(99.0, "end", "a"), (90.0, "start", "bb")]) == ["", "w"]


def test_curves_and_their_units() -> None:
    """Each curve has a unit that fits its values, and as words its mean and range."""
    found = {each.key: each for each in curves.curves(build_story(reports.demo()))}
    assert {key: each.unit for key, each in found.items()} == {
        "used": "%", "step_s": "s", "step": "steps", "card_memory": "GiB", "watts": "W", "cpu": "%",
        "memory": "GiB", "read": "MiB/s", "write": "MiB/s",
    }  # fmt: skip
    assert found["card_memory"].form == "mean 61.5 GiB, from 61.5 to 61.5 GiB"


numbers = st.sampled_from([0.0, 1.0, -1.0, 0.5, 5e-324, 1e308, -1e308, math.inf, -math.inf, math.nan])
anything = st.recursive(
    numbers | st.none() | st.booleans() | st.just(10**400) | st.just(HOSTILE) | st.just("n[1-3]"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["n1", "v"]), inner, max_size=2),
    max_leaves=4,
)
times = st.sampled_from([reports.utc(BEGAN + each) for each in (-9e8, 0, 1, 50, 9e8)])
KEYS = ("n", "restart", "nodes", "start", "end", "phase", "code", "cause", "progress", "program", "checkpoint",
        "verdicts", "action", "diagnosis")  # fmt: skip
attempts = st.dictionaries(st.sampled_from(KEYS), times | anything | st.lists(times, max_size=3))
samples = st.builds(
    Sample, t=numbers.filter(math.isfinite), attempt=st.integers(0, 2), node=st.just("n1"), cpu=numbers | st.none(),
    memory=numbers,
    accelerators=st.lists(st.builds(Accelerator, st.just(0), numbers | st.none()), max_size=2).map(tuple),
)  # fmt: skip


@given(st.lists(attempts, max_size=4), st.lists(samples, max_size=3), st.sampled_from([None, "RUNNING", "FAILED"]))
def test_any_records(lines: list[dict[str, Any]], use: list[Sample], state: str | None) -> None:
    """Records of any content have a page, and their coordinates are numbers."""
    job = ended(state=state, restarts=0, start_time=reports.moment(BEGAN)) if state else None
    text = written(Facts(17, BEGAN + 60, lines, job, use, [Point(BEGAN, 1, 10**18, 0, 1e308)]))
    assert text.count("<script") == 1
    assert not re.search(r' (?:x|y|x1|x2|y1|y2|width|height|d)="[^"]*(?:nan|inf)', text)
