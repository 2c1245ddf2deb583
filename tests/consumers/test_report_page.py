"""The page of a job in a real browser. Run by .ci/consumers."""

from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.views.report.page import page as written
from slurm_plugin.views.report.story import Facts, build_story
from tests import reports
from tests.browser import CONTRAST, Browser

OVERLAPS = """[...document.querySelectorAll('svg')].flatMap(svg => {
  const texts = [...svg.querySelectorAll('text')].filter(each => each.getBoundingClientRect().width);
  const boxes = texts.map(each => each.getBoundingClientRect());
  return boxes.flatMap((a, i) => boxes.slice(i + 1).map((b, j) => [a, b, i, i + 1 + j]))
    .filter(([a, b]) => a.left < b.right && b.left < a.right && a.top + 3 < b.bottom && b.top + 3 < a.bottom)
    .map(([, , i, j]) => [texts[i].textContent, texts[j].textContent]);
})"""
CUT = """[...document.querySelectorAll('svg text')].filter(text => {
  const own = text.getBoundingClientRect(), all = text.closest('figure').getBoundingClientRect();
  return own.width && (own.left < all.left || own.right > all.right || own.top < all.top || own.bottom > all.bottom);
}).map(text => text.textContent)"""
# The colours of bands and marks, as people with each kind of colour blindness see them (Machado 2009, full severity),
# and the least difference of two of them in the lightness and colours of CIELAB.
COLOURS = """(() => {
  const kinds = {
    normal: [1, 0, 0, 0, 1, 0, 0, 0, 1],
    protan: [0.152286, 1.052583, -0.204868, 0.114503, 0.786281, 0.099216, -0.003882, -0.048116, 1.051998],
    deutan: [0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413, -0.011820, 0.042940, 0.968881],
    tritan: [1.255528, -0.076749, -0.178779, -0.078411, 0.930809, 0.147602, 0.004733, 0.691367, 0.303900],
  };
  const linear = each => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4;
  const curve = each => each > 0.008856 ? Math.cbrt(each) : 7.787 * each + 16 / 116;
  const lab = rgb => {
    const [r, g, b] = rgb.map(each => Math.min(1, Math.max(0, each)));
    const x = curve((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505), y = curve(0.2126 * r + 0.7152 * g + 0.0722 * b);
    const z = curve((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089);
    return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
  };
  const probe = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  document.querySelector("svg").append(probe);
  const colours = ["program", "failed", "checks", "hold"].map(kind => {
    probe.setAttribute("class", kind);
    return getComputedStyle(probe).fill.match(/[\\d.]+/g).slice(0, 3).map(each => linear(each / 255));
  });
  probe.remove();
  return Object.fromEntries(Object.entries(kinds).map(([kind, m]) => {
    const seen = colours.map(([r, g, b]) => lab([0, 3, 6].map(i => m[i] * r + m[i + 1] * g + m[i + 2] * b)));
    const distance = (one, other) => Math.hypot(...one.map((v, k) => v - other[k]));
    return [kind, Math.min(...seen.flatMap((one, i) => seen.slice(i + 1).map(other => distance(one, other))))];
  }));
})()"""
SELECTED = """[document.querySelector('#attempts [aria-selected=true]')?.dataset.a ?? '',
  [...document.querySelectorAll('#timeline g.on')].map(each => each.dataset.a),
  [...document.querySelectorAll('#timeline g[data-a]')].map(each => getComputedStyle(each).opacity)]"""


def opened(browser: Browser, directory: Path, facts: Facts) -> str:
    """Open the page of a job, and return its address."""
    path = directory / "job.html"
    path.write_text(written(build_story(facts), zone=UTC), encoding="utf-8")
    browser.open(path.as_uri())
    return path.as_uri()


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Iterator[Browser]:
    """Open the page of the demo. At the end, it must have sent no request and told of no error."""
    browser.resize(1200)
    address = opened(browser, tmp_path, reports.demo())
    yield browser
    assert browser.requested() == [address]


def test_the_timeline(page: Browser) -> None:
    """Bands are where their times are: the second attempt begins where the restart is drawn, on the right rows."""
    found: dict[str, Any] = page.run(
        """(() => {
          const chart = document.querySelector("#timeline .chart"), all = chart.getBoundingClientRect();
          const box = each => { const r = each.getBoundingClientRect();
            return [r.left, r.right, r.top, r.bottom].map(v => Math.round(v)); };
          const second = [...chart.querySelectorAll('g[data-a="1"] rect')].map(box);
          const names = [...document.querySelectorAll("#timeline .names text")].map(each => {
            const r = each.getBoundingClientRect();
            return [each.textContent, Math.round(r.top + r.height / 2)];
          });
          const restart = box(chart.querySelector(".restart")), fault = box(chart.querySelector(".k-fault"));
          return {second, names: Object.fromEntries(names), restart, fault, left: all.left, width: all.width};
        })()"""
    )
    starts = {each[0] for each in found["second"]}
    assert min(starts) == pytest.approx(found["restart"][0], abs=1)
    on = {
        name
        for name, middle in found["names"].items()
        if any(top < middle < bottom for _, _, top, bottom in found["second"])
    }
    assert on == {"n1", "n3", "n4", "n5"}
    # The times of the chart are from 20:26:36 (submitted) to 20:27:03.1: the fault is 11 s of 27.1 s after the begin.
    middle = (found["fault"][0] + found["fault"][1]) / 2
    begin = max(-4.0, -0.15 * 23.1)  # of a long wait only the end is drawn
    assert (middle - found["left"]) / found["width"] == pytest.approx((7 - begin) / (23.1 - begin), abs=0.005)
    assert found["fault"][2] < found["names"]["n2"] < found["fault"][3]


def test_an_attempt_is_selected(page: Browser) -> None:
    """With the mouse in the table and in the timeline, and with the keyboard. Escape ends it."""
    page.click_on("#attempts tr[data-a='1'] td")
    assert page.run(SELECTED) == ["1", ["1"], ["0.25", "1"]]
    page.click_on("#timeline g[data-a='0'] rect")
    assert page.run(SELECTED)[:2] == ["0", ["0"]]
    page.press("Escape")
    assert page.run(SELECTED) == ["", [], ["1", "1"]]
    assert page.run("document.querySelectorAll('#attempts tr[tabindex=\"0\"]').length") == 1
    page.run("document.querySelector('#attempts tr[tabindex=\"0\"]').focus()")
    for key in ("Home", "ArrowDown", "Enter"):
        page.press(key)
    assert page.run(SELECTED)[0] == "1"
    assert page.run("document.activeElement.dataset.a") == "1"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 700, 1200, 1900])
@pytest.mark.parametrize("facts", [reports.demo(), reports.large()], ids=["demo", "large"])
def test_sizes_and_schemes(browser: Browser, tmp_path: Path, facts: Facts, width: int, scheme: str) -> None:
    """Nothing is wider than the window; labels do not overlap, are not cut and are readable on their ground."""
    browser.resize(width, scheme=scheme)
    opened(browser, tmp_path, facts)
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run(OVERLAPS) == []
    assert browser.run(CUT) == []
    assert browser.run(CONTRAST) >= 4.5
    assert (
        browser.run(
            "Math.min(...[...document.querySelectorAll('svg text')].map(e => parseFloat(getComputedStyle(e).fontSize)))"
        )
        >= 12
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours(page: Browser, scheme: str) -> None:
    """The bands differ for people who are blind to red, to green or to blue; a difference of 2 is just visible."""
    page.resize(1200, scheme=scheme)
    assert all(each > 15 for each in page.run(COLOURS).values()), page.run(COLOURS)


def test_print(page: Browser) -> None:
    """On paper tables are whole, and no hint asks for a click."""
    page.call("Emulation.setEmulatedMedia", media="print")
    cut = page.run("[...document.querySelectorAll('.scroll')].filter(e => e.scrollHeight > e.clientHeight + 1).length")
    hint = page.run("getComputedStyle(document.querySelector('.hint')).display")
    page.call("Emulation.setEmulatedMedia", media="")
    assert (cut, hint) == (0, "none")


def test_text_alternatives(page: Browser) -> None:
    """Each chart has a title and a description in words, and its numbers are in a table."""
    tree = page.call("Accessibility.getFullAXTree")["nodes"]
    charts = [
        (each["name"]["value"], each.get("description", {}).get("value", ""))
        for each in tree
        if each.get("role", {}).get("value") in ("image", "img") and not each.get("ignored")
    ]
    assert len(charts) == 10
    assert all("Timeline" in name or "mean" in name for name, _ in charts), charts
    tables = {each["name"]["value"] for each in tree if each.get("role", {}).get("value") == "table"}
    assert tables == {
        "Attempts: start, time, nodes, exit code, what followed and why", "Restarts and what they cost",
        "Use and speed of each attempt", "Faults, drains and checkpoints",
    }  # fmt: skip


def test_hostile_text(browser: Browser, tmp_path: Path) -> None:
    """Names, causes and lines of logs of users are text: they run nothing, fetch nothing and break no chart."""
    browser.resize(400)
    address = opened(browser, tmp_path, reports.hostile())
    browser.click_on("#attempts tbody tr td")
    assert browser.requested() == [address]
    assert browser.run("document.querySelectorAll('img, script').length") == 1
    assert browser.run("document.documentElement.scrollWidth") <= 400
    assert "<script>alert(1)</script>" in browser.run("document.querySelector('#attempts').innerText")
