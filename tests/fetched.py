"""What .ci/consumers fetched: readers of our files, DeepSpeed, TensorFlow, and programs that submit to Slurm."""

import os
from pathlib import Path
from typing import NamedTuple

VARIABLE = "SLURM_PLUGIN_CONSUMERS"
REASON = f".ci/consumers runs this: it needs what {VARIABLE} names"


class Consumers(NamedTuple):
    """Unpacked source packages, Python interpreters that have the package of their name, and other programs."""

    horovod: Path
    deepspeed: Path
    tensorflow_python: Path
    deepspeed_python: Path
    clients_python: Path  # has programs that submit to Slurm by themselves
    jupyter_python: Path  # has JupyterLab and TensorBoard
    sshd: Path  # a program; the packages that it is from are not installed
    prometheus: Path  # a directory with prometheus, promtool and prometheus-node-exporter
    psij: Path  # an unpacked source package

    @property
    def environments(self) -> tuple[Path, ...]:
        """The virtual environments. Their programs work only at these paths."""
        pythons = (self.tensorflow_python, self.deepspeed_python, self.clients_python, self.jupyter_python)
        return *(python.parent.parent for python in pythons), self.sshd.parents[2]


def fetched() -> Consumers | None:
    """Return what .ci/consumers fetched; None if the tests do not run in it."""
    if VARIABLE not in os.environ:
        return None
    found = Consumers(*map(Path, os.environ[VARIABLE].split(":")))
    assert all(path.exists() for path in found), found
    return found


def required() -> Consumers:
    """Return what .ci/consumers fetched, for tests that run only in it."""
    found = fetched()
    assert found
    return found
