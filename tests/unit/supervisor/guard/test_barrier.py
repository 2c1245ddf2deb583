"""The barrier: the result of the nodes' verdicts, and which lines of a step are answers."""

import json
import os
import sys
import time
from itertools import product

import pytest

from prechecks.checks import gpu_xid
from slurm_plugin.supervisor.decide import Health
from slurm_plugin.supervisor.guard import barrier
from slurm_plugin.supervisor.guard.barrier import (
    Answers,
    Request,
    answer_lines,
    answers,
    conditions,
    health,
    merged,
    parse_line,
)
from tests.unit.supervisor.guard.answering import BAD_DNS, BAD_GPU, question, raw, report, verdict


def test_merged() -> None:
    """The worse of two verdicts counts: failed, then unknown, then ok, then skipped. Of two equal ones the first."""
    rank = {"skipped": 0, "ok": 1, "timeout": 2, "error": 2, "failed": 3}
    for first, second in product(rank, repeat=2):
        one, two = verdict("ulimit", first, message="first"), verdict("ulimit", second, message="second")
        assert merged([one], [two]) == ((two,) if rank[second] > rank[first] else (one,)), (first, second)


def test_merged_keeps_the_others() -> None:
    """Items of only one round are kept, those of the first round before the new ones."""
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


def test_health() -> None:
    """A failed item makes a node bad, by its worst problem. An unmeasured item is unknown, and no fault."""
    for name, (found, expected) in HEALTH.items():
        assert health(found) == expected, name


CANNOT = f"cannot run slurm_plugin with {sys.executable}: "


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("", Health("unreachable", "did not answer")),
        ("srun: error: n2: task 1: Exited with exit code 1", Health("unreachable", "did not answer")),
        (
            "slurmstepd-n2: error: execve(): /home/a/venv/bin/python3: No such file or directory\nsrun: error: n2",
            Health("job_problem", "has no /home/a/venv/bin/python3"),
        ),
        (
            f"srun: error: n2\n{sys.executable}: No module named slurm_plugin",
            Health("job_problem", f"{CANNOT}No module named slurm_plugin"),
        ),
        (f"Unknown option: -P\nusage: {sys.executable} [option]", Health("job_problem", f"{CANNOT}Unknown option: -P")),
    ],
)
def test_a_silent_node(said: str, expected: Health) -> None:
    """While others answer, it cannot be reached. If its Python has said something, that is the reason."""
    assert conditions(Answers({"n1": report(BAD_GPU), "n2": None}, said)) == {
        "n1": Health("node_problem", "gpu-check: 3 of 4 GPUs"),
        "n2": expected,
    }


def test_conditions_if_no_node_answers() -> None:
    """All are unknown."""
    assert conditions(Answers({"n1": None, "n2": None}, "srun: error")) == {
        "n1": Health("unknown", "did not answer"),
        "n2": Health("unknown", "did not answer"),
    }


TEXT = "".join(f" {number}" for number in range(600))  # several lines long, with blanks everywhere


def test_an_answer_in_lines() -> None:
    """Lines short enough for srun to keep whole. Each has the question, the node and the part."""
    for text in ("{}", TEXT, "a" * 600, "a" * 601, " " * 1300):
        lines = answer_lines(17, "n1", text)
        assert max(map(len, lines)) < 1000
        parts = [found for line in lines if (found := parse_line(line))]
        assert [found[:4] for found in parts] == [(17, "n1", index, len(lines)) for index in range(1, len(lines) + 1)]
        assert "".join(found[4] for found in parts) == text


def test_a_line_that_is_none_of_ours() -> None:
    """A login banner is neither an answer nor an error."""
    for line in (
        "srun: hello",
        "",
        "slurm_plugin-answer",
        "slurm_plugin-answer 1 n1 1 1",
        "slurm_plugin-answer 1 n1 1 " + "9" * 5000 + " x",
        "slurm_plugin-answer 1 n1 " + "9" * 5000 + " 1 x",
        "slurm_plugin-answer x n1 1 1 x",
        "slurm_plugin-answer 1 n1 \u0661 \u00b2 x",
        "slurm_plugin-answer 1 n1 -1 1 x",
    ):
        assert parse_line(line) is None, line


def test_answers() -> None:
    """Only reports of the job's nodes count."""
    said = {
        "n1": report(node="n1").to_json(),
        "n2": report(BAD_GPU, node="n2").to_json(),
        "n3": report(node="n1").to_json(),
        "n4": "[" * 100_000,
        "n9": report(node="n9").to_json(),
    }
    reports = {"n1": report(node="n1"), "n2": report(BAD_GPU, node="n2"), "n3": None, "n4": None}
    assert answers(["n1", "n2", "n3", "n4"], said, "srun: error: n3") == Answers(reports, "srun: error: n3")


def test_a_question_is_one_line() -> None:
    """A guard reads it unchanged."""
    request = question(task_script="a\nb\n")
    assert Request(**json.loads(barrier.text(request))) == request
    assert "\n" not in barrier.text(request)


def test_answers_keep_the_nodes_own_order() -> None:
    """The lines about devices are in the order of the job's nodes. A node without devices has none."""
    said = {node: json.loads(report(node=node).to_json()) for node in ("n2", "n3", "n1", "n9")}
    for node, fields in said.items():
        fields["devices"] = "" if node == "n3" else f"{node} 10.0.0.1 0="
    found = answers(["n1", "n2", "n3", "n4"], {node: json.dumps(fields) for node, fields in said.items()}, "")
    assert found.devices == ("n1 10.0.0.1 0=", "n2 10.0.0.1 0=")
    assert [node for node, each in found.reports.items() if each] == ["n1", "n2", "n3"]


RECORDS = [
    "4,1,5000000,-;NVRM: Xid (PCI:0000:5f:00): 79, before the attempt",
    "4,2,11000000,-;NVRM: Xid (PCI:0000:5f:00): 48",
    " SUBSYSTEM=pci",
    "12,3,11000001,-;NVRM: Xid (PCI:0000:5f:00): 79, in a program's words",
    "6,4,12500000,-;oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/slurm/uid_1/job_7/step_0/task_0,pid=9,uid={uid}",
    "6,5,12500001,-;oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/slurm/uid_1/job_8/step_0/task_0,pid=9,uid={uid}",
    "3,6,12500002,-;Out of memory: Killed process 8 (python) total-vm:1kB, UID:{other} pgtables:1kB",
    "3,7,12500003,-;Out of memory: Killed process 9 (python) total-vm:1kB, UID:{uid} pgtables:1kB",
    "x",
    "",
]


def test_lines_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of this attempt, but none about another job's or user's process; the newest, and none if that is denied."""
    known = [each.format(uid=os.getuid(), other=os.getuid() + 1) for each in RECORDS]
    monkeypatch.setattr(gpu_xid, "records", lambda: known)
    monkeypatch.setattr(time, "monotonic", lambda: 20.0)
    found = barrier.kernel_lines(7, 10.0).splitlines()
    assert [each.partition(":")[0] for each in found] == [
        "[11.000000] NVRM",
        "[12.500000] oom-kill",
        "[12.500003] Out of memory",
    ]
    monkeypatch.setattr(barrier, "KERNEL_BYTES", 20)
    assert barrier.kernel_lines(7, 10.0) == found[-1][-20:]

    def denied() -> list[str]:
        raise PermissionError

    monkeypatch.setattr(gpu_xid, "records", denied)
    assert barrier.kernel_lines(7, 10.0) == ""


def test_a_node_answers_with_its_kernels_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the question asks for them."""
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    monkeypatch.setattr(barrier, "kernel_lines", lambda job_id, seconds: f"line of {job_id} in {seconds:.0f} s")
    for seconds, wanted in ((0.0, ""), (9.0, "line of 7 in 9 s")):
        words = json.dumps(raw(question(check=False, kernel_s=seconds), capsys))
        assert conditions(answers(["n1"], {"n1": words}, "")) == {"n1": Health("ok", kernel=wanted)}


def test_how_long_nodes_may_take() -> None:
    """The checks' deadline and a margin. The driver's tool is slow, and runs for each device."""
    settings = {"deadline_s": 10.0}
    assert barrier.deadline_s(question(settings=settings)) == 25.0
    assert barrier.deadline_s(question(settings=settings, devices=True)) == 185.0
