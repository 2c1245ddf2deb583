"""Make the pictures of the documentation.

python -m tests.screenshot FILE.webp         an experiment whose trials are made up
python -m tests.screenshot FILE.webp PAGE    a written report of a job, up to its attempts: .ci/picture calls this
"""

import sys
import tempfile
from pathlib import Path

from slurm_plugin.experiment.simulate import preview
from slurm_plugin.views.experiment.page import Beside, page
from tests import experiments
from tests.browser import Browser

WIDTH, HEIGHT = 1000, 720


def experiment(browser: Browser, directory: Path) -> bytes:
    """Return a picture of the charts of an experiment, with one trial selected."""
    one, state = experiments.experiment(trials=120), experiments.state(120, seed=3)
    rungs = [each for bracket in preview(one)["brackets"] for each in bracket["rungs"]]
    path = directory / "page.html"
    beside = Beside("/home/ada/mnist", lambda number: f"trials/{number:04}/log", rungs)
    path.write_text(page(one, state, experiments.BEGAN + 3e4, beside), encoding="utf-8")
    browser.resize(WIDTH, HEIGHT)
    browser.open(path.as_uri())
    best = state.best(one.search.metric)
    assert best
    browser.run(f"document.querySelector('#t{best.number} td').click()")
    browser.run("document.querySelector('.charts').scrollIntoView()")
    return browser.picture()


def job(browser: Browser, path: Path) -> bytes:
    """Return a picture of a job's report, from its top to the end of the table of its attempts."""
    browser.resize(WIDTH, HEIGHT)
    browser.call("Emulation.setScrollbarsHidden", hidden=True)
    browser.open(path.absolute().as_uri())
    assert browser.run("document.querySelectorAll('#attempts tbody tr').length") > 1, "the job was not restarted"
    assert browser.requested() == [path.absolute().as_uri()]
    end = browser.run("document.querySelector('#attempts').closest('.scroll').getBoundingClientRect().bottom")
    browser.resize(WIDTH, round(end) + 16)
    return browser.picture()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name, Browser(Path(name) / "profile") as found:
        picture = job(found, Path(sys.argv[2])) if len(sys.argv) > 2 else experiment(found, Path(name))
    Path(sys.argv[1]).write_bytes(picture)
