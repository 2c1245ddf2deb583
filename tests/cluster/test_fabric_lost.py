"""The fabric check with a real Slurm and Open MPI: a rank or a host is lost.

The test moves the ranks' clock: healthy ones have all the time that they need, and nobody waits for the others.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.etc import Etc
from tests.cluster.fabric import (
    PYTHON,
    STOP,
    WAIT,
    acting,
    finding,
    go,
    heard,
    left_nothing,
    ranks,
    start,
    steps,
    turn_clock,
    until_heard,
    wrapped,
)

pytestmark = pytest.mark.cluster

STOPPED = f"""#!/bin/bash
[ "$(hostname)" != n3 ] || kill -STOP $$
exec {PYTHON} "$@"
"""
# A link is measured when both of its ends have reported twice: after the first exchange, and after the last.
FIRST_LINK = ("n1 link peer=1", "n1 link peer=1", "n2 link peer=0", "n2 link peer=0")
ENDS = ("n1 done", "n4 done")
# The phase in which n3 stops -> the signs to wait for, and the share of the time at which the clock is then set.
WAY = {
    "barrier": ((0.5, ("n3 stopped",)), (0.8, FIRST_LINK), (1.0, ENDS)),
    "ring-1": ((0.8, ("n3 stopped", *FIRST_LINK)), (1.0, ENDS)),
    "ring-2": ((1.0, ("n3 stopped", *ENDS)),),
    "end": ((1.0, ("n3 stopped", "n2 done", *ENDS)),),
}


@pytest.mark.full  # over 5 s
@pytest.mark.parametrize("phase", WAY)
def test_a_rank_that_stops_on_its_way_is_named(cluster: Sandbox, phase: str) -> None:
    """SIGSTOP in the middle: the healthy ranks do not hang, n3 is reported, and no step is left."""
    job = go(start(cluster, f"stopped-{phase}", acting(cluster, f"stopped-{phase}", "n3", phase, STOP), clock=True))
    for share, signs in WAY[phase]:
        until_heard(job, *signs)
        turn_clock(job, share)
    found = finding(job)
    words = {"n1": "ok", "n2": "ok", "n3": "failed", "n4": "ok"}
    assert (found.words, found.messages["n3"]) == (words, f"its rank is stopped, in phase {phase}"), found
    left_nothing(found)


@pytest.mark.full  # over 5 s
def test_a_rank_that_never_begins_is_named(cluster: Sandbox) -> None:
    """SIGSTOP before the program begins: n3 is reported, the others wait in MPI_Init, and no step is left."""
    clocked = acting(cluster, "clocked", "n3", "none", "pass")
    python = wrapped(cluster, "stopped-early", STOPPED.replace(PYTHON, clocked))
    job = go(start(cluster, "stopped-early", python, clock=True))
    until_heard(job, "n1 hello", "n2 hello", "n4 hello")
    turn_clock(job, 1.0)
    until_heard(job, "n1 late", "n2 late", "n4 late")
    turn_clock(job, 2.0)  # past their deadline, at which they end
    found = finding(job)
    assert found.words == {"n1": "timeout", "n2": "timeout", "n3": "failed", "n4": "timeout"}, found
    assert found.messages["n1"] == "not measured, delayed by n3"
    left_nothing(found)


@pytest.fixture
def patient(cluster: Sandbox, tmp_path: Path) -> Iterator[Sandbox]:
    """Raise SlurmdTimeout, so that no node goes DOWN during a test."""
    etc = Etc(cluster, tmp_path / "etc")
    etc.settings(SlurmdTimeout="3000")
    etc.reconfigure()
    yield cluster
    cluster.heal_node("n3")
    etc.put_back()


@pytest.mark.full  # over 5 s
def test_a_host_that_is_cut_off_is_named(patient: Sandbox) -> None:
    """eth0 of n3 goes down during the ring: the other ranks do not hang, and n3 is reported."""
    job = go(start(patient, "cut-off", acting(patient, "cut", "n3", "ring-1", WAIT), clock=True))
    job.until((job.directory / "turn").exists, "n3's turn")
    patient.break_node("n3", "network-cut")
    (job.directory / "go-on").touch()
    until_heard(job, *FIRST_LINK)
    turn_clock(job, 0.8)
    until_heard(job, *ENDS)
    turn_clock(job, 1.0)
    (job.directory / "late").touch()  # mpirun may wait for n3
    found = finding(job)
    assert found.words == {"n1": "ok", "n2": "ok", "n3": "failed", "n4": "ok"}, found
    turn_clock(job, 2.0)
    patient.heal_node("n3")
    job.until(lambda: not steps(job), "the end of mpirun's steps")
    job.until(lambda: not ranks(job), "the end of the ranks")


@pytest.mark.full  # over 5 s
def test_a_launcher_that_starts_nothing(patient: Sandbox) -> None:
    """n3 is cut off first: mpirun waits for its daemon there and starts no rank. No host is reported."""
    job = start(patient, "cut-before")
    job.until((job.directory / "runs").exists, "the job's start")
    patient.break_node("n3", "network-cut")
    go(job)
    job.until(lambda: "ORTE " in heard(job), "mpirun's complaint")
    (job.directory / "late").touch()  # it may print more, and may not end
    found = finding(job)
    assert set(found.words.values()) == {"error"}, found
    # Open MPI's messages: its daemon never connected, or was lost before it had started a rank.
    never, lost = "An ORTE daemon has unexpectedly failed", "ORTE has lost communication with a remote daemon"
    assert found.messages["n1"].startswith(("no rank was started: " + never, "no rank was started: " + lost)), found
