"""`slurm-plugin hosts ascend`: the variables of a process, from a scheduler's address or a rank table."""

from pathlib import Path

import pytest

from hostfiles import ranktable
from slurm_plugin.supervisor.run import master_port
from tests.ascend import allocation
from tests.unit.supervisor.hosts.hosts_command import JOB, TWO, in_a_file, job, no_job, printed, refused

STEP = {**JOB, "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_STEP_TASKS_PER_NODE": "2(x2)"}


@pytest.fixture(autouse=True)
def environ(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Leave every job, resolve the names in ADDRESSES, and ask no node."""
    no_job(monkeypatch)
    return monkeypatch


@pytest.fixture
def said(tmp_path: Path) -> Path:
    """Return the lines of TWO in a file."""
    return in_a_file(tmp_path)


def test_the_scheduler(environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a task, outside a step: on the first host, by address, the same inside a job and outside."""
    wanted = (
        f"export MS_ROLE=MS_SCHED\nexport MS_SCHED_HOST=10.0.0.9\nexport MS_SCHED_PORT={master_port(7, 0)}\n"
        "export MS_WORKER_NUM=4\n"
    )
    assert printed(capsys, "ascend", "--nodelist=n[1-2]", "--tasks-per-node=2(x2)", "--job-id=7") == wanted
    job(environ, JOB)
    assert printed(capsys, "ascend") == wanted


def test_a_worker_is_the_task_that_asks(environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """In a step the calling task, else that of --task."""
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
    """With the lines' addresses and physical ids; no name is resolved. In a step the port is the job's."""
    job(environ, {**STEP, "SLURM_STEP_ID": "5", "SLURM_PROCID": "0"})
    assert f"MS_SCHED_PORT={master_port(7, 0)}\n" in printed(capsys, "ascend", "--devices", said)
    for name in STEP:
        environ.delenv(name)
    said.write_text("a 10.9.0.1 4=1.2.3.4 5=1.2.3.5\nb 10.9.0.2 4=1.2.3.6 5=1.2.3.7\n")
    text = printed(capsys, "ascend", "--devices", said, "--task=2")
    assert "MS_SCHED_HOST=10.9.0.1\n" in text
    assert "ASCEND_DEVICE_ID=0\nexport DEVICE_ID=0\nexport ASCEND_RT_VISIBLE_DEVICES=4,5\n" in text


def test_no_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    """Names without an address, and unknown tasks."""
    for arguments, message in [
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
    ]:
        assert refused(capsys, "ascend", *arguments) == message, arguments


def test_more_tasks_than_devices_that_slurm_counts(
    environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If Slurm has a number, it counts."""
    job(environ, {**STEP, "SLURM_PROCID": "0", "SLURM_GPUS_ON_NODE": "1"})
    assert refused(capsys, "ascend") == "n1: 2 tasks and 1 devices; one task a device"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Write a table of 1.0 whose servers are in text order, like a converted one's: n2 is first."""
    path = tmp_path / "table.json"
    path.write_text(ranktable.version_1_0(ranktable.in_text_order(TWO)))
    return path


def test_the_rank_is_the_tables(
    environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], table: Path, said: Path
) -> None:
    """In a step, for nodes on the command line and for lines: task 3 is on n2, and n2 has the ranks 0 and 1."""
    wanted = (
        f"export RANK_TABLE_FILE={table}\nexport RANK_ID=1\nexport RANK_SIZE=4\nexport ASCEND_DEVICE_ID=1\n"
        "export DEVICE_ID=1\nexport ASCEND_RT_VISIBLE_DEVICES=0,1\n"
    )
    task = ("ascend", "--table", table, "--task=3")
    assert printed(capsys, *task, "--nodelist=n[1-2]", "--tasks-per-node=2(x2)") == wanted
    assert printed(capsys, *task, "--devices", said) == wanted
    assert printed(capsys, "ascend", "--table", table, "--task=1") == wanted  # one server alone: the table's own rank
    job(environ, {**STEP, "SLURM_PROCID": "3"})
    assert printed(capsys, "ascend", "--table", table) == wanted


def test_a_table_of_one_server(environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], table: Path) -> None:
    """It is this node's, whatever its name resolves to. The path becomes absolute."""
    table.write_text(ranktable.version_1_0(allocation(2)))
    environ.chdir(table.parent)
    text = printed(capsys, "ascend", "--table=table.json", "--nodelist=loop", "--tasks-per-node=2", "--task=1")
    assert text.startswith(f"export RANK_TABLE_FILE={table}\nexport RANK_ID=1\n")


def test_no_rank_in_the_table(capsys: pytest.CaptureFixture[str], table: Path) -> None:
    """A scheduler, an unknown task, counts that do not match, an unknown host."""
    for arguments, message in [
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
    ]:
        assert refused(capsys, "ascend", "--table", table, *arguments) == message, arguments


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
    """It is not waited for."""
    table.unlink()
    if text:
        table.write_text(text)
    assert refused(capsys, "ascend", "--table", table, "--task=0", "--wait=0") == (
        f"{table}: no rank table after 0 s; seen last: {message}"
    )


def test_a_table_that_hccl_does_not_open(capsys: pytest.CaptureFixture[str], table: Path) -> None:
    """Because of its name."""
    other = table.rename(table.with_name("table.txt"))
    assert refused(capsys, "ascend", "--table", other, "--task=0").endswith("has .json once, at its end")
