"""`slurm-plugin hosts FORMAT`: print a hostfile, rank table or launch variables, for a job or for given nodes.

In place of a format, `devices` prints this node's name, address and Ascend devices. `convert` converts a rank table.
"""

import os
import re
from argparse import Namespace
from collections.abc import Iterable, Mapping
from pathlib import Path

import hostfiles
from hostfiles import HostfileError
from hostfiles.allocation import number, step_id
from hostfiles.nodelist import expand_counts
from slurm_plugin.cli.nodeside.definition import Command, Parameter, Verbs
from slurm_plugin.errors import UsageError
from slurm_plugin.supervisor.hosts import command
from slurm_plugin.supervisor.run import master_port, restart_count

_BY_HAND = ("tasks_per_node", "distribution", "job_id")  # options that need --nodelist
_OF_LINES = ("distribution", "job_id")  # options that --devices also allows outside a job


def _hosts(options: Namespace) -> int:
    """Print or write one format. Return 2 if the allocation cannot be read or the file cannot be written."""
    _check(options)
    announce = hostfiles.DEVICES.get(options.format, False)  # True for a rank table, for which programs wait
    return command.deliver(
        lambda: _text(options, command.own_environment(os.environ)), options.output, announce=announce
    )


def _check(options: Namespace) -> None:
    """Raise UsageError for options that do not go together."""
    of_lines = options.devices is not None and "SLURM_JOB_ID" not in os.environ
    for name in _BY_HAND:
        if options.nodelist is None and getattr(options, name) is not None and not (of_lines and name in _OF_LINES):
            raise UsageError(
                f"--{name.replace('_', '-')} describes the nodes of --nodelist; inside a job Slurm describes them"
            )
    if options.wait is not None and not options.table:
        raise UsageError("--wait is for the rank table of --table")


def _text(options: Namespace, environ: Mapping[str, str]) -> str:
    """Return the format's text. Raise HostfileError for an option that the format does not take."""
    given = _given(options)
    task = options.task
    if options.nodelist is None and step_id(environ) is not None:  # in a step: its task and node by default
        if options.format in hostfiles.PER_TASK and task is None:
            task = number(environ, "SLURM_PROCID")
        if "node" in hostfiles.OPTIONS.get(options.format, ()):
            given.setdefault("node", number(environ, "SLURM_NODEID") or 0)
    if options.format in hostfiles.DEVICES:
        from slurm_plugin.supervisor.hosts import ascend_hosts  # noqa: PLC0415 - the resolver, JSON and srun

        allocation, task = ascend_hosts.prepared(options, environ, task)
    else:
        of_node = "node" in hostfiles.OPTIONS.get(options.format, ()) and options.node is None
        of_all = options.format not in hostfiles.PER_TASK and not of_node
        allocation = command.described(options, environ, options.slots, of_all=of_all)
    return hostfiles.FORMATS[options.format](allocation, _port(options, environ, allocation), task, **given)


def _given(options: Namespace) -> dict[str, object]:
    """Return the options that only some formats take. Raise HostfileError for any that this format does not take."""
    takes = hostfiles.OPTIONS.get(options.format, ())
    known = {name for names in hostfiles.OPTIONS.values() for name in names}
    values = {name: getattr(options, name) for name in known}
    found = {name: value for name, value in values.items() if value is not None and value is not False}
    for name in sorted(found.keys() - takes):
        takers = (form for form, names in hostfiles.OPTIONS.items() if name in names)
        raise HostfileError(f"--{name} is no option of {options.format}; {_take(takers)} it")
    if options.devices is not None and options.format not in hostfiles.DEVICES:
        raise HostfileError(f"--devices is no option of {options.format}; {_take(hostfiles.DEVICES)} it")
    return found


def _take(forms: Iterable[str]) -> str:
    names = list(forms)
    return f"{', '.join(names)} {'takes' if len(names) == 1 else 'take'}"


def _port(options: Namespace, environ: Mapping[str, str], allocation: hostfiles.Allocation) -> int:
    """Return the port of rank 0. In a job with a supervisor, every step gets the port of the job's program."""
    if options.nodelist is not None:
        return master_port(allocation.job_id, 0)
    # A job inherits the variables of a job that submitted it.
    own = environ.get("SLURM_PLUGIN_DIRECTORY", "").endswith(f"/{allocation.job_id}")
    port = number(environ, "SLURM_PLUGIN_PORT") if own else None
    return port or master_port(allocation.job_id, restart_count(environ) + allocation.step_id)


def _devices(options: Namespace) -> int:
    """Print this node's line. If the devices cannot be read, print an error that names the node, and return 2."""
    from slurm_plugin.supervisor.hosts import devices  # noqa: PLC0415 - srun and the resolver

    def line() -> str:
        environ = command.own_environment(os.environ)
        return devices.own_line(devices.own_name(options.name, environ), environ) + "\n"

    return command.deliver(line, None)


def _convert(options: Namespace) -> int:
    """Print or write the converted table. Return 2 if FILE is not a complete table or the output cannot be written."""
    from hostfiles import ranktable_read  # noqa: PLC0415 - JSON
    from slurm_plugin.supervisor.hosts import ranktable  # noqa: PLC0415

    if options.to is None:
        raise UsageError(f"--to is missing: {TO.help}")

    def converted() -> str:
        text, table = ranktable.wait(options.file, deadline_s=options.wait, uneven=options.uneven, say=command.warn)
        return ranktable_read.as_1_0(text, table, uneven=options.uneven)

    return command.deliver(converted, options.output)


def _slots(text: str) -> int | list[int]:
    """Parse the slots of every node (`4`), or of each node in Slurm's form (`4(x2),2`)."""
    return int(text) if text.lstrip("-").isdigit() else expand_counts(text)


def _seconds(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text, re.ASCII):
        raise ValueError(f"{text!r}: accepted: a number of seconds, such as 60; 0 does not wait")
    return float(text)


def _absolute(text: str) -> str:
    return str(Path(text).absolute())


def _wait(what: str) -> Parameter:
    """Return the option --wait. The default is the time for which HCCL waits."""
    return Parameter("--wait", f"For {what} to be there, whole and `completed`.  [1800]", "SECONDS", read=_seconds)


OUTPUT = Parameter("--output", "Write FILE, as a whole or not at all.", "FILE", read=Path)
TO = Parameter("--to", "The form that is wanted.  [required]", choices=("ranktable-1.0",))
HOSTS = Command(
    "hosts",
    "Print a hostfile, rank table or launch variables, inside a job or for nodes given by hand.\n\n"
    "slurm-plugin hosts devices prints what this node says of its Ascend devices; slurm-plugin hosts convert FILE"
    " --to ranktable-1.0 converts a rank table. Each has its own --help.",
    (
        Parameter("format", ", ".join(hostfiles.FORMATS), "FORMAT", choices=tuple(hostfiles.FORMATS)),
        OUTPUT,
        Parameter(
            "--slots",
            "Slots of every node, or 4(x2),2.  [inside a job: its accelerators, else 1]",
            "SLOTS",
            read=_slots,
        ),
        Parameter(
            "--task",
            "The variables of this rank (without it: pytorch, of a node's launcher; ascend, of the scheduler).",
            "TASK",
            read=int,
        ),
        Parameter("--node", "pytorch: the launcher of this node, from 0.  [in a step: this node]", "NODE", read=int),
        Parameter("--ps", "tensorflow: parameter servers.  [0, all-reduce]", "PS", read=int),
        Parameter("--chief", "tensorflow: rank 0 is a chief, no worker."),
        Parameter("--evaluator", "tensorflow: the last rank evaluates."),
        Parameter("--uneven", "ranktable: accept nodes with unequal numbers of devices."),
        Parameter("--table", "ascend: the rank table (without it: the dynamic cluster).", "FILE", read=_absolute),
        Parameter("--devices", "ranktable, ascend: what `hosts devices` prints on each node; - is stdin.", "FILE"),
        _wait("the FILE of --table"),
        Parameter("--nodelist", "Outside a job: the nodes, in Slurm's form, such as n[1-4].", "NODELIST"),
        Parameter(
            "--tasks-per-node",
            "Outside a job: in Slurm's form, such as 4(x2),2.  [one each, or a device]",
            "TASKS_PER_NODE",
        ),
        Parameter(
            "--distribution",
            "Outside a job: which rank runs where: block, cyclic, plane=N.  [block]",
            "DISTRIBUTION",
        ),
        Parameter("--job-id", "Outside a job: the job whose port is printed.", "JOB_ID", read=int),
    ),
    _hosts,
)
CONVERT = Command(
    "hosts convert",
    "Convert a rank table to another form.",
    (
        Parameter("file", "template 2 (jobstart_hccl.json), the lab form, or 1.0, to check it", "FILE", read=Path),
        TO,
        OUTPUT,
        _wait("FILE"),
        Parameter("--uneven", "Accept servers with unequal numbers of devices."),
    ),
    _convert,
)
DEVICES = Command(
    "hosts devices",
    "Print what this node says of its Ascend devices: name, address, and id=address of each device.",
    (Parameter("--name", "The node's name in Slurm.  [SLURMD_NODENAME, else the host's name]", "NAME"),),
    _devices,
)
main = Verbs(HOSTS, {"convert": CONVERT, "devices": DEVICES})
