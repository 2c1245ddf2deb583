"""How Jupyter and TensorBoard are started on a UNIX socket: their words, and the files that they read. Pure.

Jupyter listens on a UNIX socket by itself, and its kernels too (`transport: ipc`). Its token is in a file. TensorBoard
listens on a TCP port only, on which every user of the node could connect. So a few lines of Python start TensorBoard's
own server on the socket. Both run in the environment of the job's program, and in its container.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from slurm_plugin.errors import UsageError
from slurm_plugin.records.open_program import JUPYTER, TENSORBOARD

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


def program(name: str, folder: str, cwd: str, shows: Sequence[str], token: str, *, root: bool = False) -> Program:
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
