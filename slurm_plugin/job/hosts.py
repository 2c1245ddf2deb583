"""`slurm-plugin hosts FORMAT`: a hostfile, rank table or launch variables, inside a job or for nodes given by hand."""

import argparse
import os
from collections.abc import Mapping
from importlib import import_module

import hostfiles
from hostfiles.environment import number, step_id
from slurm_plugin.job import hosts_options
from slurm_plugin.job.deliver import deliver
from slurm_plugin.job.run import master_port, restart_count

# The words that stand in place of a format: loaded when they are used, for no hostfile needs what they need.
VERBS = {"convert": "slurm_plugin.job.convert", "devices": "slurm_plugin.job.devices"}


def main(args: list[str]) -> int:
    """Print or write one format. Exit 0; 2 where the allocation cannot be read or the file not written."""
    if args[:1] and args[0] in VERBS:
        code: int = import_module(VERBS[args[0]]).main(args[1:])
        return code
    options = hosts_options.parse(args)
    announce = hostfiles.DEVICES.get(options.format, False)  # a rank table, for which programs wait
    return deliver(lambda: _text(options, os.environ), options.output, announce=announce)


def _text(options: argparse.Namespace, environ: Mapping[str, str]) -> str:
    """The format's text. Raises HostfileError for an option that the format does not take."""
    given = hosts_options.given(options)
    task = options.task
    if options.nodelist is None and step_id(environ) is not None:  # a step: for the task and the node that ask
        if options.format in hostfiles.PER_TASK and task is None:
            task = number(environ, "SLURM_PROCID")
        if "node" in hostfiles.OPTIONS.get(options.format, ()):
            given.setdefault("node", number(environ, "SLURM_NODEID") or 0)
    if options.format in hostfiles.DEVICES:
        from slurm_plugin.job import ascend_hosts  # noqa: PLC0415 - the resolver, JSON and srun: no hostfile needs them

        allocation, task = ascend_hosts.prepared(options, environ, task)
    else:
        allocation = hosts_options.described(options, environ, options.slots)
    return hostfiles.FORMATS[options.format](allocation, _port(options, environ, allocation), task, **given)


def _port(options: argparse.Namespace, environ: Mapping[str, str], allocation: hostfiles.Allocation) -> int:
    """The port of rank 0: in a job of ours the one that its program was told, whatever the step."""
    if options.nodelist is not None:
        return master_port(allocation.job_id, 0)
    of_this_job = environ.get("SLURM_PLUGIN_DIRECTORY", "").endswith(f"/{allocation.job_id}")
    told = number(environ, "SLURM_PLUGIN_PORT") if of_this_job else None  # else of the job that submitted this one
    return told or master_port(allocation.job_id, restart_count(environ) + allocation.step_id)
