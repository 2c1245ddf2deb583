"""Mirrors slurm_plugin/launch/ascend.py: one process for each device, with a table or without."""

import subprocess
from pathlib import Path

import pytest

from hostfiles import Allocation, Device, Host, ascend
from slurm_plugin.errors import UsageError
from slurm_plugin.launch import MESSAGES, MODES, Options, Place, Shape
from slurm_plugin.launch.ascend import WITH_SCHEDULER
from tests.unit.launch.tasks import exports

MODE = MODES["ascend"]
ALLOCATION = Allocation((Host("n1", 2, 2), Host("n2", 2, 2)), 17)
KNOWN = Allocation(
    tuple(Host(f"n{n}", 2, 2, f"10.0.0.{n}", (Device(4, f"10.1.{n}.4"), Device(5, f"10.1.{n}.5"))) for n in (1, 2))
)
TABLE = Place(ALLOCATION, 61000, "/w/.slurm_plugin/17", address="10.0.0.1")
CLUSTER = Place(ALLOCATION, 61000, "/w/.slurm_plugin/17", address="10.0.0.1", options=Options(table=False))
NODE_ADDS = {"ASCEND_RT_VISIBLE_DEVICES"}  # each node's own line of the task file
LOGS = {"ASCEND_PROCESS_LOG_PATH"}


def test_every_task_finds_what_hostfiles_says_of_it(tmp_path: Path) -> None:
    """Environment and TaskProlog together give each process exactly the variables of hostfiles.ascend."""
    for place in [TABLE, CLUSTER]:
        for task in range(4):
            own = exports(MODE.task_script(place), task, task // 2, task % 2, SLURM_PLUGIN_DIRECTORY=str(tmp_path))
            found = {**MODE.variables(place), **own}
            expected = (
                ascend.table_variables(KNOWN, task, "/w/.slurm_plugin/17/jobstart_hccl.json")
                if place.options.table
                else ascend.cluster_variables(KNOWN, task, 61000)
            )
            assert {name: value for name, value in found.items() if name not in LOGS} == {
                name: value for name, value in expected.items() if name not in NODE_ADDS
            }, place
            assert own["ASCEND_PROCESS_LOG_PATH"] == f"{tmp_path}/ascend/process_log/rank_{task}", place
            assert (tmp_path / f"ascend/process_log/rank_{task}").is_dir(), place


def test_the_directory_of_mindspores_logs(tmp_path: Path) -> None:
    """MindSpore makes none. Only a diagnosis has its logs in files."""
    for messages in MESSAGES:
        place = TABLE._replace(options=Options(messages=messages), directory=str(tmp_path))
        exports(MODE.task_script(place), 0, 0, 0, SLURM_PLUGIN_DIRECTORY=str(tmp_path))
        logs = tmp_path / "mindspore/log"
        assert logs.is_dir() == (MODE.defaults(place).get("GLOG_log_dir") == str(logs)) == (messages == "diagnosis")


def test_the_users_own_log_path_is_kept(tmp_path: Path) -> None:
    """Row B8: a hook or the spec may set it; it is made, and a path that cannot be made stops no task."""
    (tmp_path / "file").touch()
    for mine in (tmp_path / "mi ne/logs", tmp_path / "file/logs"):
        given = {"SLURM_PLUGIN_DIRECTORY": "/nowhere", "ASCEND_PROCESS_LOG_PATH": str(mine)}
        assert exports(MODE.task_script(TABLE), 0, 0, 0, **given)["ASCEND_PROCESS_LOG_PATH"] == str(mine)
        assert mine.is_dir() == ("file" not in str(mine)), mine


def test_the_launch_is_one_task_a_device_in_the_tables_order() -> None:
    """The same for one node and for many (row B7)."""
    assert MODE.launch(("python", "t.py"), Shape(2, 8)).argv == (
        *("srun", "--nodes=2", "--ntasks=16", "--ntasks-per-node=8", "--kill-on-bad-exit=1", "--export=ALL"),
        *("--distribution=block", "python", "t.py"),
    )


def test_only_a_table_needs_the_devices_and_only_a_cluster_the_address() -> None:
    """Each question costs every node something."""
    for options in (Options(), Options(table=False)):
        assert (MODE.by_devices(options), MODE.by_address(options)) == (options.table, not options.table)


def test_the_scheduler_is_started_once_beside_rank_0() -> None:
    """The same program, as MS_SCHED, without the number of a worker."""
    show = 'echo "$MS_ROLE ${MS_NODE_ID-none} ${RANK_ID-none} $1"'
    said = {}
    for task in (0, 1):
        environ = {"PATH": "/usr/bin:/bin", "SLURM_PROCID": str(task), "MS_ROLE": "MS_WORKER"}
        environ |= {"MS_NODE_ID": str(task), "RANK_ID": str(task)}
        argv = ["bash", "-p", "-c", WITH_SCHEDULER, "bash", "-c", show, "sh", "two words"]
        done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=True)
        said[task] = sorted(done.stdout.splitlines())
    assert said == {
        0: ["MS_SCHED none none two words", "MS_WORKER 0 0 two words"],
        1: ["MS_WORKER 1 1 two words"],
    }


def test_a_cluster_over_ipv6_is_refused() -> None:
    """Each process would need its own address there."""
    place = Place(ALLOCATION, 61000, "/w", address="fd00::1", options=Options(table=False))
    with pytest.raises(UsageError, match="use a rank table"):
        MODE.variables(place)


def test_how_much_is_told() -> None:
    """Row B8's three modes; only the diagnosis writes files of its own."""
    for messages, levels in [
        ("normal", ("3", "1", "0")),
        ("high-performance", ("3", "3", "0")),
        ("diagnosis", ("1", "1", "1")),
    ]:
        found = MODE.defaults(Place(ALLOCATION, 61000, "/w", options=Options(messages=messages)))
        assert tuple(found[name] for name in ("ASCEND_GLOBAL_LOG_LEVEL", "GLOG_v", "MS_RDR_ENABLE")) == levels, messages
        assert ("GLOG_log_dir" in found) is (messages == "diagnosis"), messages


def test_each_amount_of_messages_has_its_levels() -> None:
    """Row B8: whatever a spec may say there."""
    for messages in MESSAGES:
        place = TABLE._replace(options=Options(messages=messages))
        assert {"ASCEND_GLOBAL_LOG_LEVEL", "GLOG_v", "MS_RDR_ENABLE"} <= MODE.defaults(place).keys(), messages
