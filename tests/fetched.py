"""What .ci/consumers fetched: the packages that read our files, and environments that have DeepSpeed and TensorFlow."""

import os
from pathlib import Path
from typing import NamedTuple

VARIABLE = "SLURM_PLUGIN_CONSUMERS"
REASON = f".ci/consumers runs this: it needs DeepSpeed and TensorFlow, which {VARIABLE} names"


class Consumers(NamedTuple):
    """Unpacked source packages, and interpreters that have the package of their name."""

    horovod: Path
    deepspeed: Path
    tensorflow_python: Path
    deepspeed_python: Path

    @property
    def environments(self) -> tuple[Path, ...]:
        """The virtual environments; their programs work at these paths alone."""
        return tuple(python.parent.parent for python in (self.tensorflow_python, self.deepspeed_python))


def fetched() -> Consumers | None:
    """What .ci/consumers names; None under plain ./test, which needs no other package."""
    if VARIABLE not in os.environ:
        return None
    found = Consumers(*map(Path, os.environ[VARIABLE].split(":")))
    assert all(path.exists() for path in found), found
    return found
