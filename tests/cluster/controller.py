"""The slurmctld of a sandbox: find, stop and start it. And the spool of our worker beside it."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from slurm_plugin.sandbox import Sandbox, machine
from tests.waiting import until


def pid(box: Sandbox) -> int:
    """Return slurmctld's pid. After a reconfigure of a later release, wait until the old slurmctld has ended."""
    ctl = machine.find(box.directory)["ctl"]
    until(lambda: len(machine.children(ctl, "slurmctld")) == 1)
    return machine.children(ctl, "slurmctld")[0]


def spool(box: Sandbox) -> list[str]:
    """Return the spool entries that the worker has not handled yet."""
    return sorted(path.name for path in (box.directory / "spool").rglob("[0-9]*.json"))


@contextmanager
def away(box: Sandbox) -> Iterator[None]:
    """Stop slurmctld, which saves its state. Start it at the end, and wait until it answers."""
    ctl = machine.find(box.directory)["ctl"]
    os.kill(pid(box), signal.SIGTERM)
    until(lambda: not machine.children(ctl, "slurmctld"))
    try:
        yield
    finally:
        box.run(["slurmctld"], user="slurm")
        until(lambda: " is UP" in box.run(["scontrol", "ping"], check=False).stdout)


@contextmanager
def stopped(box: Sandbox) -> Iterator[None]:
    """Pause slurmctld, so that it does not answer."""
    number = pid(box)
    os.kill(number, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(number, signal.SIGCONT)
