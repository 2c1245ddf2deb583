"""`slurm-plugin hosts` for Ascend: rank tables from the nodes' reports."""

import io
import os
import signal
from pathlib import Path

import pytest

from hostfiles import DEVICES, FORMATS, ranktable
from slurm_plugin.cli.nodeside import hosts as hosts_command
from slurm_plugin.supervisor import network
from slurm_plugin.supervisor.hosts import devices
from tests.ascend import allocation
from tests.unit.supervisor.hosts.hosts_command import JOB, TWO, in_a_file, job, lines, no_job, printed, refused

TABLES = [form for form, needed in DEVICES.items() if needed]


@pytest.fixture(autouse=True)
def environ(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Leave every job, resolve the names in ADDRESSES, and ask no node."""
    no_job(monkeypatch)
    return monkeypatch


@pytest.fixture
def said(tmp_path: Path) -> Path:
    """Return the lines of TWO in a file."""
    return in_a_file(tmp_path)


@pytest.mark.parametrize("form", TABLES)
def test_inside_and_outside(
    environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], said: Path, form: str
) -> None:
    """From nodes that are asked, lines in the job, lines with a node list and lines alone: the same table."""
    wanted = FORMATS[form](TWO, 0, None)
    assert printed(capsys, form, "--devices", said, "--job-id=7") == wanted
    assert printed(capsys, form, "--devices", said, "--nodelist=n[1-2]", "--job-id=7", "--slots=2") == wanted
    environ.setattr("sys.stdin", io.StringIO(said.read_text()))
    assert printed(capsys, form, "--devices=-", "--job-id=7") == wanted
    job(environ, JOB)
    assert printed(capsys, form, "--devices", said) == wanted
    environ.setattr(devices, "ask", lambda *_args: reversed(lines(TWO)))
    assert printed(capsys, form) == wanted


def test_the_order_is_that_of_who_describes_the_nodes(capsys: pytest.CaptureFixture[str], said: Path) -> None:
    """That of the node list, else that of the lines."""
    table = printed(capsys, "ranktable-1.0", "--devices", said, "--nodelist=n2,n1")
    assert table.index("10.0.0.10") < table.index("10.0.0.9")
    said.write_text("\n".join(reversed(lines(TWO))))
    assert printed(capsys, "ranktable-1.0", "--devices", said) == table


def test_unequal_nodes(capsys: pytest.CaptureFixture[str], said: Path) -> None:
    """Refused, unless an option accepts them."""
    said.write_text("\n".join(lines(allocation(2, 1))))
    assert refused(capsys, "ranktable-1.0", "--devices", said).startswith(
        "n2 (10.0.0.10): 1 devices, and n1 (10.0.0.9)"
    )
    assert '"rank_id": "2"' in printed(capsys, "ranktable-1.0", "--devices", said, "--uneven")


def test_a_job_of_one_node_asks_no_other_node(
    environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """This node reads its own devices. A table of one node needs no addresses."""
    environ.undo()
    places = {"conf": tmp_path / "hccn.conf", "device_directory": tmp_path}
    environ.setattr(network.devices, "__kwdefaults__", network.devices.__kwdefaults__ | places)
    environ.setattr(network, "own_address", lambda _name: "10.0.0.9")
    (tmp_path / "davinci0").touch()
    one = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1", "SLURM_JOB_NUM_NODES": "1", "SLURMD_NODENAME": "n1"}
    job(environ, one)
    inside = printed(capsys, "ranktable-1.0")
    (tmp_path / "lines").write_text(printed(capsys, "devices"))
    assert inside == printed(capsys, "ranktable-1.0", "--devices", tmp_path / "lines")
    assert '"device": [{"device_id": "0", "rank_id": "0"}]' in inside


def test_lines_that_make_no_table(capsys: pytest.CaptureFixture[str], said: Path) -> None:
    """One line of error, and no file, not even one that announces a table."""
    for text, arguments, message in [
        ("", [], "{file}: empty; --devices takes a line of each node, as `hosts devices` prints it"),
        ("n1 x 0=", [], "'n1 x 0=' is not the line of a node; lines read n1 10.0.0.1 0=192.168.1.8"),
        (
            "n1 10.0.0.1 0=\nn1 10.0.0.1 0=",
            [],
            "the host n1 appears twice in an allocation; each is there once",
        ),
        ("n1 10.0.0.1 0=\nn1 10.0.0.1 0=", ["--nodelist=n1"], "n1 sent two lines; each host sends one"),
        ("n1 10.0.0.1 0=", ["--nodelist=n1,n1"], "the host n1 appears twice in an allocation; each is there once"),
        (
            "n1 10.0.0.1 0=",
            ["--nodelist="],
            "node list '', character 1: an empty name; a node list reads n[08-11],gpu1",
        ),
        ("n1 10.0.0.1 0=", ["--nodelist=n[1-2]"], "n2 sent no line (hosts without a line: 1); each host sends one"),
        ("n3 10.0.0.1 0=", ["--nodelist=n[1-2]"], "n3 sent a line, and is no host of n[1-2]"),
        ("n1 10.0.0.1 0=1.2.3.4 0=1.2.3.5", [], "n1: 2 slots, and devices [0, 0]; one a slot"),
        ("n1 10.0.0.1 0=", ["--slots=2"], "n1 has 1 devices, and --slots is 2; leave --slots out"),
        ("n1 10.0.0.1 0=", ["--slots=1(x2)"], "1 nodes, and 2 counts in --slots; one a node"),
        (
            "n1 10.0.0.1 0=\nn2 10.0.0.2 0=",
            [],
            "n1 (10.0.0.1): device 0 has no address; with more than one server each device has one",
        ),
    ]:
        said.write_text(text)
        out = said.with_name("table.json")
        assert refused(capsys, "ranktable-1.0", "--devices", said, "--output", out, *arguments) == message.format(
            file=said
        ), text
        assert [path.name for path in said.parent.iterdir()] == ["lines"], text


def test_super_device_ids(environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], said: Path) -> None:
    """Nodes that are asked do not know them. The error names what is missing."""
    job(environ, JOB)
    environ.setattr(devices, "ask", lambda *_args: ["n1 10.0.0.1 0=1.2.3.4", "n2 10.0.0.2 0=1.2.3.5"])
    assert refused(capsys, "ranktable-1.2") == (
        "n1 (10.0.0.1): device 0 has no super_device_id; `npu-smi info -t spod-info` shows it as SDID, and a node's"
        " line has it behind the address: 0=1.2.3.4/SDID"
    )


@pytest.mark.parametrize("form", TABLES)
def test_no_nodes_to_ask(capsys: pytest.CaptureFixture[str], form: str) -> None:
    """Outside a job, and for nodes on the command line."""
    wanted = f"{form} needs what each node says of its devices; run this inside a job, or give --devices FILE"
    assert refused(capsys, form) == refused(capsys, form, "--nodelist=n1") == wanted


def test_the_file_says_first_that_a_table_comes(
    environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """While the nodes are asked. Then it is the whole table."""
    out = tmp_path / "table.json"
    seen = []

    def ask(*_args: object) -> list[str]:
        seen.append(out.read_text())
        return lines(TWO)

    job(environ, JOB)
    environ.setattr(devices, "ask", ask)
    assert printed(capsys, "ranktable-1.0", "--output", out) == ""
    assert (seen, out.read_text()) == ([ranktable.INITIALIZING], ranktable.version_1_0(TWO))
    assert [path.name for path in tmp_path.iterdir()] == ["table.json"]


def test_a_job_that_is_cancelled_leaves_no_file(
    environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Readers must not wait for its table."""
    job(environ, JOB)
    environ.setattr(devices, "ask", lambda *_args: os.kill(os.getpid(), signal.SIGTERM))
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as caught:
        hosts_command.main(["ranktable-1.0", f"--output={tmp_path / 'table.json'}"])
    assert (caught.value.code, list(tmp_path.iterdir())) == (143, [])
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_file_that_cannot_be_written(capsys: pytest.CaptureFixture[str], said: Path) -> None:
    """One line that names it."""
    out = said / "table.json"
    assert refused(capsys, "ranktable-1.0", "--devices", said, "--output", out) == (
        f"{out}: Not a directory; nothing was written"
    )
