"""Interfaces: their judgement, the reading of files as kernels write them, and of a real veth pair.

eth0 is that of prometheus/procfs, sysfs/testdata/fixtures.ttar; the bond has the files that the bonding driver makes
(drivers/net/bonding/bond_sysfs.c and bond_sysfs_slave.c), which Documentation/networking/bonding.rst names.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import prechecks
from prechecks import Context, Finding
from prechecks.checks import nic
from prechecks.checks.nic import Interface, Nic
from tests.unit.prechecks.pace import at_once
from tests.waiting import HANG_S

ROOT = Path(__file__).parents[3]
UP = Interface("up", 1, 25000, 9000, {})
JOB = Context("prolog", "n1")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a /sys/class/net for the check."""
    root = tmp_path / "net"
    interface(root, "eth0")
    (root / "bonding_masters").write_text("bond0\n")
    interface(root, "bond0", speed="50000", mtu="9000")
    (root / "bond0/bonding").mkdir()
    (root / "bond0/bonding/slaves").write_text("eth1 eth2\n")
    for name in ("eth1", "eth2"):
        interface(root, name, speed="25000", mtu="9000")
        (root / name / "bonding_slave").mkdir()
        (root / name / "bonding_slave/mii_status").write_text("up\n")
    monkeypatch.setattr(nic, "ROOT", str(root))
    return root


def interface(root: Path, name: str, **texts: str) -> None:
    """Make an interface that is up."""
    (root / name / "statistics").mkdir(parents=True)
    every = {"operstate": "up", "carrier": "1", "speed": "10000", "mtu": "1500", "carrier_down_count": "1", **texts}
    every |= {f"statistics/{each}": "0" for each in ("rx_errors", "tx_errors", "rx_dropped", "tx_dropped")}
    for file, text in every.items():
        (root / name / file).write_text(f"{text}\n")


def settings(**own: Any) -> dict[str, Any]:
    """Return these settings, and the site file's for the others."""
    return {name: each.default for name, each in Nic.settings.items()} | {"window": 3600.0} | own


def look(root: Path, **own: Any) -> Finding:
    """Return the check's result."""
    return Nic().look(JOB, {"nic": settings(**own), "state": f"{root.parent}/run/state"})


@pytest.mark.parametrize(
    ("found", "wanted", "verdict", "message"),
    [
        (UP, {}, "ok", "up: eth0"),
        (UP, {"speed": 25000, "mtu": 9000, "least_mtu": 9000}, "ok", "up: eth0"),
        (UP._replace(operstate="unknown"), {}, "ok", "up: eth0"),
        (None, {}, "failed", "eth0 is not there"),
        (UP._replace(operstate="down", carrier=None, speed=None), {"speed": 1}, "failed", "eth0 is down"),
        (UP._replace(operstate="lowerlayerdown", carrier=0), {}, "failed", "eth0 is lowerlayerdown"),
        (UP._replace(operstate="dormant"), {}, "failed", "eth0 is dormant"),
        (UP._replace(carrier=0), {}, "failed", "eth0 has no carrier"),
        (UP._replace(operstate="unknown", carrier=0), {}, "failed", "eth0 has no carrier"),
        (UP._replace(carrier=None), {}, "error", "eth0 has an unknown carrier"),
        (Interface(None, None, None, None, {}), {"mtu": 9000}, "error", "eth0 is in a state that cannot be read"),
        (UP._replace(speed=1000), {"speed": 25000}, "failed", "eth0 runs at 1000 < 25000 Mb/s"),
        (UP._replace(speed=None), {"speed": 25000}, "error", "eth0 runs at an unknown speed < 25000 Mb/s"),
        (UP._replace(speed=None), {}, "ok", "up: eth0"),
        (UP._replace(mtu=1500), {"mtu": 9000}, "failed", "eth0 has an mtu of 1500, not 9000"),
        (UP._replace(mtu=9216), {"mtu": 9000}, "failed", "eth0 has an mtu of 9216, not 9000"),
        (UP._replace(mtu=9216), {"least_mtu": 9000}, "ok", "up: eth0"),
        (UP._replace(mtu=8999), {"least_mtu": 9000}, "failed", "eth0 has an mtu of 8999 < 9000"),
        (UP._replace(mtu=None), {"mtu": 9000}, "error", "eth0 has an mtu of None, not 9000"),
        (UP._replace(slaves={"a": "up", "b": "down"}), {}, "failed", "eth0 has a slave b that is down"),
        (UP._replace(slaves={"a": "up", "b": None}), {}, "error", "eth0 has a slave b that is unreadable"),
        (UP._replace(slaves={"a": "up", "b": "up"}), {}, "ok", "up: eth0"),
        (
            UP._replace(speed=None, mtu=1500),
            {"speed": 25000, "mtu": 9000},
            "failed",
            "eth0 has an mtu of 1500, not 9000",
        ),
    ],
)
def test_judge(found: Interface | None, wanted: dict[str, Any], verdict: str, message: str) -> None:
    """Every known fault fails; unknown states fail no node."""
    assert nic.judge({"eth0": found}, wanted)[:2] == (verdict, message)


def test_every_interface_is_named() -> None:
    """With all of its faults."""
    found = nic.judge({"a": None, "b": UP._replace(speed=1000, mtu=1500), "c": UP}, {"speed": 25000, "mtu": 9000})
    assert found == Finding(
        "failed",
        "a is not there; b runs at 1000 < 25000 Mb/s; b has an mtu of 1500, not 9000",
        "a missing, b up 1000 Mb/s mtu 1500, c up 25000 Mb/s mtu 9000",
    )


@pytest.mark.parametrize(
    ("speed", "expected"), [("25000", 25000), ("-1", None), ("4294967295", None), ("0", None), (None, None)]
)
def test_a_speed_that_is_not_known(speed: str | None, expected: int | None) -> None:
    """-1 from virtio and old drivers; old kernels show it unsigned."""
    assert nic.parse({"operstate": "up", "carrier": "1", "speed": speed, "mtu": "1500"}).speed == expected


def test_measure(root: Path) -> None:
    """The requested files, and a bond's slaves. None for a missing interface."""
    assert nic.measure(str(root), ["bond0", "eth9"], ["statistics/rx_errors", "carrier_down_count"]) == {
        "bond0": {
            "operstate": "up",
            "carrier": "1",
            "speed": "50000",
            "mtu": "9000",
            "statistics/rx_errors": "0",
            "carrier_down_count": "1",
            "slave eth1": "up",
            "slave eth2": "up",
        },
        "eth9": None,
    }


def test_slaves_of_a_bond(root: Path) -> None:
    """A bond is up while one of them is, but each counts. Without the bonding driver's state their own counts."""
    assert look(root, interfaces=["bond0", "eth0"]).message == "up: bond0, eth0"
    (root / "eth2/bonding_slave/mii_status").write_text("going back\n")
    assert look(root, interfaces=["bond0"])[:2] == ("failed", "bond0 has a slave eth2 that is going back")
    shutil.rmtree(root / "eth2/bonding_slave")
    assert look(root, interfaces=["bond0"]).verdict == "ok"
    shutil.rmtree(root / "eth2")
    assert look(root, interfaces=["bond0"])[:2] == ("error", "bond0 has a slave eth2 that is unreadable")
    assert not (root.parent / "run").exists()  # without a limit nothing is remembered


@pytest.mark.parametrize(
    ("setting", "file"),
    [
        ("errors", "statistics/rx_errors"),
        ("errors", "statistics/tx_errors"),
        ("dropped", "statistics/rx_dropped"),
        ("dropped", "statistics/tx_dropped"),
        ("link_losses", "carrier_down_count"),
    ],
)
def test_counters_that_grow(root: Path, setting: str, file: str) -> None:
    """By more than the limit. A counter at its limit passes."""
    own = {"interfaces": ["eth0"], setting: 2}
    before = int((root / "eth0" / file).read_text())
    for grown, verdict in ((0, "ok"), (2, "ok"), (3, "failed")):
        (root / "eth0" / file).write_text(f"{before + grown}\n")
        found = look(root, **own)
        assert found.verdict == verdict
    assert at_once(found.message) == f"eth0: {file.rpartition('/')[2]} +3 in 0 s > 2 in 60 min"


def test_a_counter_that_the_kernel_does_not_have(root: Path) -> None:
    """carrier_down_count exists since Linux 4.16."""
    (root / "eth0/carrier_down_count").unlink()
    found = look(root, interfaces=["eth0"], link_losses=0)
    assert found[:2] == ("error", "cannot be read: eth0: carrier_down_count")


def test_it_costs_nothing_where_it_is_not_configured() -> None:
    """No process, and a line with the reason."""
    (verdict,) = prechecks.run(JOB, {"deadline_s": HANG_S, "nic": settings()}, items=["nic"])
    assert (verdict.verdict, verdict.message, verdict.seconds) == (
        "skipped",
        "no interfaces are named on this site",
        0.0,
    )


STORY = """
import json, subprocess, sys, time
sys.path.insert(0, sys.argv[1])
from prechecks import Context; from prechecks.checks import nic
from tests.waiting import HANG_S

def ip(*words):
    subprocess.run(["ip", *words], check=True)

def look(until=None, says=None, **own):
    end = time.monotonic() + 300  # the kernel's link watch follows a moment later
    while True:
        settings = {"nic": {"interfaces": ["v0"], "window": 3600.0, **own}, "state": sys.argv[2]}
        found = nic.Nic().look(Context("prolog", "n1"), settings)
        if (until in (None, found.verdict) and says in (None, found.message)) or time.monotonic() > end:
            return print(json.dumps(found[:2]))
        time.sleep(0.02)

look()
ip("link", "add", "v0", "type", "veth", "peer", "name", "v1")
look()
ip("link", "set", "v0", "up")
look(says="v0 is lowerlayerdown")
ip("link", "set", "v1", "up")
look(until="ok")
look(speed=10000, mtu=1500, link_losses=0, errors=0, dropped=0)
look(speed=25000)
ip("link", "set", "v0", "mtu", "9000")
look(mtu=1500)
look(mtu=9000)
ip("link", "set", "v1", "down")
look()
ip("link", "set", "v1", "up")
look(until="ok")
look(link_losses=0)
"""


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="makes a network namespace: root, iproute2")
def test_a_real_link(tmp_path: Path) -> None:
    """A veth pair in a separate network namespace, with that namespace's sysfs."""
    enter = ("unshare", "--net", "--mount", "sh", "-c", 'mount -t sysfs sysfs /sys && exec "$@"', "sh")
    tried = subprocess.run([*enter, "ip", "link", "add", "type", "veth"], check=False, capture_output=True)
    if tried.returncode:
        pytest.skip("no network namespace, sysfs or veth here")
    command = [*enter, sys.executable, "-c", STORY, str(ROOT), f"{tmp_path}/run/state"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, timeout=600)
    found = [(verdict, at_once(said)) for verdict, said in map(json.loads, done.stdout.splitlines())]
    cut = found.pop(8)
    assert found == [
        ("failed", "v0 is not there"),
        ("failed", "v0 is down"),
        ("failed", "v0 is lowerlayerdown"),
        ("ok", "up: v0"),
        ("ok", "up: v0"),
        ("failed", "v0 runs at 10000 < 25000 Mb/s"),
        ("failed", "v0 has an mtu of 9000, not 1500"),
        ("ok", "up: v0"),
        ("ok", "up: v0"),
        ("failed", "v0: carrier_down_count +1 in 0 s > 0 in 60 min"),
    ]
    assert cut in [("failed", "v0 has no carrier"), ("failed", "v0 is lowerlayerdown")]  # before the link watch, after
