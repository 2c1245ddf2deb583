"""What the items for NVIDIA's GPUs share: NVML asked, or else `nvidia-smi` for CSV, and which GPU is which.

Formats: `nvidia-smi --help-query-gpu` and the captures in tests/captured/vendor. NVML (prechecks.nvml) gives the same
rows, so what parses and judges them does not know which of the two was asked.
"""

from __future__ import annotations

import os
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence

from prechecks import tool
from prechecks.check import Check
from prechecks.verdict import NODE_PROBLEM, SKIPPED, Context, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    from prechecks.nvml import Nvml

    Found = TypeVar("Found")

DRIVER = "/proc/driver/nvidia/gpus"  # a directory for each GPU, by its bus id, with a file `information`
NOT_SUPPORTED = ("[N/A]", "N/A", "[Not Supported]", "")


class Answer(namedtuple("Answer", "rows said")):
    """What was answered: the rows of nvidia-smi's CSV, and its other lines, which are complaints."""

    __slots__ = ()
    rows: tuple[tuple[str, ...], ...]
    said: tuple[str, ...]


class NvidiaCheck(Check):
    """An item that asks NVML, or `settings["gpu-check"]["tool"]`; a node without either has no GPU of NVIDIA's."""

    problem = NODE_PROBLEM
    condition = "the job uses no GPUs, or the site names no tool for them"

    def applies(self, context: Context, settings: Mapping[str, Any]) -> bool:
        """To jobs that use GPUs, to all where the site makes it mandatory, and to every node in the periodic check."""
        of_nodes = context.hook == "periodic" or self.mandatory(settings)
        return bool(program(settings)) and (bool(context.gpus) or of_nodes)

    def look(self, context: Context, settings: Mapping[str, Any]) -> Finding:
        """Measure where one of the two is, then judge."""
        own = self.own(settings)
        found = measured(
            settings, lambda driver: self.by_nvml(driver, own), lambda path: self.by_tool(path, own), self.doing
        )
        if found is None:
            return Finding(SKIPPED, tool.ABSENT.format(program(settings)))
        return self.judged(found, context, settings)

    def by_nvml(self, driver: Nvml, own: Mapping[str, Any]) -> Any:
        """What NVML says, as `by_tool` has it. `own` is the item's part of the site file."""
        raise NotImplementedError

    def by_tool(self, path: str, own: Mapping[str, Any]) -> Any:
        """What nvidia-smi at `path` says."""
        raise NotImplementedError

    def judged(self, found: Any, context: Context, settings: Mapping[str, Any]) -> Finding:
        """What either said, judged."""
        raise NotImplementedError


def measured(
    settings: Mapping[str, Any],
    by_nvml: Callable[[Nvml], Found],
    by_tool: Callable[[str], Found],
    doing: Callable[[str], None],
) -> Found | None:
    """What NVML says where it can be asked, else what the tool says; None where neither is here.

    Only where the kernel has the driver is NVML looked for: it costs a node without one nothing. `doing` is told who
    is asked, which a `timeout` then names.
    """
    if settings["gpu-check"].get("nvml", True) and os.access(DRIVER, os.F_OK):
        from prechecks import nvml  # noqa: PLC0415 - needed nowhere else

        doing("NVML")
        try:
            return by_nvml(nvml.begin())
        except nvml.LackingError:
            pass
    path = program(settings)
    if not os.access(path, os.X_OK):
        return None
    doing(path)
    return by_tool(path)


def program(settings: Mapping[str, Any]) -> str:
    """The path of nvidia-smi; empty where the site has none."""
    return settings.get("gpu-check", {}).get("tool") or ""


def query(path: str, what: str, fields: Sequence[str]) -> Answer:
    """The answer to `--query-<what>` for these fields, the bus id first. ValueError where it failed altogether."""
    output = tool.run(path, f"--query-{what}={','.join(fields)}", "--format=csv,noheader,nounits")
    answer = parse(output.text, len(fields))
    if output.status != 0 and not answer.rows:
        raise tool.useless(path, output)
    return answer


def parse(text: str, columns: int) -> Answer:
    """The rows of so many columns that begin with a bus id, as no complaint does; the last one may hold commas."""
    rows, said = [], []
    for line in filter(None, map(str.strip, text.splitlines())):
        cells = tuple(cell.strip() for cell in line.split(",", columns - 1))
        if len(cells) == columns and is_bus(cells[0]):
            rows.append((bus(cells[0]), *cells[1:]))
        else:
            said.append(line)
    return Answer(tuple(rows), tuple(said))


def is_bus(cell: str) -> bool:
    """Whether this is a bus id, `00000000:5F:00.0`."""
    return cell.count(":") == 2 and not set(cell) - set("0123456789abcdefABCDEF:.")


def bus(cell: str) -> str:
    """A bus id as the kernel writes it, `0000:5f:00.0`; nvidia-smi has eight digits of the domain, in capitals."""
    domain, _, rest = cell.lower().partition(":")
    return f"{domain.lstrip('0'):0>4}:{rest}"


def number(cell: str) -> int | None:
    """A count; None where the GPU has no such counter. Raises ValueError for `[Unknown Error]`, `[GPU is lost]`, ..."""
    if cell in NOT_SUPPORTED:
        return None
    if not cell.isdecimal():
        raise ValueError(f"the driver says {cell!r} where a number is wanted")
    return int(cell)


def yes(cell: str) -> bool | None:
    """`Yes` and `No`, `1` and `0` in older drivers; None where not supported. Raises ValueError for anything else."""
    if cell in NOT_SUPPORTED:
        return None
    words = {"yes": True, "1": True, "no": False, "0": False}
    if cell.lower() not in words:
        raise ValueError(f"the driver says {cell!r} where yes or no is wanted")
    return words[cell.lower()]


def by_minor(directory: str = "") -> dict[int, str]:
    """The bus id of each /dev/nvidia<minor>, as DRIVER says: nvidia-smi's index may be another number."""
    found: dict[int, str] = {}
    directory = directory or DRIVER
    for name in os.listdir(directory):  # noqa: PTH208 - as in prechecks.gpu
        with open(f"{directory}/{name}/information", encoding="utf-8", errors="replace") as lines:  # noqa: PTH123
            values = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
        if values.get("Device Minor", "").isdigit():
            found[int(values["Device Minor"])] = name.lower()
    return found
