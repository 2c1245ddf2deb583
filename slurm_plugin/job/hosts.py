"""`slurm-plugin hosts FORMAT`: a hostfile or launch variables, inside a job or for a list given by hand."""

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import hostfiles
from hostfiles.environment import number, step_id
from hostfiles.nodelist import expand_counts
from slurm_plugin.job import files
from slurm_plugin.job.run import master_port, restart_count

_BY_HAND = ("tasks_per_node", "distribution", "job_id")  # what only --nodelist can have


def main(args: list[str]) -> int:
    """Print or write one format. Exit 0; 2 where the allocation cannot be read or the file not written."""
    if args[:1] == ["convert"]:
        from slurm_plugin.job import convert  # noqa: PLC0415 - rank tables are JSON, which no other format needs

        return convert.main(args[1:])
    parser = _parser()
    options = parser.parse_args(args)
    for name in _BY_HAND:
        if options.nodelist is None and getattr(options, name) is not None:
            parser.error(
                f"--{name.replace('_', '-')} describes the nodes of --nodelist; inside a job Slurm describes them"
            )
    return deliver(lambda: _text(options, os.environ), options.output)


def deliver(made: Callable[[], str], output: Path | None) -> int:
    """Print a text or write it as a whole. Exit 0; 2 with one line where it cannot be made or written."""
    try:
        text = made()
        if output is None:
            sys.stdout.write(text)
        else:
            files.write(output, text)
    except hostfiles.HostfileError as error:
        print(f"slurm-plugin: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"slurm-plugin: {output}: {error.strerror}; nothing was written", file=sys.stderr)
        return 2
    return 0


def _text(options: argparse.Namespace, environ: Mapping[str, str]) -> str:
    """The format's text. Raises HostfileError for an option that the format does not take."""
    takes = hostfiles.OPTIONS.get(options.format, ())
    known = {name for names in hostfiles.OPTIONS.values() for name in names}
    given = {name: getattr(options, name) for name in known if getattr(options, name) is not None}
    for name in sorted(given.keys() - takes):
        raise hostfiles.HostfileError(f"--{name} is no option of {options.format}; {_takers(name)} takes it")
    task = options.task
    if options.nodelist is None and step_id(environ) is not None:  # a step: for the task and the node that ask
        if options.format in hostfiles.PER_TASK and task is None:
            task = number(environ, "SLURM_PROCID")
        if "node" in takes:
            given.setdefault("node", number(environ, "SLURM_NODEID") or 0)
    allocation = _allocation(options, environ)
    return hostfiles.FORMATS[options.format](allocation, _port(options, environ, allocation), task, **given)


def _takers(name: str) -> str:
    return ", ".join(form for form, names in hostfiles.OPTIONS.items() if name in names)


def _allocation(options: argparse.Namespace, environ: Mapping[str, str]) -> hostfiles.Allocation:
    if options.nodelist is None:
        return hostfiles.from_slurm(environ, options.slots)
    return hostfiles.from_lists(
        options.nodelist,
        slots=1 if options.slots is None else options.slots,
        tasks_per_node=options.tasks_per_node,
        job_id=options.job_id or 0,
        distribution=options.distribution or "block",
    )


def _port(options: argparse.Namespace, environ: Mapping[str, str], allocation: hostfiles.Allocation) -> int:
    """The port of rank 0: in a job of ours the one that its program was told, whatever the step."""
    if options.nodelist is not None:
        return master_port(allocation.job_id, 0)
    return number(environ, "SLURM_PLUGIN_PORT") or master_port(
        allocation.job_id, restart_count(environ) + allocation.step_id
    )


def _slots(text: str) -> int | list[int]:
    """`4` for every node, or one count a node in Slurm's form."""
    try:
        return int(text) if text.lstrip("-").isdigit() else expand_counts(text)
    except hostfiles.HostfileError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="slurm-plugin hosts", description=__doc__, allow_abbrev=False)
    parser.add_argument("format", choices=tuple(hostfiles.FORMATS), metavar="FORMAT", help=", ".join(hostfiles.FORMATS))
    parser.epilog = "slurm-plugin hosts convert FILE --to ranktable-1.0 converts a rank table; it has its own --help."
    parser.add_argument("--output", type=Path, metavar="FILE", help="write FILE, as a whole or not at all")
    parser.add_argument(
        "--slots", type=_slots, help="slots of every node, or 4(x2),2 (inside a job: its accelerators, else 1)"
    )
    parser.add_argument(
        "--task", type=int, help="the variables of this rank (pytorch without it: of a node's launcher)"
    )
    parser.add_argument("--node", type=int, help="pytorch: the launcher of this node, from 0 (in a step: this node)")
    parser.add_argument("--ps", type=int, help="tensorflow: parameter servers (0, all-reduce)")
    parser.add_argument("--chief", action="store_true", default=None, help="tensorflow: rank 0 is a chief, no worker")
    parser.add_argument("--evaluator", action="store_true", default=None, help="tensorflow: the last rank evaluates")
    by_hand = parser.add_argument_group("outside a job")
    by_hand.add_argument("--nodelist", help="the nodes, in Slurm's form, such as n[1-4]")
    by_hand.add_argument("--tasks-per-node", help="in Slurm's form, such as 4(x2),2 (one each)")
    by_hand.add_argument("--distribution", help="which rank runs where: block (default), cyclic, plane=N")
    by_hand.add_argument("--job-id", type=int, help="the job whose port is printed")
    return parser
