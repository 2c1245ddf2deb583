"""The packages that .ci/consumers fetched. Without it these tests are not collected: ./test needs no such package."""

import os
from collections.abc import Iterator

import pytest

from tests.browser import Browser
from tests.fetched import VARIABLE, Consumers, required

collect_ignore_glob = [] if VARIABLE in os.environ else ["test_*.py"]


@pytest.fixture(scope="session")
def consumers() -> Consumers:
    """Return what .ci/consumers fetched."""
    return required()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Return a browser."""
    with Browser(tmp_path_factory.mktemp("profile")) as found:
        yield found
