"""The TaskProlog, run as a task's user: the file that it reads, its output, and its cost."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from slurm_plugin.records.node_directory import with_hook_lines
from slurm_plugin.site.configuration import SiteConfig
from slurm_plugin.site.files import render_site
from slurm_plugin.supervisor.prestart import changes, task_lines
from tests.unit.node.owned import UNKNOWN
from tests.unit.node.running import USER, run


class Task:
    """A rendered TaskProlog, run as a task's user with only Slurm's variables."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        render_site(SiteConfig(run_directory=str(directory / "run")), directory / "site", root=str(directory / "site"))
        for path in (directory, *directory.parents):
            if path.stat().st_uid == os.geteuid() and not path.stat().st_mode & 0o001:
                path.chmod(0o711)

    def file(self, text: str, launch: str = "7.0.0", owner: int = USER) -> Path:
        """Write a file such as `job barrier` writes."""
        path = self.directory / "run" / "jobs" / launch / "user" / "task.sh"
        path.parent.mkdir(parents=True)
        path.write_text(text)
        os.chown(path, owner, owner)
        os.chown(path.parent, owner, owner)
        return path

    def __call__(self, launch: str | None = "7.0.0", **environ: str) -> tuple[int, str, str]:
        given = {**environ, "PATH": ""} | ({} if launch is None else {"SLURM_PLUGIN_LAUNCH": launch})
        hook = self.directory / "site/hooks/task_prolog"
        result = run(hook, given, Path("/"), user=USER, group=USER)
        return result.returncode, result.stdout, result.stderr


@pytest.fixture
def task(tmp_path: Path) -> Task:
    """Return a TaskProlog that user 20001 can reach."""
    return Task(tmp_path)


EXPORTS = "printf 'export %s=%s\\n' RANK \"$SLURM_NODEID\"\n"
PRINTED = "export RANK=3\nunset SLURM_PLUGIN_LAUNCH\n"
SILENT = (0, "", "")


def test_task_prolog(task: Task) -> None:
    """The lines of the sourced file reach Slurm, by builtins alone (PATH is empty). A program's step is not ours."""
    task.file(EXPORTS)
    assert task(SLURM_NODEID="3") == (0, PRINTED, "")


HOOKS = task_lines(changes({"OLD": "1"}, {f"LIBRARY_{number}": "/opt/it's $x" for number in range(10)}))
OF_HOOKS = "".join(f"export LIBRARY_{number}=/opt/it's $x\n" for number in range(10)) + "unset OLD\n"


@pytest.mark.parametrize(
    ("file", "output"),
    [(EXPORTS, PRINTED), (with_hook_lines(EXPORTS, HOOKS), OF_HOOKS + PRINTED), ("echo $(:)\n", "")],
)
def test_task_prolog_starts_nothing(task: Task, file: str, output: str) -> None:
    """A user with only one allowed process gets the exports, too. A file that forks would fail this test."""
    task.file(file, owner=UNKNOWN)
    as_user = ["/usr/bin/setpriv", f"--reuid={UNKNOWN}", f"--regid={UNKNOWN}", "--clear-groups"]
    argv = ["/usr/bin/prlimit", "--nproc=1", *as_user, task.directory / "site/hooks/task_prolog"]
    given = {"SLURM_PLUGIN_LAUNCH": "7.0.0", "SLURM_NODEID": "3"}
    result = subprocess.run(argv, env=given, capture_output=True, text=True, check=False)
    assert (result.stdout, "fork" in result.stderr) == (output, not output)


@pytest.mark.skipif(not shutil.which("strace"), reason="counts system calls with strace")
@pytest.mark.parametrize(
    ("file", "more"), [(None, 2), (EXPORTS, 16), (EXPORTS * 4, 16 + 3), (with_hook_lines(EXPORTS, HOOKS), 16 + 1 + 11)]
)
def test_task_prolog_system_calls(task: Task, file: str | None, more: int) -> None:
    """One process, one execve, and few system calls more than an empty sh. A busy machine does not change this."""
    empty = task.directory / "empty"
    empty.write_text("#!/bin/sh\n")
    empty.chmod(0o755)
    if file:
        task.file(file, owner=0)
    given = {"SLURM_NODEID": "3"} | ({"SLURM_PLUGIN_LAUNCH": "7.0.0"} if file else {})
    made = []
    for script in (empty, task.directory / "site/hooks/task_prolog"):
        traced = task.directory / "traced"
        argv = [shutil.which("strace") or "", "-f", "-o", str(traced), script]
        subprocess.run(argv, env=given, capture_output=True, check=True)
        made.append([line.split()[1].partition("(")[0] for line in traced.read_text().splitlines() if "(" in line])
        assert made[-1].count("execve") == 1
        assert not {"fork", "vfork", "clone", "clone3"} & set(made[-1])
    assert len(made[1]) - len(made[0]) <= more


OTHERS = [
    None,
    "",
    "../../x",
    "..",
    ".",
    "/",
    "7.0.0/",
    "7.0.0/../7.0.0",
    "7.0.0 ",
    "7.0.0\n",
    "7.0.*",
    "8.0.0:../../x",
    "8.0.0:9.0.0",
    ":",
    "$(touch x)",
    "\uff17",
]


def test_task_prolog_of_another_step(task: Task) -> None:
    """For other steps, and for names with other characters, it prints nothing, not even an error."""
    task.file(EXPORTS)
    task.file("echo traversed\n", launch="../../x")
    for launch in OTHERS:
        assert task(launch) == SILENT, launch


def test_task_prolog_of_one_of_several_groups(task: Task) -> None:
    """A heterogeneous job has a directory for each group, and a node has that of its own group."""
    task.file(EXPORTS, launch="8.0.0")
    assert task("7.0.0:8.0.0:9.0.0", SLURM_NODEID="3") == (0, PRINTED, "")


def test_task_prolog_without_a_file(task: Task) -> None:
    """It ends the task, unless the variable is that of a job whose program has submitted this one."""
    assert task(SLURM_JOB_ID="8") == SILENT
    code, output, errors = task(SLURM_JOB_ID="7", SLURMD_NODENAME="n2")
    assert (code, errors) == (1, "")
    assert output.startswith("print [slurm_plugin] error: n2 lost /")


def test_task_prolog_spare_file(task: Task) -> None:
    """If root's prolog made no directory, `job barrier` made one in /tmp. It counts only if the user owns it."""
    launch = f"{os.getpid()}.0.99"
    spare = Path("/tmp", f"slurm_plugin.{launch}")
    spare.mkdir(mode=0o700)
    try:
        (spare / "task.sh").write_text(EXPORTS)
        spare.chmod(0o755)
        assert task(launch, SLURM_NODEID="3") == SILENT
        os.chown(spare / "task.sh", USER, USER)
        assert task(launch, SLURM_NODEID="3") == SILENT
        os.chown(spare, USER, USER)
        assert task(launch, SLURM_NODEID="3") == (0, PRINTED, "")
    finally:
        shutil.rmtree(spare)


@pytest.mark.parametrize("owner", [0, USER + 1])
def test_task_prolog_of_another_user(task: Task, owner: int) -> None:
    """A file of another user is not read, even if it is readable."""
    task.file(EXPORTS, owner=owner).chmod(0o644)
    task.directory.joinpath("run/jobs/7.0.0/user").chmod(0o755)
    assert task() == SILENT


def test_task_prolog_link_to_another_user(task: Task) -> None:
    """A link of the user's own counts as its target."""
    other = task.file("echo other\n", launch="8.0.0", owner=USER + 1)
    other.chmod(0o644)
    other.parent.chmod(0o755)
    mine = task.file(EXPORTS)
    mine.unlink()
    mine.symlink_to(other)
    assert task() == SILENT


def test_task_prolog_directory(task: Task) -> None:
    """A directory in the file's place is ignored."""
    path = task.file(EXPORTS)
    path.unlink()
    path.mkdir()
    os.chown(path, USER, USER)
    assert task() == SILENT
