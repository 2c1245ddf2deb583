"""The node's side of a shell: what it finds in its environment, and what it is told."""

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_plugin.job import enter, saved, taskfile
from slurm_plugin.job.saved import Saved

LAUNCH = Saved(
    job=7,
    restart=0,
    attempt=0,
    phase="program",
    state="failed",
    code=5,
    nodes=("n1", "n2"),
    firsts=(0, 4),
    groups=(),
    cwd="/work",
    words=("python", "train.py", "a b"),
    argv=("srun", "--nodes=2", "python", "train.py", "a b"),
    environ={"PATH": "/bin", "CUDA_VISIBLE_DEVICES": "0,1", "SLURM_JOB_NODELIST": "n[1-2]", "TERM": "dumb"},
    slurm_plugin=("slurm-plugin",),
    run_directory="/nonexistent",
    node_directory="7.0.0",
)


def test_its_environment() -> None:
    """The launch's, as its first task on this worker had it; the devices and the terminal are the step's own."""
    step = {"CUDA_VISIBLE_DEVICES": "2", "SLURMD_NODENAME": "n2", "TERM": "xterm", "SLURM_STEP_ID": "3", "HOME": "/x"}
    assert enter.environment(LAUNCH, 1, step) == {
        "SLURM_PLUGIN_SPARED": "1",  # a restart of the program does not end the shell
        "PATH": "/bin",
        "CUDA_VISIBLE_DEVICES": "2",
        "SLURM_JOB_NODELIST": "n[1-2]",
        "TERM": "xterm",
        "SLURMD_NODENAME": "n2",
        "SLURM_NODEID": "1",
        "SLURM_PROCID": "4",
        "SLURM_LOCALID": "0",
    }
    assert enter.environment(LAUNCH, 0, {})["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_what_a_task_was_told() -> None:
    """The lines of a TaskProlog, as slurmstepd takes them: no quotes, and nothing else."""
    printed = "export RANK=1\nexport A='b=c'\nunset GONE\nexport NO\nprint x\n\n"
    assert enter.told({"GONE": "1", "RANK": "0"}, printed) == {"RANK": "1", "A": "'b=c'"}


def test_the_opening() -> None:
    """What was run, how it ended, and how to run it again here and everywhere."""
    assert enter.opening(LAUNCH, 1) == [
        "worker-1 of job 7 is n2",
        "the command was: python train.py 'a b'; it ended with exit code 5",
        "by hand on this node: python train.py 'a b'",
        "on all nodes: slurm-plugin rerun 7; to give them back: slurm-plugin release 7",
    ]
    running = LAUNCH._replace(state="running", code=None, argv=("mpirun", "python\x1b"), words=("python\x1b",))
    assert enter.opening(running, 1) == [
        "worker-1 of job 7 is n2",
        "the command was: 'python?'; it is still running",
        "it was started on worker-0 (n1): mpirun 'python?'",
    ]
    assert "; a hook beside the program ended with exit code 5" in enter.opening(LAUNCH._replace(phase="hook"), 0)[1]


def entered(directory: Path, launch: Saved, commands: str) -> "subprocess.CompletedProcess[str]":
    """The shell on worker-1, without a terminal, after what srun would have set."""
    (directory / saved.FILE).write_text(json.dumps({"v": saved.VERSION, **launch._asdict()}))
    argv = [sys.executable, "-m", "slurm_plugin", "job", "enter", f"--directory={directory}", "--worker=1"]
    environ = {"PYTHONPATH": str(Path(__file__).parents[3]), "SLURM_STEP_ID": "3", "SLURMD_NODENAME": "n2"}
    return subprocess.run(
        argv, env=environ, input=commands, capture_output=True, text=True, timeout=60, check=False, cwd="/"
    )


def test_the_shell(tmp_path: Path) -> None:
    """In the launch's directory and environment, with what its task was told; its exit code is the shell's own."""
    folder = tmp_path / "jobs/7.0.0/user"
    folder.mkdir(parents=True)
    (folder / taskfile.TASK_FILE).write_text("printf 'export %s\\n' \"RANK=$SLURM_PROCID\"\n")
    launch = LAUNCH._replace(cwd=str(tmp_path), run_directory=str(tmp_path))
    done = entered(tmp_path, launch, "pwd; echo $RANK $SLURM_STEP_ID,$SLURMD_NODENAME,$PYTHONPATH; exit 9\n")
    assert (done.returncode, done.stdout) == (9, f"{tmp_path}\n4 ,n2,\n"), done.stderr
    assert [line.partition("] ")[0] for line in done.stderr.splitlines()] == ["[slurm_plugin"] * 4


def test_a_shell_in_the_launchs_container(tmp_path: Path) -> None:
    """Apptainer stands before a shell of the image's; what was run is told without it."""
    (tmp_path / "apptainer").write_text('#!/bin/sh\n[ "$1 $2" = "exec t.sif" ] && shift 2 && echo in && exec "$@"\n')
    (tmp_path / "apptainer").chmod(0o755)
    inside = ("apptainer", "exec", "t.sif")
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    argv = ("srun", "--nodes=2", *inside, "python", "train.py", "a b")
    launch = LAUNCH._replace(cwd=str(tmp_path), run_directory=str(tmp_path), environ=path, inside=inside, argv=argv)
    done = entered(tmp_path, launch, "echo $SHELL; exit 9\n")
    assert (done.returncode, done.stdout) == (9, "in\n/bin/sh\n"), done.stderr
    assert "by hand on this node: python train.py 'a b'\n" in done.stderr
    outside = LAUNCH._replace(argv=("mpirun", "-np", "2", *inside, "./a"), inside=inside)
    assert "it was started on worker-0 (n1): mpirun -np 2 apptainer exec t.sif ./a" in enter.opening(outside, 0)
    alone = LAUNCH._replace(argv=(*inside, "./a"), words=("./a",), inside=inside)
    assert "by hand on this node: ./a" in enter.opening(alone, 0)


def test_a_shell_in_a_container_of_pyxis(tmp_path: Path) -> None:
    """A step of its own has the container; what TaskProlog could not tell a task there the shell has all the same."""
    (tmp_path / "srun").write_text('#!/bin/sh\necho "$RANK $*" | cut -d / -f 1-2\nexit 3\n')
    (tmp_path / "srun").chmod(0o755)
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    launch = LAUNCH._replace(
        cwd=str(tmp_path),
        environ=path,
        step=("--container-image=x#t",),
        told="printf 'export %s\\n' \"RANK=$SLURM_PROCID\"",
    )
    done = entered(tmp_path, launch, "")
    options = "--jobid=7 --overlap --nodes=1 --ntasks=1 --nodelist=n2 --mpi=none --export=ALL --chdir="
    assert (done.returncode, done.stdout) == (3, f"4 {options}/ --container-image=x#t -- \n"), done.stderr


def test_a_launch_that_told_its_tasks_nothing(tmp_path: Path) -> None:
    """An mpirun has no task of ours: what stands in the file of TaskProlog is not its."""
    folder = tmp_path / "jobs/7.0.0/user"
    folder.mkdir(parents=True)
    (folder / taskfile.TASK_FILE).write_text("echo export RANK=1\n")
    launch = LAUNCH._replace(argv=("mpirun", "x"), cwd="/nonexistent/dir", run_directory=str(tmp_path))
    done = entered(tmp_path, launch, "echo ${RANK-none}\n")
    assert (done.returncode, done.stdout) == (0, "none\n")
    assert "[slurm_plugin] /nonexistent/dir: No such file or directory; the shell stays in /\n" in done.stderr


def test_a_launch_of_nobody(tmp_path: Path) -> None:
    """One line, and exit code 1."""
    argv = [sys.executable, "-m", "slurm_plugin", "job", "enter", f"--directory={tmp_path}", "--worker=0"]
    environ = {"PYTHONPATH": str(Path(__file__).parents[3]), "PATH": "/bin"}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == f"[slurm_plugin] error,exiting: {tmp_path}/launch.json: No such file or directory\n"


@pytest.mark.parametrize(
    ("own", "program"), [("/bin/sh", "/bin/sh"), ("/usr/sbin/nologin", "/bin/bash"), ("/opt/gone/zsh", "/bin/bash")]
)
def test_which_shell(monkeypatch: pytest.MonkeyPatch, own: str, program: str) -> None:
    """The user's, unless it is none that can be used here."""
    entry = pwd.struct_passwd(("a", "x", 1, 1, "", "/", own))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: entry)
    assert enter._shell() == (program if os.access(program, os.X_OK) else "/bin/sh")
