"""Nodes on a site's first day: with the defaults, no good node fails, however it is built."""

import os
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import prechecks
from prechecks import CHECKS, FAILED, OK, SKIPPED, Context
from prechecks.checks import disk, gpu, inodes
from slurm_plugin.site.compilation import compile_site
from slurm_plugin.site.configuration import SiteConfig
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


def found_on(
    node: dict[str, SimpleNamespace], own: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """Return the verdicts on a site's space and inodes, with these settings of disk-size."""

    def statvfs(path: str) -> SimpleNamespace:
        if path not in node:
            raise FileNotFoundError(path)
        return node[path]

    monkeypatch.setattr(disk.os, "statvfs", statvfs)
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


@pytest.mark.parametrize(
    ("devices", "others"),
    [
        ([("0x1002", "0x038000")], True),
        ([("0x8086", "0x038000"), ("0x1a03", "0x030000")], True),
        ([("0x19e5", "0x120000")], True),
        ([("0x1002", "0x038000"), ("0x10de", "0x030200")], False),
        ([("0x10de", "0x030200")], False),
        ([("0x1a03", "0x030000"), ("0x8086", "0x020000")], False),
        ([], False),
    ],
)
def test_gpus_of_other_vendors(tmp_path: Path, devices: list[tuple[str, str]], others: bool) -> None:
    """AMD's and Intel's have no /dev/nvidia0. A node's console display is no GPU."""
    for number, (vendor, kind) in enumerate(devices):
        place = tmp_path / f"0000:0{number}:00.0"
        place.mkdir()
        (place / "vendor").write_text(f"{vendor}\n")
        (place / "class").write_text(f"{kind}\n")
    assert gpu.of_others(str(tmp_path)) is others


@pytest.mark.parametrize(("count", "verdict"), [(None, SKIPPED), (4, FAILED)])
def test_a_job_on_gpus_of_another_vendor(monkeypatch: pytest.MonkeyPatch, count: int | None, verdict: str) -> None:
    """It drains no node, unless the site gives the number of NVIDIA's GPUs."""
    monkeypatch.setattr(gpu, "of_others", lambda _: True)
    monkeypatch.setattr(gpu, "devices", lambda numbers, _: dict.fromkeys(map(str, numbers), False))
    settings = {"gpu-check": {"device": gpu.DEFAULT_DEVICE, "count": count, "tool": None}}
    assert gpu.GpuCheck().look(Context("prolog", "n1", gpus=(0, 1)), settings).verdict == verdict
