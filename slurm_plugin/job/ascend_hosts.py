"""The allocation of Ascend's formats: hosts with their addresses and devices, from the job or from lines and tables."""

import argparse
from collections.abc import Mapping
from pathlib import Path

import hostfiles
from hostfiles import Allocation, Host, HostfileError, npu
from hostfiles import ascend as variables
from slurm_plugin.job import devices, network, ranktable
from slurm_plugin.job.hosts_options import described

# Where Slurm says how many accelerators a node has. It knows GPUs; of an Ascend's gres it tells a job nothing.
_COUNTED = ("SLURM_GPUS_ON_NODE", "SLURM_JOB_GPUS", "SLURM_GPUS_PER_NODE_HET_GROUP_0")


def prepared(
    options: argparse.Namespace, environ: Mapping[str, str], task: int | None
) -> tuple[Allocation, int | None]:
    """The hosts of the format that is asked for, and the task: with a rank table it is the rank there.

    Raises HostfileError where a host does not say what the format needs.
    """
    if hostfiles.DEVICES[options.format]:
        return _with_devices(options, environ), task
    if options.table:
        return _of_table(options, environ, task)
    return _of_cluster(options, environ, task), task


def _with_devices(options: argparse.Namespace, environ: Mapping[str, str]) -> Allocation:
    """Every host with what it says of itself: in the lines of --devices, else it is asked."""
    if options.devices is not None:
        return _of_lines(options, environ)
    if options.nodelist is not None or not _in_a_job(environ):
        raise HostfileError(
            f"{options.format} needs what each node says of its devices; run this inside a job, or give --devices FILE"
        )
    job = described(options, environ, 1)
    return _counted(options, npu.complete(job, devices.asked(job, environ)))


def _of_lines(options: argparse.Namespace, environ: Mapping[str, str]) -> Allocation:
    """The hosts of --nodelist or of the job, else those of the lines; by hand there is one task a device."""
    lines = devices.read(options.devices)
    if options.nodelist is None and not _in_a_job(environ):
        found = npu.alone(lines, job_id=options.job_id or 0, distribution=options.distribution or "block")
        return _counted(options, found)
    found = npu.complete(described(options, environ, 1), lines)
    if options.nodelist is not None and options.tasks_per_node is None:
        hosts = (Host(host.name, host.slots, host.slots, host.address, host.devices) for host in found.hosts)
        found = found._replace(hosts=tuple(hosts))
    return _counted(options, found)


def _counted(options: argparse.Namespace, found: Allocation) -> Allocation:
    """The same, where every host has as many devices as --slots says."""
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
    """The table's servers, and the rank that it gives to the task: Slurm's order may be another."""
    servers = ranktable.wait(Path(options.table), deadline_s=0.0, uneven=True)[1].servers
    by_lines = options.devices is not None
    if task is not None and (by_lines or options.nodelist is not None or _in_a_job(environ)):
        job = _of_lines(options, environ) if by_lines else described(options, environ, 1)
        host = _host(job, task)
        if len(job.hosts) == len(servers) == 1:
            addresses: tuple[str, ...] = (servers[0].id,)  # nobody else is meant, whatever its name resolves to
        else:
            addresses = (host.address,) if host.address else network.own_addresses(host.name)
        task = variables.rank_in_table(servers, job, task, addresses)
    return variables.of_table(servers), task


def _of_cluster(options: argparse.Namespace, environ: Mapping[str, str], task: int | None) -> Allocation:
    """The hosts of MindSpore's dynamic cluster: those of whom it wants to know it have their address, as resolved here.

    Where nobody says how many devices a host has there are as many as tasks. It is the cluster of the job, whatever the
    step: the scheduler is started by the batch script, and its port is the one that all steps are told.
    """
    if options.devices is not None:
        return _of_lines(options, environ)._replace(step_id=0)
    job = described(options, environ, options.slots)
    if options.slots is None and (options.nodelist is not None or not any(environ.get(name) for name in _COUNTED)):
        job = job._replace(hosts=tuple(Host(host.name, host.tasks, host.tasks) for host in job.hosts))
    wanted = {job.hosts[0], job.hosts[0] if task is None else _host(job, task)}
    known = {host: network.own_addresses(host.name)[0] for host in wanted}
    hosts = (Host(host.name, host.slots, host.tasks, known.get(host, "")) for host in job.hosts)
    return job._replace(hosts=tuple(hosts), step_id=0)


def _host(job: Allocation, task: int) -> Host:
    if not 0 <= task < job.tasks:
        raise HostfileError(f"task {task} of {job.tasks}; tasks count from 0")
    return job.hosts[job.places[task][0]]


def _in_a_job(environ: Mapping[str, str]) -> bool:
    return "SLURM_JOB_ID" in environ
