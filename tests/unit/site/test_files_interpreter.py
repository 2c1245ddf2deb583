"""The hooks' interpreter: only root can change it, and it is new enough."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_plugin.errors import MissingError, UsageError
from slurm_plugin.site.configuration import SiteConfig
from slurm_plugin.site.files import render_site, trusted_interpreter
from tests.refusals import refusal_of


def fake(path: Path, mode: int = 0o755) -> Path:
    """Write an executable file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def test_trusted(tmp_path: Path) -> None:
    """Root's own file in root's own directories is trusted; /tmp's sticky bit keeps others from replacing it."""
    trusted_interpreter(fake(tmp_path / "python"))
    trusted_interpreter(Path("/usr/bin/python3"))


def saying(path: Path, text: str) -> Path:
    """Write an interpreter of root's that always prints this."""
    fake(path).write_text(f"#!/bin/sh\n{text}\n")
    return path


def test_an_interpreter_that_is_too_old(tmp_path: Path) -> None:
    """An old interpreter is refused before anything is written, and the error says what to install."""
    for text, words in [
        ("echo 3 9", "python is Python 3.9; 3.11 or later is needed"),
        ("echo 2 7", "python is Python 2.7; 3.11 or later is needed"),
        ("exit 1", "python -I -S does not run"),
        ("echo Lua 5.4", "python -I -S does not run"),
    ]:
        site = SiteConfig(python=str(saying(tmp_path / "python", text)))
        said = refusal_of(UsageError, render_site, site, tmp_path / "site")
        assert words in said, text
        assert "dnf install python3.11" in said, text
        assert "Ubuntu 22.04: apt-get install python3.11" in said, text
        assert not (tmp_path / "site").exists(), text
    render_site(SiteConfig(python=str(saying(tmp_path / "python", "echo 3 11"))), tmp_path / "site")


def test_a_node_whose_interpreter_is_too_old(tmp_path: Path) -> None:
    """On a node with an old interpreter, a batch script prints an error."""
    render_site(SiteConfig(), tmp_path / "site")
    text = (tmp_path / "site/bin/slurm-plugin").read_text().replace("(3, 11)", "(99, 0)")
    done = subprocess.run([sys.executable, "-IS", "-c", text], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "too old for batch scripts here; tell the site's administrators" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_missing_interpreter(tmp_path: Path) -> None:
    """The error says which setting names it."""
    with pytest.raises(MissingError, match=r"/none is not there \(No such file or directory\)\n  set `python:`"):
        trusted_interpreter(tmp_path / "none")


def test_writable_interpreter(tmp_path: Path) -> None:
    """A file that others may write is refused."""
    for mode in [0o775, 0o757, 0o777]:
        assert re.search(
            f"{tmp_path}/python can be written by others than root",
            refusal_of(UsageError, trusted_interpreter, fake(tmp_path / "python", mode)),
        ), mode


def test_writable_directory(tmp_path: Path) -> None:
    """So is one that others may replace, whichever directory above lets them."""
    python = fake(tmp_path / "open" / "closed" / "python")
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(UsageError, match=f"{tmp_path}/open can be written"):
        trusted_interpreter(python)


def test_someone_elses(tmp_path: Path) -> None:
    """So is a user's own."""
    os.chown(fake(tmp_path / "python"), 20001, 20001)
    with pytest.raises(UsageError, match="/python can be written"):
        trusted_interpreter(tmp_path / "python")


def test_link_into_an_open_directory(tmp_path: Path) -> None:
    """A link of root's counts as what it leads to."""
    target = fake(tmp_path / "open" / "python")
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "python").symlink_to(target)
    with pytest.raises(UsageError, match=f"{tmp_path}/open can be written"):
        trusted_interpreter(tmp_path / "python")
