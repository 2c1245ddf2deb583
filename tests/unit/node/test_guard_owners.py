"""The guards with this machine's Python: files that others can change, and a broken deployment."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slurm_plugin.site.configuration import SiteConfig
from slurm_plugin.site.files import render_site
from tests.unit.node.running import USER, run

GIVEN = {"SLURM_JOB_ID": "7", "SLURM_JOB_COMMENT": "[sp1;retries=3]"}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a site with this machine's Python, in `deep/site`."""
    directory = tmp_path_factory.mktemp("real")
    root = directory / "deep/site"
    render_site(SiteConfig(run_directory=str(directory / "run")), root, root=str(root))
    (directory / "run/jobs/7.0.0").mkdir(parents=True)
    return directory


def test_the_real_interpreter_fails(real: Path) -> None:
    """A broken deployment is logged with its traceback, and exits 0."""
    compiled = real / "deep/site/compiled.json"
    text = compiled.read_text()
    compiled.write_text('{"v": 2}')
    result = run(real / "deep/site/hooks/prolog", GIVEN, real)
    compiled.write_text(text)
    assert result.returncode == 0
    assert "compiled.json: not a version 1 file; run: slurm-plugin site install --apply" in result.stderr
    assert result.stderr.splitlines()[-1].endswith("prolog hook itself failed (exit 1) on job 7; nothing was drained")


PLACES = ("deep/site/slurm_plugin.pyz", "deep/site/compiled.json", "deep/site", "deep")


@contextmanager
def exposed(path: Path, *, by_mode: bool) -> Iterator[None]:
    """Make this file or directory writable for others."""
    mode = path.stat().st_mode
    if by_mode:
        path.chmod(mode | 0o020)
    else:
        os.chown(path, USER, USER)
    yield
    os.chown(path, 0, 0)
    path.chmod(mode)


def test_files_that_others_can_change(real: Path) -> None:
    """No code runs from there; the log has the path and the remedy."""
    every = [("prolog", place, by_mode) for place in PLACES for by_mode in (True, False)]
    for hook, place, by_mode in [*every, ("epilog", PLACES[0], True), ("epilog_slurmctld", PLACES[0], True)]:
        path = real / place
        with exposed(path, by_mode=by_mode):
            result = run(real / "deep/site/hooks" / hook, GIVEN, real)
        assert result.returncode == 0
        said, last = result.stderr.splitlines()[-2:]
        mend = f"chown root:root {path} && chmod go-w {path}"
        assert said == f"PermissionError: others than root can change {path}; run: {mend}"
        assert last == f"slurm_plugin: the {hook} hook itself failed (exit 1) on job 7; nothing was drained"
        assert [*(real / "run/jobs/7.0.0").iterdir()] == []


def test_a_link_that_others_can_change(tmp_path: Path) -> None:
    """The directories above the link count as well as those above its target."""
    root = tmp_path / "open/link"
    render_site(SiteConfig(), tmp_path / "site", root=str(root))
    root.parent.mkdir()
    root.symlink_to(tmp_path / "site")
    root.parent.chmod(0o777)
    assert f"can change {tmp_path}/open;" in run(root / "hooks/prolog", GIVEN, tmp_path).stderr
    root.parent.chmod(0o755)
    assert "can change" not in run(root / "hooks/prolog", GIVEN, tmp_path).stderr


def test_verbs_of_users_look_at_no_owner(real: Path) -> None:
    """They run with their caller's rights, so owners are not checked."""
    argv = [real / "deep/site/bin/slurm-plugin", "hosts", "openmpi", "--nodelist=n[1-2]", "--slots=1"]
    with exposed(real / "deep/site/slurm_plugin.pyz", by_mode=True):
        assert subprocess.run(argv, capture_output=True, check=True).stdout == b"n1 slots=1\nn2 slots=1\n"
