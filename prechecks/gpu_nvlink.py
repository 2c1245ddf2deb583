"""`gpu-nvlink`: links between NVIDIA's GPUs that are down, or count errors.

How many links a GPU should have up is the site's to say: a card with one bridge of three is as whole as one with none.
Format of `nvidia-smi nvlink -s` and `-e`: the captures in tests/captured/vendor.
"""

from __future__ import annotations

from collections.abc import Mapping

from prechecks import nvidia, tool
from prechecks.setting import COUNT, Setting
from prechecks.verdict import FAILED, OK, Context, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from prechecks.nvml import Nvml

    Measured = tuple[dict[str, list[bool]] | None, dict[str, int] | None]

NAMED = 6  # counters that a message names


class GpuNvlink(nvidia.NvidiaCheck):
    """`settings["gpu-nvlink"]`: what each GPU must have, and may have."""

    item = "gpu-nvlink"
    looks_at = "links between GPUs, their error counters"
    settings: Mapping[str, Setting] = {
        "links": Setting(COUNT, None, "links that each GPU must have up; null: not looked at"),
        "errors": Setting(COUNT, None, "each error counter of a link, at most; null: not looked at"),
    }
    condition = "the job uses no GPUs, or the site sets neither links nor errors"

    def applies(self, context: Context, settings: Mapping[str, Any]) -> bool:
        """As the others, where the site sets something."""
        own = self.own(settings)
        return (_set(own, "links") or _set(own, "errors")) and super().applies(context, settings)

    def by_nvml(self, driver: Nvml, own: Mapping[str, Any]) -> Measured:
        """What `links` and `errors` make of the tool's words, each where it is set."""
        gpus = driver.gpus()
        up = {f"GPU {gpu.index}": list(driver.links(gpu).values()) for gpu in gpus} if _set(own, "links") else None
        if not _set(own, "errors"):
            return up, None
        return up, {name: count for gpu in gpus for name, count in driver.link_errors(gpu).items()}

    def by_tool(self, path: str, own: Mapping[str, Any]) -> Measured:
        """A call for each of the two that is set."""
        up = links(_told(path, "-s")) if _set(own, "links") else None
        return up, errors(_told(path, "-e")) if _set(own, "errors") else None

    def judged(self, found: Any, context: Context, settings: Mapping[str, Any]) -> Finding:
        """Against what the site sets."""
        own, (up, counted) = self.own(settings), found
        return judge(up, own.get("links"), counted, own.get("errors"))


def _set(own: Mapping[str, Any], name: str) -> bool:
    return own.get(name) is not None


def _told(path: str, option: str) -> str:
    output = tool.run(path, "nvlink", option)
    if not any(line.startswith("GPU ") for line in output.out.splitlines()):
        raise tool.useless(f"{path} nvlink {option}", output)
    return output.out


def links(text: str) -> dict[str, list[bool]]:
    """Of each GPU, `GPU 3`, which of its links are up; empty where it says that all are inactive."""
    found: dict[str, list[bool]] = {}
    for gpu, line in _lines(text):
        told = found.setdefault(gpu, [])
        name, _, value = line.partition(":")
        if name.startswith("Link ") and name[5:].isdigit():
            told.append("inactive" not in value.lower())
    return found


def errors(text: str) -> dict[str, int]:
    """Each error counter, `GPU 3 Link 0 Replay`; what is no number (`N/A`, bit error rates) is passed over."""
    found: dict[str, int] = {}
    for gpu, line in _lines(text):
        link, _, rest = line.partition(": ")
        counter, _, value = rest.partition(": ")
        if link.startswith("Link ") and counter.endswith(" Errors") and value.isdigit():
            found[f"{gpu} {link} {counter.removesuffix(' Errors')}"] = int(value)
    return found


def _lines(text: str) -> list[tuple[str, str]]:
    """The lines, each with its GPU; the GPU's own line too."""
    found, gpu = [], ""
    for line in text.splitlines():
        if line.startswith("GPU "):
            gpu = line.partition(":")[0]
        if gpu:
            found.append((gpu, line.strip()))
    return found


def judge(
    up: Mapping[str, list[bool]] | None, wanted: int | None, counted: Mapping[str, int] | None, limit: int | None
) -> Finding:
    """Each GPU has as many links up as wanted, and no counter is above the limit; None was not looked at."""
    bad, fine = [], []
    if up is not None and wanted is not None:
        bad += [f"{gpu} has {sum(told)} of {wanted} links up" for gpu, told in up.items() if sum(told) < wanted]
        fine.append(f"{wanted} links up on {len(up)} GPUs")
    if counted is not None and limit is not None:
        over = [f"{name} {count} > {limit}" for name, count in counted.items() if count > limit]
        bad += over[:NAMED] + ([f"and {len(over) - NAMED} more"] if len(over) > NAMED else [])
        fine.append(f"no error counter above {limit}")
    return Finding(FAILED if bad else OK, ", ".join(bad or fine))
