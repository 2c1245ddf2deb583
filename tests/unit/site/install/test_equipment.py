"""Device counts of nodes, as lines of the site file."""

import json
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.errors import UsageError
from slurm_plugin.site import compilation
from slurm_plugin.site.install.equipment import read, site_lines, without_files
from tests import fakes
from tests.refusals import refusal_of
from tests.unit.site.sitefiles import site


def said(node: str, gpus: int = 4, *interfaces: str, device: str = "/dev/fakegpu%d", missing: int = 0) -> str:
    """A node's line."""
    fields = {"node": node, "gpus": gpus, "device": device, "interfaces": interfaces, "missing": missing}
    return json.dumps(fields) + "\n"


def test_nodes_that_have_the_same_stand_together(tmp_path: Path) -> None:
    """Nodes with the same devices share a line that the site file accepts; comments name what is missing."""
    lines = [
        said("n10", 4, "eth0"), said("n2", 4, "eth0", missing=1), said("n9", 4, "eth0"), "\n",
        said("m1", 8, "bond0", "ib0", device=""), said("c1", 0), said("c2", 0, "eth0"), said("n10", 4, "eth0"),
    ]  # fmt: skip
    text = site_lines(read(lines))
    assert text == (
        "# c1: has no known GPU and no interface to watch; it is not listed\n"
        "# n2: 1 of the 4 GPUs that gres.conf names are missing now\n"
        "equipment:\n"
        "  c2: {interfaces: [eth0]}\n"
        "  m1: {gpus: 8, interfaces: [bond0, ib0]}\n"
        "  n[2,9-10]: {gpus: 4, device: /dev/fakegpu%d, interfaces: [eth0]}\n"
    )
    found = compilation.compile_site(site(tmp_path, text))["prechecks"]["equipment"]
    assert found[2] == {"nodes": "n[2,9-10]", "gpus": 4, "device": "/dev/fakegpu%d", "interfaces": ["eth0"]}
    assert found[0] == {"nodes": "c2", "gpus": 0, "device": None, "interfaces": ["eth0"]}


def test_what_no_node_says_is_refused() -> None:
    """The error names the line and the command to run."""
    cases: list[Any] = ["n1: 4 GPUs", "[1]", said("n 1"), said("n1", -1), said("n1", 4, "eth0\n"), '{"node": "n1"}']
    for line in cases:
        caught = refusal_of(UsageError, read, [said("n1"), line])
        assert caught.startswith("line 2: found "), line
        assert caught.endswith("for each node, run: slurm-plugin check --equipment"), line


def test_a_site_file_that_is_wrong(tmp_path: Path) -> None:
    """A node that occurs twice, and a key that is no node list."""
    assert "equipment.n[2-3]: found n2 a second time; accepted: each node once" in refusal_of(
        UsageError, site, tmp_path, "equipment: {'n[1-2]': {gpus: 1}, 'n[2-3]': {gpus: 2}}"
    )
    assert "equipment.n[1: found node list 'n[1'" in refusal_of(UsageError, site, tmp_path, "equipment: {'n[1': {}}")


@pytest.mark.parametrize(
    ("text", "own", "lacking"),
    [
        ("Name=gpu Count=2\n", "", "n[1-2]"),
        ("NodeName=n1 Name=gpu File=/dev/dri/renderD128\nNodeName=n2 Name=gpu Count=1\n", "", "n2"),
        ("NodeName=n1 AutoDetect=nvml\nNodeName=n2 AutoDetect=rsmi\n", "", "n2"),
        ("Name=gpu Count=2\n", "prechecks: {gpu-check: {device: /dev/kfd%d}}\n", ""),
        ("Name=gpu Count=2\n", "equipment: {n1: {gpus: 2, device: /dev/kfd%d}}\n", "n2"),
        (None, "", ""),
    ],
)
def test_nodes_whose_gpus_have_no_files(tmp_path: Path, text: str | None, own: str, lacking: str) -> None:
    """Neither gres.conf nor the site file names them. A node without GPUs needs none."""
    nodes = {name: fakes.node(name, gres=("gpu:2",)) for name in ("n1", "n2")} | {"c1": fakes.node("c1")}
    conf = tmp_path / "gres.conf"
    if text is not None:
        conf.write_text(text)
    assert without_files(nodes, site(tmp_path, own), str(conf)) == lacking
