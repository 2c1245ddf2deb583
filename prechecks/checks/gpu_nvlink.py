"""`gpu-nvlink`: links between NVIDIA's GPUs that are down or have errors.

The site sets how many links of a GPU must be up, because the cards of a node may have bridges or not. The captures in
tests/captured/vendor show the format of `nvidia-smi nvlink -s` and `-e`.
"""

from __future__ import annotations

from collections.abc import Mapping

from prechecks.check import COUNT, Setting, Settings, is_set
from prechecks.checks.gpu import NvidiaCheck
from prechecks.measure import system
from prechecks.verdict import FAILED, OK, Context, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from prechecks.measure.nvml import Nvml

    Measured = tuple[dict[str, list[bool]] | None, dict[str, int] | None]

NAMED = 6  # counters that a message names


class GpuNvlink(NvidiaCheck):
    """Read `settings["gpu-nvlink"]`: how many links of each GPU must be up, and how many errors a link may have."""

    item = "gpu-nvlink"
    looks_at = "links between GPUs, their error counters"
    settings: Mapping[str, Setting] = {
        "links": Setting(COUNT, None, "links that each GPU must have up; null: not checked"),
        "errors": Setting(COUNT, None, "each error counter of a link, at most; null: not checked"),
    }
    needs = ("links", "errors")
    condition = "the job uses no GPUs, or the site sets neither links nor errors"

    def by_nvml(self, driver: Nvml, own: Settings) -> Measured:
        """Return the results of `links` and `errors`; None for each that the site does not set."""
        gpus, up, counted = driver.gpus(), None, None
        if is_set(own.get("links")):
            up = {f"GPU {gpu.index}": list(driver.links(gpu).values()) for gpu in gpus}
        if is_set(own.get("errors")):
            counted = {name: count for gpu in gpus for name, count in driver.link_errors(gpu).items()}
        return up, counted

    def by_tool(self, path: str, own: Settings) -> Measured:
        """Run the tool once for `links` and once for `errors`, if the site sets them."""
        up = links(_output(path, "-s")) if is_set(own.get("links")) else None
        return up, errors(_output(path, "-e")) if is_set(own.get("errors")) else None

    def judge_result(self, found: Any, context: Context, settings: Settings) -> Finding:
        """Judge by the site's limits."""
        own, (up, counted) = self.own(settings), found
        return judge(up, own.get("links"), counted, own.get("errors"))


def _output(path: str, option: str) -> str:
    output = system.run(path, "nvlink", option)
    if not any(line.startswith("GPU ") for line in output.out.splitlines()):
        raise system.useless(f"{path} nvlink {option}", output)
    return output.out


def links(text: str) -> dict[str, list[bool]]:
    """Return for each GPU, `GPU 3`, which links are up; no links if the tool says that all are inactive."""
    found: dict[str, list[bool]] = {}
    for gpu, line in _lines(text):
        states = found.setdefault(gpu, [])
        name, _, value = line.partition(":")
        if name.startswith("Link ") and name[5:].isdigit():
            states.append("inactive" not in value.lower())
    return found


def errors(text: str) -> dict[str, int]:
    """Return each error counter, `GPU 3 Link 0 Replay`. Ignore values that are not counts (`N/A`, bit error rates)."""
    found: dict[str, int] = {}
    for gpu, line in _lines(text):
        link, _, rest = line.partition(": ")
        counter, _, value = rest.partition(": ")
        if link.startswith("Link ") and counter.endswith(" Errors") and value.isdigit():
            found[f"{gpu} {link} {counter.removesuffix(' Errors')}"] = int(value)
    return found


def _lines(text: str) -> list[tuple[str, str]]:
    """Return each line with its GPU, also the line that names the GPU."""
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
    """Fail for a GPU with too few links up, and for a counter above the limit. None means not measured."""
    bad, fine = [], []
    if up is not None and wanted is not None:
        bad += [f"{gpu} has {sum(states)} of {wanted} links up" for gpu, states in up.items() if sum(states) < wanted]
        fine.append(f"{wanted} links up on {len(up)} GPUs")
    if counted is not None and limit is not None:
        over = [f"{name} {count} > {limit}" for name, count in counted.items() if count > limit]
        bad += over[:NAMED] + ([f"and {len(over) - NAMED} more"] if len(over) > NAMED else [])
        fine.append(f"no error counter above {limit}")
    return Finding(FAILED if bad else OK, ", ".join(bad or fine))
