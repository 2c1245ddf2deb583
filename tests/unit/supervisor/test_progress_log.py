"""The progress of a program: the growth of its log."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.supervisor.progress import written


@pytest.fixture
def streams() -> Iterator[None]:
    """Our stdout and stderr, which are back afterwards."""
    kept = [os.dup(fd) for fd in (1, 2)]
    yield
    for fd, old in zip((1, 2), kept, strict=True):
        os.dup2(old, fd)
        os.close(old)


@pytest.mark.usefixtures("streams")
def test_written(tmp_path: Path) -> None:
    """How long the files are, whoever writes them; pipes and terminals have no length."""
    with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        assert written() == (0, 0)
        with (tmp_path / "out").open("a") as other:
            other.write("12345")
        assert written() == (5, 0)
    read, write = os.pipe()
    os.dup2(write, 2)
    assert written() == (5,)
    os.dup2(write, 1)
    assert written() == ()
    os.close(read)
    os.close(write)
