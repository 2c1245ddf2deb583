"""Settings of all unit tests: Hypothesis' profile, and deadlines that also fit a busy machine."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from slurm_plugin.site import archive, lua
from slurm_plugin.site.doctor import measure
from tests.waiting import HANG_S


@pytest.fixture(autouse=True)
def _unmounted(request: pytest.FixtureRequest) -> Iterator[None]:
    """Unmount everything below the test's directory: pytest could not remove a mount point."""
    yield
    if directory := request.node.funcargs.get("tmp_path"):
        for line in reversed(Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()):
            if (where := line.split()[4]).startswith(f"{directory}/"):
                subprocess.run(["umount", "--lazy", where], check=True)


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Return a function that sets the time zone of this process, as TZ has it."""

    def in_zone(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield in_zone
    monkeypatch.undo()
    time.tzset()


# Times are shown in the zone of the machine. All tests but those of zones expect UTC.
os.environ["TZ"] = "UTC0"
time.tzset()

# On a busy machine, examples miss Hypothesis' deadline (200 ms) and its limit for their generation.
settings.register_profile("unit", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=50)
settings.load_profile("unit")

# After this deadline the product treats a Python, munge or Lua as missing, and its messages would differ.
for module in (archive, measure, lua):
    module.DEADLINE_S = HANG_S  # type: ignore[attr-defined]
