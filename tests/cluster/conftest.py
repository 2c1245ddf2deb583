"""A real Slurm for the tests: one sandbox for the whole session, restored before each test."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slurm_plugin.sandbox import Sandbox, pool
from slurm_plugin.sandbox.machine import Bind
from slurm_plugin.sandbox.pool import cancel, heal, new_directory, restore
from tests.cluster import alone
from tests.cluster.etc import Etc
from tests.fetched import fetched
from tests.waiting import until

NODES, GPUS = 5, 4


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """Yield a sandbox of five nodes with four GPUs each."""
    with running(new_directory()) as box:
        yield box


@pytest.fixture(scope="session")
def accounting_sandbox() -> Iterator[Sandbox]:
    """Yield a sandbox as `sandbox`, with slurmdbd."""
    with running(new_directory(), accounting=True) as box:
        yield box


@contextmanager
def running(directory: Path, *, accounting: bool = False, hooks: bool = True) -> Iterator[Sandbox]:
    """Start a sandbox, and remove it at the end."""
    root = os.environ.get("SLURM_PLUGIN_TEST_ROOT")  # another release's Slurm, as `sandbox up --root` takes it
    consumers = fetched()
    binds = [Bind(str(path), str(path)) for path in consumers.environments] if consumers else []
    # Without root or Slurm the tests fail. Skipped tests would prove nothing.
    with pool.running(
        directory, NODES, GPUS, Path(root) if root else None, binds, accounting=accounting, hooks=hooks
    ) as box:
        yield box


@pytest.fixture
def cluster(sandbox: Sandbox) -> Sandbox:
    """Return the session's sandbox without jobs and faults, with every node idle."""
    restore(sandbox)
    return sandbox


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Yield a sandbox of five nodes without anything of slurm_plugin but the wheel in alice's home."""
    with running(new_directory(), hooks=False) as box:
        (box.directory / "etc/slurm/slurm_plugin.yaml").unlink()
        alone.install(box, tmp_path_factory.mktemp("wheel"))
        yield box


@pytest.fixture
def alice(plain: Sandbox) -> Sandbox:
    """Return that sandbox without jobs and faults, with every node idle."""
    restore(plain)
    return plain


@pytest.fixture
def accounting(accounting_sandbox: Sandbox) -> Sandbox:
    """Return the session's sandbox with slurmdbd, without jobs and faults, with every node idle."""
    restore(accounting_sandbox)
    return accounting_sandbox


@pytest.fixture
def etc(cluster: Sandbox, tmp_path: Path) -> Iterator[Etc]:
    """Yield the sandbox's /etc/slurm. After the test, restore it when every node answers and all jobs have ended."""
    yield from _etc(cluster, tmp_path)


@pytest.fixture
def plain_etc(alice: Sandbox, tmp_path: Path) -> Iterator[Etc]:
    """Yield the /etc/slurm of alice's sandbox, and restore it in the same way."""
    yield from _etc(alice, tmp_path)


def _etc(box: Sandbox, tmp_path: Path) -> Iterator[Etc]:
    files = Etc(box, tmp_path / "etc")
    yield files
    heal(box)  # so that jobs end
    until(lambda: not cancel(box))
    files.put_back()
