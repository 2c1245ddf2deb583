"""What .ci/consumers fetched. Without it these tests are not collected: ./test needs no other package."""

import os

import pytest

from tests.fetched import VARIABLE, Consumers, fetched

collect_ignore_glob = [] if VARIABLE in os.environ else ["test_*.py"]


@pytest.fixture(scope="session")
def consumers() -> Consumers:
    """What .ci/consumers names."""
    found = fetched()
    assert found
    return found
