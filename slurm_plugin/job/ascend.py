"""What this node can say of its Ascend devices: physical ids and addresses.

/etc/hccn.conf is looked at first, as HCCL's own tools do; hccn_tool, which asks the driver and mostly wants root, is
run for the devices that the file does not have.
"""

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from hostfiles import Device, HostfileError, npu
from slurm_plugin.job import network
from slurm_plugin.slurm.process import Result, run

CONF: Final = Path("/etc/hccn.conf")
DEVICES: Final = Path("/dev")
TOOL: Final = "/usr/local/Ascend/driver/tools/hccn_tool"  # where the driver installs it
TOOL_DEADLINE_S: Final = 10.0

_DEVICE = re.compile(r"davinci([0-9]+)", re.ASCII)

Tool = Callable[[int], Result]


def line(name: str, environ: Mapping[str, str], *, alone: bool = False) -> str:
    """What node `name` tells the first node of the job (`hostfiles.npu.complete` reads it).

    `alone`: the job has no other node. Raises HostfileError where devices or addresses cannot be found out.
    """
    return npu.line(name, network.own_address(name), devices(environ, tool=_tool, alone=alone))


def devices(
    environ: Mapping[str, str],
    *,
    tool: Tool,
    alone: bool = False,
    conf: Path = CONF,
    device_directory: Path = DEVICES,
) -> tuple[Device, ...]:
    """The job's devices on this node with their addresses, by id; `alone`, where an address is missing, without it.

    The ids are those of the environment (`hostfiles.npu.ID_VARIABLES`), else of every /dev/davinciN.
    """
    ids = npu.device_ids(environ) or _present(device_directory)
    known, why_not = _configured(conf)
    return tuple(
        Device(number, known.get(number) or ("" if alone else _asked(number, tool, why_not))) for number in ids
    )


def _present(directory: Path) -> tuple[int, ...]:
    """The ids of all device files."""
    found = (_DEVICE.fullmatch(entry.name) for entry in directory.iterdir())
    ids = sorted(int(match[1]) for match in found if match)
    if not ids:
        raise HostfileError(f"no {directory}/davinciN here, and none of {', '.join(npu.ID_VARIABLES)} is set")
    return tuple(ids)


def _configured(conf: Path) -> tuple[dict[int, str], str]:
    """The addresses in the file, and why a device may have none there."""
    try:
        return npu.conf_addresses(conf.read_text(encoding="utf-8")), f"{conf} has no address of it"
    except OSError as error:
        return {}, f"{conf}: {error.strerror}"
    except UnicodeDecodeError:
        raise HostfileError(f"{conf}: no text; lines read address_0=192.168.1.8") from None


def _asked(number: int, tool: Tool, why_not: str) -> str:
    """The address that the driver has. Raises HostfileError with both reasons where it has none either."""
    try:
        result = tool(number)
    except OSError as error:
        raise HostfileError(f"device {number}: {why_not}, and hccn_tool: {error.strerror}") from error
    if result.code is None:
        raise HostfileError(f"device {number}: {why_not}, and hccn_tool said nothing in {TOOL_DEADLINE_S:g} s")
    if result.code:
        said = (result.err or result.out).strip()[:80]
        raise HostfileError(f"device {number}: {why_not}, and hccn_tool ended with {result.code}: {said}")
    return npu.tool_address(result.out, number)


def _tool(number: int) -> Result:
    program = TOOL if Path(TOOL).exists() else shutil.which("hccn_tool") or TOOL
    return run([program, "-i", str(number), "-ip", "-g"], deadline_s=TOOL_DEADLINE_S, environ={"LC_ALL": "C"})
