"""slurmctld of a sandbox: found, taken away, given back."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from slurm_plugin.sandbox import Sandbox, machine
from tests.cluster.command import until


def pid(box: Sandbox) -> int:
    """slurmctld's pid, once it is the only one: a reconfigure starts it anew on later releases."""
    ctl = machine.find(box.directory)["ctl"]
    until(lambda: len(machine.children(ctl, "slurmctld")) == 1)
    return machine.children(ctl, "slurmctld")[0]


@contextmanager
def away(box: Sandbox) -> Iterator[None]:
    """A Slurm without slurmctld, which saves its state first; at the end it is back and answers."""
    ctl = machine.find(box.directory)["ctl"]
    os.kill(pid(box), signal.SIGTERM)
    until(lambda: not machine.children(ctl, "slurmctld"))
    try:
        yield
    finally:
        box.run(["slurmctld"], user="slurm")
        until(lambda: " is UP" in box.run(["scontrol", "ping"], check=False).stdout, 60)


@contextmanager
def stopped(box: Sandbox) -> Iterator[None]:
    """A slurmctld that does not answer."""
    number = pid(box)
    os.kill(number, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(number, signal.SIGCONT)
