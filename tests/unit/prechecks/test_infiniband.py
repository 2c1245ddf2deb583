"""InfiniBand: the judgement of ports, and the reading of files as kernels write them.

The devices are those of prometheus/procfs, sysfs/testdata/fixtures.ttar, taken from real machines: mlx4_0, a ConnectX-3
of two ports of 40 Gb/s; hfi1_0, an Omni-Path card; mlx5_0, a ConnectX-4 Lx with the driver's own counters. States of
links that are not fine are the strings of drivers/infiniband/core/sysfs.c.
"""

from pathlib import Path
from typing import Any

import pytest

import prechecks
from prechecks import Context, Finding
from prechecks.checks import infiniband
from prechecks.checks.infiniband import Infiniband, Port
from tests.unit.prechecks.pace import at_once
from tests.waiting import HANG_S

ACTIVE = Port("ACTIVE", "LinkUp", 200.0, "InfiniBand")
DOWN = Port("DOWN", "Polling", 10.0, "InfiniBand")
INIT = Port("INIT", "LinkUp", 200.0, "InfiniBand")
SLOW = ACTIVE._replace(rate=100.0)
SILENT = Port(None, None, None, None)
ROCE = Port("ACTIVE", "LinkUp", 25.0, "Ethernet")
JOB = Context("prolog", "n1", infiniband=True)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a /sys/class/infiniband of three devices for the check."""
    root = tmp_path / "infiniband"
    for device, number, rate in (("mlx4_0", 1, "40 Gb/sec (4X QDR)"), ("mlx4_0", 2, "40 Gb/sec (4X QDR)")):
        port(root, device, number, rate)
    port(root, "hfi1_0", 1, "100 Gb/sec (4X EDR)")
    port(root, "mlx5_0", 1, "25 Gb/sec (1X EDR)", link_layer="Ethernet")
    hw_counters = root / "mlx5_0/ports/1/hw_counters"
    hw_counters.mkdir()
    for name, value in (("lifespan", 10), ("local_ack_timeout_err", 0), ("out_of_sequence", 1), ("packet_seq_err", 1)):
        (hw_counters / name).write_text(f"{value}\n")
    monkeypatch.setattr(infiniband, "ROOT", str(root))
    return root


def port(root: Path, device: str, number: int, rate: str, link_layer: str = "InfiniBand") -> None:
    """Make a port as the kernel shows it."""
    path = root / device / "ports" / str(number)
    (path / "counters").mkdir(parents=True)
    texts = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": rate, "link_layer": link_layer}
    texts |= {f"counters/{name}": "0" for name in infiniband.COUNTERS} | {"counters/port_rcv_data": "2221223609"}
    for name, text in texts.items():
        (path / name).write_text(f"{text}\n")


def look(root: Path, **own: Any) -> Finding:
    """Return the check's result with these settings, and the site file's for the others."""
    every = {name: each.default for name, each in Infiniband.settings.items()} | {"window": 3600.0} | own
    return Infiniband().look(JOB, {"infiniband": every, "state": f"{root.parent}/run/state"})


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (("4: ACTIVE", "5: LinkUp", "200 Gb/sec (4X HDR)", "InfiniBand"), ACTIVE),
        (("1: DOWN", "2: Polling", "2.5 Gb/sec (1X)", "InfiniBand"), Port("DOWN", "Polling", 2.5, "InfiniBand")),
        (("1: DOWN", "3: Disabled", "56 Gb/sec (4X FDR)", "Ethernet"), Port("DOWN", "Disabled", 56.0, "Ethernet")),
        (("5: ACTIVE_DEFER", "6: LinkErrorRecovery", "", None), Port("ACTIVE_DEFER", "LinkErrorRecovery", None, None)),
        ((None, None, None, None), SILENT),
        (("what", "else", "a lot", ""), Port(None, None, None, "")),
    ],
)
def test_parse(texts: tuple[str | None, ...], expected: Port) -> None:
    """Words and numbers. None for missing files and other forms."""
    assert infiniband.parse(dict(zip(infiniband.FILES, texts, strict=True))) == expected


@pytest.mark.parametrize(
    ("ports", "least", "rate", "verdict", "message"),
    [
        ({"a/1": ACTIVE, "b/1": DOWN}, 1, None, "ok", "1 active: a/1"),
        ({"a/1": ACTIVE, "b/1": ACTIVE}, 2, 200, "ok", "2 active: a/1, b/1"),
        ({"a/1": ACTIVE, "b/1": DOWN}, 2, None, "failed", "1 of 2 active: b/1 DOWN (Polling)"),
        ({"a/1": INIT}, 1, None, "failed", "0 of 1 active: a/1 INIT (LinkUp)"),
        ({"a/1": ACTIVE, "b/1": SLOW}, 2, 200, "failed", "1 of 2 active: b/1 100 < 200 Gb/s"),
        ({"a/1": SLOW}, 1, None, "ok", "1 active: a/1"),
        ({"a/1": ACTIVE}, 2, None, "failed", "1 of 2 active: a/1"),
        ({}, 1, None, "failed", "0 of 1 active: no port"),
        ({}, 0, None, "ok", "0 active: "),
        ({"a/1": SILENT}, 1, None, "error", "cannot be read: a/1"),
        ({"a/1": ACTIVE, "b/1": SILENT}, 1, None, "ok", "1 active: a/1"),
        ({"a/1": DOWN, "b/1": SILENT}, 2, None, "failed", "0 of 2 active: a/1 DOWN (Polling)"),
        ({"a/1": ACTIVE._replace(rate=None)}, 1, 200, "error", "cannot be read: a/1"),
        ({"a/1": DOWN._replace(rate=None)}, 1, 200, "failed", "0 of 1 active: a/1 DOWN (Polling)"),
        (
            {"a/1": DOWN._replace(phys_state=None)},
            1,
            None,
            "failed",
            "0 of 1 active: a/1 DOWN (physical state unknown)",
        ),
    ],
)
def test_judge(ports: dict[str, Port], least: int, rate: float | None, verdict: str, message: str) -> None:
    """Enough good ports pass, whatever the others are. Unreadable ports fail no node."""
    assert infiniband.judge(ports, list(ports), least, rate)[:2] == (verdict, message)


def test_a_named_port_that_is_not_there() -> None:
    """A card that fell off its bus has no files at all."""
    found = infiniband.judge({"a/1": ACTIVE}, ["a/1", "b/1"], 2, None)
    assert found == Finding("failed", "1 of 2 active: b/1 is not there", "a/1 active, b/1 is not there", 2)


@pytest.mark.parametrize(
    ("named", "link_layer", "count", "expected"),
    [
        (None, None, None, (["a/1", "c/1"], 1)),
        (None, "InfiniBand", None, (["a/1"], 1)),
        (None, "Ethernet", 2, (["c/1"], 2)),
        (["c/1", "b/1"], "InfiniBand", None, (["c/1", "b/1"], 2)),
        (["c/1", "b/1"], None, 1, (["c/1", "b/1"], 1)),
        ([], None, None, (["a/1", "c/1"], 1)),
    ],
)
def test_which_ports_and_how_many(
    named: list[str] | None, link_layer: str | None, count: int | None, expected: tuple[list[str], int]
) -> None:
    """All named ports; else one of any kind, or of the given kind."""
    wanted = infiniband.select_ports({"a/1": ACTIVE, "c/1": ROCE}, named, link_layer)
    assert (wanted, infiniband.required_count(wanted, {"ports": named, "count": count})) == expected


def test_measure(root: Path) -> None:
    """Each port's files by name, with the requested counters, also the driver's own. None for missing ones."""
    found = infiniband.measure(str(root), ["link_downed", "out_of_sequence"])
    assert list(found) == ["hfi1_0/1", "mlx4_0/1", "mlx4_0/2", "mlx5_0/1"]
    assert found["hfi1_0/1"] == {
        "state": "4: ACTIVE",
        "phys_state": "5: LinkUp",
        "rate": "100 Gb/sec (4X EDR)",
        "link_layer": "InfiniBand",
        "link_downed": "0",
        "out_of_sequence": None,
    }
    assert found["mlx5_0/1"]["out_of_sequence"] == "1"


def test_devices_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    """By number, not as text."""
    for number in (10, 2, 0):
        port(tmp_path, f"mlx5_{number}", 1, "400 Gb/sec (4X NDR)")
    assert list(infiniband.measure(str(tmp_path), [])) == ["mlx5_0/1", "mlx5_2/1", "mlx5_10/1"]


def test_look(root: Path) -> None:
    """By default any port; else the site's kind, rate and number."""
    assert look(root).message == "4 active: hfi1_0/1, mlx4_0/1, mlx4_0/2, mlx5_0/1"
    assert look(root, link_layer="Ethernet").message == "1 active: mlx5_0/1"
    assert look(root, rate=40, count=3).verdict == "ok"
    assert look(root, rate=41, count=3).message == (
        "1 of 3 active: mlx4_0/1 40 < 41 Gb/s, mlx4_0/2 40 < 41 Gb/s, mlx5_0/1 25 < 41 Gb/s"
    )
    (root / "mlx4_0/ports/2/state").write_text("1: DOWN\n")
    (root / "mlx4_0/ports/2/phys_state").write_text("3: Disabled\n")
    assert look(root, ports=["mlx4_0/1", "mlx4_0/2"]).message == "1 of 2 active: mlx4_0/2 DOWN (Disabled)"
    assert not (root.parent / "run").exists()  # without a limit nothing is remembered


def test_a_node_without_infiniband(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No driver is loaded, so there is no directory."""
    monkeypatch.setattr(infiniband, "ROOT", str(tmp_path / "infiniband"))
    assert look(tmp_path / "infiniband") == Finding("failed", "0 of 1 active: no port", "", 1)


def test_a_slip_in_the_site_file_drains_no_node(root: Path) -> None:
    """It would be on every node at the same time."""
    every = {"infiniband": {"ports": ["mlx4_0"]}, "deadline_s": HANG_S}
    (verdict,) = prechecks.run(JOB, every, items=["infiniband"])
    assert (verdict.verdict, verdict.message) == (
        "error",
        "ValueError: infiniband.ports: found 'mlx4_0'; a device and a port such as mlx5_0/1 are accepted",
    )


def test_counters_that_grow(root: Path) -> None:
    """Reported with port and time. Only those with a limit, only on checked ports."""
    limits = {"link_downed": 0, "symbol_error": 10, "ports": ["mlx4_0/1"]}
    assert look(root, **limits).verdict == "ok"
    (root / "mlx4_0/ports/1/counters/symbol_error").write_text("10\n")
    (root / "mlx4_0/ports/1/counters/port_rcv_errors").write_text("10\n")
    (root / "mlx4_0/ports/2/counters/link_downed").write_text("1\n")
    assert look(root, **limits) == Finding("ok", "1 active: mlx4_0/1", "mlx4_0/1 active", 1)
    (root / "mlx4_0/ports/1/counters/link_downed").write_text("3\n")
    found = look(root, **limits)
    assert (found.verdict, at_once(found.message)) == ("failed", "mlx4_0/1: link_downed +3 in 0 s > 0 in 60 min")


def test_counters_of_the_driver(root: Path) -> None:
    """They are in another directory, and only mlx5 has them."""
    limits = {"out_of_sequence": 0, "link_layer": "Ethernet"}
    assert look(root, **limits).verdict == "ok"
    (root / "mlx5_0/ports/1/hw_counters/out_of_sequence").write_text("2\n")
    assert at_once(look(root, **limits).message) == "mlx5_0/1: out_of_sequence +1 in 0 s > 0 in 60 min"
    found = look(root, out_of_sequence=0, link_layer="InfiniBand", ports=["mlx4_0/1"])
    assert found[:2] == ("error", "cannot be read: mlx4_0/1: out_of_sequence")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("255\n", "at the end of its range, reset it with perfquery -R: mlx4_0/1: link_downed"),
        ("N/A (no PMA)\n", "cannot be read: mlx4_0/1: link_downed"),
    ],
)
def test_counters_that_say_nothing(root: Path, text: str, message: str) -> None:
    """Unknown, not bad. Older kernels write `N/A (no PMA)` for a port without them."""
    (root / "mlx4_0/ports/1/counters/link_downed").write_text(text)
    assert look(root, ports=["mlx4_0/1"], link_downed=0)[:2] == ("error", message)


def test_where_it_applies() -> None:
    """To jobs with InfiniBand, or to all if the site says so."""
    check = Infiniband()
    assert check.applies(JOB, {})
    assert not check.applies(Context("prolog", "n1"), {})
    assert check.applies(Context("prolog", "n1"), {"mandatory": ["infiniband"]})
