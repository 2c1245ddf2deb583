"""Fixtures of the tests of experiments."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Compute small matrices on one thread: threads that wait for one another cost more CPU than the work."""
    import sklearn.gaussian_process  # noqa: F401 - a library is limited after it is loaded
    import threadpoolctl as threads
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with threads.threadpool_limits(1):
        yield
    torch.set_num_threads(before)
