"""The process that shares a job: what the site allows, and its end."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hostfiles import Allocation, Host
from slurm_plugin.records import job_directory, requests
from slurm_plugin.supervisor.run import Run
from slurm_plugin.supervisor.share import process
from tests.unit.supervisor.plans import plan
from tests.waiting import until

RUN = Run(7, 0, "main", Allocation((Host("n1", 1),), 7))
GIVEN = {"share_group": "root", "share_access": requests.WRITE}


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the job's directory."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[4]))
    return job_directory.directory(tmp_path, 7)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return the commands that are started, without starting them."""
    found: list[list[str]] = []

    def start(command: list[str], **_: Any) -> None:
        found.append(command)
        raise OSError(2, "No such file or directory")

    monkeypatch.setattr(subprocess, "Popen", start)
    return found


@pytest.mark.parametrize(
    ("asked", "site", "given"),
    [
        ("", "read-write", None),
        ("read-write", "read-write", "read-write"),
        ("read-write", "read-only", "read-only"),
        ("read-only", "read-write", "read-only"),
        ("read-write", "none", None),
        ("read-only", "none", None),
        ("none", "none", "none"),
        ("none", "read-write", "none"),
    ],
)
def test_what_the_site_allows(
    directory: Path,
    started: list[list[str]],
    capsys: pytest.CaptureFixture[str],
    asked: str,
    site: str,
    given: str | None,
) -> None:
    """The job gives at most that, whatever its batch script says; the log names the site's limit."""
    with process.share_process(plan(share_group="root", share_access=asked), {"share": site}, RUN, directory, "ours"):
        pass
    assert [word for command in started for word in command if "--access" in word] == (
        [f"--access={given}"] if given else []
    )
    told = "[slurm_plugin] share asked for" in capsys.readouterr().out
    assert told == (asked not in ("", given))


def test_settings_that_know_no_sharing(directory: Path, started: list[list[str]]) -> None:
    """A site whose settings cannot be read, or that were compiled before, allows none."""
    with process.share_process(plan(**GIVEN), {}, RUN, directory, "ours"):
        pass
    assert started == []


def test_it_ends_with_the_run(directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The process lives as long as the run, ignores signals to the whole step, and sets the modes."""
    with process.share_process(plan(**GIVEN), {"share": requests.WRITE}, RUN, directory, "ours"):
        until((directory / requests.DIRECTORY).exists, "the directory of requests")
        until(lambda: "shared with group root: read-write" in capfd.readouterr().out, "its line in the log")
        (pid,) = children()
        for number in (signal.SIGUSR1, signal.SIGINT, signal.SIGHUP):
            os.kill(pid, number)
        (directory / requests.DIRECTORY / "1-20002.json").write_text("{")
        until(lambda: requests.answers(directory), "an answer")
    assert children() == []


def test_it_ends_with_its_supervisor(directory: Path) -> None:
    """A supervisor that is killed leaves nothing behind: the pipe to the process ends."""
    words = [*process.site_settings.plugin_command(), *process.words(plan(**GIVEN), RUN, directory, "ours")]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as child:
        until((directory / requests.DIRECTORY).exists, "the directory of requests")
    assert child.returncode == 0


def test_a_group_that_is_unknown(directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The job runs on, and the log says why it is not shared."""
    given = plan(share_group="no-such-group", share_access=requests.READ)
    with process.share_process(given, {"share": requests.WRITE}, RUN, directory, "ours"):
        until(lambda: "the job is not shared: this node knows no group" in capfd.readouterr().out, "the reason")
    assert not (directory / requests.DIRECTORY).exists()


def children() -> list[int]:
    """Return the pids of this process's children that share a job."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((each / "stat").read_text().rpartition(") ")[2].split()[1])
            if parent == os.getpid() and b"share" in (each / "cmdline").read_bytes().split(b"\0"):
                found.append(int(each.name))
        except OSError:
            continue
    return found
