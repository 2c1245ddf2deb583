"""MPICH: `mpiexec.hydra` on the first node starts one rank a slot, on the hosts of our hostfile.

`mpiexec.hydra` is the name that every MPICH installs, whatever `mpiexec` may be on the machine.
"""

import re
from pathlib import PurePosixPath
from typing import Final

from hostfiles import mpich as hostfile_format
from slurm_plugin.modes.base import HOSTFILE, Launch, Mode, Options, Place, Shape

MPICH_HOSTFILE: Final = "hostfile.mpich"  # beside one for Open MPI

_NAMES_A_LAUNCHER = re.compile(r"\b(?:mpirun|mpiexec|srun)\b")


def names_its_launcher(words: tuple[str, ...]) -> bool:
    """Whether a launcher of MPI or Slurm is named, as the executable or anywhere (`bash -c 'mpirun ...'`)."""
    return PurePosixPath(words[0]).name == "srun" or any(map(_NAMES_A_LAUNCHER.search, words))


def hydra_variables(place: Place, name: str) -> dict[str, str]:
    """Where Hydra finds its hostfile, and which network it uses (row C1)."""
    interface = {"HYDRA_IFACE": place.interface} if place.interface else {}
    return {**hostfile_format.variables(f"{place.directory}/{name}"), **interface}


class Mpich(Mode):
    """Mode `mpich`."""

    def launch(self, words: tuple[str, ...], shape: Shape) -> Launch:
        """Put mpiexec.hydra before a command that names no launcher."""
        if names_its_launcher(words):
            return Launch(words, "The command names its launcher: left as it is, started once, on the first node.")
        ranks = shape.nodes * shape.slots
        note = f"The command names no mpiexec: it was put before it, one rank a slot, {ranks} in all."
        return Launch(("mpiexec.hydra", "-n", str(ranks), *words), note)

    def files(self, place: Place) -> dict[str, str]:
        """`host:N` lines."""
        return {HOSTFILE: hostfile_format.text(place.allocation)}

    def variables(self, place: Place) -> dict[str, str]:
        """Where mpiexec finds them."""
        return hydra_variables(place, HOSTFILE)

    def by_address(self, options: Options) -> bool:
        """HYDRA_IFACE is the interface behind it."""
        return True
