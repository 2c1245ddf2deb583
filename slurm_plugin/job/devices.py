"""What nodes say of their Ascend devices: this one (`slurm-plugin hosts devices`), all of a job, those in a file.

A line reads `n1 10.0.0.1 0=192.168.1.8 1=192.168.1.9` (hostfiles.npu); an error is a line on stderr with the name.
"""

import argparse
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from hostfiles import Allocation, HostfileError
from hostfiles.environment import groups
from hostfiles.nodelist import is_name
from slurm_plugin.job import ascend, itself
from slurm_plugin.job.deliver import deliver
from slurm_plugin.slurm import steps
from slurm_plugin.slurm.process import Result

DEADLINE_S: Final = 200.0  # hccn_tool may take its 10 s for each of 16 devices, and a node's prolog some
STDIN: Final = "-"


def main(args: list[str]) -> int:
    """Print this node's line. Exit 0; 2 with one line that names the node where it cannot say."""
    parser = argparse.ArgumentParser(
        prog="slurm-plugin hosts devices",
        description="Print what this node says of its Ascend devices: name, address, and id=address of each device.",
        allow_abbrev=False,
    )
    parser.add_argument("--name", help="the node's name in Slurm (SLURMD_NODENAME, else the host's name)")
    name = parser.parse_args(args).name
    return deliver(lambda: own_line(_own_name(name, os.environ), os.environ) + "\n", None)


def own_line(name: str, environ: Mapping[str, str], *, alone: bool | None = None) -> str:
    """What this node says. `alone`: no other is in the table; None means that the job has no other.

    Raises HostfileError, with the node's name, where it cannot say.
    """
    if alone is None:
        alone = environ.get("SLURM_JOB_NUM_NODES") == "1" and "SLURM_HET_SIZE" not in environ
    try:
        return ascend.line(name, environ, alone=alone)
    except HostfileError as error:
        text = str(error)
        raise HostfileError(text if text.startswith(f"{name} ") else f"{name}: {text}") from error


def asked(allocation: Allocation, environ: Mapping[str, str]) -> list[str]:
    """The lines of all nodes of a job: of each group of a heterogeneous one too, in one step.

    Raises HostfileError with a node's own words where it cannot say, and MissingError without srun.
    """
    names = allocation.names
    known = set(names)
    if names == (environ.get("SLURMD_NODENAME"),):
        return [own_line(names[0], environ, alone=True)]
    said = steps.one_task_a_node([*itself.command(), "hosts", "devices"], names, "", DEADLINE_S, groups=groups(environ))
    lines = [line for line in said.out.splitlines() if line.partition(" ")[0] in known]  # a TaskProlog may print, too
    spoke = {line.partition(" ")[0] for line in lines}
    if silent := [name for name in names if name not in spoke]:
        raise HostfileError(_why(silent, said))
    return lines


def _why(silent: Sequence[str], said: Result) -> str:
    """Why nodes said nothing: the first one's own words, else srun's, else that the time is up."""
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
    """The lines of a file, or of stdin for `-`; empty ones are nobody's. Raises HostfileError where there are none."""
    shown = "stdin" if path == STDIN else path
    try:
        if path == STDIN:
            text = sys.stdin.read()
        else:
            with open(path, encoding="utf-8") as file:  # noqa: PTH123 - a pipe of the shell's, too: <(srun …)
                text = file.read()
    except OSError as error:
        raise HostfileError(f"{shown}: {error.strerror}; --devices takes what `hosts devices` prints") from error
    except UnicodeDecodeError:
        raise HostfileError(f"{shown}: no text; --devices takes what `hosts devices` prints") from None
    if not (lines := [line for line in text.splitlines() if line.strip()]):
        raise HostfileError(f"{shown}: empty; --devices takes a line of each node, as `hosts devices` prints it")
    return lines


def _own_name(given: str | None, environ: Mapping[str, str]) -> str:
    name = given or environ.get("SLURMD_NODENAME") or socket.gethostname()
    if not is_name(name):
        raise HostfileError(f"{name[:60]!r} is no host name; give this node's with --name")
    return name
