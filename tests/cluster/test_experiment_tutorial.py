"""The tutorial of a search: its files and commands, as they stand on the page, with the output that the page shows."""

import re

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster import pages

pytestmark = pytest.mark.cluster

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
VARIES = re.compile(r"\d+(?: KB| s\b|$)", re.MULTILINE)  # a size, a time, an id


@pytest.mark.full  # over 5 s
def test_the_page(cluster: Sandbox) -> None:
    """Every command ends with 0 and prints the lines of the page."""
    names, blocks = pages.read("first-search.md", cluster.home("alice"))
    assert names == ["train.py", "line.yaml"]
    commands = 0
    for block in blocks:
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            words = ["bash", "-o", "pipefail", "-c", command]
            if "--watch" in command:  # which watches on a terminal only
                words = ["script", "--quiet", "--return", "--command", command, "/dev/null"]
            printed = VARIES.sub("N", ESCAPE.sub("", cluster.run(words).stdout))
            lacking = [line for line in VARIES.sub("N", shown).splitlines() if line not in printed.splitlines()]
            assert lacking == [], f"{command}:\n{printed}"
            commands += 1
    assert commands == 9
