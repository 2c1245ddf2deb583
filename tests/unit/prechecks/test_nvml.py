"""The items for NVIDIA's GPUs through NVML: a hook's interpreter, NVIDIA's own binding, a library made for the test.

No GPU is needed, and none was at hand: what a real libnvidia-ml.so.1 answers is NVIDIA's documentation's to say.
"""

import json
import os
import subprocess
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin import archive
from tests.unit.prechecks.vendor import fake

SOURCE = Path(__file__).parent / "fake_nvml.c"
SYSTEM = "/usr/bin/python3"
RUN = """
import sys
sys.path.insert(0, sys.argv[1])
import prechecks
from prechecks import Context, nvidia, quickjson
nvidia.DRIVER = sys.argv[2]
item, hook, gpus, settings = quickjson.loads(sys.argv[3])
check = next(check for check in prechecks.CHECKS if check.item == item)
print(*prechecks.run(Context(hook, "n1", gpus=tuple(gpus)), settings, checks=[check])[0][1:6], sep="\\n")
"""
# What the library is told, the item, and what nvidia-smi would print of the same GPUs.
ECC = {"NVML_ECC": 1, "NVML_VOLATILE": 0, "NVML_AGGREGATE": 2}
SAME: list[tuple[str, dict[str, int], dict[str, Any], str]] = [
    ("gpu-ecc", ECC, {}, "00000000:1A:00.0, Enabled, 0, 2\n00000000:1B:00.0, Enabled, 0, 2\n"),
    ("gpu-ecc", ECC | {"NVML_VOLATILE": 7}, {}, "00000000:1A:00.0, Enabled, 7, 2\n00000000:1B:00.0, Enabled, 7, 2\n"),
    ("gpu-ecc", ECC, {"aggregate": 1}, "00000000:1A:00.0, Enabled, 0, 2\n00000000:1B:00.0, Enabled, 0, 2\n"),
    ("gpu-ecc", {"NVML_ECC": 0}, {}, "".join(f"00000000:1{n}:00.0, Disabled, [N/A], [N/A]\n" for n in "AB")),
    ("gpu-ecc", {}, {}, "".join(f"00000000:1{n}:00.0, [N/A], [N/A], [N/A]\n" for n in "AB")),
    (
        "gpu-ecc",
        ECC | {"NVML_RESET": 1},
        {},
        "00000000:1A:00.0, Enabled, 0, 2\n"
        "00000000:1B:00.0, [GPU requires reset], [GPU requires reset], [GPU requires reset]\n",
    ),
    ("gpu-check", {}, {}, "00000000:1A:00.0, 40\n00000000:1B:00.0, 40\n"),
    ("gpu-check", {"NVML_RESET": 0}, {}, "00000000:1A:00.0, [GPU requires reset]\n00000000:1B:00.0, 40\n"),
    (
        "gpu-check",
        {"NVML_LOST": 1},
        {},
        "00000000:1A:00.0, 40\nUnable to determine the device handle for GPU1: GPU is lost\n",
    ),
    ("gpu-check", {"NVML_GPUS": 0}, {}, "No devices were found\n"),
    ("gpu-check", {"NVML_GPUS": 1}, {}, "00000000:1A:00.0, 40\n"),
]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The zip of a site, the library in two ages of it, and what the kernel's driver shows of its GPUs."""
    assert archive.binding(), "NVIDIA's binding is needed: pip install --editable '.[dev]'"
    found = tmp_path_factory.mktemp("nvml")
    (found / "site.zip").write_bytes(archive.build([SYSTEM]))
    for name, options in (("new", ()), ("old", ("-DOLD",))):
        (found / name).mkdir()
        library = found / name / "libnvidia-ml.so.1"
        subprocess.run(["cc", "-shared", "-fPIC", *options, "-o", library, SOURCE], check=True, timeout=60)
    for minor, bus in enumerate(("0000:1a:00.0", "0000:1b:00.0")):
        (found / "gpus" / bus).mkdir(parents=True)
        (found / "gpus" / bus / "information").write_text(f"Device Minor: \t {minor}\n")
        (found / f"gpu{minor}").symlink_to("/dev/null")
    return found


def look(
    places: Path,
    item: str,
    gpus: Mapping[str, Any] | None = None,
    *,
    library: str = "new",
    driver: str = "gpus",
    hook: str = "prolog",
    of: tuple[int, ...] = (0, 1),
    deadline: float = 30.0,
    tool: str = "/nonexistent/nvidia-smi",
    code: str = "site.zip",
    nvml: bool = True,
    **own: Any,
) -> list[str]:
    """An item as a hook looks at it: verdict, problem, message, value, threshold."""
    parts = {
        "gpu-check": {"device": f"{places}/gpu%d", "count": None, "tool": tool, "nvml": nvml},
        "gpu-ecc": {"volatile": 0, "aggregate": None},
        "gpu-processes": {"accept": [], "shared": False},
    }
    settings = {**parts, "deadline_s": deadline, item: {**parts.get(item, {}), **own}}
    given = json.dumps([item, hook, of, settings])
    argv = [SYSTEM, "-I", "-S", "-c", RUN, str(places / code), str(places / driver), given]
    environ = {"LD_LIBRARY_PATH": str(places / library), **{name: str(value) for name, value in (gpus or {}).items()}}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, env=environ, cwd="/")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(("item", "gpus", "own", "printed"), SAME)
def test_it_says_what_the_tool_says(
    places: Path, tmp_path: Path, item: str, gpus: dict[str, int], own: dict[str, Any], printed: str
) -> None:
    """One judge: verdict, words, value and threshold are alike, whichever of the two was asked."""
    by_tool = look(places, item, tool=fake(tmp_path, "smi", printed), driver="none", **own)
    assert look(places, item, gpus, **own) == by_tool
    assert by_tool[0] in ("ok", "failed", "error")


def test_rows_and_pages(places: Path) -> None:
    """What is pending, what failed, what a GPU cannot do."""
    fine = {"NVML_PENDING": 0, "NVML_FAILURE": 0, "NVML_PAGES": 0}
    assert look(places, "gpu-remap", fine)[::2][:2] == ["ok", "nothing pending on 2 GPUs"]
    pending = look(places, "gpu-remap", fine | {"NVML_PENDING": 1})
    assert pending[2].startswith("0000:1a:00.0 a row remapping is pending: reset the GPU, 0000:1b")
    failed = look(places, "gpu-remap", {"NVML_PENDING": 0, "NVML_FAILURE": 1})
    assert (failed[0], "row remapping failed: replace the GPU" in failed[2]) == ("failed", True)
    assert "pages wait to be retired" in look(places, "gpu-remap", {"NVML_PAGES": 1})[2]
    assert look(places, "gpu-remap")[2] == "nothing pending on 0 of 2 GPUs, the others cannot tell"
    assert look(places, "gpu-remap", fine | {"NVML_RESET": 0})[0] == "error"


def test_links(places: Path) -> None:
    """Those that a GPU has are counted, and no others: the binding's number of links is that of the largest GPU."""
    links = {"NVML_LINKS": 18}
    assert look(places, "gpu-nvlink", links, links=18)[2] == "18 links up on 2 GPUs"
    down = look(places, "gpu-nvlink", links | {"NVML_LINK_DOWN": 3}, links=18)
    assert (down[0], down[2]) == ("failed", "GPU 0 has 17 of 18 links up, GPU 1 has 17 of 18 links up")
    assert look(places, "gpu-nvlink", {}, links=18)[2].startswith("GPU 0 has 0 of 18 links up")
    assert look(places, "gpu-nvlink", links | {"NVML_RESET": 1}, links=18)[0] == "error"


def test_error_counters_of_links(places: Path, tmp_path: Path) -> None:
    """Named as nvidia-smi names them; where a GPU counts other things, nvidia-smi is asked, which knows them."""
    links = {"NVML_LINKS": 2, "NVML_LINK_DOWN": 0, "NVML_REPLAY": 0, "NVML_RECOVERY": 0, "NVML_CRC": 0}
    assert look(places, "gpu-nvlink", links, errors=0)[2] == "no error counter above 0"
    worse = look(places, "gpu-nvlink", links | {"NVML_CRC": 9}, errors=0)
    assert (worse[0], worse[2]) == ("failed", "GPU 0 Link 1 CRC 9 > 0, GPU 1 Link 1 CRC 9 > 0")
    tool = fake(tmp_path, "smi", "GPU 0: X\n\t Link 1: Effective Errors: 5\n")
    newer = look(places, "gpu-nvlink", {"NVML_LINKS": 2}, errors=0, tool=tool)
    assert newer[2] == "GPU 0 Link 1 Effective 5 > 0"
    assert look(places, "gpu-nvlink", {"NVML_LINKS": 2}, errors=0)[0] == "skipped"


def test_processes(places: Path) -> None:
    """On the job's own GPUs, by the bus ids of the kernel's driver."""
    there = {"NVML_PID": os.getpid()}
    found = look(places, "gpu-processes", there)
    assert found[0] == "failed"
    assert found[2].startswith(f"left on the job's GPUs: pid {os.getpid()} of ")
    assert (found[2].endswith("on 0000:1b:00.0"), found[3]) == (True, f"{os.getpid()} /usr/bin/memhog")
    assert look(places, "gpu-processes", there, of=(0,))[2] == "no process on the job's GPUs"
    assert look(places, "gpu-processes", there, accept=["memhog"])[0] == "ok"
    assert look(places, "gpu-processes", there | {"NVML_NAMELESS": 1})[3] == f"{os.getpid()} [Not Found]"
    assert look(places, "gpu-processes", {"NVML_RESET": 0})[0] == "error"


@pytest.mark.parametrize(
    ("code", "verdict", "words"),
    [
        (9, "failed", "0 of 2 GPUs answer: NVML does not begin: couldn't communicate with the NVIDIA driver"),
        (18, "failed", "0 of 2 GPUs answer: NVML does not begin: Driver/library version mismatch"),
        (999, "error", "ValueError: NVML does not begin: Unknown Error"),
        (77, "error", "ValueError: NVML does not begin: as the library says it"),
    ],
)
def test_where_it_does_not_begin(places: Path, code: int, verdict: str, words: str) -> None:
    """`gpu-check` fails for what it fails for in nvidia-smi's words; the others never do."""
    assert look(places, "gpu-check", {"NVML_INIT": code})[::2][:2] == [verdict, words]
    assert look(places, "gpu-ecc", {"NVML_INIT": code})[0] == "error"


def test_inside_a_job(places: Path) -> None:
    """A GPU that the job's cgroup hides is no complaint; where all are hidden, nothing is known."""
    for code in (4, 17):  # insufficient permissions; blocked by the operating system or a cgroup
        gpus = {"NVML_HIDDEN": 1, "NVML_HIDDEN_BY": code}
        assert look(places, "gpu-check", gpus, hook="recheck", of=(0,))[0] == "ok"
    assert look(places, "gpu-check", {"NVML_HIDDEN": 1})[2] == "1 of 2 GPUs answer"
    hidden = look(places, "gpu-check", {"NVML_HIDDEN": 0, "NVML_GPUS": 1}, hook="recheck", of=(0,))
    assert hidden[::2][:2] == ["error", "ValueError: NVML shows no GPU here"]


def test_a_driver_that_hangs(places: Path) -> None:
    """Is `timeout` at the deadline: the child is left, the hook ends."""
    start = time.monotonic()
    found = look(places, "gpu-ecc", {"NVML_HANGS": 1}, deadline=1.0)
    assert found[::2][:2] == ["timeout", "no answer within 1 s: NVML"]
    assert time.monotonic() - start < 30


@pytest.mark.parametrize(
    "otherwise",
    [{"library": "none"}, {"code": "bare.zip"}, {"driver": "none"}, {"nvml": False}],
    ids=lambda given: next(iter(given)),
)
def test_else_the_tool(places: Path, tmp_path: Path, otherwise: dict[str, Any]) -> None:
    """Without library, binding or the kernel's driver, or where the site says so; without the tool too: skipped."""
    with zipfile.ZipFile(places / "site.zip") as whole, zipfile.ZipFile(places / "bare.zip", "w") as bare:
        for name in (name for name in whole.namelist() if "pynvml" not in name):
            bare.writestr(name, whole.read(name))
    tool = fake(tmp_path, "smi", "00000000:1A:00.0, Enabled, 5, 5\n")
    assert look(places, "gpu-ecc", ECC)[0] == "ok"
    found = look(places, "gpu-ecc", ECC, tool=tool, **otherwise)
    assert (found[0], found[2]) == ("failed", "uncorrectable errors: 0000:1a:00.0 5 volatile > 0: reset the GPU")
    assert look(places, "gpu-ecc", ECC, **otherwise)[2] == "not here: /nonexistent/nvidia-smi"


def test_a_driver_older_than_the_binding(places: Path, tmp_path: Path) -> None:
    """What it lacks the tool is asked for, which came with it; what it has not."""
    tool = fake(tmp_path, "smi", f"00000000:1B:00.0, {os.getpid()}, /usr/bin/python3\n")
    assert look(places, "gpu-processes", library="old", tool=tool)[3] == f"{os.getpid()} /usr/bin/python3"
    assert look(places, "gpu-ecc", ECC, library="old", tool=tool)[0] == "ok"


def test_a_site_without_a_tool(places: Path) -> None:
    """`tool: null` is the site's word that there are none of NVIDIA's GPUs to ask."""
    assert look(places, "gpu-ecc", ECC | {"NVML_VOLATILE": 3}, tool="")[0] == "skipped"
    assert look(places, "gpu-check", {"NVML_GPUS": 0}, tool="")[0] == "ok"
