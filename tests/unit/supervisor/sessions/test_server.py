"""`job open` on a node: programs that answer, fail, hang or run already."""

import fcntl
import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slurm_plugin.records import launch_record, node_directory, open_program
from slurm_plugin.records.open_program import OpenProgram
from slurm_plugin.supervisor.sessions import server
from tests.unit.supervisor.test_enter import LAUNCH
from tests.waiting import until

ROOT = Path(__file__).parents[4]
# In place of Jupyter: listen on the socket of the configuration, and print the variables beside it.
SERVES = """#!{python}
import json, os, socket, sys
folder = os.path.dirname(sys.argv[1].partition("=")[2])
settings = json.load(open(f"{{folder}}/jupyter_config.json"))
with socket.socket(socket.AF_UNIX) as server:
    server.bind(settings["ServerApp"]["sock"])
    server.listen()
    json.dump({{**os.environ, "cwd": os.getcwd()}}, open(f"{{folder}}/seen", "w"))
    while True:
        server.accept()
"""
FAILS = "#!/bin/sh\nfor each in 1 2 3; do echo line $each; done\nprintf 'no \\033[2J' >&2\nexit 7\n"


def prepared(tmp_path: Path, program: str, **changes: object) -> list[str]:
    """Make the directories of a job whose PATH has this jupyter-lab. Return the command without its options."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "jobs/7.0.0").mkdir(parents=True)
    (tmp_path / "jobs/7.0.0/user").mkdir(mode=0o700)
    if program:
        (tmp_path / "bin/jupyter-lab").write_text(program.format(python=sys.executable) if "{" in program else program)
        (tmp_path / "bin/jupyter-lab").chmod(0o755)
    launch = LAUNCH._replace(
        cwd=str(tmp_path),
        environ={"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "FROM": "launch"},
        run_directory=str(tmp_path),
        **changes,
    )
    (tmp_path / launch_record.FILE).write_text(json.dumps({"v": launch_record.VERSION, **launch._asdict()}))
    return [sys.executable, "-m", "slurm_plugin", "job", "open", f"--directory={tmp_path}", "--worker=1"]


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Return a directory with a short path, because that of a socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="o") as path:
        yield Path(path)


ENVIRON = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "SLURM_STEP_ID": "3", "CUDA_VISIBLE_DEVICES": "1"}


def run(argv: list[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(argv, env=ENVIRON, capture_output=True, text=True, check=False, cwd="/")


@contextmanager
def started(argv: list[str]) -> Iterator[tuple["subprocess.Popen[str]", OpenProgram]]:
    """Start the command and wait for its line. At the end kill it."""
    with subprocess.Popen(argv, env=ENVIRON, stdout=subprocess.PIPE, text=True, cwd="/", process_group=0) as process:
        assert process.stdout
        try:
            found = open_program.find(process.stdout.readline())
            assert found
            yield process, found
        finally:
            if process.poll() is None:
                os.killpg(process.pid, 9)


def test_it_answers(tmp_path: Path) -> None:
    """In the environment of the launch. The second call has the same answer, and so has the first after a crash."""
    argv = prepared(tmp_path, SERVES)
    folder = tmp_path / "jobs/7.0.0/user"
    for _ in range(2):  # the socket and the answer of the killed one are replaced
        with started([*argv, "jupyter"]) as (_process, found):
            token = found.address.removeprefix("/?token=")
            assert found == OpenProgram(
                "jupyter", "n2", f"{folder}/jupyter.sock", f"/?token={token}", "7.3", ssh=found.ssh
            )
            assert len(token) == 32
            assert stat.S_IMODE(Path(found.socket).stat().st_mode) == 0o600
            seen = json.loads((folder / "seen").read_text())
            assert (seen["FROM"], seen["CUDA_VISIBLE_DEVICES"], seen["cwd"]) == ("launch", "1", str(tmp_path))
            assert seen["SLURM_PLUGIN_SPARED"] == "1"
            assert token not in json.dumps(seen)
            again = run([*argv, "jupyter"])
            assert (again.returncode, open_program.find(again.stdout)) == (0, found)
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir() if path.is_file()}
            assert {*modes.values()} == {0o600}, modes


def test_a_folder_that_nothing_else_removes(tmp_path: Path) -> None:
    """Where no prolog made one, and the launch has no guards: the end of the job removes it with the last program."""
    run_name = f"{os.getpid()}.0.96"
    argv = prepared(tmp_path, SERVES, node_directory=run_name)
    folder = Path(f"{node_directory.SPARE}{run_name}")
    for others in (True, False):
        with started([*argv, "jupyter"]) as (process, found), (folder / "other.lock").open("w") as other:
            assert Path(found.socket).parent == folder
            if others:
                fcntl.flock(other, fcntl.LOCK_EX)
            process.terminate()
            process.wait()
            assert folder.exists() == others


def test_it_ends(tmp_path: Path) -> None:
    """The command ends with the program, and leaves no socket and no answer."""
    argv = prepared(tmp_path, SERVES)
    with started([*argv, "jupyter"]) as (process, found):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        os.kill(int(children.read_text().split()[0]), 15)
        process.wait()
        assert not Path(found.socket).exists()
        assert open_program.read(found.socket.replace(".sock", ".json")) is None


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [
        ("", 3, "found no jupyter-lab jupyter-notebook jupyter-server on the PATH\n  install it there: pip install"),
        (FAILS, 1, "jupyter ended with exit code 7 on n2\n  line 1\n  line 2\n  line 3\n  no ?[2J\n"),
    ],
)
def test_it_does_not_answer(tmp_path: Path, program: str, code: int, said: str) -> None:
    """The last lines of the program are in the message."""
    done = run([*prepared(tmp_path, program), "jupyter"])
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr


def test_in_a_container(tmp_path: Path) -> None:
    """Apptainer mounts the folder of the socket. A container of pyxis has none."""
    runtime = tmp_path / "apptainer"
    runtime.write_text(f'#!/bin/sh\necho "$APPTAINER_BIND" >{tmp_path}/bound\nshift 2\nexec "$@"\n')
    runtime.chmod(0o755)
    argv = prepared(tmp_path, SERVES, inside=(str(runtime), "exec", "t.sif"))
    with started([*argv, "jupyter"]) as (_, found):
        assert (tmp_path / "bound").read_text() == f"{Path(found.socket).parent}\n"
    (tmp_path / "other").mkdir()
    refused = run([*prepared(tmp_path / "other", SERVES, step=("--container-image=x",)), "jupyter"])
    assert refused.returncode == 1
    assert "a shell in such a container: slurm-plugin open 7 shell" in refused.stderr


def test_tensorboard_shows_something_else(tmp_path: Path) -> None:
    """The real TensorBoard on a socket. A second one with other directories is refused."""
    (tmp_path / "runs").mkdir()
    argv = prepared(
        tmp_path,
        "",
    )
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    launch = LAUNCH._replace(cwd=str(tmp_path), environ={"PATH": path}, run_directory=str(tmp_path))
    (tmp_path / launch_record.FILE).write_text(json.dumps({"v": launch_record.VERSION, **launch._asdict()}))
    with started([*argv, "tensorboard", f"a={tmp_path}/runs", "b=runs"]) as (_, found):
        assert Path(found.socket).with_name(server.LINKS).joinpath("b").readlink() == tmp_path / "runs"

        def page() -> bytes:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(found.socket)
                client.sendall(b"GET /data/runs HTTP/1.0\r\n\r\n")
                return b"".join(iter(lambda: client.recv(1 << 16), b""))

        assert until(page).endswith(b"\r\n\r\n[]")
        other = run([*argv, "tensorboard", "=."])
        assert other.returncode == 1
        assert other.stderr.endswith("  end it first: scancel 7.3\n")
