"""`slurm-plugin hosts` for Ascend: rank tables from what nodes say, and the variables of a process."""

import io
import os
import signal
import socket
from pathlib import Path

import pytest

from hostfiles import DEVICES, FORMATS, Allocation, npu, ranktable
from slurm_plugin.job import ascend, devices, hosts, network
from slurm_plugin.job.run import master_port
from tests.ascend import allocation

TWO = allocation(2, 2)
TABLES = [form for form, needed in DEVICES.items() if needed]
ADDRESSES = {"n1": "10.0.0.9", "n2": "10.0.0.10", "n3": "10.0.0.11", "loop": "127.0.1.1"}
JOB = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "n[1-2]",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_TASKS_PER_NODE": "2(x2)",
    "SLURMD_NODENAME": "n1",
}
STEP = {**JOB, "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_TASKS_PER_NODE": "2(x2)"}


def lines(of: Allocation) -> list[str]:
    """What the hosts say."""
    return [npu.line(host.name, host.address, host.devices) for host in of.hosts]


@pytest.fixture(autouse=True)
def environ(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No job; names resolve as ADDRESSES says; no node is asked."""
    for name in os.environ:
        if name.startswith(("SLURM", "ASCEND")):
            monkeypatch.delenv(name)

    def resolved(name: bytes, *_args: object, **_kwargs: object) -> list[object]:
        if name.decode() not in ADDRESSES:
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ADDRESSES[name.decode()], 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    monkeypatch.setattr(devices, "asked", lambda *_args: pytest.fail("a node was asked"))
    return monkeypatch


@pytest.fixture
def said(tmp_path: Path) -> Path:
    """The lines of TWO in a file."""
    path = tmp_path / "lines"
    path.write_text("\n".join(["", *lines(TWO), ""]))
    return path


def job(environ: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    """Be inside it from now on."""
    for name, value in variables.items():
        environ.setenv(name, value)


def printed(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """What the command prints, and nothing on stderr."""
    assert hosts.main([str(argument) for argument in arguments]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line of an exit 2, and nothing on stdout."""
    assert hosts.main([str(argument) for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err.removeprefix("slurm-plugin: ")[:-1]


@pytest.mark.parametrize("form", TABLES)
def test_inside_and_outside(
    environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], said: Path, form: str
) -> None:
    """Nodes that are asked, lines in the job, lines with a node list and lines alone: the same table."""
    wanted = FORMATS[form](TWO, 0, None)
    assert printed(capsys, form, "--devices", said, "--job-id=7") == wanted
    assert printed(capsys, form, "--devices", said, "--nodelist=n[1-2]", "--job-id=7", "--slots=2") == wanted
    environ.setattr("sys.stdin", io.StringIO(said.read_text()))
    assert printed(capsys, form, "--devices=-", "--job-id=7") == wanted
    job(environ, JOB)
    assert printed(capsys, form, "--devices", said) == wanted
    environ.setattr(devices, "asked", lambda *_args: reversed(lines(TWO)))
    assert printed(capsys, form) == wanted


def test_the_order_is_that_of_who_describes_the_nodes(capsys: pytest.CaptureFixture[str], said: Path) -> None:
    """The node list's, else the lines'."""
    table = printed(capsys, "ranktable-1.0", "--devices", said, "--nodelist=n2,n1")
    assert table.index("10.0.0.10") < table.index("10.0.0.9")
    said.write_text("\n".join(reversed(lines(TWO))))
    assert printed(capsys, "ranktable-1.0", "--devices", said) == table


def test_unequal_nodes(capsys: pytest.CaptureFixture[str], said: Path) -> None:
    """Refused, unless they are wanted."""
    said.write_text("\n".join(lines(allocation(2, 1))))
    assert refused(capsys, "ranktable-1.0", "--devices", said).startswith(
        "n2 (10.0.0.10): 1 devices, and n1 (10.0.0.9)"
    )
    assert '"rank_id": "2"' in printed(capsys, "ranktable-1.0", "--devices", said, "--uneven")


def test_in_a_job_of_one_node_nobody_is_asked(
    environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """This node says its own; it needs no addresses for a table of itself."""
    environ.undo()
    places = {"conf": tmp_path / "hccn.conf", "device_directory": tmp_path}
    environ.setattr(ascend.devices, "__kwdefaults__", ascend.devices.__kwdefaults__ | places)
    environ.setattr(network, "own_address", lambda _name: "10.0.0.9")
    (tmp_path / "davinci0").touch()
    one = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1", "SLURM_JOB_NUM_NODES": "1", "SLURMD_NODENAME": "n1"}
    job(environ, one)
    inside = printed(capsys, "ranktable-1.0")
    (tmp_path / "lines").write_text(printed(capsys, "devices"))
    assert inside == printed(capsys, "ranktable-1.0", "--devices", tmp_path / "lines")
    assert '"device": [{"device_id": "0", "rank_id": "0"}]' in inside


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("", [], "{file}: empty; --devices takes a line of each node, as `hosts devices` prints it"),
        ("n1 x 0=", [], "'n1 x 0=' is no node's line; it reads n1 10.0.0.1 0=192.168.1.8"),
        (
            "n1 10.0.0.1 0=\nn1 10.0.0.1 0=",
            [],
            "the host n1 stands twice in an allocation; each is there once",
        ),
        ("n1 10.0.0.1 0=\nn1 10.0.0.1 0=", ["--nodelist=n1"], "n1 spoke twice of n1"),
        ("n1 10.0.0.1 0=", ["--nodelist=n1,n1"], "the host n1 stands twice in an allocation; each is there once"),
        (
            "n1 10.0.0.1 0=",
            ["--nodelist="],
            "node list '', character 1: an empty name; a node list reads n[08-11],gpu1",
        ),
        ("n1 10.0.0.1 0=", ["--nodelist=n[1-2]"], "n2 did not say its devices, one of 1; each host says one line"),
        ("n3 10.0.0.1 0=", ["--nodelist=n[1-2]"], "n3 spoke and is no host of n[1-2]"),
        ("n1 10.0.0.1 0=1.2.3.4 0=1.2.3.5", [], "n1: 2 slots, and devices [0, 0]; one a slot"),
        ("n1 10.0.0.1 0=", ["--slots=2"], "n1 has 1 devices, and --slots is 2; leave --slots out"),
        ("n1 10.0.0.1 0=", ["--slots=1(x2)"], "1 nodes, and 2 counts in --slots; one a node"),
        (
            "n1 10.0.0.1 0=\nn2 10.0.0.2 0=",
            [],
            "n1 (10.0.0.1): device 0 has no address; with more than one server each device has one",
        ),
    ],
)
def test_lines_that_make_no_table(
    capsys: pytest.CaptureFixture[str], said: Path, text: str, arguments: list[str], message: str
) -> None:
    """One line, and no file: not even one that says that a table comes."""
    said.write_text(text)
    out = said.with_name("table.json")
    assert refused(capsys, "ranktable-1.0", "--devices", said, "--output", out, *arguments) == message.format(file=said)
    assert [path.name for path in said.parent.iterdir()] == ["lines"]


def test_super_device_ids(environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], said: Path) -> None:
    """A node that is asked does not know them, and what is missing is named."""
    job(environ, JOB)
    environ.setattr(devices, "asked", lambda *_args: ["n1 10.0.0.1 0=1.2.3.4", "n2 10.0.0.2 0=1.2.3.5"])
    assert refused(capsys, "ranktable-1.2") == (
        "n1 (10.0.0.1): device 0 has no super_device_id; `npu-smi info -t spod-info` shows it as SDID, and a node's"
        " line has it behind the address: 0=1.2.3.4/SDID"
    )


@pytest.mark.parametrize("form", TABLES)
def test_no_nodes_to_ask(capsys: pytest.CaptureFixture[str], form: str) -> None:
    """Outside a job, and for nodes given by hand."""
    wanted = f"{form} needs what each node says of its devices; run this inside a job, or give --devices FILE"
    assert refused(capsys, form) == refused(capsys, form, "--nodelist=n1") == wanted


def test_the_file_says_first_that_a_table_comes(
    environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """While the nodes are asked; and then it is the table, whole."""
    out = tmp_path / "table.json"
    seen = []

    def asked(*_args: object) -> list[str]:
        seen.append(out.read_text())
        return lines(TWO)

    job(environ, JOB)
    environ.setattr(devices, "asked", asked)
    assert printed(capsys, "ranktable-1.0", "--output", out) == ""
    assert (seen, out.read_text()) == ([ranktable.INITIALIZING], ranktable.version_1_0(TWO))
    assert [path.name for path in tmp_path.iterdir()] == ["table.json"]


def test_a_job_that_is_cancelled_leaves_no_file(
    environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Nobody shall wait for its table."""
    job(environ, JOB)
    environ.setattr(devices, "asked", lambda *_args: os.kill(os.getpid(), signal.SIGTERM))
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as caught:
        hosts.main(["ranktable-1.0", f"--output={tmp_path / 'table.json'}"])
    assert (caught.value.code, list(tmp_path.iterdir())) == (143, [])
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_file_that_cannot_be_written(capsys: pytest.CaptureFixture[str], said: Path) -> None:
    """One line that names it."""
    out = said / "table.json"
    assert refused(capsys, "ranktable-1.0", "--devices", said, "--output", out) == (
        f"{out}: Not a directory; nothing was written"
    )


# The variables of a process.


def test_the_scheduler(environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Outside a step without a task: on the first host, by address; inside a job and outside the same."""
    wanted = (
        f"export MS_ROLE=MS_SCHED\nexport MS_SCHED_HOST=10.0.0.9\nexport MS_SCHED_PORT={master_port(7, 0)}\n"
        "export MS_WORKER_NUM=4\n"
    )
    assert printed(capsys, "ascend", "--nodelist=n[1-2]", "--tasks-per-node=2(x2)", "--job-id=7") == wanted
    job(environ, JOB)
    assert printed(capsys, "ascend") == wanted


def test_a_worker_is_the_task_that_asks(environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """In a step; by hand the one of --task."""
    by_hand = ("ascend", "--nodelist=n[1-2]", "--tasks-per-node=2(x2)", "--job-id=7", "--task=3")
    outside = printed(capsys, *by_hand)
    job(environ, {**STEP, "SLURM_STEP_ID": "5", "SLURM_PROCID": "3"})
    assert printed(capsys, "ascend") == outside  # with the port of the scheduler, which runs in no step
    assert "MS_ROLE=MS_WORKER\nexport MS_SCHED_HOST=10.0.0.9\n" in outside
    assert "MS_NODE_ID=3\nexport RANK_ID=3\nexport RANK_SIZE=4\nexport ASCEND_DEVICE_ID=1\n" in outside


def test_a_workers_number_on_its_node_is_slurms(capsys: pytest.CaptureFixture[str]) -> None:
    """Under every distribution."""
    cyclic = ("ascend", "--nodelist=n[1-2]", "--tasks-per-node=2(x2)", "--distribution=cyclic", "--task=1")
    assert "RANK_ID=1\nexport RANK_SIZE=4\nexport ASCEND_DEVICE_ID=0\n" in printed(capsys, *cyclic)


def test_the_dynamic_cluster_from_lines(
    environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], said: Path
) -> None:
    """Addresses and physical ids are those of the lines, and no name is looked up; the port is the job's in a step."""
    job(environ, {**STEP, "SLURM_STEP_ID": "5", "SLURM_PROCID": "0"})
    assert f"MS_SCHED_PORT={master_port(7, 0)}\n" in printed(capsys, "ascend", "--devices", said)
    for name in STEP:
        environ.delenv(name)
    said.write_text("a 10.9.0.1 4=1.2.3.4 5=1.2.3.5\nb 10.9.0.2 4=1.2.3.6 5=1.2.3.7\n")
    text = printed(capsys, "ascend", "--devices", said, "--task=2")
    assert "MS_SCHED_HOST=10.9.0.1\n" in text
    assert "ASCEND_DEVICE_ID=0\nexport DEVICE_ID=0\nexport ASCEND_RT_VISIBLE_DEVICES=4,5\n" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--nodelist=loop"],
            "loop is 127.0.1.1 here, which no other node can reach; mend /etc/hosts",
        ),
        (
            ["--nodelist=x1"],
            "x1 has no address here (Name or service not known); a name service or /etc/hosts has to know it",
        ),
        (["--nodelist=n1", "--slots=2", "--task=0"], "n1: 1 tasks and 2 devices; one task a device"),
        (["--nodelist=n1", "--task=1"], "task 1 of 1; tasks count from 0"),
        (["--nodelist=n1", "--task=-1"], "task -1 of 1; tasks count from 0"),
        ([], "neither SLURM_JOB_NODELIST nor SLURM_NODELIST is set; run this inside a job, or give --nodelist"),
    ],
)
def test_no_cluster(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    """Names without an address, and tasks that are not there."""
    assert refused(capsys, "ascend", *arguments) == message


def test_more_tasks_than_devices_that_slurm_counts(
    environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Slurm's own number is believed where there is one."""
    job(environ, {**STEP, "SLURM_PROCID": "0", "SLURM_GPUS_ON_NODE": "1"})
    assert refused(capsys, "ascend") == "n1: 2 tasks and 1 devices; one task a device"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of 1.0 whose servers stand in the order of text, as a converted one's do: n2 is first."""
    path = tmp_path / "table.json"
    path.write_text(ranktable.version_1_0(ranktable.in_text_order(TWO)))
    return path


def test_the_rank_is_the_tables(
    environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], table: Path, said: Path
) -> None:
    """In a step, for nodes by hand and for lines: task 3 is on n2, and n2 has the ranks 0 and 1."""
    wanted = (
        f"export RANK_TABLE_FILE={table}\nexport RANK_ID=1\nexport RANK_SIZE=4\nexport ASCEND_DEVICE_ID=1\n"
        "export DEVICE_ID=1\nexport ASCEND_RT_VISIBLE_DEVICES=0,1\n"
    )
    task = ("ascend", "--table", table, "--task=3")
    assert printed(capsys, *task, "--nodelist=n[1-2]", "--tasks-per-node=2(x2)") == wanted
    assert printed(capsys, *task, "--devices", said) == wanted
    assert printed(capsys, "ascend", "--table", table, "--task=1") == wanted  # nobody else: the table's own rank
    job(environ, {**STEP, "SLURM_PROCID": "3"})
    assert printed(capsys, "ascend", "--table", table) == wanted


def test_a_table_of_one_server(environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], table: Path) -> None:
    """It is this node's, whatever its name resolves to; the path is made absolute."""
    table.write_text(ranktable.version_1_0(allocation(2)))
    environ.chdir(table.parent)
    text = printed(capsys, "ascend", "--table=table.json", "--nodelist=loop", "--tasks-per-node=2", "--task=1")
    assert text.startswith(f"export RANK_TABLE_FILE={table}\nexport RANK_ID=1\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nodelist=n[1-2]"], "a rank table has no scheduler; say for which rank with --task, or ask in a step"),
        ([], "a rank table has no scheduler; say for which rank with --task, or ask in a step"),
        (["--task=4"], "task 4 of 4; tasks count from 0"),
        (["--task=0", "--nodelist=n[1-2]"], "2 tasks, and 4 devices in the rank table; one task a device"),
        (
            ["--task=0", "--nodelist=n[1-2]", "--tasks-per-node=3,1"],
            "n1: 3 tasks, and 2 devices in the rank table; one task a device",
        ),
        (
            ["--task=3", "--nodelist=n1,n3", "--tasks-per-node=2(x2)"],
            "n3 is 10.0.0.11 here, and no server of the rank table, which has 10.0.0.10, 10.0.0.9",
        ),
        (
            ["--task=3", "--nodelist=n1,loop", "--tasks-per-node=2(x2)"],
            "loop is 127.0.1.1 here, which no other node can reach; mend /etc/hosts",
        ),
    ],
)
def test_no_rank_in_the_table(
    capsys: pytest.CaptureFixture[str], table: Path, arguments: list[str], message: str
) -> None:
    """No scheduler, no such task, counts that do not match, a host that is not there."""
    assert refused(capsys, "ascend", "--table", table, *arguments) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "there is no such file"),
        (ranktable.INITIALIZING, "rank table: status is 'initializing'; it is read when it is 'completed'"),
    ],
)
def test_a_table_that_is_not_there(
    capsys: pytest.CaptureFixture[str], table: Path, text: str | None, message: str
) -> None:
    """Nobody waits for it here."""
    table.unlink()
    if text:
        table.write_text(text)
    assert refused(capsys, "ascend", "--table", table, "--task=0") == (
        f"{table}: no rank table after 0 s; seen last: {message}"
    )


def test_a_table_that_hccl_does_not_open(capsys: pytest.CaptureFixture[str], table: Path) -> None:
    """By its name."""
    other = table.rename(table.with_name("table.txt"))
    assert refused(capsys, "ascend", "--table", other, "--task=0").endswith("has .json once, at its end")
