"""Mode ascend on a real Slurm: with rank tables from the nodes' reports of their devices, and without a table."""

import json
from collections.abc import Callable, Iterator

import pytest

from slurm_plugin.sandbox import Sandbox
from tests.cluster.etc import hccn_files
from tests.cluster.jobs import printed, submit
from tests.waiting import until

pytestmark = pytest.mark.cluster


@pytest.fixture
def hccn(cluster: Sandbox) -> Iterator[Callable[[str, str], None]]:
    """Yield a function that writes a machine's /etc/hccn.conf."""
    with hccn_files(cluster) as write:
        yield write


SHOW = "echo $(hostname) $RANK_ID/$RANK_SIZE $ASCEND_DEVICE_ID $DEVICE_ID of ${ASCEND_RT_VISIBLE_DEVICES-} "


def test_ascend_has_a_rank_table(cluster: Sandbox, hccn: Callable[[str, str], None]) -> None:
    """One process for each device, with the rank that the table of all nodes gives it."""
    for node in (1, 2):
        hccn(f"n{node}", "".join(f"address_{device}=10.1.{node}.{device}\n" for device in range(4)))
    command = f"bash -c '{SHOW} $RANK_TABLE_FILE $ASCEND_GLOBAL_LOG_LEVEL $ASCEND_SLOG_PRINT_TO_STDOUT'"
    job = submit(cluster, "ascend-table", mode="ascend", accelerators={"gpu": 2}, command=command)
    assert job.end() == "COMPLETED", job.log
    path = f"/home/alice/ascend-table/.slurm_plugin/{job.id}/jobstart_hccl.json"
    ranks = [f"n{rank // 2 + 1} {rank}/4 {rank % 2} {rank % 2} of 0,1 {path} 3 1" for rank in range(4)]
    assert printed(job) == ranks
    table = json.loads((job.directory / ".slurm_plugin" / str(job.id) / "jobstart_hccl.json").read_text())
    assert (table["status"], table["server_count"]) == ("completed", "2")
    assert [
        (server["server_id"], [(device["rank_id"], device["device_ip"]) for device in server["device"]])
        for server in table["server_list"]
    ] == [
        (address(cluster, f"n{node}"), [(str(2 * node - 2), f"10.1.{node}.0"), (str(2 * node - 1), f"10.1.{node}.1")])
        for node in (1, 2)
    ]


def address(box: Sandbox, node: str) -> str:
    """Return a machine's own address, as its name resolves there."""
    return box.run(["getent", "ahostsv4", node], node=node).stdout.split()[0]


@pytest.mark.full  # 10 s
def test_a_node_that_cannot_tell_its_devices_ends_the_attempt(
    cluster: Sandbox, hccn: Callable[[str, str], None]
) -> None:
    """Without its devices there is no table, and no program starts. The log names the node and what is missing."""
    hccn("n1", "address_0=10.1.1.0\naddress_1=10.1.1.1\n")
    job = submit(cluster, "untold", mode="ascend", accelerators={"gpu": 2}, command="echo started")
    assert (job.end(), job.exit_code) == ("FAILED", "1:0"), job.log
    assert "started" not in printed(job)
    (said,) = job.lines("n2")
    assert said.startswith("[slurm_plugin] n2 npu-devices: failed: device 0: /etc/hccn.conf: No such file or directory")
    assert not (job.directory / ".slurm_plugin" / str(job.id) / "jobstart_hccl.json").exists()


@pytest.mark.full  # 20 s
def test_ascend_without_a_table_is_a_dynamic_cluster(cluster: Sandbox) -> None:
    """Workers run on every device, and one scheduler beside rank 0. The scheduler ends with the workers."""
    command = f"""bash -c '{SHOW} $MS_ROLE ${{MS_NODE_ID-none}} $MS_SCHED_HOST:$MS_SCHED_PORT $MS_WORKER_NUM
        [ $MS_ROLE = MS_WORKER ] || {{ touch serves; sleep 9000; }}; until [ -e serves ]; do sleep 0.1; done'"""
    fields = {"accelerators": {"gpu": 2}, "ascend": {"table": "no"}, "command": command}
    job = submit(cluster, "dynamic", mode="ascend", **fields)
    assert job.end() == "COMPLETED", job.log
    lines = printed(job)
    port = lines[0].rsplit(":", 1)[1].split()[0]
    where = f"{address(cluster, 'n1')}:{port} 4"
    workers = [f"n{rank // 2 + 1} {rank}/4 {rank % 2} {rank % 2} of MS_WORKER {rank} {where}" for rank in range(4)]
    assert lines == sorted([*workers, f"n1 /4 of MS_SCHED none {where}"])
    until(lambda: not cluster.run(["pgrep", "-u", "alice", "sleep"], node="n1", check=False).stdout)
