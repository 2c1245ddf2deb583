"""Read the values that nvidia-smi prints from NVML, the library of NVIDIA's driver, without running nvidia-smi.

NVIDIA's own binding, the module `pynvml` of nvidia-ml-py (extra `nvidia`), defines names, layouts and constants. If it
is installed, `site render` puts it beside the code of the hooks. docs.nvidia.com/deploy/nvml-api describes the
calls. Only the child of a check uses this module: the import takes 40 ms, and a hanging driver blocks only that child.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping, Sequence

from prechecks.measure import nvidia

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NOT_SUPPORTED = "[N/A]"
NO_SUCH_LINK = "[Invalid Argument]"  # this GPU may have fewer links than NVML_NVLINK_MAX_LINKS
# nvidia-smi's messages for these errors (the captures in tests/captured/vendor). gpu-check searches for these messages.
WORDS: Mapping[str, str] = {
    "NVML_ERROR_NOT_SUPPORTED": "N/A",
    "NVML_ERROR_GPU_IS_LOST": "GPU is lost",
    "NVML_ERROR_RESET_REQUIRED": "GPU requires reset",
    "NVML_ERROR_UNKNOWN": "Unknown Error",
    "NVML_ERROR_DRIVER_NOT_LOADED": "couldn't communicate with the NVIDIA driver",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": "Driver/library version mismatch",
}
# The counters of `nvidia-smi nvlink -e`, by the tool's names.
LINK_ERRORS: Mapping[str, str] = {
    "Replay": "NVML_NVLINK_ERROR_DL_REPLAY",
    "Recovery": "NVML_NVLINK_ERROR_DL_RECOVERY",
    "CRC": "NVML_NVLINK_ERROR_DL_CRC_FLIT",
}


class LackingError(Exception):
    """The binding or the library lacks a function: use nvidia-smi, which came with the driver."""


class Gpu(namedtuple("Gpu", "index bus handle")):
    """A GPU: its number in NVML and nvidia-smi, its bus id as the kernel writes it, and its handle."""

    __slots__ = ()
    index: int
    bus: str
    handle: Any


class Nvml:
    """NVML, started in this process. `found` are the GPUs that answer, `said` the errors of NVML and of other GPUs.

    Raise LackingError if the library is missing, ValueError if it does not start. If the driver is not loaded or has
    another version, add the error to `said` instead.
    """

    def __init__(self, library: Any) -> None:
        self.library = library
        self.found: list[Gpu] = []
        self.said: list[str] = []
        try:
            library.nvmlInit()
        except library.NVMLError as error:
            self.said.append(f"NVML does not start: {self._words(error)}")
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
        """Add a GPU to `found`, or its error to `said`. Ignore GPUs of other jobs, which a job's cgroup hides."""
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
        """Return the GPUs. Raise ValueError if there are none, because then nothing is known."""
        if not self.found:
            raise ValueError((*self.said, "NVML shows no GPU here")[0])
        return self.found

    def cell(self, function: str, *arguments: Any) -> Any:
        """Call a function of the binding. On an error, return the text of nvidia-smi's cell, `[GPU is lost]`.

        Raise LackingError if the binding or the library has no such function.
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
        """Return a flag as nvidia-smi prints it, `Yes` or `No`. Return an error text unchanged."""
        return value if isinstance(value, str) else "Yes" if value else "No"

    def links(self, gpu: Gpu) -> dict[int, bool]:
        """Return whether each of a GPU's links is up. Raise ValueError for an unreadable state."""
        found = {}
        for link in range(self.library.NVML_NVLINK_MAX_LINKS):
            state = self.cell("nvmlDeviceGetNvLinkState", gpu.handle, link)
            if state not in (NOT_SUPPORTED, NO_SUCH_LINK):
                found[link] = bool(nvidia.number(str(state)))
        return found

    def link_errors(self, gpu: Gpu) -> dict[str, int]:
        """Return each error counter of the GPU's links that are up, `GPU 3 Link 0 Replay`.

        Raise LackingError for a link without these counters: newer GPUs have other counters, which nvidia-smi reads.
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
    """Start NVML in this process. Raise LackingError if the binding is missing, and as Nvml does."""
    try:
        import pynvml  # noqa: PLC0415 - see the docstring of the module
    except ImportError as error:
        raise LackingError(str(error)) from error
    return Nvml(pynvml)
