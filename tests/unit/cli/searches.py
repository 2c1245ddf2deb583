"""A search for the tests of `slurm-plugin experiment`, and a Slurm that runs it."""

from collections.abc import Sequence

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.slurm import Submitted
from tests import fakes

SPEC = """name: lr
mode: single
command: ./train --lr {lr}
search:
  algorithm: random
  metric: {name: loss, regex: 'loss=(.*)'}
  space: {lr: {type: log, minval: -4, maxval: -1}}
  trials: 12
  concurrent: 2
"""


class Door(fakes.FakeSlurm):
    """A Slurm that submits array 17, whose tasks wait."""

    def submit(self, script: str, *, arguments: Sequence[str] = (), directory: str | None = None) -> Submitted:
        self._change("submit", script, tuple(arguments), directory)
        self.known_jobs[17] = fakes.job(17)
        self.names = {f"17_{number}": 17 for number in range(12)}
        return Submitted(17)


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Run `slurm-plugin experiment WORDS`, and return its exit code, stdout and stderr."""
    code = main(["experiment", *words])
    return code, *capsys.readouterr()
