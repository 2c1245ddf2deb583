"""The simulation of a site: where its time goes, and what the same week is with and without slurm_plugin."""

import math
from dataclasses import replace

import pytest

from benchmarks.site_week_model import OURS, SHARES, WAYS, Site
from benchmarks.site_week_simulation import simulated

BROKEN = Site(nodes=80, faults=100.0)
WITHOUT_SPARES = WAYS[:3]


@pytest.mark.parametrize("way", WAYS)
def test_every_second_of_every_node_has_one_share(way: str) -> None:
    """The shares of a week add up to all time of all nodes, however many faults there are."""
    week = simulated(BROKEN, way, seed=3)
    assert math.isclose(sum(map(week.share, SHARES)), 1.0)
    assert set(week.spent) <= set(SHARES)
    assert min(week.spent.values()) >= 0


def test_a_week_without_faults_is_the_same_in_every_way() -> None:
    """Without a fault nothing differs, and no job is restarted."""
    weeks = [simulated(replace(BROKEN, faults=1e-9), way, seed=3) for way in WITHOUT_SPARES]
    assert weeks[0] == weeks[1] == weeks[2]
    assert weeks[0].share("goodput") > 0.5
    assert (weeks[0].restarts, weeks[0].failures, weeks[0].share("lost work")) == (0, 0, 0)


def test_who_restarts_what() -> None:
    """With sbatch alone programs fail until users come; slurm_plugin restarts them, and seldom starts one in vain."""
    weeks = {way: simulated(BROKEN, way, seed=3) for way in WAYS}
    assert weeks["sbatch"].failures > 10
    for way in OURS:
        assert weeks[way].failures == 0
        assert 10 < weeks[way].restarts < weeks["requeue"].restarts
    assert weeks["spares"].share("spares") > weeks["slurm_plugin"].share("spares") == 0


def test_a_seed_repeats_a_week() -> None:
    """The same seed gives the same week, another seed another one."""
    assert simulated(BROKEN, "slurm_plugin", seed=4) == simulated(BROKEN, "slurm_plugin", seed=4)
    assert simulated(BROKEN, "slurm_plugin", seed=4) != simulated(BROKEN, "slurm_plugin", seed=5)
