"""The items for NVIDIA's GPUs through NVML: a hook's interpreter, NVIDIA's own binding, a library made for the test.

No GPU is needed, and none was at hand: what a real libnvidia-ml.so.1 answers is NVIDIA's documentation's to say.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.site import archive
from tests.unit.prechecks.nvml_site import Places, look
from tests.unit.prechecks.pace import given_time
from tests.unit.prechecks.vendor import fake

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
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    """Make the places once."""
    assert archive.binding(), "NVIDIA's binding is needed: pip install --editable '.[dev]'"
    found = Places(tmp_path_factory.mktemp("nvml"))
    yield found
    found.end()


@pytest.mark.parametrize(("item", "gpus", "own", "printed"), SAME)
def test_it_says_what_the_tool_says(
    places: Places, tmp_path: Path, item: str, gpus: dict[str, int], own: dict[str, Any], printed: str
) -> None:
    """Verdict, message, value and threshold are equal with NVML and with nvidia-smi."""
    by_tool = look(places, item, tool=fake(tmp_path, "smi", printed), driver="none", **own)
    assert look(places, item, gpus, **own) == by_tool
    assert by_tool[0] in ("ok", "failed", "error")


def test_rows_and_pages(places: Places) -> None:
    """Pending, failed, and unsupported."""
    fine = {"NVML_PENDING": 0, "NVML_FAILURE": 0, "NVML_PAGES": 0}
    assert look(places, "gpu-remap", fine)[::2][:2] == ["ok", "nothing pending on 2 GPUs"]
    pending = look(places, "gpu-remap", fine | {"NVML_PENDING": 1})
    assert pending[2].startswith("0000:1a:00.0 a row remapping is pending: reset the GPU, 0000:1b")
    failed = look(places, "gpu-remap", {"NVML_PENDING": 0, "NVML_FAILURE": 1})
    assert (failed[0], "row remapping failed: replace the GPU" in failed[2]) == ("failed", True)
    assert "pages wait to be retired" in look(places, "gpu-remap", {"NVML_PAGES": 1})[2]
    assert look(places, "gpu-remap")[2] == "nothing pending on 0 of 2 GPUs, the others do not report it"
    assert look(places, "gpu-remap", fine | {"NVML_RESET": 0})[0] == "error"


def test_links(places: Places) -> None:
    """Those that a GPU has: the binding's number of links is that of the largest GPU."""
    links = {"NVML_LINKS": 18}
    assert look(places, "gpu-nvlink", links, links=18)[2] == "18 links up on 2 GPUs"
    down = look(places, "gpu-nvlink", links | {"NVML_LINK_DOWN": 3}, links=18)
    assert (down[0], down[2]) == ("failed", "GPU 0 has 17 of 18 links up, GPU 1 has 17 of 18 links up")
    assert look(places, "gpu-nvlink", {}, links=18)[2].startswith("GPU 0 has 0 of 18 links up")
    assert look(places, "gpu-nvlink", links | {"NVML_RESET": 1}, links=18)[0] == "error"


def test_error_counters_of_links(places: Places, tmp_path: Path) -> None:
    """With nvidia-smi's names. For a GPU with other counters nvidia-smi is asked."""
    links = {"NVML_LINKS": 2, "NVML_LINK_DOWN": 0, "NVML_REPLAY": 0, "NVML_RECOVERY": 0, "NVML_CRC": 0}
    assert look(places, "gpu-nvlink", links, errors=0)[2] == "no error counter above 0"
    worse = look(places, "gpu-nvlink", links | {"NVML_CRC": 9}, errors=0)
    assert (worse[0], worse[2]) == ("failed", "GPU 0 Link 1 CRC 9 > 0, GPU 1 Link 1 CRC 9 > 0")
    tool = fake(tmp_path, "smi", "GPU 0: X\n\t Link 1: Effective Errors: 5\n")
    newer = look(places, "gpu-nvlink", {"NVML_LINKS": 2}, errors=0, tool=tool)
    assert newer[2] == "GPU 0 Link 1 Effective 5 > 0"
    assert look(places, "gpu-nvlink", {"NVML_LINKS": 2}, errors=0)[0] == "skipped"


def test_processes(places: Places) -> None:
    """On the job's own GPUs, by the bus ids of the kernel's driver."""
    there = {"NVML_PID": os.getpid()}
    found = look(places, "gpu-processes", there)
    assert found[0] == "failed"
    assert found[2].startswith(f"left on the job's GPUs: pid {os.getpid()} of ")
    assert (found[2].endswith("on 0000:1b:00.0"), found[3]) == (True, f"{os.getpid()}: /usr/bin/memhog")
    assert look(places, "gpu-processes", there, of=(0,))[2] == "no process on the job's GPUs"
    assert look(places, "gpu-processes", there, accept=["memhog"])[0] == "ok"
    assert look(places, "gpu-processes", there | {"NVML_NAMELESS": 1})[3] == f"{os.getpid()}: [Not Found]"
    assert look(places, "gpu-processes", {"NVML_RESET": 0})[0] == "error"


@pytest.mark.parametrize(
    ("code", "verdict", "words"),
    [
        (9, "failed", "0 of 2 GPUs answer: NVML does not start: couldn't communicate with the NVIDIA driver"),
        (18, "failed", "0 of 2 GPUs answer: NVML does not start: Driver/library version mismatch"),
        (999, "error", "ValueError: NVML does not start: Unknown Error"),
        (77, "error", "ValueError: NVML does not start: as the library says it"),
    ],
)
def test_where_it_does_not_begin(places: Places, code: int, verdict: str, words: str) -> None:
    """`gpu-check` fails as with nvidia-smi, with the same message. The others never fail."""
    assert look(places, "gpu-check", {"NVML_INIT": code})[::2][:2] == [verdict, words]
    assert look(places, "gpu-ecc", {"NVML_INIT": code})[0] == "error"


def test_inside_a_job(places: Places) -> None:
    """A GPU that the job's cgroup hides is no fault. If all are hidden, the result is unknown."""
    for code in (4, 17):  # insufficient permissions; blocked by the operating system or a cgroup
        gpus = {"NVML_HIDDEN": 1, "NVML_HIDDEN_BY": code}
        assert look(places, "gpu-check", gpus, hook="recheck", of=(0,))[0] == "ok"
    assert look(places, "gpu-check", {"NVML_HIDDEN": 1})[2] == "1 of 2 GPUs answer"
    hidden = look(places, "gpu-check", {"NVML_HIDDEN": 0, "NVML_GPUS": 1}, hook="recheck", of=(0,))
    assert hidden[::2][:2] == ["error", "ValueError: NVML shows no GPU here"]


def test_a_driver_that_hangs(places: Places) -> None:
    """`timeout` at the deadline: the child is left behind, and the hook ends."""

    def asked(deadline_s: float) -> tuple[list[str], str]:
        found = look(places, "gpu-ecc", {"NVML_HANGS": 1}, deadline=deadline_s)
        return found[::2][:2], f"no answer within {deadline_s:g} s: NVML"

    found, says = given_time(asked, lambda each: each[0][1] == each[1])
    assert found == ["timeout", says]


@pytest.mark.parametrize(
    "otherwise",
    [{"library": "none"}, {"code": "bare.zip"}, {"driver": "none"}, {"nvml": False}],
    ids=lambda given: next(iter(given)),
)
def test_else_the_tool(places: Places, tmp_path: Path, otherwise: dict[str, Any]) -> None:
    """Without library, binding or kernel driver, or if the site says so. Without the tool: skipped."""
    tool = fake(tmp_path, "smi", "00000000:1A:00.0, Enabled, 5, 5\n")
    assert look(places, "gpu-ecc", ECC)[0] == "ok"
    found = look(places, "gpu-ecc", ECC, tool=tool, **otherwise)
    assert (found[0], found[2]) == ("failed", "uncorrectable errors: 0000:1a:00.0 5 volatile > 0: reset the GPU")
    assert look(places, "gpu-ecc", ECC, **otherwise)[2] == "not here: /nonexistent/nvidia-smi"


def test_a_driver_older_than_the_binding(places: Places, tmp_path: Path) -> None:
    """For functions that it lacks, the tool is asked, which came with the driver."""
    tool = fake(tmp_path, "smi", f"00000000:1B:00.0, {os.getpid()}\n")
    assert look(places, "gpu-processes", library="old", tool=tool)[3].startswith(f"{os.getpid()}: /")
    assert look(places, "gpu-ecc", ECC, library="old", tool=tool)[0] == "ok"


def test_a_site_without_a_tool(places: Places) -> None:
    """`tool: null` says that the site has no GPUs of NVIDIA's."""
    assert look(places, "gpu-ecc", ECC | {"NVML_VOLATILE": 3}, tool="")[0] == "skipped"
    assert look(places, "gpu-check", {"NVML_GPUS": 0}, tool="")[0] == "ok"
