"""NVML, the library of NVIDIA's driver: the rows that nvidia-smi prints, without a process that prints them.

By NVIDIA's own binding, the module `pynvml` of nvidia-ml-py (extra `nvidia`), which `site render` puts beside the code
of hooks where it has it: names, layouts and constants are its. What calls answer: docs.nvidia.com/deploy/nvml-api.
Asked in the child of an item only: the import takes 40 ms, and a driver that hangs takes the child along, nobody else.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping, Sequence

from prechecks import nvidia

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NOT_SUPPORTED = "[N/A]"
NO_SUCH_LINK = "[Invalid Argument]"  # of a link behind the last one: the binding's NVML_NVLINK_MAX_LINKS is of any GPU
# What nvidia-smi says for these, which gpu-check looks for (the captures in tests/captured/vendor).
WORDS: Mapping[str, str] = {
    "NVML_ERROR_NOT_SUPPORTED": "N/A",
    "NVML_ERROR_GPU_IS_LOST": "GPU is lost",
    "NVML_ERROR_RESET_REQUIRED": "GPU requires reset",
    "NVML_ERROR_UNKNOWN": "Unknown Error",
    "NVML_ERROR_DRIVER_NOT_LOADED": "couldn't communicate with the NVIDIA driver",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": "Driver/library version mismatch",
}
# The counters of `nvidia-smi nvlink -e`, as it calls them.
LINK_ERRORS: Mapping[str, str] = {
    "Replay": "NVML_NVLINK_ERROR_DL_REPLAY",
    "Recovery": "NVML_NVLINK_ERROR_DL_RECOVERY",
    "CRC": "NVML_NVLINK_ERROR_DL_CRC_FLIT",
}


class LackingError(Exception):
    """Binding and library do not have this in common: nvidia-smi, which came with the driver, is to be asked."""


class Gpu(namedtuple("Gpu", "index bus handle")):
    """One that NVML has: its number there, which is nvidia-smi's too, and its bus id as the kernel writes it."""

    __slots__ = ()
    index: int
    bus: str
    handle: Any


class Nvml:
    """NVML, begun in this process. `found` are the GPUs that it can be asked of, `said` its complaints of others.

    Raises LackingError where there is no library, ValueError where it is there and does not begin.
    """

    def __init__(self, library: Any) -> None:
        self.library = library
        self.found: list[Gpu] = []
        self.said: list[str] = []
        try:
            library.nvmlInit()
        except library.NVMLError as error:
            self.said.append(f"NVML does not begin: {self._words(error)}")
            if error.value == library.NVML_ERROR_LIBRARY_NOT_FOUND:
                raise LackingError(self.said[0]) from error
            if error.value not in (library.NVML_ERROR_DRIVER_NOT_LOADED, library.NVML_ERROR_LIB_RM_VERSION_MISMATCH):
                raise ValueError(self.said[0]) from error
            return
        count = library.nvmlDeviceGetCount()
        for index in range(count):
            self._find(index)
        if not count:
            self.said.append("No devices were found")

    def _find(self, index: int) -> None:
        """Inside a job's cgroup those of others are no complaint."""
        library = self.library
        try:
            handle = library.nvmlDeviceGetHandleByIndex(index)
            bus = nvidia.bus(library.nvmlDeviceGetPciInfo(handle).busId)
        except library.NVMLError as error:
            if error.value not in (library.NVML_ERROR_NO_PERMISSION, library.NVML_ERROR_OPERATING_SYSTEM):
                self.said.append(f"Unable to determine the device handle for GPU{index}: {self._words(error)}")
        else:
            self.found.append(Gpu(index, bus, handle))

    def gpus(self) -> Sequence[Gpu]:
        """Those of `found`. Raises ValueError where there is none: then nothing is known."""
        if not self.found:
            raise ValueError((*self.said, "NVML shows no GPU here")[0])
        return self.found

    def cell(self, function: str, *arguments: Any) -> Any:
        """What a function of the binding returns; for an error what nvidia-smi has in a cell, `[GPU is lost]`.

        Raises LackingError where the binding, or the library, has no such function.
        """
        call = getattr(self.library, function, None)
        try:
            if call is not None:
                return call(*arguments)
        except self.library.NVMLError as error:
            if error.value != self.library.NVML_ERROR_FUNCTION_NOT_FOUND:
                return f"[{self._words(error)}]"
        raise LackingError(function)

    def yes(self, value: Any) -> str:
        """A flag as nvidia-smi writes it; an error's words as they are."""
        return value if isinstance(value, str) else "Yes" if value else "No"

    def links(self, gpu: Gpu) -> dict[int, bool]:
        """Whether each of a GPU's links is up. Raises ValueError where that could not be read."""
        found = {}
        for link in range(self.library.NVML_NVLINK_MAX_LINKS):
            state = self.cell("nvmlDeviceGetNvLinkState", gpu.handle, link)
            if state not in (NOT_SUPPORTED, NO_SUCH_LINK):
                found[link] = bool(nvidia.number(str(state)))
        return found

    def link_errors(self, gpu: Gpu) -> dict[str, int]:
        """Each error counter of its links that are up, `GPU 3 Link 0 Replay`.

        Raises LackingError for a link that has none of them: on newer GPUs they are others, which nvidia-smi knows.
        """
        found = {}
        for link in (link for link, up in self.links(gpu).items() if up):
            counted = {
                name: nvidia.number(str(self.cell("nvmlDeviceGetNvLinkErrorCounter", gpu.handle, link, number)))
                for name, number in ((name, getattr(self.library, constant)) for name, constant in LINK_ERRORS.items())
            }
            if all(count is None for count in counted.values()):
                raise LackingError(f"no error counter of link {link}")
            for name, count in counted.items():
                if count is not None:
                    found[f"GPU {gpu.index} Link {link} {name}"] = count
        return found

    def _words(self, error: Any) -> str:
        named = (words for name, words in WORDS.items() if error.value == getattr(self.library, name, None))
        return next(named, str(error))


def begin() -> Nvml:
    """NVML in this process. Raises LackingError where the binding or the library is not there, else as Nvml does."""
    try:
        import pynvml  # noqa: PLC0415 - see above
    except ImportError as error:
        raise LackingError(str(error)) from error
    return Nvml(pynvml)
