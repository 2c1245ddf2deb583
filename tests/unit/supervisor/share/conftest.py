"""A shared job."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.supervisor.share.serve import Desk
from tests.unit.supervisor.share.shared import BOB, DAN, RUN, TEAM, Directory


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Directory]:
    """Yield the directory of a job that is shared read-write."""
    found = Directory(tmp_path)
    yield found
    found.close()


@pytest.fixture
def members() -> set[int]:
    """Return the members of the group now."""
    return {BOB, DAN}


@pytest.fixture
def desk(shared: Directory, members: set[int]) -> Iterator[Desk]:
    """Yield a desk for run 0 of job 7. Afterwards no request may be left."""
    yield Desk(shared.fd, RUN, dict, lambda uid, gid: gid == TEAM and uid in members)
    assert shared.left == []
