"""`slurm-plugin shell` on the node: its environment and its messages."""

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_plugin.records import launch_record, node_directory
from slurm_plugin.records.launch_record import Saved
from slurm_plugin.supervisor import enter

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
    """The launch's, as its first task on this worker had it. Devices and terminal are the step's."""
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
    """The lines of a TaskProlog, read as slurmstepd does: no quotes."""
    printed = "export RANK=1\nexport A='b=c'\nunset GONE\nexport NO\nprint x\n\n"
    assert enter.with_task_lines({"GONE": "1", "RANK": "0"}, printed) == {"RANK": "1", "A": "'b=c'"}


def test_the_opening() -> None:
    """The command, how it ended, and how to run it again here and on all nodes."""
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


def entered(
    directory: Path, launch: Saved, commands: str, *options: str, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Run the shell on worker-1 without a terminal, with srun's variables."""
    (directory / launch_record.FILE).write_text(json.dumps({"v": launch_record.VERSION, **launch._asdict()}))
    argv = [sys.executable, "-m", "slurm_plugin", "job", "enter", f"--directory={directory}", "--worker=1", *options]
    environ = {"PYTHONPATH": str(Path(__file__).parents[3]), "SLURM_STEP_ID": "3", "SLURMD_NODENAME": "n2", **variables}
    return subprocess.run(argv, env=environ, input=commands, capture_output=True, text=True, check=False, cwd="/")


def test_the_shell(tmp_path: Path) -> None:
    """In the launch's directory and environment, with its task's variables. Its exit code is the shell's."""
    folder = tmp_path / "jobs/7.0.0/user"
    folder.mkdir(parents=True)
    (folder / node_directory.TASK_FILE).write_text("printf 'export %s\\n' \"RANK=$SLURM_PROCID\"\n")
    launch = LAUNCH._replace(cwd=str(tmp_path), run_directory=str(tmp_path))
    done = entered(tmp_path, launch, "pwd; echo $RANK $SLURM_STEP_ID,$SLURMD_NODENAME,$PYTHONPATH; exit 9\n")
    assert (done.returncode, done.stdout) == (9, f"{tmp_path}\n4 ,n2,\n"), done.stderr
    assert [line.partition("] ")[0] for line in done.stderr.splitlines()] == ["[slurm_plugin"] * 4


def test_a_session_of_ssh(tmp_path: Path) -> None:
    """It runs the command that the client sent, with nothing else on stderr, and has its terminal and agent."""
    (tmp_path / "apptainer").write_text('#!/bin/sh\nshift 2\nexec "$@"\n')
    (tmp_path / "apptainer").chmod(0o755)
    sent = "echo $SSH_TTY $SSH_AUTH_SOCK $SSH_CONNECTION,$SHELL_ONLY; pwd; cat; exit 4"
    given = {"SSH_TTY": "/dev/pts/3", "SSH_AUTH_SOCK": "/tmp/agent", "SSH_CONNECTION": "c", "SHELL_ONLY": "x"}
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path)}
    for inside in ((), ("apptainer", "exec", "t.sif")):
        launch = LAUNCH._replace(cwd="/usr", run_directory=str(tmp_path), environ=path, inside=inside)
        done = entered(tmp_path, launch, "stdin", "--session", SSH_ORIGINAL_COMMAND=sent, **given)
        expected = f"/dev/pts/3 /tmp/agent c,\n{tmp_path}\nstdin"
        assert (done.returncode, done.stdout, done.stderr) == (4, expected, "")
    shell = entered(tmp_path, LAUNCH._replace(cwd="/usr", environ=path), "pwd\n", "--session", **given)
    assert (shell.returncode, shell.stdout) == (0, "/usr\n")
    assert shell.stderr.startswith("[slurm_plugin] worker-1 of job 7 is n2\n")


def test_a_shell_in_the_launchs_container(tmp_path: Path) -> None:
    """Apptainer starts a shell of the image. The command is shown without it."""
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
    """A separate step has the container. The shell has the variables that TaskProlog could not set there."""
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
    launch = launch._replace(environ={**path, "SLURM_GPUS": "8"})  # a total: Slurm refuses a step that inherits it
    done = entered(tmp_path, launch, "", SLURM_GPUS_ON_NODE="4")
    assert done.stdout == f"4 {options}/ --gpus=4 --container-image=x#t -- \n"


def test_a_launch_that_told_its_tasks_nothing(tmp_path: Path) -> None:
    """mpirun's ranks are no tasks of ours: TaskProlog's file is not for them."""
    folder = tmp_path / "jobs/7.0.0/user"
    folder.mkdir(parents=True)
    (folder / node_directory.TASK_FILE).write_text("echo export RANK=1\n")
    launch = LAUNCH._replace(argv=("mpirun", "x"), cwd="/nonexistent/dir", run_directory=str(tmp_path))
    done = entered(tmp_path, launch, "echo ${RANK-none}\n")
    assert (done.returncode, done.stdout) == (0, "none\n")
    assert "[slurm_plugin] /nonexistent/dir: No such file or directory; the shell stays in /\n" in done.stderr


def test_a_launch_of_nobody(tmp_path: Path) -> None:
    """One line, and exit code 1."""
    argv = [sys.executable, "-m", "slurm_plugin", "job", "enter", f"--directory={tmp_path}", "--worker=0"]
    environ = {"PYTHONPATH": str(Path(__file__).parents[3]), "PATH": "/bin"}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"slurm-plugin: {tmp_path}/launch.json: No such file or directory\n"


def test_which_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's, unless it cannot be used here."""
    for own, program in [("/bin/sh", "/bin/sh"), ("/usr/sbin/nologin", "/bin/bash"), ("/opt/gone/zsh", "/bin/bash")]:
        entry = pwd.struct_passwd(("a", "x", 1, 1, "", "/", own))
        monkeypatch.setattr(pwd, "getpwuid", lambda _, entry=entry: entry)
        assert enter._shell() == (program if os.access(program, os.X_OK) else "/bin/sh"), own
