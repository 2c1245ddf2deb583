"""`job open`: run Jupyter or TensorBoard on a worker of a job, on a UNIX socket that only the job's user can reach.

`slurm-plugin open` starts this command in a separate step, which overlaps with all others. It prints one line when the
program answers, and ends with the program. A second call finds the first by its lock and prints the same line.
"""

import argparse
import fcntl
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, NamedTuple

from prechecks import files
from slurm_plugin.errors import MissingError, SlurmPluginError, UsageError, printable
from slurm_plugin.records import launch_record, node_directory, open_program
from slurm_plugin.records.open_program import JUPYTER, TENSORBOARD, OpenProgram
from slurm_plugin.supervisor import enter
from slurm_plugin.supervisor.sessions import ssh

NOT_FOUND: Final = 127  # the exit code of a shell that found no program
LONGEST_SOCKET: Final = 107  # bytes of a socket's path (unix(7))
RUNTIME: Final = "j"  # Jupyter's runtime directory, in the folder
LINKS: Final = "logs"  # the directory with a link to each log directory of TensorBoard, in the folder
# $0: the programs to look for. The first one on the PATH replaces the shell.
_FIND: Final = (
    'for each in $0; do command -v "$each" >/dev/null && exec "$each" "$@"; done; '
    f'echo "found no $0 on the PATH" >&2; exit {NOT_FOUND}'
)
_JUPYTERS: Final = "jupyter-lab jupyter-notebook jupyter-server"
# $0: the Python program below. Run it with the interpreter that has TensorBoard.
_FIND_PYTHON: Final = (
    'for each in "$(dirname "$(command -v tensorboard)" 2>/dev/null)/python3" python3 python; do '
    '"$each" -c "import tensorboard" 2>/dev/null && exec "$each" -c "$0" "$@"; done; '
    f'echo "found no Python with tensorboard on the PATH" >&2; exit {NOT_FOUND}'
)
# werkzeug, TensorBoard's server, takes `unix://PATH` as a host. TensorBoard itself would print it as HOST:PORT.
_ON_SOCKET: Final = """
import sys, threading
from tensorboard import program

class Server(program.WerkzeugServer):
    def get_url(self):
        return self._host

board = program.TensorBoard(server_class=Server)
board.configure(argv=["tensorboard", *sys.argv[1:]])
board.launch()
threading.Event().wait()
"""


class Program(NamedTuple):
    """A program to start."""

    words: tuple[str, ...]
    files: Mapping[str, str] = {}  # NAME in the folder -> content, readable only by the user
    links: Mapping[str, str] = {}  # NAME in LINKS -> where it leads
    variables: Mapping[str, str] = {}
    address: str = "/"  # the part of the URL after the host
    missing: str = ""  # what to install if the program is not found


def program_for(name: str, folder: str, cwd: str, shows: Sequence[str], token: str, *, root: bool = False) -> Program:
    """Return how a program is started on the socket `FOLDER/NAME.sock`. Raise UsageError if that path is too long."""
    sockets = {JUPYTER: f"{RUNTIME}/kernel-{'0' * 36}-ipc-5", TENSORBOARD: f"{TENSORBOARD}.sock"}
    if len(longest := f"{folder}/{sockets[name]}") > LONGEST_SOCKET:
        raise UsageError(
            f"{longest}: found {len(longest)} characters; a UNIX socket has at most {LONGEST_SOCKET}\n"
            "  an admin can give the site a shorter run_directory"
        )
    return _jupyter(folder, cwd, token, root=root) if name == JUPYTER else _tensorboard(folder, cwd, shows)


def socket_path(folder: str, name: str) -> str:
    """Return the path of a program's socket."""
    return f"{folder}/{name}.sock"


def _jupyter(folder: str, cwd: str, token: str, *, root: bool) -> Program:
    server = {
        "sock": socket_path(folder, JUPYTER),
        "sock_mode": "0600",
        "open_browser": False,
        "root_dir": cwd,
        "allow_root": root,
    }
    settings = {
        "ServerApp": server,
        "IdentityProvider": {"token": token},
        "KernelManager": {"transport": "ipc"},  # else each kernel listens on five ports
        "Application": {"log_level": "WARN"},
    }
    file = "jupyter_config.json"
    return Program(
        ("sh", "-c", _FIND, _JUPYTERS, f"--config={folder}/{file}"),
        files={file: json.dumps(settings)},
        variables={"JUPYTER_RUNTIME_DIR": f"{folder}/{RUNTIME}"},
        address=f"/?token={token}",
        missing="install it there: pip install jupyterlab",
    )


def _tensorboard(folder: str, cwd: str, shows: Sequence[str]) -> Program:
    """`shows`: =PATH of one directory, or NAME=PATH of each of several. TensorBoard follows the links to them."""
    links: dict[str, str] = dict(each.partition("=")[::2] for each in shows)
    one = links.pop("", "")
    host = f"--host=unix://{socket_path(folder, TENSORBOARD)}"
    # load_fast starts a second server, on a port. werkzeug reads the port, and ignores it.
    flags = ("--port=0", "--load_fast=false", f"--logdir={Path(cwd, one) if one else f'{folder}/{LINKS}'}")
    return Program(
        ("sh", "-c", _FIND_PYTHON, _ON_SOCKET, host, *flags),
        links={name: str(Path(cwd, path)) for name, path in links.items()},
        missing="install it there: pip install tensorboard",
    )


START_S: Final = 180.0  # Jupyter reads thousands of files, perhaps from a busy file server
POLL_S: Final = 0.1
MOST_LINES: Final = 20  # of the program's output, in the message of a failure
_BIND: Final = "APPTAINER_BIND"  # more mounts of apptainer, separated by commas


class NotOpenedError(SlurmPluginError):
    """The program cannot be opened, or has ended (exit 1)."""


def main(options: argparse.Namespace) -> int:
    """Start a program, print its answer and wait for its end. If it runs already, print its answer and return."""
    launch = launch_record.read(Path(options.directory))
    worker = enter.existing_worker(launch, options.worker)
    if launch.step:
        raise NotOpenedError(
            f"job {launch.job} runs in a container of pyxis, in which nothing more can be started on a socket\n"
            f"  a shell in such a container: slurm-plugin open {launch.job} shell"
        )
    folder = node_directory.user_folder(launch.run_directory, launch.node_directory)
    os.umask(0o077)
    answer = f"{folder}/{options.what}.json"
    lock = os.open(f"{folder}/{options.what}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    if not _locked(lock):
        return _print(_of_another(answer, tuple(options.shows), lambda: _locked(lock)))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the job or this step ends
    try:
        return _opened(options, launch, worker, folder, answer)
    finally:
        os.close(lock)
        if folder.startswith(node_directory.SPARE):
            _remove_last(folder, launch.node_directory)


def _opened(options: argparse.Namespace, launch: launch_record.Saved, worker: int, folder: str, answer: str) -> int:
    """Run the program until it ends."""
    with suppress(FileNotFoundError):
        Path(answer).unlink()
    environ = enter.worker_environment(launch, worker)
    made = program_for(options.what, folder, launch.cwd, options.shows, secrets.token_hex(16), root=os.geteuid() == 0)
    _write(folder, made)
    environ |= made.variables
    if launch.inside:
        environ[_BIND] = ",".join(filter(None, (environ.get(_BIND, ""), folder)))
    found = OpenProgram(
        options.what,
        launch.nodes[worker],
        socket_path(folder, options.what),
        made.address,
        f"{launch.job}.{os.environ.get('SLURM_STEP_ID', '')}",
        tuple(options.shows),
        ssh=bool(ssh.server(launch.environ)),
    )
    if not os.path.isdir(launch.cwd):  # noqa: PTH112
        raise NotOpenedError(f"{launch.cwd}: found no such directory on {found.node}")
    process = _start([*launch.inside, *made.words], environ, launch.cwd, found)
    return _serve(process, found, answer, made.missing)


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove_last(folder: str, run: str) -> None:
    """Remove the folder in /tmp after the last program in it, unless it is the launch's own and its guards remove it.

    Without guards, nothing else would remove it.
    """
    if os.path.exists(f"{folder}/{node_directory.TASK_FILE}"):  # noqa: PTH110
        return
    locks = []
    with suppress(OSError):
        for path in Path(folder).glob("*.lock"):
            locks.append(os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC))
            if not _locked(locks[-1]):
                break
        else:
            node_directory.remove_spare(run)
    for lock in locks:
        os.close(lock)


def _of_another(answer: str, shows: tuple[str, ...], ended: Callable[[], bool]) -> OpenProgram:
    """Return the answer of the process that has the lock, once it is there. Raise NotOpenedError without one."""
    end = time.monotonic() + START_S
    while not (found := open_program.read(answer)):
        if ended() or time.monotonic() > end:
            raise NotOpenedError("another call has just tried to open it, without success\n  try it again")
        time.sleep(POLL_S)
    if shows != found.shows:
        known = printable(", ".join(found.shows))
        raise NotOpenedError(
            f"{found.program} is open already, and shows {known}\n  end it first: scancel {found.step}"
        )
    return found


def _write(folder: str, made: Program) -> None:
    """Write the program's files and links into the user's folder. Raise OSError."""
    for name, text in made.files.items():
        files.replace(f"{folder}/{name}", text, mode=0o600)
    links = Path(folder, LINKS)
    links.mkdir(exist_ok=True)
    for old in links.iterdir():
        old.unlink()
    for name, target in made.links.items():
        (links / name).symlink_to(target)
    Path(folder, RUNTIME).mkdir(exist_ok=True)


def _start(words: list[str], environ: Mapping[str, str], cwd: str, found: OpenProgram) -> "subprocess.Popen[bytes]":
    with suppress(FileNotFoundError):
        Path(found.socket).unlink()
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    try:
        return subprocess.Popen(words, env=environ, cwd=cwd, stdin=null, stdout=pipe, stderr=subprocess.STDOUT)
    except OSError as error:
        raise MissingError(f"{words[0]}: {error.strerror} on {found.node}") from error


def _serve(process: "subprocess.Popen[bytes]", found: OpenProgram, answer: str, missing: str) -> int:
    """Wait for the program's end. Raise NotOpenedError or MissingError if it does not answer."""
    last = deque[str](maxlen=MOST_LINES)
    assert process.stdout  # noqa: S101 - it is a pipe
    reader = threading.Thread(target=_read, args=(process.stdout, last), daemon=True)
    reader.start()
    end = time.monotonic() + START_S
    try:
        while not _answers(found.socket):
            if process.poll() is not None or time.monotonic() > end:
                reader.join(1.0)
                raise _failure(process.poll(), found, last, missing)
            time.sleep(POLL_S)
        Path(found.socket).chmod(0o600)
        files.replace(answer, f"{found.line}\n", mode=0o600)
        _print(found)
        return process.wait()
    finally:
        process.kill()
        for path in (answer, found.socket):
            with suppress(OSError):
                Path(path).unlink()


def _print(found: OpenProgram) -> int:
    print(found.line, flush=True)
    return 0


def _read(pipe: IO[bytes], last: "deque[str]") -> None:
    """Read all that the program prints, so that it never waits, and keep the last lines."""
    for line in pipe:
        last.append(printable(line.decode(errors="replace").rstrip()))


def _answers(path: str) -> bool:
    """Return whether a program accepts connections on a socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(POLL_S)
        try:
            probe.connect(path)
        except OSError:
            return False
    return True


def _failure(code: int | None, found: OpenProgram, last: "deque[str]", missing: str) -> SlurmPluginError:
    said = "".join(f"\n  {line}" for line in last)
    if code == NOT_FOUND:
        return MissingError(f"{found.program} cannot be started on {found.node}{said}\n  {missing}")
    how = f"ended with exit code {code}" if code is not None else f"did not answer in {START_S:g} s"
    return NotOpenedError(f"{found.program} {how} on {found.node}{said}")
