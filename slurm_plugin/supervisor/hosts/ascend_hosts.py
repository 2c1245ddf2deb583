"""Build the allocation for Ascend's formats: hosts with addresses and devices, from the job, --devices or a table."""

import argparse
from collections.abc import Mapping
from pathlib import Path

import hostfiles
from hostfiles import Allocation, Host, HostfileError, npu
from hostfiles import ascend as variables
from slurm_plugin.supervisor import network
from slurm_plugin.supervisor.hosts import devices, ranktable
from slurm_plugin.supervisor.hosts.command import described, warn

# In these variables Slurm tells a job how many accelerators a node has. They count GPUs only, no Ascend gres.
_COUNTED = ("SLURM_GPUS_ON_NODE", "SLURM_JOB_GPUS", "SLURM_GPUS_PER_NODE_HET_GROUP_0")


def prepared(
    options: argparse.Namespace, environ: Mapping[str, str], task: int | None
) -> tuple[Allocation, int | None]:
    """Return the hosts for the requested format, and the task. With a rank table, return the task's rank in the table.

    Raise HostfileError if a host lacks data that the format needs.
    """
    if hostfiles.DEVICES[options.format]:
        return _with_devices(options, environ), task
    if options.table:
        return _of_table(options, environ, task)
    return _of_cluster(options, environ, task), task


def _with_devices(options: argparse.Namespace, environ: Mapping[str, str]) -> Allocation:
    """Return every host with its devices, from the lines of --devices or, without --devices, from the nodes."""
    if options.devices is not None:
        return _of_lines(options, environ)
    if options.nodelist is not None or not _in_a_job(environ):
        raise HostfileError(
            f"{options.format} needs what each node says of its devices; run this inside a job, or give --devices FILE"
        )
    job = described(options, environ, 1)
    return _counted(options, npu.complete(job, devices.ask(job, environ)))


def _of_lines(options: argparse.Namespace, environ: Mapping[str, str]) -> Allocation:
    """Return the hosts of --nodelist, of the job or of the --devices lines, in this order of preference.

    Outside a job, or with --nodelist and without --tasks-per-node, each device has one task.
    """
    lines = devices.read(options.devices)
    if options.nodelist is None and not _in_a_job(environ):
        found = npu.from_lines(lines, job_id=options.job_id or 0, distribution=options.distribution or "block")
        return _counted(options, found)
    found = npu.complete(described(options, environ, 1), lines)
    if options.nodelist is not None and options.tasks_per_node is None:
        hosts = (Host(host.name, host.slots, host.slots, host.address, host.devices) for host in found.hosts)
        found = found._replace(hosts=tuple(hosts))
    return _counted(options, found)


def _counted(options: argparse.Namespace, found: Allocation) -> Allocation:
    """Check that every host has as many devices as --slots, and return the allocation."""
    if options.slots is not None:
        wanted = [options.slots] * len(found.hosts) if isinstance(options.slots, int) else options.slots
        if len(wanted) != len(found.hosts):
            raise HostfileError(f"{len(found.hosts)} nodes, and {len(wanted)} counts in --slots; one a node")
        for host, slots in zip(found.hosts, wanted, strict=True):
            if host.slots != slots:
                raise HostfileError(f"{host.name} has {host.slots} devices, and --slots is {slots}; leave --slots out")
    return found


def _of_table(
    options: argparse.Namespace, environ: Mapping[str, str], task: int | None
) -> tuple[Allocation, int | None]:
    """Return the table's servers, and the task's rank in the table, whose order may differ from Slurm's."""
    servers = ranktable.wait(Path(options.table), deadline_s=options.wait, uneven=True, say=warn)[1].servers
    by_lines = options.devices is not None
    if task is not None and (by_lines or options.nodelist is not None or _in_a_job(environ)):
        job = _of_lines(options, environ) if by_lines else described(options, environ, 1)
        host = job.hosts[job.place(task)[0]]
        if len(job.hosts) == len(servers) == 1:
            addresses: tuple[str, ...] = (servers[0].id,)  # the only server, whatever the name resolves to
        else:
            addresses = (host.address,) if host.address else network.own_addresses(host.name)
        task = variables.rank_in_table(servers, job, task, addresses)
    return variables.of_table(servers), task


def _of_cluster(options: argparse.Namespace, environ: Mapping[str, str], task: int | None) -> Allocation:
    """Return the hosts of MindSpore's dynamic cluster. Resolve the addresses of the first host and the task's host.

    If a host's devices are unknown, it gets as many as it has tasks. All steps of the job share one cluster: the batch
    script starts the scheduler, and all steps get the same port.
    """
    if options.devices is not None:
        return _of_lines(options, environ)._replace(step_id=0)
    job = described(options, environ, options.slots)
    if options.slots is None and (options.nodelist is not None or not any(environ.get(name) for name in _COUNTED)):
        job = job._replace(hosts=tuple(Host(host.name, host.tasks, host.tasks) for host in job.hosts))
    wanted = {job.hosts[0], job.hosts[0] if task is None else job.hosts[job.place(task)[0]]}
    known = {host: network.own_addresses(host.name)[0] for host in wanted}
    hosts = (Host(host.name, host.slots, host.tasks, known.get(host, "")) for host in job.hosts)
    return job._replace(hosts=tuple(hosts), step_id=0)


def _in_a_job(environ: Mapping[str, str]) -> bool:
    return "SLURM_JOB_ID" in environ
