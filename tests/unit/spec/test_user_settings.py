"""A user's own settings, below the site's."""

import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from slurm_plugin.cli.nodeside import spec_file
from slurm_plugin.errors import UsageError
from slurm_plugin.site import compilation, configuration, doctor
from slurm_plugin.spec import submit_config
from tests.refusals import refusal_of

SITE = """
presets: {big: {nodes: 8}}
container: {runtime: pyxis}
prechecks:
  mandatory: [dns]
  disk-size: {root: 10GB}
"""
OWN = """
presets: {big: {nodes: 2, time: "1h"}, small: {nodes: 1}}
container: {runtime: apptainer}
stage_in: {directory: /tmp}
prechecks:
  mandatory: [clock]
  disk-size: {root: 1GB, shm: 2GB}
  dns: no
  gpu-check: {count: 1}
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the user's file. This process is not root, and has no site file."""
    monkeypatch.setattr(submit_config.os, "geteuid", lambda: tmp_path.stat().st_uid or 1000)
    os.chown(tmp_path, submit_config.os.geteuid(), -1)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(submit_config, "DEFAULT_PATH", tmp_path / "site.yaml")
    return tmp_path / submit_config.OWN_NAME


def write(path: Path, text: str) -> None:
    """Write a file that belongs to the user."""
    path.write_text(text)
    os.chown(path, path.parent.stat().st_uid, -1)


def test_below_the_sites(own: Path) -> None:
    """What the site sets, wins; a preset as a whole. Mandatory checks of both are made."""
    write(own, OWN)
    (own.parent / "site.yaml").write_text(SITE)
    settings = submit_config.load()
    assert settings.presets == {"big": {"nodes": "8"}, "small": {"nodes": "1"}}
    assert (settings.container.runtime, settings.stage_in.directory) == ("pyxis", "/tmp")
    checks = compilation.compile_site(configuration.load_for_user())["prechecks"]
    assert checks["mandatory"] == ["dns", "clock"]
    sites = compilation.compile_site(configuration.load())["prechecks"]
    assert (checks["disk-size"], checks["dns"]) == (sites["disk-size"], sites["dns"])  # the site names them
    assert checks["gpu-check"]["count"] == 1
    assert configuration.load().prechecks.mandatory == ("dns",)


def test_without_a_site_file(own: Path) -> None:
    """The user's own, else the defaults."""
    assert submit_config.load() == submit_config.SubmitConfig()
    assert configuration.load_for_user() == configuration.SiteConfig()
    write(own, OWN)
    assert submit_config.load().presets["big"] == {"nodes": "2", "time": "1h"}
    assert configuration.load_for_user().container.runtime == "apptainer"


def test_jobs_of_an_installation_have_its_directory(own: Path) -> None:
    """They read the site's settings, so the user's directory for copies would be missing in the job."""
    write(own, OWN)
    (own.parent / "site.yaml").write_text("command: /bin/sh\n")
    assert submit_config.load().stage_in.directory is None


def test_root_reads_no_users_file(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the environment says, and however the file is."""
    write(own, OWN)
    monkeypatch.setattr(submit_config.os, "geteuid", lambda: 0)
    assert submit_config.own_path() is None
    assert submit_config.load() == submit_config.SubmitConfig()
    assert configuration.load_for_user() == configuration.SiteConfig()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("policy: {retries: 3}\n", "policy: not a key of a user; accepted: container, presets, stage_in, logs,"),
        ("prestes: {}\n", "did you mean presets"),
        ("container: {runtime: docker}\n", "line 1: container.runtime: found 'docker'"),
        ("a: [\n", "line"),
    ],
)
def test_refused(own: Path, text: str, said: str) -> None:
    """In the user's words: his file, its line, and what is accepted."""
    write(own, text)
    caught = refusal_of(UsageError, submit_config.load)
    assert str(own) in caught
    assert said in caught


def test_the_jobs_part_is_judged_too(own: Path) -> None:
    """`doctor` says so, and a submission."""
    assert doctor.own_settings().verdict == "ok"
    write(own, "prechecks: {disk-size: {root: much}}\n")
    submit_config.load()
    with pytest.raises(UsageError, match=r"prechecks\.disk-size\.root: found 'much'"):
        configuration.load_for_user()
    assert doctor.own_settings().verdict == "wrong"


@pytest.mark.parametrize(
    ("command", "refused"), [("/nonexistent/bin/slurm-plugin", True), ("/bin/sh", False)], ids=["none", "installed"]
)
def test_whoever_reads_a_spec_judges_the_file(own: Path, command: str, refused: bool) -> None:
    """Where jobs read it: on an installation they read the site's."""
    write(own, "prechecks: {disk-size: {root: much}}\n")
    site = submit_config.SubmitConfig(command=command)
    with pytest.raises(UsageError) if refused else nullcontext():
        spec_file.load_specs(b"name: a\nmode: single\ncommand: ./a\n", "a.yaml", site, lambda _: None)


def test_no_file_of_the_users(own: Path) -> None:
    """A pipe would block, and another user's file says nothing about this one."""
    own.write_text(OWN)
    with pytest.raises(UsageError, match="found no file of yours"):
        submit_config.read_own()
    own.unlink()
    os.mkfifo(own)
    with pytest.raises(UsageError, match="found no file of yours"):
        submit_config.read_own()
