"""Find the Ascend devices of this node (`slurm-plugin hosts devices`), of all nodes of a job, or of a file's nodes.

A node's line is `n1 10.0.0.1 0=192.168.1.8 1=192.168.1.9` (hostfiles.npu). An error is a line on stderr that begins
with the node's name.
"""

import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from hostfiles import Allocation, HostfileError
from hostfiles.allocation import groups
from hostfiles.nodelist import is_name
from slurm_plugin.records import site_settings
from slurm_plugin.slurm import steps
from slurm_plugin.slurm.process import Result
from slurm_plugin.supervisor import network

DEADLINE_S: Final = 200.0  # hccn_tool may take 10 s for each of 16 devices, and a prolog needs time too
STDIN: Final = "-"


def own_name(given: str | None, environ: Mapping[str, str]) -> str:
    """Return the name of this node in Slurm: `given`, else SLURMD_NODENAME, else the host name."""
    name = given or environ.get("SLURMD_NODENAME") or socket.gethostname()
    if not is_name(name):
        raise HostfileError(f"{name[:60]!r} is no host name; give this node's with --name")
    return name


def own_line(name: str, environ: Mapping[str, str], *, alone: bool | None = None) -> str:
    """Return this node's line. `alone`: the table has no other node; None: true if the job has only one node.

    Raise HostfileError, with the node's name, if the devices cannot be read.
    """
    if alone is None:
        alone = environ.get("SLURM_JOB_NUM_NODES") == "1" and not groups(environ)
    try:
        return network.device_line(name, environ, alone=alone)
    except HostfileError as error:
        text = str(error)
        raise HostfileError(text if text.startswith(f"{name} ") else f"{name}: {text}") from error


def ask(allocation: Allocation, environ: Mapping[str, str]) -> list[str]:
    """Run one step and return the lines of all nodes of a job, including all groups of a heterogeneous job.

    Raise HostfileError with the message of a node that failed, and MissingError without srun.
    """
    names = allocation.names
    known = set(names)
    if names == (environ.get("SLURMD_NODENAME"),):
        return [own_line(names[0], environ, alone=True)]
    command, bin_directory = [*site_settings.plugin_command(), "hosts", "devices"], site_settings.slurm_bin()
    said = steps.one_task_a_node(command, names, "", DEADLINE_S, groups(environ), directory=bin_directory)
    lines = [
        line for line in said.out.splitlines() if line.partition(" ")[0] in known
    ]  # a TaskProlog may print other lines
    spoke = {line.partition(" ")[0] for line in lines}
    if silent := [name for name in names if name not in spoke]:
        raise HostfileError(_why(silent, said))
    return lines


def _why(silent: Sequence[str], said: Result) -> str:
    """Return why nodes are silent: a message of one of them, else that the time is up, else srun's error."""
    rest = f" ({len(silent) - 1} more said nothing either)" if len(silent) > 1 else ""
    words = [line.removeprefix("slurm-plugin: ") for line in said.err.splitlines() if line.startswith("slurm-plugin: ")]
    for name in silent:
        for text in words:
            if text.startswith((f"{name}:", f"{name} ")):
                return text + rest
    if said.code is None:
        return f"{silent[0]} said nothing of its devices in {DEADLINE_S:g} s{rest}; try srun slurm-plugin hosts devices"
    heard = next((line.strip() for line in said.err.splitlines() if line.strip()), f"srun ended with {said.code}")
    return f"{silent[0]} said nothing of its devices{rest}: {heard[:200]}"


def read(path: str) -> list[str]:
    """Return the non-empty lines of a file, or of stdin for `-`. Raise HostfileError if there are none."""
    shown = "stdin" if path == STDIN else path
    try:
        if path == STDIN:
            text = sys.stdin.read()
        else:
            with open(path, encoding="utf-8") as file:  # noqa: PTH123 - also a pipe of the shell: <(srun …)
                text = file.read()
    except OSError as error:
        raise HostfileError(f"{shown}: {error.strerror}; --devices takes what `hosts devices` prints") from error
    except UnicodeDecodeError:
        raise HostfileError(f"{shown}: no text; --devices takes what `hosts devices` prints") from None
    if not (lines := [line for line in text.splitlines() if line.strip()]):
        raise HostfileError(f"{shown}: empty; --devices takes a line of each node, as `hosts devices` prints it")
    return lines
