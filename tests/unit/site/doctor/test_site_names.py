"""The partitions and nodes in the site file, compared with Slurm's."""

from pathlib import Path

from slurm_plugin.site.doctor import site_names
from slurm_plugin.site.doctor.site_names import Known, Unknown
from slurm_plugin.site.slurmconf import settings
from slurm_plugin.slurm import Node
from tests.unit.site.sitefiles import site

CONF = """
NodeName=DEFAULT CPUs=8
NodeName=n[1-2] RealMemory=4000
PartitionName=DEFAULT State=UP
PartitionName=new Nodes=n1
"""
NODES = {"n1": Node("n1", frozenset({"IDLE"}), "", "", None, ("gpu", "long"))}
NAMES = Known(frozenset({"gpu", "long", "new"}), frozenset({"n1", "n2"}))


def test_names_are_those_of_slurmctld_and_of_slurm_conf() -> None:
    """A new partition in slurm.conf counts, even if slurmctld has not read it yet."""
    assert site_names.known(NODES, settings(CONF)) == NAMES
    assert site_names.known({}, settings(CONF)) == Known(frozenset({"new"}), frozenset({"n1", "n2"}))


def test_a_misspelt_partition_is_named_with_its_place(tmp_path: Path) -> None:
    """Every setting that can name a partition is checked."""
    text = """
infiniband_partitions: [ib]
policy: {checks: [gppu], defaults: {partition: lang}, rules: [{name: a, when: {partition: [x]}, limit: {nodes: 1}}]}
prechecks:
  gpu-check: {partitions: [gpu, gppu], except_partitions: [news]}
"""
    assert [each.text for each in site_names.unknown(site(tmp_path, text), NAMES)] == [
        "infiniband_partitions names ib: Slurm has no such partition",
        "policy.checks names gppu: Slurm has no such partition; did you mean gpu?",
        "policy.defaults.partition names lang: Slurm has no such partition; did you mean long?",
        "policy.rules, a: when.partition names x: Slurm has no such partition",
        "prechecks.gpu-check.partitions names gppu: Slurm has no such partition; did you mean gpu?",
        "prechecks.gpu-check.except_partitions names news: Slurm has no such partition; did you mean new?",
    ]


def test_nodes(tmp_path: Path) -> None:
    """An unknown node in a list with known ones is harmless."""
    text = "prechecks: {dns: {nodes: 'n[1-3]'}, clock: {except_nodes: 'm[1-9]'}}"
    assert site_names.unknown(site(tmp_path, text), NAMES) == (
        Unknown("prechecks.dns.nodes names n3: Slurm has no such node", harmless=True),
        Unknown("prechecks.clock.except_nodes names m1, m2, m3, m4, m5, m6 and 3 more: Slurm has no such node"),
    )


def test_what_is_not_known_is_not_judged(tmp_path: Path) -> None:
    """Without names from Slurm, nothing is wrong."""
    nothing = Known(frozenset(), frozenset())
    wrong = site(tmp_path, "prechecks: {gpu-check: {partitions: [gppu], nodes: n9}}")
    assert site_names.unknown(wrong, nothing) == ()
    assert site_names.judge((), nothing).verdict == "cannot tell"
    assert site_names.judge((), NAMES).verdict == "ok"
    found = site_names.judge(site_names.unknown(wrong, NAMES), NAMES)
    assert found.verdict == "wrong"
    assert "gppu" in found.message
    assert "n9" in found.message
