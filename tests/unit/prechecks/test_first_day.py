"""Nodes on a site's first day: with the defaults, no good node fails, however it is built."""

import os
import re
import stat
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import prechecks
from prechecks import CHECKS, FAILED, OK, SKIPPED, Context
from prechecks.checks import disk, gpu, inodes
from prechecks.measure import nvidia
from slurm_plugin.node import prolog
from slurm_plugin.records import token
from slurm_plugin.site.compilation import compile_site
from slurm_plugin.site.configuration import SiteConfig
from tests.unit.prechecks import smi
from tests.unit.prechecks.vendor import captured, fake
from tests.waiting import HANG_S

MB, GB = 1 << 20, 1 << 30
BLOCK = 4096


def file_system(size: int, available: int, *, free_inodes: int = 1000, flags: int = 0) -> SimpleNamespace:
    """Return a statvfs result; sizes in bytes."""
    return SimpleNamespace(
        f_frsize=BLOCK,
        f_blocks=size // BLOCK,
        f_bavail=available // BLOCK,
        f_files=10000,
        f_favail=free_inodes,
        f_flag=flags,
    )


READ_ONLY = file_system(200 * GB, 0, free_inodes=0, flags=os.ST_RDONLY)
NODES: dict[str, dict[str, SimpleNamespace]] = {
    "plain Debian": {"/": file_system(40 * GB, 28 * GB), "/dev/shm": file_system(8 * GB, 8 * GB)},
    "a small shm": {"/": file_system(100 * GB, 80 * GB), "/dev/shm": file_system(900 * MB, 900 * MB)},
    "diskless, root in memory": {"/": file_system(8 * GB, 5 * GB), "/dev/shm": file_system(64 * GB, 64 * GB)},
    "diskless, root read-only": {"/": READ_ONLY, "/dev/shm": file_system(64 * GB, 64 * GB)},
    "a container": {"/": file_system(50 * GB, 9 * GB), "/dev/shm": file_system(64 * MB, 64 * MB)},
    "no limit on shm": {"/": file_system(100 * GB, 80 * GB), "/dev/shm": file_system(0, 0)},
}


def statvfs(node: Mapping[str, SimpleNamespace], path: str) -> SimpleNamespace:
    """Return what a node has at this path, in place of os.statvfs."""
    if path not in node:
        raise FileNotFoundError(path)
    return node[path]


def found_on(
    node: dict[str, SimpleNamespace], own: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """Return the verdicts on a site's space and inodes, with these settings of disk-size."""

    monkeypatch.setattr(disk.os, "statvfs", partial(statvfs, node))
    settings = {**compile_site(SiteConfig())["prechecks"], "deadline_s": HANG_S, "state": ""}
    settings["disk-size"] = {**settings["disk-size"], **own}
    checks = [check for check in CHECKS if isinstance(check, disk.DiskSize | inodes.Inodes)]
    return {each.item: each.verdict for each in prechecks.run(Context("prolog", "n1"), settings, checks=checks)}


@pytest.mark.parametrize("node", NODES)
def test_no_default_fails(node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing file systems are skipped, and each threshold fits the file system."""
    found = found_on(NODES[node], {}, monkeypatch)
    assert set(found.values()) <= {OK, SKIPPED}, found
    assert found["disk-size.cache"] == found["inodes.cache"] == SKIPPED


@pytest.mark.parametrize("hook", ["prolog", "epilog", "periodic", "recheck"])
@pytest.mark.parametrize("node", NODES)
def test_no_item_drains(node: str, hook: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All items, for a job with GPUs that slurm.conf only counts, on a node whose name no name server knows."""
    (tmp_path / "gres.conf").write_text("Name=gpu Count=2")
    monkeypatch.setenv("SLURM_CONF", f"{tmp_path}/slurm.conf")
    monkeypatch.setattr(nvidia, "DRIVER", str(tmp_path / "none"))
    monkeypatch.setattr(disk.os, "statvfs", partial(statvfs, NODES[node]))
    settings = {**compile_site(SiteConfig())["prechecks"], "deadline_s": HANG_S, "state": f"{tmp_path}/state"}
    found = prechecks.run(Context(hook, "n1.invalid", hosts=("n1.invalid",), gpus=(0, 1)), settings)
    assert {each.item for each in found} == {check.item for check in CHECKS}
    assert [each for each in found if each.failed] == []


def test_what_the_site_requires(monkeypatch: pytest.MonkeyPatch) -> None:
    """It must exist, and have the space."""
    node = {"/": READ_ONLY, "/dev/shm": file_system(900 * MB, 900 * MB)}
    found = found_on(node, {"required": list(disk.NAMES)}, monkeypatch)
    assert {item for item, verdict in found.items() if verdict == FAILED} == {
        "disk-size.root",
        "disk-size.shm",
        "disk-size.cache",
        "inodes.root",
    }


@pytest.mark.parametrize(
    ("size", "available", "verdict"),
    [
        (64 * GB, 32 * GB, FAILED),
        (64 * GB, 33 * GB, OK),
        (40 * GB, 3 * GB, OK),
        (40 * GB, 2 * GB, FAILED),
        (4 * GB, 0, FAILED),
    ],
)
def test_a_full_file_system_fails_however_small(
    size: int, available: int, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A twentieth of a small one must be available, so that a full one still fails."""
    assert found_on({"/": file_system(size, available)}, {}, monkeypatch)["disk-size.root"] == verdict


GPU_NODES = {
    # name: gres.conf, whether the node has NVIDIA's driver, existing files, the job's GPUs, verdict and message
    "no driver": ("", False, [], (0, 1), SKIPPED, "set gpu-check.device"),
    "only a count": ("Name=gpu Count=2", False, [], (0, 1), SKIPPED, "set gpu-check.device"),
    "other GPUs": ("Name=gpu File=dri/renderD[128-129]", False, ["dri/renderD128", "dri/renderD129"], (0,), OK, "2 of"),
    "one of them is lost": ("Name=gpu File=accel[0-1]", False, ["accel0"], (0, 1), FAILED, "1 of 2 GPUs"),
    "slices": ("Name=gpu MultipleFiles=nvidia0,caps/21\nName=gpu MultipleFiles=nvidia0,caps/30", True,
               ["nvidia0", "caps/21", "caps/30"], (0, 1), OK, "3 of 3"),
    "a lost GPU": ("Name=gpu File=nvidia[0-1]", True, ["nvidia0"], (1,), FAILED, "0 of 1 GPUs"),
    "a lost GPU that AutoDetect found": ("AutoDetect=nvml", True, ["nvidia0"], (0, 1), FAILED, "1 of 2 GPUs"),
    "no gres.conf": (None, True, ["nvidia0", "nvidia1"], (0, 1), OK, "2 of 2"),
    "no form": ("NodeName=n[1 Name=gpu File=nvidia0", True, ["nvidia0"], (0,), OK, "1 of 1"),
}  # fmt: skip


def gpu_check(
    node: str, hook: str, tool: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> prechecks.Finding:
    """Make the files of this node, and check its GPUs with the default device files."""
    text, driver, files, gpus, _, _ = GPU_NODES[node]
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        os.mknod(tmp_path / name, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    if text is not None:
        own = re.sub("(?<=File=)|(?<=Files=)|(?<=[a-z0-9],)", f"{tmp_path}/", text)
        (tmp_path / "gres.conf").write_text(own)
    monkeypatch.setenv("SLURM_CONF", f"{tmp_path}/slurm.conf")
    monkeypatch.setattr(gpu, "DEFAULT_DEVICE", f"{tmp_path}/nvidia%d")
    monkeypatch.setattr(nvidia, "DRIVER", str(tmp_path if driver else tmp_path / "none"))
    settings = {"gpu-check": {"device": gpu.DEFAULT_DEVICE, "count": None, "tool": tool, "nvml": False}}
    return gpu.GpuCheck().look(Context(hook, "n1", gpus=gpus), settings)


@pytest.mark.parametrize("node", GPU_NODES)
def test_a_job_with_gpus(node: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With the defaults, the device files are those of gres.conf, else of NVIDIA's driver."""
    verdict, message = GPU_NODES[node][4:]
    found = gpu_check(node, "prolog", None, monkeypatch, tmp_path)
    assert (found.verdict, message in found.message) == (verdict, True), found


RESET = captured("nvidia-smi-reset").splitlines()
TOOLS = {  # node, what its nvidia-smi prints, verdict, message
    "slices of one GPU": ("slices", RESET[1], OK, "3 of 3"),
    "slices of a GPU that needs a reset": ("slices", RESET[0], FAILED, "0 of 1 GPUs answer: 0000:19:00.0"),
    "slices, and the driver is away": ("slices", smi.FAILED_TO_TALK, FAILED, "0 of 1 GPUs answer: NVIDIA-SMI"),
    "other GPUs on an image with nvidia-smi": ("other GPUs", smi.FAILED_TO_TALK, OK, "2 of"),
    "two GPUs": ("no gres.conf", captured("nvidia-smi-temperature"), OK, "2 of 2"),
    "two GPUs, of which one answers": ("no gres.conf", RESET[1], FAILED, "1 of 2 GPUs answer"),
}


@pytest.mark.parametrize("hook", ["prolog", "barrier"])
@pytest.mark.parametrize("name", TOOLS)
def test_a_job_with_gpus_and_the_default_tool(
    name: str, hook: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """NVIDIA's tool counts whole GPUs of NVIDIA: no slices, and no GPUs of other makers."""
    node, says, verdict, message = TOOLS[name]
    found = gpu_check(node, hook, fake(tmp_path, "nvidia-smi", says), monkeypatch, tmp_path)
    assert (found.verdict, message in found.message) == (verdict, True), found


def test_a_prolog_of_mig_instances(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Slurm's numbers are then those of slices, so all GPUs of the driver are checked."""
    directory = tmp_path / "0000:5f:00.0"
    directory.mkdir()
    (directory / "information").write_text("Device Minor: \t 3\n")
    monkeypatch.setattr(nvidia, "DRIVER", str(tmp_path))
    environ = {"SLURMD_NODENAME": "n1", "SLURM_JOB_GPUS": "0,6"}
    for devices, gpus in {"0,1": (0, 6), "MIG-5a1b,MIG-77c2": (3,)}.items():
        found = prolog._context(
            token.Token(), {"infiniband_partitions": []}, {**environ, "CUDA_VISIBLE_DEVICES": devices}
        )
        assert found.gpus == gpus


def test_the_site_gives_the_number() -> None:
    """It then expects NVIDIA's files, with or without a driver."""
    settings = {"gpu-check": {"device": gpu.DEFAULT_DEVICE, "count": 999, "tool": None}}
    assert gpu.GpuCheck().look(Context("prolog", "n1"), settings).verdict == FAILED
