"""How much accelerators are used, from NVML and from the captured output of vendors' tools."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from prechecks import utilisation
from prechecks.utilisation import MIB, Device
from slurm_plugin.site import archive
from tests.unit.prechecks.nvml_site import SYSTEM, Places
from tests.unit.prechecks.vendor import captured, fake

NONE = "/nonexistent/tool"
# amd-smi metric --usage --power --mem-usage --json in the forms of ROCm 7 and 6
AMD = [
    {
        "gpu": number,
        "usage": {"gfx_activity": {"value": 42, "unit": "%"}, "umc_activity": {"value": 1, "unit": "%"}},
        "power": {"socket_power": {"value": 310, "unit": "W"}, "throttle_status": "UNTHROTTLED"},
        "mem_usage": {"total_vram": {"value": 1024, "unit": "MB"}, "used_vram": {"value": 26, "unit": "MB"}},
    }
    for number in (0, 1)
]
MEASURE = """
import sys
sys.path.insert(0, sys.argv[1])
from prechecks import quickjson
from prechecks import utilisation
from prechecks.measure import nvidia
nvidia.DRIVER = sys.argv[2]
own, tool = quickjson.loads(sys.argv[3])
print(quickjson.dumps([list(each) for each in utilisation.measure({"gpu-check": {"tool": tool}}, own)]))
"""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    """Make the places once."""
    assert archive.binding(), "NVIDIA's binding is needed: pip install --editable '.[dev]'"
    found = Places(tmp_path_factory.mktemp("nvml"))
    yield found
    found.end()


def by_hook(places: Places, own: list[int] | None, environ: Mapping[str, Any]) -> Any:
    """Return what the deployed code measures with a fake NVML."""
    root, asked = places.root, json.dumps([own, NONE])
    argv = [SYSTEM, "-I", "-S", "-c", MEASURE, f"{root}/site.zip", f"{root}/gpus", asked]
    words = {name: str(value) for name, value in environ.items()} | {"LD_LIBRARY_PATH": f"{places.root}/new"}
    done = subprocess.run(argv, capture_output=True, text=True, env=words, check=True, cwd="/")
    return json.loads(done.stdout)


def test_nvml(places: Places) -> None:
    """The job's own GPUs, by the numbers of their device files; a value that NVML does not have is null."""
    environ = {"NVML_USED": 93, "NVML_GIB": 64, "NVML_MILLIWATTS": 310500, "NVML_SM_MHZ": 1980, "NVML_THROTTLE": 32}
    card = [0.93, 64 << 30, 80 << 30, 310.5, 1980, 32]
    assert by_hook(places, [0, 1], environ) == [[0, *card], [1, *card]]
    assert by_hook(places, [1], environ) == [[1, *card]]
    assert by_hook(places, [0], {}) == [[0, None, 0, 80 << 30, None, None, 0]]
    assert by_hook(places, [0, 1], environ | {"NVML_HIDDEN": 0}) == [[1, *card]]
    assert by_hook(places, [0, 1], environ | {"NVML_RESET": 0}) == [[0, *[None] * 6], [1, *card]]
    assert by_hook(places, [0, 1], environ | {"NVML_GPUS": 0}) == []
    assert by_hook(places, [0, 1], environ | {"NVML_INIT": 9}) == []


def test_nvidia_smi(tmp_path: Path) -> None:
    """The same values from the tool, where there is no NVML."""
    text = "00000000:1A:00.0, 93, 65536, 81920, 310.50\n00000000:1B:00.0, [N/A], 0, 81920, [N/A]\n"
    settings = {"gpu-check": {"tool": fake(tmp_path, "nvidia-smi", text), "nvml": False}}
    both = [Device(0, 0.93, 64 << 30, 80 << 30, 310.5), Device(1, None, 0, 80 << 30, None)]
    assert utilisation.measure(settings, (0, 1)) == both
    assert utilisation.measure(settings, (1,)) == both[1:]
    assert utilisation.measure(settings, None) == []
    assert utilisation.measure(settings, None, 2) == both
    broken = {"gpu-check": {"tool": fake(tmp_path, "broken", "No devices were found\n", 6), "nvml": False}}
    assert utilisation.measure(broken, (0,)) == []
    assert utilisation.measure({"gpu-check": {"tool": None}}, (0,)) == []
    assert utilisation.measure({}, (0,)) == []


def test_npu_smi() -> None:
    """Cards with one chip and with two, of which only the first tells the power of both."""
    eight = utilisation.npus(captured("npu-smi-910b3"))
    assert len(eight) == 8
    assert eight[2] == Device(2, 0.0, 41052 * MIB, 65536 * MIB, 92.3)
    four = utilisation.npus(captured("npu-smi-ascend910"))
    assert four[0] == Device(0, 0.17, 53444 * MIB, 65536 * MIB, 232.5)
    assert four[1] == Device(1, 0.17, 52948 * MIB, 65536 * MIB, None)
    assert [each.index for each in four] == [0, 1, 2, 3]


def test_cnmon() -> None:
    """Two releases of the tool; a table of processes follows."""
    assert utilisation.mlus(captured("cnmon")) == [Device(number, 0.0, 0, 23374 * MIB, 106.0) for number in (0, 1)]
    assert utilisation.mlus(captured("cnmon-mlu220")) == [Device(0, 0.0, 967 * MIB, 4096 * MIB, 3.7)]
    busy = captured("cnmon").replace("| 0%  ", "| 87% ", 1)
    assert utilisation.mlus(busy)[0].used == 0.87


def test_amd_smi(tmp_path: Path) -> None:
    """Two forms; `N/A` for what a GPU does not tell."""
    card = (0.42, 26 * MIB, 1024 * MIB, 310.0)
    wanted = [Device(0, *card), Device(1, *card)]
    assert utilisation.amds(json.dumps(AMD)) == utilisation.amds(json.dumps({"gpu_data": AMD})) == wanted
    bare = '[{"gpu": 0, "usage": "N/A", "power": {"socket_power": "N/A"}}]'
    assert utilisation.amds(bare) == [Device(0, None, None, None, None)]
    for text in ("7", "[7]", '[{"gpu": "x"}]', "{}"):
        with pytest.raises(ValueError, match="no list of GPUs"):
            utilisation.amds(text)
    settings = {
        "gpu-check": {"tool": NONE},
        "npu-check": {"tool": NONE},
        "amd-check": {"tool": fake(tmp_path, "amd-smi", json.dumps(AMD))},
    }
    assert utilisation.measure(settings, (0, 1)) == wanted


@pytest.mark.parametrize("text", ["", "|||\n", "| 0 |\n" * 5, "| - | 0000:C1:00.0 | 0 0 / 0 |\n", "\0" * 5000])
def test_output_of_another_form(text: str) -> None:
    """Gives nothing, or what is readable; it is no error."""
    assert all(isinstance(each, Device) for each in utilisation.npus(text) + utilisation.mlus(text))
