"""The barrier: the result of the nodes' verdicts, and which lines of a step are answers."""

import json
from itertools import product

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
from tests.unit.supervisor.guard.answering import BAD_DNS, BAD_GPU, question, report, verdict


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


def test_conditions() -> None:
    """A node that is silent while others answer cannot be reached. If all are silent, all are unknown."""
    some = Answers({"n1": report(BAD_GPU), "n2": None}, "")
    assert conditions(some) == {
        "n1": Health("node_problem", "gpu-check: 3 of 4 GPUs"),
        "n2": Health("unreachable", "did not answer"),
    }
    said = (
        "slurmstepd-n2: error: execve(): /home/a/venv/bin/python3: No such file or directory\nsrun: error: n2: task 1"
    )
    assert conditions(Answers({"n1": report(BAD_GPU), "n2": None}, said))["n2"] == Health(
        "job_problem", "has no /home/a/venv/bin/python3"
    )
    assert conditions(Answers({"n1": None, "n2": None}, "srun: error")) == {
        "n1": Health("unknown"),
        "n2": Health("unknown"),
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


def test_how_long_nodes_may_take() -> None:
    """The checks' deadline and a margin. The driver's tool is slow, and runs for each device."""
    settings = {"deadline_s": 10.0}
    assert barrier.deadline_s(question(settings=settings)) == 25.0
    assert barrier.deadline_s(question(settings=settings, devices=True)) == 185.0
