"""The tutorial of a day: its files and commands, as they stand on the page, by the users that the page names."""

import re
from collections.abc import Iterator

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster import pages
from tests.cluster.test_adjust import site
from tests.cluster.test_share import entered
from tests.waiting import until

pytestmark = pytest.mark.cluster
__all__ = ["entered", "site"]

COMMAND = re.compile(r"^(?:(\w+))?\$ ", re.MULTILINE)
OPEN = "slurm-plugin open 1 jupyter"  # tests/cluster/test_open.py has a Jupyter


def commands(blocks: list[str]) -> Iterator[tuple[str, str, list[str]]]:
    """Yield user, command and the lines that the page shows of its output."""
    for block in blocks:
        _, *parts = COMMAND.split(block)
        for user, part in zip(parts[::2], parts[1::2], strict=True):
            command, *shown = part.splitlines()
            yield user or "alice", command, shown


@pytest.mark.full  # 51 s
def test_the_page(site: Sandbox) -> None:
    """Every command ends with 0 and prints the lines of the page; Carol's is refused."""
    home = site.home("alice")
    names, blocks = pages.read("a-day.md", home)
    assert names == ["train.sh", "train.yaml"]
    ids: dict[str, str] = {}  # of the page -> of this cluster
    ran = 0
    for user, command, shown in commands(blocks):
        if command == OPEN:
            continue
        words = ["bash", "-c", " ".join(ids.get(word, word) for word in command.split(" "))]
        done = site.run(words, user=user, check=False)
        assert done.returncode == (1 if user == "carol" else 0), (command, done)
        if shown and shown[0].isdecimal():
            ids[shown[0]] = done.stdout.strip()
            if shown[0] == "1":
                until(
                    lambda: "iteration 3/" in "".join(each.read_text() for each in home.glob("train-*.out")),
                    "its steps",
                )
        elif shown:
            wanted = [re.sub(r"^job (\d+)", lambda found: f"job {ids[found[1]]}", line) for line in shown]
            assert [line for line in wanted if line not in done.stdout.splitlines()] == [], (command, done)
        ran += 1
    assert ran == 17
    assert "<svg" in (home / "train.html").read_text()
    assert not (home / ".slurm_plugin" / ids["1"]).exists()
