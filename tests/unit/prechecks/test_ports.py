"""`ports`: the kernel's tables of TCP sockets."""

import socket
from pathlib import Path

import pytest

import prechecks
from prechecks import Context, Finding
from prechecks.checks import ports
from tests.waiting import HANG_S

# /proc/net/tcp of Linux 6.18: two that listen, then what has been a connection.
TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:07E8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 632 1 0000000092076726 100 0
   1: 0100007F:1AA2 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 633 1 0000000092076727 100 0
   2: 0100007F:B02D 0100007F:B014 06 00000000:00000000 03:0000085A 00000000     0        0 0 3 00000000fbb5746a
   3: 0100007F:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 633 1 0000000092076727 100 0
"""


def test_parse() -> None:
    """Listening sockets come first. Reading stops after them."""
    assert ports.parse(TABLE.splitlines()) == {2024, 6818}
    assert ports.parse(TABLE.splitlines()[:1]) == set()


def test_judge() -> None:
    """Those without a listener are reported."""
    assert ports.judge({22, 6818}, [22, 6818]) == Finding("ok", "listened on: 22, 6818", 2, 2)
    assert ports.judge({22}, [6818, 22, 111]) == Finding("failed", "nothing listens on 6818, 111", 1, 3)


def run(*numbers: int) -> prechecks.Verdict:
    settings = {"deadline_s": HANG_S, "ports": {"listening": numbers}}
    (found,) = prechecks.run(Context("prolog", "n1"), settings, checks=[ports.Ports()])
    return found


def test_ports_of_this_machine(tmp_path: Path) -> None:
    """A listening socket counts; a bound one, or a missing table, does not."""
    with socket.socket() as one, socket.socket() as bound:
        for each in (one, bound):
            each.bind(("127.0.0.1", 0))
        one.listen()
        first, second = (each.getsockname()[1] for each in (one, bound))
        assert (run(first).verdict, run(first).problem) == ("ok", "job_problem")
        assert run(first, second)[1:4] == ("failed", "job_problem", f"nothing listens on {second}")
    assert run().verdict == "skipped"
    assert ports.listening([str(tmp_path / "missing")]) == set()


def test_a_port_of_ipv6() -> None:
    """It listens only on ::1."""
    with socket.socket(socket.AF_INET6) as six:
        try:
            six.bind(("::1", 0))
        except OSError as error:
            pytest.skip(f"no IPv6 here: {error}")
        six.listen()
        assert run(six.getsockname()[1]).verdict == "ok"
