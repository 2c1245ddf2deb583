"""The devices of a node when they are counted, and how the periodic check compares them."""

from pathlib import Path
from typing import Any

import pytest

import prechecks
from prechecks import Context, equipment
from prechecks.registry import CHECKS
from tests.waiting import HANG_S

ROUTE = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
DEFAULT = "{}\t00000000\t0102A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
V6 = "00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe80 00000064 00000000 00000000 {} {}\n"


def link(root: Path, name: str, *, kind: str = "1", state: str = "up", carrier: str = "1", sign: str = "") -> None:
    """Make an interface in sysfs."""
    at = root / "sys/class/net" / name
    at.mkdir(parents=True)
    for file, text in (("type", kind), ("operstate", state), ("carrier", carrier)):
        (at / file).write_text(text + "\n")
    if sign:
        (at / sign).mkdir()


def test_interfaces_that_stay(tmp_path: Path) -> None:
    """Those of default routes and of InfiniBand that are up, but no temporary ones."""
    for name, fields in {
        "eth0": {}, "eth1": {}, "eth2": {"state": "down", "carrier": "0"}, "ib0": {"kind": "32"},
        "ib1": {"kind": "32", "carrier": "0"}, "tun0": {"sign": "tun_flags"}, "wlan0": {"sign": "wireless"},
        "wg0": {"kind": "65534"}, "v6": {}, "v6x": {}, "docker0": {},
    }.items():  # fmt: skip
        link(tmp_path, name, **fields)
    link(tmp_path, "usb0")
    (tmp_path / "pci/usb1/1-1").mkdir(parents=True)
    (tmp_path / "sys/class/net/usb0/device").symlink_to(tmp_path / "pci/usb1/1-1")
    routed = ("eth0", "eth2", "tun0", "wlan0", "wg0", "usb0")
    (tmp_path / "proc/net").mkdir(parents=True)
    (tmp_path / "proc/net/route").write_text(
        ROUTE + "".join(map(DEFAULT.format, routed)) + "eth1\t0002A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
    )
    (tmp_path / "proc/net/ipv6_route").write_text(V6.format("00000003", "v6") + V6.format("00200200", "v6x"))
    assert equipment.interfaces(str(tmp_path)) == ["v6", "ib0", "eth0"]
    assert equipment.interfaces(str(tmp_path / "none")) == []


@pytest.mark.parametrize(
    ("text", "device", "gpus"),
    [
        ("NodeName=n[1-4] Name=gpu File=/dev/fakegpu[0-3]", "/dev/fakegpu%d", 4),
        ("NodeName=n[2-4] Name=gpu File=/dev/fakegpu[0-3]", "", 0),
        ("Name=gpu Type=a100 File=/dev/nvidia[0-3] COREs=0-31\nName=GPU File=/dev/nvidia[4-7]", "", 8),
        ("Name=gpu File=/dev/nvidia0\nName=gpu File=/dev/nvidia1", "", 2),
        ("Name=gpu File=/dev/nvidia[0-1,3]", "/dev/nvidia%d", 0),  # no pattern with a count makes these
        ("Name=gpu File=/dev/dri/renderD[128-129]", "", 0),
        ("Name=gpu MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap12", "", 0),
        ("Name=gpu File=/dev/nvidia[a-b]", "", 0),
        ("NodeName=n[1 Name=gpu File=/dev/nvidia[0-3]", "", 0),
        ("AutoDetect=nvml\nName=gpu", "", 0),
        ("Name=mps Count=100 File=/dev/nvidia0", "", 0),
        ("", "", 0),
    ],
)
def test_gpus_of_gres_conf(tmp_path: Path, text: str, device: str, gpus: int) -> None:
    """The number of device files numbered from 0. Other forms are not guessed."""
    (tmp_path / "gres.conf").write_text(f"# GPUs\n{text}\n")
    found = equipment.count("n1", str(tmp_path / "gres.conf"), str(tmp_path))
    assert (found["gpus"], found["device"] if gpus else device) == (gpus, device)
    there = sum(Path(f"/dev/nvidia{number}").exists() for number in range(gpus)) if not device else 0
    assert found["missing"] == gpus - there


def test_gpus_of_the_driver(tmp_path: Path) -> None:
    """If gres.conf does not list them: one directory for each GPU."""
    for name in ("0000:5f:00.0", "0000:60:00.0", "other"):
        (tmp_path / "proc/driver/nvidia/gpus" / name).mkdir(parents=True)
    found = equipment.count("n1", str(tmp_path / "gres.conf"), str(tmp_path))
    assert (found["node"], found["gpus"], found["device"]) == ("n1", 2, "")


def settings(**own: Any) -> dict[str, Any]:
    """Return the settings of a site with one kind of node, and one more setting."""
    has = [{"nodes": "n[1-2],m1", "gpus": 2, "device": "/dev/none%d", "interfaces": ["none0"]}]
    gpu = {"device": "/dev/nvidia%d", "count": None, "tool": None}
    return {"deadline_s": HANG_S, "mandatory": [], "equipment": has, "gpu-check": gpu, "nic": {"interfaces": []}, **own}


def looked(node: str, hook: str = "periodic", **own: Any) -> dict[str, str]:
    """Return verdict and message of the two items."""
    found = prechecks.run(Context(hook, node), settings(**own), items=["gpu-check", "nic"], checks=CHECKS)
    return {each.item: f"{each.verdict}: {each.message}" for each in found}


def test_a_node_is_held_to_what_it_had() -> None:
    """By the periodic check, and only counted nodes: other or new nodes are not compared."""
    lost = {"gpu-check": "failed: 0 of 2 GPUs", "nic": "failed: none0 is not there"}
    assert looked("n2") == looked("m1") == lost
    for node, hook in (("n3", "periodic"), ("n2", "prolog"), ("n2", "epilog"), ("n2", "hand")):
        assert {text.partition(":")[0] for text in looked(node, hook).values()} == {"skipped"}, (node, hook)


def test_the_site_s_own_settings_of_an_item_win() -> None:
    """The site's setting of an item holds for all nodes."""
    assert looked("n2", nic={"interfaces": ["lo"]})["nic"] == "ok: up: lo"
    own = {"device": "/dev/none%d", "count": 3, "tool": None}
    assert looked("n2", **{"gpu-check": own})["gpu-check"] == "failed: 0 of 3 GPUs"
