"""`slurm-plugin check fabric`: measure the network between nodes by hand, in an allocation of exactly these nodes."""

import json
import os
import shutil
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn

import prechecks
from hostfiles import HostfileError, nodelist
from prechecks import Verdict
from prechecks.fabric import Thresholds
from slurm_plugin.cli.nodeside import job_lookup, output
from slurm_plugin.cli.nodeside.definition import JSON, Command, Parameter, coloured, within
from slurm_plugin.errors import MissingError, UsageError, printable
from slurm_plugin.records import site_settings
from slurm_plugin.slurm import Slurm, steps
from slurm_plugin.supervisor import fabric
from slurm_plugin.views import check as view

MPIS: Final = ("openmpi", "mpich", "intelmpi")
WAIT_S: Final = 60
_SECONDS: Final = within(2, 86400, int)  # salloc's --immediate=1 would not wait
START_S: Final = 120.0  # of the time limit: for the prolog, and for the end of the launcher
NO_JOB: Final = frozenset({"DOWN", "DRAIN", "FAIL"})  # Slurm gives these nodes to no job


def _fabric(options: Namespace) -> int:
    """Check the nodes in the caller's allocation if it has them, else in a new one, in place of this process."""
    names = _names(options.nodes)
    launcher = fabric.launcher(options.mpi, names)
    if not shutil.which(launcher[0]):
        raise MissingError(f"{launcher[0]} was not found on the PATH\n  load the module of the MPI, or give --mpi")
    if "SLURM_JOB_ID" in os.environ and {*names} <= {*nodelist.names(os.environ.get("SLURM_JOB_NODELIST", ""))}:
        return _run(names, launcher, options)
    for line in waits_for(job_lookup.door_to_slurm(), names):
        print(f"slurm-plugin: {line}; it waits up to {options.wait} s", file=sys.stderr, flush=True)
    words = ["check", "fabric", f"--nodes={nodelist.fold(names)}"]
    words += [f"--mpi={options.mpi}", f"--interpreter={options.interpreter}"]
    words += [f"--least={options.least}"] if options.least is not None else []
    words += ["--json"] if options.json else []
    limit_s = _deadline_s(names) + START_S
    argv = steps.in_allocation([*_command(), *words], names, limit_s, options.wait, options.partition)
    return steps.become(argv, steps.REFUSED)


def _names(text: str) -> list[str]:
    """Return the nodes that `--nodes` names. Raise UsageError for fewer than two."""
    try:
        names = list(dict.fromkeys(nodelist.expand(text)))
    except HostfileError as error:
        raise UsageError(f"--nodes={printable(text)}: {error}\n  accepted are lists such as n[1-4],n9") from error
    if len(names) < 2:
        raise UsageError(f"--nodes={printable(text)}: found {len(names)}; accepted: two nodes or more, such as n[1-4]")
    return names


def waits_for(door: Slurm, names: Sequence[str]) -> list[str]:
    """Return a line for each node that is in use. Raise UsageError for nodes that no job can get."""
    found = door.nodes(names)
    if unknown := [name for name in names if name not in found]:
        raise UsageError(f"Slurm has no node {printable(' '.join(unknown[:8]))}\n  see its nodes with: sinfo -N")
    states = {each.name: "+".join(sorted(each.states)) for each in found.values()}
    if out := [f"{each.name} ({states[each.name]}: {each.reason})" for each in found.values() if each.states & NO_JOB]:
        text = f"Slurm starts no job on {printable(', '.join(out[:8]))}"
        raise UsageError(f"{text}\n  leave these nodes out, or see: slurm-plugin why NODE")
    return [f"{each.name} is {states[each.name]}" for each in found.values() if "IDLE" not in each.states]


def _command() -> list[str]:
    """Return the command for the allocation: the deployed copy, which the nodes have at the same path, if there is one.

    The ranks run a file of that copy.
    """
    deployed = f"{site_settings.DEFAULT_ROOT}/bin/slurm-plugin"
    ours = site_settings.plugin_command()
    return ours if site_settings.deployed() or not os.access(deployed, os.X_OK) else [deployed]


def _deadline_s(names: Sequence[str]) -> float:
    return fabric.DEADLINE_S + fabric.MORE_A_HOST_S * len(names)


def _run(names: Sequence[str], launcher: Sequence[str], options: Namespace) -> int:
    """Run the check, print the verdicts and return the exit code. A signal ends the launcher and its ranks."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # the job was cancelled, the terminal has gone
        signal.signal(number, _interrupt)
    verdicts = fabric.check(
        names,
        launcher=launcher,
        python=options.interpreter,
        environ={name: value for name, value in os.environ.items() if name != "SLURM_EXPORT_ENV"},
        deadline_s=_deadline_s(names),
        thresholds=Thresholds(floor_mbs=options.least),
        say=lambda text: print(f"slurm-plugin: {printable(text)}", file=sys.stderr, flush=True),
    )
    return show(verdicts, as_json=options.json)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def show(verdicts: Mapping[str, Verdict], *, as_json: bool) -> int:
    """Print the verdicts, those of the nodes to blame first, and return the exit code.

    Raise MissingError if the ranks' Python has no mpi4py, or one for another MPI.
    """
    rows = [each._replace(item=name) for name, each in verdicts.items()]
    if all(each.verdict == prechecks.ERROR and "mpi4py" in each.message for each in rows):
        raise MissingError(
            f"{printable(rows[0].message)}\n  give a Python that has mpi4py for this MPI: --interpreter PATH"
        )
    if as_json:
        fields = ("verdict", "message", "value", "threshold", "seconds")
        nodes = {each.item: {name: getattr(each, name) for name in fields} for each in rows}
        print(json.dumps({"v": 1, "nodes": nodes}), flush=True)
        return view.exit_code(rows)
    rows.sort(key=lambda each: each.verdict != prechecks.FAILED)
    report = prechecks.Report(nodelist.fold(list(verdicts)), None, "hand", time.time(), tuple(rows))
    output.show("\n".join((*view.table(rows, on=coloured(), first="NODE"), "", view.summary(report)[0])))
    return view.exit_code(rows)


def _speed(text: str) -> float:
    if not 0 < float(text) < float("inf"):
        raise ValueError(text)
    return float(text)


FABRIC = Command(
    "check fabric",
    "Measure the network between nodes, as `prechecks: [fabric]` does for a job, and name the slow nodes and pairs. "
    "Starts a job (salloc) on exactly these nodes, alone on them, unless it runs in an allocation that has them. "
    "Never drains a node. Variables of salloc count, such as SALLOC_ACCOUNT and SALLOC_RESERVATION.\n\n"
    "Exit 0: all fine; 1: a slow or failing node was found; 2: wrong usage, the nodes were not free in time, or the "
    "result is unknown; 3: no MPI, or no mpi4py.",
    (
        Parameter("--nodes", "The nodes, two or more: n[1-16].", "NODES", ""),
        Parameter("--mpi", "The MPI that starts the ranks.  [default: openmpi]", default="openmpi", choices=MPIS),
        Parameter("--interpreter", "The Python of the ranks. It needs mpi4py.  [default: python3]", "PATH", "python3"),
        Parameter("--least", "A link is slow below this speed (1e6 bytes/s), too.", "MB/S", read=_speed),
        Parameter("--partition", "Get the nodes in this partition.", "NAME", ""),
        Parameter("--wait", f"Wait so long for the nodes.  [default: {WAIT_S}]", "SECONDS", WAIT_S, _SECONDS),
        JSON,
    ),
    _fabric,
)
