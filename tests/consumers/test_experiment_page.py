"""The page of an experiment in a real browser. Run by .ci/consumers."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from slurm_plugin.cli.experiment.views import REPORT
from slurm_plugin.records.experiments import FAILED, Algorithm, Experiment, Metric, Report, Search, State, Trial
from tests import experiments
from tests.browser import CONTRAST, Browser
from tests.experiments import HOSTILE

STATE = experiments.state(60, seed=3, running=4, budget=80)
ONE = experiments.experiment("mnist", trials=80)
METRIC = ONE.search.metric
VALUES = {each.number: value for each in STATE.trials if (value := each.value(METRIC)) is not None}
BEST = min(VALUES, key=lambda each: VALUES[each])
# The place of a trial's first point or corner in a chart, in the window.
PLACE = """((chart, trial, corner) => {
  const svg = document.querySelectorAll("figure svg")[chart];
  svg.scrollIntoView({block: "center"});
  for (const path of svg.querySelectorAll(".m")) {
    const place = path.dataset.n.split(" ").indexOf(trial);
    if (place < 0) continue;
    const numbers = path.getAttribute("d").split("M")[place + 1].match(/\\d+/g).map(Number);
    const at = new DOMPoint(numbers[2 * corner], numbers[2 * corner + 1]).matrixTransform(svg.getScreenCTM());
    return [at.x, at.y];
  }
})"""
HISTORY, PARALLEL, CURVES, SLICE = 0, 2, 3, 4  # the places of charts on the page


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of the page of an experiment."""
    path = experiments.directory(tmp_path_factory.mktemp("experiments") / "mnist #1", ONE, STATE)
    assert REPORT([str(path)]) == 0
    return (path / "report.html").as_uri()


@pytest.fixture
def page(browser: Browser, written: str) -> Iterator[Browser]:
    """Open the page. At the end, it must have sent no request and told of no error."""
    browser.resize(1400)
    browser.open(written)
    yield browser
    assert browser.requested() == [written]


def column(page: Browser, place: int) -> list[str]:
    """Return the cells of a column of the table."""
    found: list[str] = page.run(
        f"[...document.querySelectorAll('#trials tbody tr')].map(row => row.cells[{place}].textContent)"
    )
    return found


def shown(page: Browser) -> tuple[str, str, set[str], str]:
    """Return the selected row, the title of the details, the trials highlighted in charts, and the details."""
    row, title, trials, text = page.run(
        "[document.querySelector('[aria-selected]')?.id ?? '', document.querySelector('aside h2').textContent,"
        " [...document.querySelectorAll('.hi')].map(each => each.dataset.n), document.querySelector('aside').innerText]"
    )
    return row, title, set(trials), text


def test_a_column_sorts(page: Browser) -> None:
    """Numbers by their value, those without one last; a second click sorts the other way round."""
    page.click_on("#trials th:nth-child(3) button")
    ordered = sorted(VALUES, key=lambda each: VALUES[each])
    assert column(page, 0)[: len(ordered)] == [str(each) for each in ordered]
    assert set(column(page, 2)[len(ordered) :]) == {""}
    assert page.run("document.querySelector('#trials th:nth-child(3)').ariaSort") == "ascending"
    page.click_on("#trials th:nth-child(3) button")
    assert column(page, 0)[: len(ordered)] == [str(each) for each in reversed(ordered)]
    page.click_on("#trials th:nth-child(2) button")  # text
    assert column(page, 1) == sorted(column(page, 1))


def test_a_row_is_highlighted_everywhere(page: Browser) -> None:
    """In each chart that has the trial, and its details are shown. The link to its log is a file."""
    page.click_on(f"#t{BEST} td")
    row, title, trials, text = shown(page)
    assert (row, title, trials) == (f"t{BEST}", f"Trial {BEST}", {str(BEST)})
    assert f"{VALUES[BEST]:.6g}" in text
    with_marks = page.run("[...document.querySelectorAll('svg')].filter(each => each.querySelector('.m')).length")
    assert page.run("document.querySelectorAll('.hi:not(.under)').length") == with_marks == 9
    address = page.run("document.querySelector('aside a').href")
    assert Path(unquote(urlsplit(address).path)).read_text().startswith("step 250 ")
    page.click_on("#close")
    assert shown(page)[0] == ""
    assert page.run("document.querySelectorAll('.hi').length") == 0


@pytest.mark.parametrize(("chart", "corner"), [(HISTORY, 0), (PARALLEL, 1), (CURVES, -1), (SLICE, 0)])
def test_a_mark_in_a_chart(page: Browser, chart: int, corner: int) -> None:
    """A click on a point or line of a chart selects the trial that is drawn there on top."""
    last = len(STATE.trials[BEST - 1].reports) - 1 if corner < 0 else corner
    page.click(*page.run(f"{PLACE}({chart}, '{BEST}', {last})"))
    row, title, trials, _ = shown(page)
    # Several trials may go through one place of an axis.
    assert row in ({f"t{BEST}"} if chart != SLICE else {f"t{each}" for each in VALUES})
    assert (f"t{title.removeprefix('Trial ')}", trials) == (row, {row[1:]})


def test_keys(page: Browser) -> None:
    """Arrows move through the table, Enter selects, Escape ends it. One row is reached with Tab."""
    assert page.run("document.querySelectorAll('tr[tabindex=\"0\"]').length") == 1
    page.run("document.querySelector('#t1').focus()")
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        page.press(key)
    assert shown(page)[:2] == ("t3", "Trial 3")
    assert page.run("document.activeElement.id") == "t3"
    page.press("Escape")
    assert shown(page)[0] == ""


def test_a_failed_trial(page: Browser) -> None:
    """The table of failures leads to its trial, with the diagnosis beside."""
    failed = next(each for each in STATE.trials if each.state == FAILED)
    assert "gpu_oom" in page.run("document.querySelector('.wrap').innerText")
    page.click_on(f"[data-t='{failed.number}']")
    assert shown(page)[0] == f"t{failed.number}"
    assert failed.why in shown(page)[3]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1000, 1900])
def test_sizes_and_schemes(page: Browser, width: int, scheme: str) -> None:
    """Nothing is wider than the window, no text of a chart is cut or tiny, and text is readable on its ground."""
    page.resize(width, scheme=scheme)
    assert page.run("document.documentElement.scrollWidth") <= width
    cut = page.run(
        """[...document.querySelectorAll('svg text')].filter(text => {
          const own = text.getBoundingClientRect(), all = text.ownerSVGElement.getBoundingClientRect();
          return own.height < 9 || own.left < all.left - 1 || own.right > all.right + 1
            || own.top < all.top - 1 || own.bottom > all.bottom + 1;
        }).map(text => [text.textContent, text.getBoundingClientRect().height])"""
    )
    assert cut == []
    assert page.run(CONTRAST) >= 4.5


def test_print(page: Browser) -> None:
    """On paper the whole table is shown, and no details of one trial."""
    page.click_on("#t1 td")
    page.call("Emulation.setEmulatedMedia", media="print")
    hidden = page.run("getComputedStyle(document.querySelector('aside')).display")
    cut = page.run("(e => e.scrollHeight - e.clientHeight)(document.querySelector('#trials').parentNode)")
    page.call("Emulation.setEmulatedMedia", media="")
    assert (hidden, cut) == ("none", 0)


def test_text_alternatives(page: Browser) -> None:
    """Each chart has a name in words."""
    names = page.run("[...document.querySelectorAll('svg')].map(each => each.role + each.ariaLabel)")
    assert len(names) == 10
    assert all(each.startswith("img") and len(each) > 20 for each in names)


def test_hostile_text(browser: Browser, tmp_path: Path) -> None:
    """Names, values and reasons of users are text: they run nothing, fetch nothing and break no chart."""
    space = {HOSTILE: {"type": "categorical", "vals": [HOSTILE, {HOSTILE: [HOSTILE]}, None]}, "a": {"b.c": 1}}
    search = Search(Metric(HOSTILE), space, (Algorithm("random"),), trials=3, unit=HOSTILE, max_length=10)
    one = Experiment(HOSTILE, search, description=HOSTILE, labels=(HOSTILE,), notes=(HOSTILE,))
    trials = tuple(
        Trial(number, {HOSTILE: value, "a": {"b.c": 1}}, FAILED, task=HOSTILE, began=1.0, ended=2.0 + number,
              reports=(Report(1, 0.5 * number, 1.5), Report(2, 1e300, 2)), why=HOSTILE)
        for number, value in enumerate((HOSTILE, {HOSTILE: [HOSTILE]}, [[HOSTILE]]), 1)
    )  # fmt: skip
    path = experiments.directory(tmp_path / "x", one, State(trials, 3))
    assert REPORT([str(path)]) == 0
    browser.open((path / "report.html").as_uri())
    browser.click_on("#t1 td")
    assert shown(browser)[0] == "t1"
    assert "<script>alert(1)</script>" in shown(browser)[3]
    assert browser.requested() == [(path / "report.html").as_uri()]
    assert browser.run("document.querySelectorAll('img, script').length") == 1
