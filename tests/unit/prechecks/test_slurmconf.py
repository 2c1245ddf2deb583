"""A node's memory in slurm.conf: its forms, and lists of nodes."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostfiles.nodelist import expand
from prechecks.measure import slurmconf
from prechecks.measure.slurmconf import Node
from tests.unit.hostfiles.names import LISTS

PATH = "/etc/slurm/slurm.conf"


def said(text: str, name: str = "n2", **others: str) -> Node | None:
    """Return the result for a slurm.conf with this text, and files beside it."""
    files: Mapping[str, str] = {
        PATH: text,
        **{f"/etc/slurm/{other}.conf": content for other, content in others.items()},
    }
    return slurmconf.node(PATH, name, files.__getitem__)


@given(LISTS.filter(lambda text: len(expand(text)) < 2000), st.sampled_from(["n2", "n02", "c", "c00", "r0n1-x"]))
def test_a_list_names_what_it_expands_to(names: str, other: str) -> None:
    """All names and no others, without expanding the list."""
    whole = expand(names)
    assert all(slurmconf.in_node_list(name, names) for name in whole)
    assert slurmconf.in_node_list(other, names) == (other in whole)
    for name in whole[:3]:
        for near in (f"{name}0", f"0{name}", name[:-1] or "x", name.upper()):
            assert slurmconf.in_node_list(near, names) == (near in whole)


@pytest.mark.parametrize("names", ["n[1-2", "n[a-b]", "n[1-]", "n[]"])
def test_no_list(names: str) -> None:
    """An exception, which makes the item `skipped`, not a missing node."""
    with pytest.raises(ValueError, match="is no"):
        slurmconf.in_node_list("n1", names)


@pytest.mark.parametrize(
    ("text", "megabytes"),
    [
        ("NodeName=n[1-4] CPUs=8 RealMemory=64000 State=UNKNOWN\n", 64000),
        ("nodename=n[1-4] realmemory=64000\n", 64000),
        ("NodeName=N2 RealMemory=1\nNodeName=n2 RealMemory=2\n", 2),
        ("NodeName=n1 RealMemory=1\nNodeName=n[02-03],n2,x[1-9] RealMemory=5\n", 5),
        ("NodeName=DEFAULT RealMemory=7 CPUs=2\nNodeName=n2\n", 7),
        ("NodeName=DEFAULT RealMemory=7\nNodeName=n2 RealMemory=9\n", 9),
        ("NodeName=DEFAULT RealMemory=7\nNodeName=DEFAULT CPUs=4\nNodeName=n2\n", 7),
        ("NodeName=n2\nNodeName=DEFAULT RealMemory=7\n", None),
        ("NodeName=DEFAULT RealMemory=7\nNodeName=n1\nNodeName=DEFAULT RealMemory=8\nNodeName=n2\n", 8),
        ("NodeName=n[1-2] CPUs=2 \\\n   RealMemory=11 # as bought\n", 11),
        ("#NodeName=n2 RealMemory=1\nNodeName=n2 RealMemory=3 #RealMemory=4\n", 3),
        ("NodeName=n2 Feature=a\\#b RealMemory=6\n", 6),
        ('NodeName=n2 Gres=gpu:2 RealMemory=12 Reason="x"\n', 12),
        ("PartitionName=a Nodes=n2\nNodeSet=x Feature=y\nNodeName=n2 RealMemory=13", 13),
    ],
)
def test_real_memory(text: str, megabytes: int | None) -> None:
    """From the line that names the node, and the defaults above it."""
    assert said(text) == Node(megabytes)


def test_a_node_that_is_not_there() -> None:
    """Such as a dynamic node."""
    assert said("NodeName=n[3-9] RealMemory=1\n") is None
    assert said("") is None


def test_files_in_quotes(tmp_path: Path) -> None:
    """Slurm accepts any value in quotes."""
    path = tmp_path / "gres.conf"
    path.write_text('NodeName="n[1-2]" Name=gpu File="/dev/dri/renderD[128-129]"\nName=gpu NodeName=n3 File=/dev/x0\n')
    assert slurmconf.gpu_files("n2", str(path)) == ["/dev/dri/renderD128", "/dev/dri/renderD129"]


def test_included_files() -> None:
    """Relative or absolute, with the cluster's name, in their place."""
    text = "ClusterName=Big\nNodeName=DEFAULT RealMemory=1\nInclude nodes.conf\nNodeName=n2\n"
    assert said(text, nodes="NodeName=DEFAULT RealMemory=2\n") == Node(2)
    text = "ClusterName=Big\ninclude  /etc/slurm/%c.conf\n"
    assert said(text, big="NodeName=n2 RealMemory=3\n") == Node(3)
    with pytest.raises(ValueError, match="include each other"):
        said("include slurm.conf\n")


@pytest.mark.parametrize(
    ("text", "percent", "overrides"),
    [
        ("SlurmctldParameters=idle_on_node_suspend,node_reg_mem_percent=95\n", 95.0, False),
        ("NodeName=DEFAULT State=CLOUD\n", 90.0, False),
        ("SlurmctldParameters=node_reg_mem_percent=100\nNodeName=DEFAULT State=CLOUD\n", 100.0, False),
        ("SlurmdParameters=config_overrides\n", 100.0, True),
    ],
)
def test_how_much_may_be_missing(text: str, percent: float, overrides: bool) -> None:
    """As slurmctld at registration. The line may be below the nodes."""
    line = "NodeName=n2 RealMemory=10\n"
    assert said(text + line) == Node(10, percent, overrides=overrides)
    if not text.startswith("NodeName"):
        assert said(line + text) == Node(10, percent, overrides=overrides)
