"""Logs of programs that failed, or did not, on a real GPU: tests/captured/gpu/capture.py wrote them."""

from typing import Any

import pytest

from slurm_plugin.logs import library
from slurm_plugin.logs.diagnosis import of_files
from tests.captured.gpu import capture

FAILURES = {each["name"]: each for each in capture.entries()}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_on_a_gpu(name: str) -> None:
    """The class, whose it is, and of two ranks the one with the fault. None is a reason to exclude a node."""
    wanted: dict[str, Any] = FAILURES[name]
    cause = of_files([capture.HERE / f"{name}.log"], library.load()).cause
    assert (cause.failure, cause.whose) == (wanted["class"], wanted["whose"])
    assert cause.verdict != "exclude"
    if "fault" in wanted:
        assert cause.ranks == (wanted.get("culprit", 1),)
