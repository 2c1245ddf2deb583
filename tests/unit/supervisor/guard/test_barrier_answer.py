"""One node's answer: which report counts, the file for its tasks, and its devices."""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from prechecks import Report
from slurm_plugin.records import node_directory
from slurm_plugin.records.node_directory import SPARE
from slurm_plugin.supervisor import network
from slurm_plugin.supervisor.guard import processes
from slurm_plugin.supervisor.guard.barrier import Request, answers
from tests.unit.supervisor.guard.answering import BAD_GPU, answered, publish, question, raw


@pytest.fixture
def request_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Request:
    """Return a request to node n1, whose prolog has made the run's directory."""
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    for name in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS"):
        monkeypatch.delenv(name, raising=False)
    run_directory = str(tmp_path / "run")
    node_directory.create(run_directory, "7.0.0", uid=os.getuid(), gid=os.getgid())
    return question(run_directory=run_directory)


def test_root_report_counts(request_: Request, capsys: pytest.CaptureFixture[str]) -> None:
    """Root's verdicts are used, except limits: these are the user's, and measured here."""
    publish(request_, owner=0)
    items = answered(replace(request_, infiniband=True), capsys).items
    assert items[0] == BAD_GPU
    assert [each.item for each in items] == ["gpu-check", "ulimit"]
    assert items[1].verdict == "ok"


def test_forged_report(request_: Request, capsys: pytest.CaptureFixture[str]) -> None:
    """A report that root did not write is ignored: all is measured here."""
    publish(request_, owner=20001)
    items = answered(request_, capsys).items
    assert BAD_GPU not in items
    assert len(items) > 2


def test_recheck_measures_again(request_: Request, capsys: pytest.CaptureFixture[str]) -> None:
    """After a failure the prolog's report is old: all is measured again."""
    publish(request_, owner=0)
    items = answered(replace(request_, hook="recheck"), capsys).items
    assert BAD_GPU not in items
    assert len(items) > 2


def test_job_without_checks(request_: Request, capsys: pytest.CaptureFixture[str]) -> None:
    """A job without requested checks gets none. Its answer still shows that the node is there."""
    publish(request_, owner=0)
    assert answered(replace(request_, check=False), capsys).items == ()


def test_task_file(request_: Request, capsys: pytest.CaptureFixture[str]) -> None:
    """The TaskProlog's file is written whole, for its user alone. A second write replaces it."""
    folder = Path(request_.run_directory, "jobs/7.0.0/user")
    for script in ("first\n", "second\n"):
        request = replace(request_, check=False, task_script=script)
        assert answered(request, capsys).items == ()
        assert [path.name for path in folder.iterdir()] == ["task.sh"]
        assert (folder / "task.sh").read_text() == script
        assert (folder / "task.sh").stat().st_mode & 0o777 == 0o600


CURE = '[ "${GLOO_SOCKET_IFNAME-}" ] || echo export GLOO_SOCKET_IFNAME=eth0\n'
WHERE = "its name is 127.0.1.1 there, which no other node can reach: see /etc/hosts"


@pytest.mark.parametrize(
    ("found", "script", "written", "note"),
    [
        ("", "x\n", "x\n", None),
        ("127.0.1.1 eth0", "x\n", f"x\n{CURE}", f"{WHERE}; the tasks get GLOO_SOCKET_IFNAME=eth0, unless it is set"),
        ("127.0.1.1 eth0", "", "", f"{WHERE}; set GLOO_SOCKET_IFNAME=eth0 in `env`"),
        ("127.0.1.1", "x\n", "x\n", WHERE),
    ],
)
def test_a_name_that_no_other_node_can_reach(
    found: str,
    script: str,
    written: str,
    note: str | None,
    request_: Request,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The tasks get the interface to the other nodes, and the log a line. An empty file is not read by the tasks."""
    asked: list[list[str]] = []
    monkeypatch.setattr(network, "loopback", lambda hosts: asked.append(hosts) or found)
    request = replace(request_, check=False, hosts="n[1-2]", task_script=script, interface="GLOO_SOCKET_IFNAME")
    fields = raw(request, capsys)
    assert (fields.get("note"), asked) == (note, [["n1", "n2"]])
    assert Path(request.run_directory, "jobs/7.0.0/user/task.sh").read_text() == written
    assert answers(["n1"], {"n1": json.dumps(fields)}, "").notes == ({"n1": note} if note else {})
    raw(replace(request, interface=""), capsys)
    assert len(asked) == 1


def test_a_first_node_whose_name_is_unknown(
    request_: Request, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 listens there. The node itself need not look for it."""
    monkeypatch.setattr(network, "loopback", lambda _hosts: "")
    request = replace(request_, check=False, hosts="n2.invalid,n1", interface="GLOO_SOCKET_IFNAME")
    assert str(raw(request, capsys)["note"]).startswith("n2.invalid has no address here (")
    assert not raw(replace(request, hosts="n1,n2.invalid"), capsys).get("note")


def test_gpus_of_a_step_without_any(
    request_: Request, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Their files are checked, with the node's own numbers. The driver is not asked: it may see none of them."""
    asked = tmp_path / "asked"
    (tmp_path / "tool").write_text(f"#!/bin/sh\n>>{asked}\n")
    (tmp_path / "tool").chmod(0o755)
    gpus = {"device": f"{tmp_path}/gpu%d", "count": None, "tool": str(tmp_path / "tool"), "nvml": False}
    settings = {**request_.settings, "gpu-check": gpus}
    request = replace(request_, hook="recheck", settings=settings, gpus={"n1": [2], "n2": [3]})
    (found,) = (item for item in answered(request, capsys).items if item.item == "gpu-check")
    assert (found.verdict, found.message, found.value) == ("failed", "0 of 1 GPUs", f"missing {tmp_path}/gpu2")
    (tmp_path / "gpu2").symlink_to("/dev/null")
    items = {item.item: item.verdict for item in answered(request, capsys).items}
    assert (items["gpu-check"], asked.exists()) == ("ok", False)
    monkeypatch.setenv("SLURM_STEP_GPUS", "2")
    answered(request, capsys)
    assert asked.exists()


@pytest.fixture
def spare(request_: Request) -> Iterator[tuple[Request, Path]]:
    """Return a request about a run without a directory, and the path that is used instead."""
    directory = f"{os.getpid()}.0.98"
    path = Path(f"{SPARE}{directory}")
    try:
        yield replace(request_, check=False, task_script="x\n", directory=directory), path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def test_task_file_without_a_prolog(spare: tuple[Request, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """If the run has no directory, the user makes one that no other user can enter."""
    request, path = spare
    assert answered(request, capsys).items == ()
    assert (path / "task.sh").read_text() == "x\n"
    assert path.stat().st_mode & 0o777 == 0o700


def test_task_file_in_a_place_that_stands_there(
    spare: tuple[Request, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """A directory that another user may have made is not used. The verdict says so, but does not make the node bad."""
    request, path = spare
    path.mkdir()
    (found,) = answered(request, capsys).items
    assert (found.item, found.verdict, found.problem) == ("task-prolog", "failed", "job_problem")
    assert found.message.startswith(f"{path}: File exists; ")
    assert not any(path.iterdir())


def test_what_earlier_jobs_have_left(
    spare: tuple[Request, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their folders are removed, unless another job of the user is on the node. Other names and users' are left."""
    monkeypatch.setattr(node_directory, "SPARE", f"{tmp_path}/slurm_plugin.")
    for name in ("7.0.0", "7.1.0", "8.0.0", "x"):
        Path(f"{node_directory.SPARE}{name}").mkdir(0o700)
    os.chown(tmp_path / "slurm_plugin.8.0.0", 20001, 20001)
    monkeypatch.setenv("SLURM_JOB_ID", "9")
    for others, left in ((True, ["7.0.0", "7.1.0", "8.0.0", "9.0.0", "x"]), (False, ["8.0.0", "9.0.0", "x"])):
        monkeypatch.setattr(processes, "has_other_job", lambda job, others=others: others and job == "9")
        answered(replace(spare[0], directory="9.0.0"), capsys)
        assert sorted(path.name.removeprefix("slurm_plugin.") for path in tmp_path.glob("slurm_plugin.*")) == left


def test_a_task_prolog_that_this_node_cannot_run(
    spare: tuple[Request, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The job's directory is on another node, or mounted noexec: slurmstepd would start the task without its rank."""
    prolog = tmp_path / "task_prolog.sh"
    request = replace(spare[0], prolog=str(prolog))
    (found,) = answered(request, capsys).items
    assert (found.item, found.verdict, found.problem) == ("task-prolog", "failed", "job_problem")
    assert found.message.startswith(f"cannot run {prolog}: is the job's directory shared with this node")
    prolog.touch(0o755)
    assert answered(request, capsys).items == ()


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of n1's hccn.conf, if any. Its address is known, it has the devices 2 and 3, and no hccn_tool."""
    path = tmp_path / "hccn.conf"
    monkeypatch.setattr(network.devices, "__kwdefaults__", network.devices.__kwdefaults__ | {"conf": path})
    monkeypatch.setattr(network, "own_address", {"n1": "10.0.0.1"}.__getitem__)
    monkeypatch.setenv("SLURM_JOB_GPUS", "2,3")
    monkeypatch.setenv("PATH", str(tmp_path))
    return path


@pytest.mark.parametrize("script", ["echo export RANK_ID=0\n", "", None])
def test_devices(request_: Request, conf: Path, capsys: pytest.CaptureFixture[str], script: str | None) -> None:
    """The node's line, and the physical ids at the end of TaskProlog's file. If all is well there is no verdict."""
    conf.write_text("address_2=10.1.0.2\naddress_3=10.1.0.3\n")
    request = replace(request_, check=False, hosts="n[1-2]", devices=True, task_script=script)
    fields = raw(request, capsys)
    assert fields["devices"] == "n1 10.0.0.1 2=10.1.0.2 3=10.1.0.3"
    assert Report.from_json(json.dumps(fields)).items == ()
    task_file = Path(request.run_directory, "jobs/7.0.0/user/task.sh")
    assert task_file.read_text() == f"{script or ''}echo export ASCEND_RT_VISIBLE_DEVICES=2,3\n"


def test_devices_that_cannot_be_told(request_: Request, conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A verdict with the reason, which does not make the node bad. The task's own lines are written."""
    request = replace(request_, check=False, hosts="n[1-2]", devices=True, task_script="x\n")
    fields = raw(request, capsys)
    assert fields["devices"] == ""
    (found,) = Report.from_json(json.dumps(fields)).items
    assert (found.item, found.verdict, found.problem) == ("npu-devices", "failed", "job_problem")
    assert found.message.startswith(f"device 2: {conf}: No such file or directory, and hccn_tool: ")
    assert Path(request.run_directory, "jobs/7.0.0/user/task.sh").read_text() == "x\n"


def test_devices_of_a_job_of_one_node(request_: Request, conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its devices need no addresses."""
    assert not conf.exists()
    fields = raw(replace(request_, check=False, hosts="n1", devices=True), capsys)
    assert fields["devices"] == "n1 10.0.0.1 2= 3="
    assert fields["items"] == []


def test_devices_are_read_only_on_request(request_: Request, conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nodes of other modes report none, and their tasks keep Slurm's variables."""
    conf.write_text("no key\n")
    fields = raw(replace(request_, check=False, task_script="x\n"), capsys)
    assert (fields["devices"], fields["items"]) == ("", [])
