"""`slurm-plugin hosts FORMAT`: print a hostfile or launch variables, inside a job or for a list given by hand."""

import argparse
import os
import sys

import hostfiles
from slurm_plugin.job.run import master_port, restart_count


def main(args: list[str]) -> int:
    """Print one format. Exit 0; 2 where the allocation cannot be read."""
    options = _parser().parse_args(args)
    try:
        allocation = _allocation(options)
        port = master_port(allocation.job_id, restart_count(os.environ) if options.nodelist is None else 0)
        text = hostfiles.FORMATS[options.format](allocation, port, options.task)
    except hostfiles.HostfileError as error:
        print(f"slurm-plugin: {error}", file=sys.stderr)
        return 2
    sys.stdout.write(text)
    return 0


def _allocation(options: argparse.Namespace) -> hostfiles.Allocation:
    if options.nodelist is None:
        return hostfiles.from_slurm(os.environ, options.slots)
    return hostfiles.from_lists(
        options.nodelist, slots=options.slots or 1, tasks_per_node=options.tasks_per_node, job_id=options.job_id
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="slurm-plugin hosts", description=__doc__)
    parser.add_argument("format", choices=tuple(hostfiles.FORMATS), metavar="FORMAT", help=", ".join(hostfiles.FORMATS))
    parser.add_argument("--nodelist", help="outside a job: the nodes, in Slurm's form, such as n[1-4]")
    parser.add_argument("--tasks-per-node", help="in Slurm's form, such as 4(x2),2")
    parser.add_argument("--slots", type=int, help="slots of every node (inside a job: its accelerators, else 1)")
    parser.add_argument("--task", type=int, help="print the variables of this rank (else: of the first node)")
    parser.add_argument("--job-id", type=int, default=0, help="the job whose port is printed")
    return parser
