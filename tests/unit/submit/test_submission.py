"""Mirrors slurm_plugin/submit/submission.py: what is sent to Slurm."""

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import pytest

from slurm_plugin.errors import MissingError, UsageError
from slurm_plugin.site.configuration import SiteConfig
from slurm_plugin.slurm import Job, SlurmError, Submitted
from slurm_plugin.spec import load
from slurm_plugin.spec.submit_config import StageIn
from slurm_plugin.submit import submission
from slurm_plugin.submit.render import Site, script
from slurm_plugin.submit.wrapper import plugin_command
from tests import fakes
from tests.fake_slurm import FakeSlurm
from tests.refusals import refusal_of

SMALL = b"name: a\nmode: openmpi\ncommand: ./a.out\n"
JOB = Job(17, "ada", "PENDING", "Priority", "", "", 0, "", "")


def test_a_submission_is_the_script_in_the_jobs_directory() -> None:
    """One call of Slurm, with the value that --dry-run prints."""
    spec, site = load(SMALL + b"workdir: runs\n", "a"), Site("/home/ada", "/bin/slurm-plugin")
    slurm = FakeSlurm(JOB)
    job = submission.build(spec, site, "a.yaml")
    assert submission.send(job, slurm) == Submitted(17)
    assert slurm.submitted == [(script(spec, site, "a.yaml"), (), "/home/ada/runs")]
    assert slurm.submitted[0][0] == job.script


class Several(fakes.FakeSlurm):
    """Gives each submission a separate job, held as requested, on these clusters."""

    def __init__(self, clusters: Sequence[str] = ()) -> None:
        super().__init__()
        self.chosen = clusters
        self.clusters = {name: Several() for name in clusters if name}
        self.made = 0

    def submit(self, script: str, *, arguments: Sequence[str] = (), directory: str | None = None) -> Submitted:
        """The first job is 11."""
        number = 11 + self.made
        self._change("submit", " ".join(arguments))
        cluster = self.chosen[self.made] if self.chosen else ""
        held = fakes.job(number, comment="[sp1;retries=0;ib=auto]", reason="JobHeldUser")
        self.on(cluster).known_jobs[number] = held
        self.made += 1
        return Submitted(number, cluster)


def test_jobs_of_which_one_is_to_run() -> None:
    """Held until the comment of each lists all, and released in their order."""
    slurm = Several()
    jobs = [submission.Submission("a", "/"), submission.Submission("b", "/", ("--x",)), submission.Submission("c", "/")]
    assert submission.send_alternatives(jobs, slurm) == tuple(map(Submitted, (11, 12, 13)))
    token = {"Comment": "[sp1;retries=0;ib=auto;any=11,12,13]"}
    told = [("update_job", number, token) for number in (11, 12, 13)]
    held = [("submit", "--hold"), ("submit", "--x --hold"), ("submit", "--hold")]
    assert slurm.changes == [*held, *told, ("release", 11), ("release", 12), ("release", 13)]


TWO = [submission.Submission("a", "/"), submission.Submission("b", "/")]


def test_jobs_of_which_one_is_to_run_on_another_cluster() -> None:
    """Every change goes to the cluster that has the jobs."""
    slurm = Several(["beta", "beta"])
    assert submission.send_alternatives(TWO, slurm) == (Submitted(11, "beta"), Submitted(12, "beta"))
    token = {"Comment": "[sp1;retries=0;ib=auto;any=11,12]"}
    told = [("update_job", 11, token), ("update_job", 12, token), ("release", 11), ("release", 12)]
    assert (slurm.changes, slurm.clusters["beta"].changes) == ([("submit", "--hold")] * 2, told)


def test_jobs_on_several_clusters_are_taken_back() -> None:
    """They cannot see each other."""
    slurm = Several(["beta", ""])
    said = refusal_of(UsageError, submission.send_alternatives, TWO, slurm)
    assert said == "any_of: found jobs on several clusters (beta, this one); accepted: alternatives on one cluster"
    assert (slurm.changes[2:], slurm.clusters["beta"].changes) == ([("cancel", 12)], [("cancel", 11)])


def test_a_job_that_cannot_be_taken_back_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """With the command for it. The local job with its id is left alone."""
    slurm = Several(["beta", "beta"])
    slurm.clusters["beta"].refusals = {("update_job", 11): 1, ("cancel", 11): 1}
    assert refusal_of(SlurmError, submission.send_alternatives, TWO, slurm) == "update_job was refused"
    left = "slurm_plugin: job 11;beta is left: cancel was refused\n  try: scancel --clusters=beta 11\n"
    assert capsys.readouterr().err == left
    assert (slurm.changes[2:], slurm.clusters["beta"].changes) == ([], [("cancel", 12)])


def test_none_is_left_where_one_is_refused() -> None:
    """With Slurm's message."""
    for refused in [("submit", "--x --hold"), ("update_job", 12), ("release", 11)]:
        slurm = Several()
        slurm.refusals[refused] = 1
        refusal_of(
            SlurmError,
            submission.send_alternatives,
            [submission.Submission("a", "/"), submission.Submission("b", "/", ("--x",))],
            slurm,
        )
        assert {job.state for job in slurm.known_jobs.values()} == {"CANCELLED"}, refused


def test_one_that_runs_already_has_cancelled_the_others() -> None:
    """Then the release fails, which is no error."""
    slurm = Several()
    slurm.refusals["release", 12] = 1
    assert submission.send_alternatives(TWO, slurm) == (Submitted(11), Submitted(12))


def test_a_missing_directory_is_told_before_slurm_ends_the_job_without_a_word(tmp_path: Path) -> None:
    """That of the job or of its log. A log's directory with a pattern cannot be checked."""
    site = Site(str(tmp_path), "/bin/slurm-plugin")
    submission.check_directories(load(SMALL, "a"), site)
    submission.check_directories(load(SMALL + b"output: '%j/log'\n", "a"), site)
    with pytest.raises(UsageError, match=f"workdir: found no directory {tmp_path}/runs"):
        submission.check_directories(load(SMALL + b"workdir: runs\n", "a"), site)
    with pytest.raises(UsageError, match=f"output: found no directory {tmp_path}/logs"):
        submission.check_directories(load(SMALL + b"output: logs/x\n", "a"), site)
    with pytest.raises(UsageError, match=f"error: found no directory {tmp_path}/errors"):
        submission.check_directories(load(SMALL + b"error: errors/x\n", "a"), site)


def test_a_file_with_variables_is_read_before_it_is_submitted(tmp_path: Path) -> None:
    """If its directory is visible here: it may exist only on the nodes."""
    site = Site(str(tmp_path), "/bin/slurm-plugin")
    submission.check_files(load(SMALL + b"env_file: [/of/the/nodes/only.env]\n", "a"), site)
    wanted = load(SMALL + b"workdir: runs\nenv_file: [a.env]\n", "a")
    submission.check_files(wanted, site)
    (tmp_path / "runs").mkdir()
    with pytest.raises(UsageError, match=f"env_file: {tmp_path}/runs/a.env: found No such file or directory; accepted"):
        submission.check_files(wanted, site)
    (tmp_path / "runs/a.env").write_text("A=1\n")
    submission.check_files(wanted, site)


def test_a_hook_that_is_named_is_looked_for_before_it_is_submitted(tmp_path: Path) -> None:
    """If its directory is visible here. A hook that all users can write is refused."""
    site = Site(str(tmp_path), "/bin/slurm-plugin")
    wanted = load(SMALL + b"hooks: {before: [/of/the/nodes/only.sh], after: a.py}\n", "a")
    with pytest.raises(UsageError, match=f"hooks: found no '{tmp_path}/a.py'"):
        submission.check_files(wanted, site)
    (tmp_path / "a.py").touch(0o600)
    submission.check_files(wanted, site)
    (tmp_path / "a.py").chmod(0o602)
    with pytest.raises(UsageError, match=f"hooks: '{tmp_path}/a.py' is not run: all users may write to it"):
        submission.check_files(wanted, site)


def test_data_is_looked_for_before_it_is_submitted(tmp_path: Path) -> None:
    """If its directory is visible here. A site without a directory for copies is an error."""
    site, config = Site(str(tmp_path), "/bin/slurm-plugin"), SiteConfig(stage_in=StageIn("/local"))
    submission.check_data(load(SMALL, "a"), site, SiteConfig())
    submission.check_data(load(SMALL + b"stage_in: [{from: /of/the/nodes/x}]\n", "a"), site, config)
    wanted = load(SMALL + b"stage_in: [{from: images}]\n", "a")
    with pytest.raises(UsageError, match=f"stage_in: images: found no {tmp_path}/images"):
        submission.check_data(wanted, site, config)
    (tmp_path / "images").mkdir()
    submission.check_data(wanted, site, config)
    with pytest.raises(UsageError, match="stage_in: found no directory for copies"):
        submission.check_data(wanted, site, SiteConfig())


def test_a_script_calls_the_deployed_command_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the one that runs now; without both, the message says what to do."""
    deployed = tmp_path / "slurm-plugin"
    monkeypatch.setattr(sys, "argv", ["/nowhere/pytest"])
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(MissingError, match="deploy it with: slurm-plugin site install --apply"):
        plugin_command.for_scripts(str(deployed))
    running = tmp_path / "bin" / "slurm-plugin"
    running.parent.mkdir()
    running.touch()
    monkeypatch.setattr(sys, "argv", [str(running)])
    assert plugin_command.for_scripts(str(deployed)) == str(running)
    deployed.touch()
    assert plugin_command.for_scripts(str(deployed)) == str(deployed)


def shared(*, group: str = "team", access: str = "read-only") -> bytes:
    """Return a spec that is shared."""
    return SMALL + f"share: {{group: {group}, access: {access}}}\n".encode()


@pytest.fixture
def alice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Act as a user in the groups `alice` and `team`."""
    groups = {"alice": 20001, "team": 20100, "lab": 20101}
    monkeypatch.setattr(submission.grp, "getgrnam", lambda name: SimpleNamespace(gr_gid=groups[name]))
    monkeypatch.setattr(os, "geteuid", lambda: 20001)
    monkeypatch.setattr(os, "getegid", lambda: 20001)
    monkeypatch.setattr(os, "getgroups", lambda: [20100])


@pytest.mark.parametrize(
    ("said", "site", "why"),
    [
        ({"access": "read-write"}, "read-only", "share: access: found read-write; the site allows: read-only"),
        ({}, "none", "share: access: found read-only; the site allows: none"),
        ({"group": "lab"}, "read-write", "share: group: found 'lab', which is none of yours"),
        ({"group": "unheard"}, "read-write", "share: group: found 'unheard', which is none of yours"),
        ({}, "read-only", ""),
        ({"group": "alice"}, "read-write", ""),
        ({"access": "none", "group": "null"}, "none", ""),
    ],
)
def test_with_whom_it_is_shared(
    alice: None, tmp_path: Path, said: dict[str, str], site: Literal["none", "read-only", "read-write"], why: str
) -> None:
    """A job is shared with a group of its user, and no more than the site allows."""
    wanted, here = load(shared(**said), "a"), Site(str(tmp_path), "/bin/slurm-plugin")
    if why:
        assert refusal_of(UsageError, submission.check_share, wanted, here, SiteConfig(share=site)).startswith(why)
    else:
        submission.check_share(wanted, here, SiteConfig(share=site))


def test_a_directory_that_the_group_cannot_enter(alice: None, capsys: pytest.CaptureFixture[str]) -> None:
    """A note names the first such directory: its mode is the owner's to change."""
    notes = {}
    with tempfile.TemporaryDirectory(dir="/tmp") as top:
        Path(top).chmod(0o711)
        closed = Path(top, "closed")
        (closed / "work").mkdir(parents=True)
        (closed / "work").chmod(0o755)
        wanted, here = load(shared(), "a"), Site(str(closed / "work"), "/bin/slurm-plugin")
        for mode, group in ((0o700, 0), (0o710, 0), (0o711, 0), (0o701, 20100), (0o710, 20100)):
            os.chown(closed, -1, group)
            closed.chmod(mode)
            submission.check_share(wanted, here, SiteConfig())
            notes[mode, group] = capsys.readouterr().err
    note = f"slurm-plugin: share: group team cannot enter {closed}\n  try: setfacl -m g:team:x {closed}\n"
    assert notes == {
        (0o700, 0): note,
        (0o710, 0): note,
        (0o711, 0): "",
        (0o701, 20100): note,  # the modes of others are not for the group
        (0o710, 20100): "",
    }


@pytest.mark.parametrize(
    ("keys", "config", "said"),
    [
        (b"retries: 2\n", {}, "retries: the job restarts itself, at most 2 times"),
        (b"retries: 1\nqueue_timeout: 1h\n", {}, "queue_timeout: nothing ends the wait"),
        (b"retries: 1\nperformance: {threshold: 0.5, action: reschedule}\n", {}, "performance: a slow job"),
        (b"", {}, ""),
        (b"retries: 2\n", {"Prolog": "/x/slurm_plugin/hooks/prolog"}, ""),
    ],
)
def test_what_no_admin_has_installed(keys: bytes, config: dict[str, str], said: str, tmp_path: Path) -> None:
    """It is said only where the spec asks for it. On a machine with the deployed command Slurm is not asked."""
    spec = load(SMALL + keys, "a")
    settings = SiteConfig(command="/x/slurm_plugin/bin/slurm-plugin")
    door = FakeSlurm()
    door.settings = config

    def no_slurm(**_: object) -> FakeSlurm:
        raise SlurmError("found no scontrol")

    found = plugin_command.without_installation(spec, settings.command, lambda **_: door)
    assert said in found
    assert bool(found) == bool(said)
    assert plugin_command.without_installation(spec, sys.executable, no_slurm) == ""
    assert plugin_command.without_installation(spec, settings.command, no_slurm) == ""


@pytest.mark.parametrize(
    ("first", "python"),
    [
        ("#!/home/alice/venv/bin/python3", "/home/alice/venv/bin/python3"),  # as pip writes it
        ("#!/usr/bin/env -S SP_LIBRARIES=${LD_LIBRARY_PATH} /usr/bin/python3 -IS", ""),  # the deployed command
        ("#!/bin/sh", ""),
    ],
)
def test_the_python_of_a_command(first: str, python: str, tmp_path: Path) -> None:
    """That of a command which pip made. The deployed one says itself what a node lacks."""
    (tmp_path / "slurm-plugin").write_text(f"{first}\n")
    assert plugin_command.interpreter(str(tmp_path / "slurm-plugin")) == python
