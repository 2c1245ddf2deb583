"""The options of `slurm-plugin hosts`, and the nodes that they or Slurm's variables describe."""

import argparse
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import hostfiles
from hostfiles.nodelist import expand_counts

_BY_HAND = ("tasks_per_node", "distribution", "job_id")  # what only nodes given by hand can have
_OF_LINES = ("distribution", "job_id")  # … those of --devices too, outside a job


def parse(args: list[str]) -> argparse.Namespace:
    """The options. Ends the process with 2 for words that are not known, as argparse does."""
    parser = _parser()
    options = parser.parse_args(args)
    of_lines = options.devices is not None and "SLURM_JOB_ID" not in os.environ
    for name in _BY_HAND:
        if options.nodelist is None and getattr(options, name) is not None and not (of_lines and name in _OF_LINES):
            parser.error(
                f"--{name.replace('_', '-')} describes the nodes of --nodelist; inside a job Slurm describes them"
            )
    return options


def given(options: argparse.Namespace) -> dict[str, object]:
    """The options that only some formats take. Raises HostfileError for one that this format does not take."""
    takes = hostfiles.OPTIONS.get(options.format, ())
    known = {name for names in hostfiles.OPTIONS.values() for name in names}
    found = {name: getattr(options, name) for name in known if getattr(options, name) is not None}
    for name in sorted(found.keys() - takes):
        takers = (form for form, names in hostfiles.OPTIONS.items() if name in names)
        raise hostfiles.HostfileError(f"--{name} is no option of {options.format}; {_take(takers)} it")
    if options.devices is not None and options.format not in hostfiles.DEVICES:
        raise hostfiles.HostfileError(f"--devices is no option of {options.format}; {_take(hostfiles.DEVICES)} it")
    return found


def described(
    options: argparse.Namespace, environ: Mapping[str, str], slots: int | Sequence[int] | None
) -> hostfiles.Allocation:
    """The nodes of --nodelist, else of the job or step. Raises HostfileError where there are neither."""
    if options.nodelist is None:
        return hostfiles.from_slurm(environ, slots)
    return hostfiles.from_lists(
        options.nodelist,
        slots=1 if slots is None else slots,
        tasks_per_node=options.tasks_per_node,
        job_id=options.job_id or 0,
        distribution=options.distribution or "block",
    )


def _take(forms: Iterable[str]) -> str:
    names = list(forms)
    return f"{', '.join(names)} {'takes' if len(names) == 1 else 'take'}"


def _slots(text: str) -> int | list[int]:
    """`4` for every node, or one count a node in Slurm's form."""
    try:
        return int(text) if text.lstrip("-").isdigit() else expand_counts(text)
    except hostfiles.HostfileError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _absolute(text: str) -> str:
    return str(Path(text).absolute())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="slurm-plugin hosts",
        description="A hostfile, rank table or launch variables, inside a job or for nodes given by hand.",
        allow_abbrev=False,
    )
    parser.add_argument("format", choices=tuple(hostfiles.FORMATS), metavar="FORMAT", help=", ".join(hostfiles.FORMATS))
    parser.epilog = (
        "slurm-plugin hosts devices prints what this node says of its Ascend devices; slurm-plugin hosts convert FILE"
        " --to ranktable-1.0 converts a rank table. Each has its own --help."
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write FILE, as a whole or not at all")
    parser.add_argument(
        "--slots", type=_slots, help="slots of every node, or 4(x2),2 (inside a job: its accelerators, else 1)"
    )
    parser.add_argument(
        "--task",
        type=int,
        help="the variables of this rank (without it: pytorch, of a node's launcher; ascend, of the scheduler)",
    )
    parser.add_argument("--node", type=int, help="pytorch: the launcher of this node, from 0 (in a step: this node)")
    parser.add_argument("--ps", type=int, help="tensorflow: parameter servers (0, all-reduce)")
    parser.add_argument("--chief", action="store_true", default=None, help="tensorflow: rank 0 is a chief, no worker")
    parser.add_argument("--evaluator", action="store_true", default=None, help="tensorflow: the last rank evaluates")
    parser.add_argument(
        "--uneven", action="store_true", default=None, help="ranktable: accept nodes with unequal numbers of devices"
    )
    parser.add_argument(
        "--table", type=_absolute, metavar="FILE", help="ascend: the rank table (without it: the dynamic cluster)"
    )
    parser.add_argument(
        "--devices", metavar="FILE", help="ranktable, ascend: what `hosts devices` prints on each node; - is stdin"
    )
    by_hand = parser.add_argument_group("outside a job")
    by_hand.add_argument("--nodelist", help="the nodes, in Slurm's form, such as n[1-4]")
    by_hand.add_argument("--tasks-per-node", help="in Slurm's form, such as 4(x2),2 (one each, or a device)")
    by_hand.add_argument("--distribution", help="which rank runs where: block (default), cyclic, plane=N")
    by_hand.add_argument("--job-id", type=int, help="the job whose port is printed")
    return parser
