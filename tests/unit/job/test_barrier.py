"""The barrier: what a node's verdicts add up to, whose report counts, and which lines of a step are answers."""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prechecks import Report, Verdict
from slurm_plugin.decide import Health
from slurm_plugin.hooks import node_directory
from slurm_plugin.job import ascend, barrier, network
from slurm_plugin.job.barrier import Answers, Request, answer, answers, conditions, health, merged, part, split
from slurm_plugin.job.taskfile import SPARE

SETTINGS = {
    "deadline_s": 10.0,
    "mandatory": [],
    "disk-size": {"root": 0, "shm": 0, "cache": 0},
    "ulimit": {"max_locked_memory_kb": 0, "open_files": 0, "stack_size_kb": 0, "max_user_processes": 0},
    "gpu-check": {"device": "/dev/null%d", "count": None},
    "dns": {"hosts_files": []},
}


def verdict(item: str, found: str, problem: str = "node_problem", message: str = "m") -> Verdict:
    """A verdict with nothing measured."""
    return Verdict(item, found, problem, message)


def report(*items: Verdict, node: str = "n1") -> Report:
    """A node's answer."""
    return Report(node, 7, "barrier", 0.0, items)


BAD_GPU = verdict("gpu-check", "failed", message="3 of 4 GPUs")
BAD_DNS = verdict("dns", "failed", "job_problem", "n9 is not known")


@pytest.mark.parametrize("first", ["skipped", "ok", "timeout", "error", "failed"])
@pytest.mark.parametrize("second", ["skipped", "ok", "timeout", "error", "failed"])
def test_merged(first: str, second: str) -> None:
    """Of two verdicts the worse one stands: failed, then unknown, then ok, then skipped; of two alike the first."""
    rank = {"skipped": 0, "ok": 1, "timeout": 2, "error": 2, "failed": 3}
    one, two = verdict("ulimit", first, message="first"), verdict("ulimit", second, message="second")
    assert merged([one], [two]) == ((two,) if rank[second] > rank[first] else (one,))


def test_merged_keeps_the_others() -> None:
    """Items of one round only are kept, in order, those of the first round before the new ones."""
    ok = [verdict(name, "ok") for name in ("dns", "ulimit", "gpu-check")]
    failed = verdict("ulimit", "failed")
    assert merged(ok, [verdict("new", "ok"), failed]) == (ok[0], failed, ok[2], verdict("new", "ok"))
    assert merged([], [failed]) == merged([failed], []) == (failed,)


HEALTH = {
    "nothing checked": (report(), Health("ok")),
    "all ok": (report(verdict("dns", "ok"), verdict("gpu-check", "skipped")), Health("ok")),
    "a node problem": (report(verdict("dns", "ok"), BAD_GPU), Health("node_problem", "gpu-check: 3 of 4 GPUs")),
    "a job problem": (report(BAD_DNS), Health("job_problem", "dns: n9 is not known")),
    "both": (report(BAD_DNS, BAD_GPU), Health("node_problem", "dns: n9 is not known; gpu-check: 3 of 4 GPUs")),
    "the log's keyword": (
        report(verdict("disk-size.shm", "failed")),
        Health("node_problem", "disk-size shm: m"),
    ),
    "no answer in time": (report(verdict("dns", "timeout")), Health("unknown")),
    "a check that broke": (report(verdict("dns", "ok"), verdict("ulimit", "error")), Health("unknown")),
    "unknown beside failed": (
        report(verdict("dns", "timeout"), BAD_DNS),
        Health("job_problem", "dns: n9 is not known"),
    ),
}


@pytest.mark.parametrize(("found", "expected"), HEALTH.values(), ids=HEALTH.keys())
def test_health(found: Report, expected: Health) -> None:
    """Failed is bad, by the worst problem; what could not be measured is unknown, and no fault."""
    assert health(found) == expected


def test_conditions() -> None:
    """A node that is silent while others answer cannot be reached; where all are silent, nothing is known of any."""
    some = Answers({"n1": report(BAD_GPU), "n2": None}, "")
    assert conditions(some) == {
        "n1": Health("node_problem", "gpu-check: 3 of 4 GPUs"),
        "n2": Health("unreachable", "did not answer"),
    }
    assert conditions(Answers({"n1": None, "n2": None}, "srun: error")) == {
        "n1": Health("unknown"),
        "n2": Health("unknown"),
    }


TEXT = "".join(f" {number}" for number in range(600))  # several lines long, with blanks everywhere


@pytest.mark.parametrize("text", ["{}", TEXT, "a" * 600, "a" * 601, " " * 1300])
def test_an_answer_in_lines(text: str) -> None:
    """Lines short enough for srun to keep whole, each of which says to which question, whose and which part it is."""
    lines = split(17, "n1", text)
    assert max(map(len, lines)) < 1000
    parts = [found for line in lines if (found := part(line))]
    assert [found[:4] for found in parts] == [(17, "n1", index, len(lines)) for index in range(1, len(lines) + 1)]
    assert "".join(found[4] for found in parts) == text


@pytest.mark.parametrize(
    "line",
    [
        "srun: hello",
        "",
        "slurm_plugin-answer",
        "slurm_plugin-answer 1 n1 1 1",
        "slurm_plugin-answer 1 n1 1 " + "9" * 5000 + " x",
        "slurm_plugin-answer 1 n1 " + "9" * 5000 + " 1 x",
        "slurm_plugin-answer x n1 1 1 x",
        "slurm_plugin-answer 1 n1 \u0661 \u00b2 x",
        "slurm_plugin-answer 1 n1 -1 1 x",
    ],
)
def test_a_line_that_is_none_of_ours(line: str) -> None:
    """Whatever a login banner prints, it is no answer and no error."""
    assert part(line) is None


@pytest.fixture
def request_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Request:
    """A request to node n1, whose prolog has made the run's directory."""
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    for name in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS"):
        monkeypatch.delenv(name, raising=False)
    run_directory = str(tmp_path / "run")
    node_directory.create(run_directory, "7.0.0", uid=os.getuid(), gid=os.getgid())
    return Request("barrier", 7, "7.0.0", run_directory, "localhost", infiniband=False, check=True, settings=SETTINGS)


def raw(request: Request, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The fields of a node's answer."""
    answer(request, 5)
    parts = [found for line in capsys.readouterr().out.splitlines() if (found := part(line))]
    assert {found[:2] for found in parts} == {(5, "n1")}
    return dict(json.loads("".join(found[4] for found in parts)))


def answered(request: Request, capsys: pytest.CaptureFixture[str]) -> Report:
    """A node's answer, as the request's sender reads it."""
    found = Report.from_json(json.dumps(raw(request, capsys)))
    assert (found.node, found.job, found.hook) == ("n1", 7, request.hook)
    return found


def publish(request: Request, owner: int) -> None:
    """A report in the place where root's prolog writes."""
    text = report(BAD_GPU, verdict("ulimit", "skipped")).to_json()
    node_directory.write(request.run_directory, "7.0.0", "report.json", text, gid=0)
    os.chown(f"{request.run_directory}/jobs/7.0.0/report.json", owner, 0)


def test_root_report_counts(request_: Request, capsys: pytest.CaptureFixture[str]) -> None:
    """Root's verdicts are taken as they are, but for the limits: those are the user's own, and measured here."""
    publish(request_, owner=0)
    items = answered(replace(request_, infiniband=True), capsys).items
    assert items[0] == BAD_GPU
    assert [each.item for each in items] == ["gpu-check", "ulimit"]
    assert items[1].verdict == "ok"


def test_forged_report(request_: Request, capsys: pytest.CaptureFixture[str]) -> None:
    """A report that root did not write is none: everything is measured here."""
    publish(request_, owner=20001)
    items = answered(request_, capsys).items
    assert BAD_GPU not in items
    assert len(items) > 2


def test_recheck_measures_again(request_: Request, capsys: pytest.CaptureFixture[str]) -> None:
    """After a failure the prolog's report is old: everything is measured again."""
    publish(request_, owner=0)
    items = answered(replace(request_, hook="recheck"), capsys).items
    assert BAD_GPU not in items
    assert len(items) > 2


def test_job_without_checks(request_: Request, capsys: pytest.CaptureFixture[str]) -> None:
    """A job that asked for no checks gets none; its answer still says that the node is there."""
    publish(request_, owner=0)
    assert answered(replace(request_, check=False), capsys).items == ()


def test_task_file(request_: Request, capsys: pytest.CaptureFixture[str]) -> None:
    """The TaskProlog's file is written whole, for its user alone; a second time it is replaced."""
    folder = Path(request_.run_directory, "jobs/7.0.0/user")
    for script in ("first\n", "second\n"):
        request = replace(request_, check=False, task_script=script)
        assert answered(request, capsys).items == ()
        assert [path.name for path in folder.iterdir()] == ["task.sh"]
        assert (folder / "task.sh").read_text() == script
        assert (folder / "task.sh").stat().st_mode & 0o777 == 0o600


@pytest.fixture
def spare(request_: Request) -> Iterator[tuple[Request, Path]]:
    """A request about a run whose directory no prolog made, and the place that is then taken."""
    directory = f"{os.getpid()}.0.98"
    path = Path(f"{SPARE}{directory}")
    try:
        yield replace(request_, check=False, task_script="x\n", directory=directory), path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def test_task_file_without_a_prolog(spare: tuple[Request, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Where the run has no directory, the user makes one that nobody else may enter."""
    request, path = spare
    assert answered(request, capsys).items == ()
    assert (path / "task.sh").read_text() == "x\n"
    assert path.stat().st_mode & 0o777 == 0o700


def test_task_file_in_a_place_that_stands_there(
    spare: tuple[Request, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """A directory that somebody else may have made is not used; the verdict says so, and blames no node."""
    request, path = spare
    path.mkdir()
    (found,) = answered(request, capsys).items
    assert (found.item, found.verdict, found.problem) == ("task-prolog", "failed", "job_problem")
    assert found.message.startswith(f"{path}: File exists; ")
    assert not any(path.iterdir())


def test_answers(request_: Request) -> None:
    """What are reports of the job's nodes counts, and nothing else does."""
    said = {
        "n1": report(node="n1").to_json(),
        "n2": report(BAD_GPU, node="n2").to_json(),
        "n3": report(node="n1").to_json(),
        "n4": "[" * 100_000,
        "n9": report(node="n9").to_json(),
    }
    reports = {"n1": report(node="n1"), "n2": report(BAD_GPU, node="n2"), "n3": None, "n4": None}
    assert answers(["n1", "n2", "n3", "n4"], said, "srun: error: n3") == Answers(reports, "srun: error: n3")
    assert Request(**json.loads(barrier.text(request_))) == request_
    assert "\n" not in barrier.text(replace(request_, task_script="a\nb\n"))


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where n1 has its hccn.conf, if any; its address is known, it has the devices 2 and 3, and no hccn_tool."""
    path = tmp_path / "hccn.conf"
    monkeypatch.setattr(ascend.devices, "__kwdefaults__", ascend.devices.__kwdefaults__ | {"conf": path})
    monkeypatch.setattr(network, "own_address", {"n1": "10.0.0.1"}.__getitem__)
    monkeypatch.setenv("SLURM_JOB_GPUS", "2,3")
    monkeypatch.setenv("PATH", str(tmp_path))
    return path


@pytest.mark.parametrize("script", ["echo export RANK_ID=0\n", "", None])
def test_devices(request_: Request, conf: Path, capsys: pytest.CaptureFixture[str], script: str | None) -> None:
    """The node's line, and the physical ids at the end of what TaskProlog sources; no verdict where all is well."""
    conf.write_text("address_2=10.1.0.2\naddress_3=10.1.0.3\n")
    request = replace(request_, check=False, hosts="n[1-2]", devices=True, task_script=script)
    fields = raw(request, capsys)
    assert fields["devices"] == "n1 10.0.0.1 2=10.1.0.2 3=10.1.0.3"
    assert Report.from_json(json.dumps(fields)).items == ()
    task_file = Path(request.run_directory, "jobs/7.0.0/user/task.sh")
    assert task_file.read_text() == f"{script or ''}echo export ASCEND_RT_VISIBLE_DEVICES=2,3\n"


def test_devices_that_cannot_be_told(request_: Request, conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A verdict with the reason, beside those of the checks, which blames no node; the task's own lines are there."""
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


def test_nobody_is_asked_for_devices_unasked(request_: Request, conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Other modes' nodes say none, and their tasks keep what Slurm told them."""
    conf.write_text("no key\n")
    fields = raw(replace(request_, check=False, task_script="x\n"), capsys)
    assert (fields["devices"], fields["items"]) == ("", [])


def test_answers_keep_the_nodes_own_order() -> None:
    """The lines about devices come in the order of the job's nodes, whoever speaks first; who has none has no line."""
    said = {node: json.loads(report(node=node).to_json()) for node in ("n2", "n3", "n1", "n9")}
    for node, fields in said.items():
        fields["devices"] = "" if node == "n3" else f"{node} 10.0.0.1 0="
    found = answers(["n1", "n2", "n3", "n4"], {node: json.dumps(fields) for node, fields in said.items()}, "")
    assert found.devices == ("n1 10.0.0.1 0=", "n2 10.0.0.1 0=")
    assert [node for node, each in found.reports.items() if each] == ["n1", "n2", "n3"]


@pytest.mark.parametrize(("devices", "expected_s"), [(False, 25.0), (True, 185.0)])
def test_how_long_nodes_may_take(request_: Request, devices: bool, expected_s: float) -> None:
    """The checks' own limit and some; the driver's tool is slow, and is asked about each device."""
    assert barrier.deadline_s(replace(request_, devices=devices)) == expected_s
