"""The accelerators that a job has on each of its nodes. Slurm's variables have only those of this node."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import hostfiles
from hostfiles import HostfileError
from hostfiles.allocation import groups, number, step_id
from slurm_plugin.errors import MissingError
from slurm_plugin.slurm import SlurmError
from slurm_plugin.slurm.resources import Gres, count

GPU: Final = "gpu"  # Slurm's variables count only these
Devices = Callable[[int], Mapping[str, Sequence[Gres]]]  # of a job on each of its nodes, as Slurm has recorded it


def numbers(devices: Mapping[str, Sequence[Gres]]) -> dict[str, list[int]]:
    """Return the numbers of the GPUs on each node."""
    return {
        node: sorted({number for gres in has if gres.name == GPU for number in gres.indexes})
        for node, has in devices.items()
    }


def slots(environ: Mapping[str, str], devices: Devices) -> list[int] | None:
    """Return the slots of each node of the allocation; None if `hostfiles.from_slurm` finds them in the variables.

    Ask Slurm only for several nodes with GPUs. A step with the same number of GPUs on each node may have fewer than the
    job. Raise HostfileError if the job requested a total of GPUs, and Slurm does not tell how it is divided.
    """
    found = hostfiles.from_slurm(environ, 1)
    gpus = number(environ, "SLURM_GPUS_ON_NODE") or environ.get("SLURM_JOB_GPUS")
    if len(found.hosts) == 1 or not (gpus or groups(environ)):
        return None
    try:
        known, why = devices(found.job_id), "it does not list all of them"
    except (SlurmError, MissingError) as error:
        known, why = {}, str(error).splitlines()[0]
    if lacking := [name for name in found.names if name not in known]:
        if environ.get("SLURM_GPUS"):
            raise HostfileError(
                f"the job has {environ['SLURM_GPUS'][:40]} GPUs in all, and Slurm does not tell how many {lacking[0]}"
                f" has: {why}; ask for them with --gpus-per-node, or give --slots"
            )
        return None
    counts = [max(count(known[name], GPU), 1) for name in found.names]
    return counts if len({*counts}) > 1 or step_id(environ) is None else None
