"""Mirrors slurm_plugin/views/jobs.py: whole tables at the widths of two terminals, filters, orders and records."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from slurm_plugin.errors import UsageError
from slurm_plugin.slurm import Job, Listed
from slurm_plugin.views import jobs, states
from slurm_plugin.views.jobs import Facts, Row

BEGAN = datetime(2026, 11, 23, 10, 0, tzinfo=UTC)
NO_MORE = 'sp1:{"granted":1,"requeues":1,"counted":0,"last":"no restart left after n2: gpu-check"}'
ASKED = "[sp1;retries=3;ib=auto]"


def row(number: int, state: str, name: str = "train", facts: Facts | None = None, **fields: object) -> Row:
    """Return a job of one node with four GPUs that has run for 30 minutes."""
    has = {
        "shown": str(number), "nodes": 1, "gpus": 4, "elapsed_s": 1800, "limit_s": 7200, "directory": "/home/ada/run",
        "user": "ada", "partition": "main", "reason": "", "node_list": "n1", "restarts": 0, "comment": ASKED,
        "admin_comment": "", "exit_code": 0, "exit_signal": None, **fields,
    }  # fmt: skip
    job = Job(
        number, has["user"], state, has["reason"], has["node_list"], "", has["restarts"], has["comment"],
        has["admin_comment"], has["exit_code"], has["exit_signal"], name, has["partition"],
        BEGAN - timedelta(hours=1), BEGAN, BEGAN + timedelta(hours=2),
    )  # fmt: skip
    listed = (has[each] for each in ("shown", "nodes", "gpus", "elapsed_s", "limit_s", "directory"))
    return jobs.row(Listed(job, *listed), facts)


LOW = "the accelerators of n4 were used 12 % of the last 40 min 0 s"
WAITS = {"node_list": "", "elapsed_s": None}
ROWS = [
    row(101, "RUNNING", facts=Facts(step=1200, of=5000, used=0.934), node_list="n[1-2]", nodes=2, gpus=8),
    row(102, "RUNNING", "train-a-very-large-model-with-a-long-name", Facts(step=7, used=0.12, low=LOW), restarts=2,
        node_list="n[4-7,9,12-13,15-19,24]", nodes=13, gpus=52, elapsed_s=200_000, limit_s=None),
    row(103, "RUNNING", "debug", Facts(held=True), node_list="n3"),
    row(104, "PENDING", reason="Priority", shown="104_[5-9%2]", **WAITS),
    row(105, "PENDING", reason="JobHeldUser", shown="105", **WAITS),
    row(106, "PENDING", reason="BeginTime", restarts=1, **WAITS),
    row(107, "COMPLETED", "pre\x1b[2Jpare", shown="104_3", elapsed_s=59),
    row(108, "FAILED", exit_code=7, elapsed_s=0),
    row(109, "CANCELLED", user="bob", exit_code=None, exit_signal=15, partition="debug"),
    row(110, "CANCELLED", admin_comment=NO_MORE, restarts=1, shown="110+1"),
    row(111, "TIMEOUT", gpus=0, elapsed_s=7200),
    row(112, "OUT_OF_MEMORY", comment=""),
]  # fmt: skip

TABLES = Path(__file__).parent


def test_a_wide_terminal() -> None:
    """All columns."""
    assert "\n".join(jobs.table(ROWS, width=200)) + "\n" == (TABLES / "jobs-200.txt").read_text()


def test_a_narrow_terminal() -> None:
    """Long names and node lists are cut, and the columns that say least are left out. No line is longer."""
    lines = jobs.table(ROWS, width=80)
    assert "\n".join(lines) + "\n" == (TABLES / "jobs-80.txt").read_text()
    assert max(map(len, lines)) <= 80


def test_no_terminal() -> None:
    """Nothing is cut: another program reads it."""
    lines = jobs.table(ROWS)
    assert lines[0].split() == list(jobs.SHOWN)
    assert "train-a-very-large-model-with-a-long-name" in lines[2]
    assert lines[2].endswith("n[4-7,9,12-13,15-19,24]")


def test_small_lists_keep_all_columns_in_a_narrow_terminal() -> None:
    """A column is left out only if there is no room for it."""
    (head, *_) = jobs.table([row(1, "PENDING", reason="Priority", **WAITS)], ("ID", "NAME", "PARTITION"), width=80)
    assert head.split() == ["ID", "NAME", "PARTITION"]


def test_a_very_narrow_terminal() -> None:
    """Columns that were asked for are never left out."""
    lines = jobs.table(ROWS[:1], ("ID", "USER", "DIRECTORY", "LIMIT"), width=20)
    assert lines == ["ID   USER  DIRECTORY       LIMIT", "101  ada   /home/ada/run  2h0min"]


def test_colours() -> None:
    """The word of the state has a colour, and a low utilisation; the head is bold."""
    head, *lines = jobs.table(ROWS, ("ID", "STATE", "GPU%"), on=True)
    assert head == "\x1b[1mID         \x1b[0m  \x1b[1mSTATE        \x1b[0m  \x1b[1mGPU%\x1b[0m"
    assert lines[0] == "101          \x1b[32mrunning R    \x1b[0m    93"
    assert lines[1] == "102          \x1b[32mrunning R    \x1b[0m  \x1b[33m 12!\x1b[0m"
    assert lines[7] == "108          \x1b[1;31merror F      \x1b[0m     -"


def test_notes() -> None:
    """A job with idle accelerators has a warning; of many, the first ones."""
    assert jobs.notes(ROWS) == [f"102: {LOW}; what helps: slurm-plugin why 102"]
    assert jobs.notes([ROWS[1]] * 5)[3:] == ["and 2 more jobs with a low GPU%"]


def test_times_are_in_the_readers_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or in another one."""
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    assert jobs.table(ROWS[:1], ("STARTS",), zone=UTC)[1] == "2026-11-23 10:00:00"


def test_form() -> None:
    """--json has every column with plain values."""
    found = jobs.form(ROWS[1])
    assert found == {
        "job": 102, "id": "102", "name": "train-a-very-large-model-with-a-long-name", "user": "ada",
        "partition": "main", "state": "running", "slurm_state": "RUNNING", "reason": "", "nodes": 13, "gpus": 52,
        "elapsed_s": 200_000, "limit_s": None, "restarts": 2, "step": 7, "of": None, "gpu_used": 0.12, "idle": True,
        "node_list": "n[4-7,9,12-13,15-19,24]", "exit_code": 0, "signal": None,
        "submitted": "2026-11-23T09:00:00+00:00", "starts": "2026-11-23T10:00:00+00:00",
        "ends": "2026-11-23T12:00:00+00:00", "directory": "/home/ada/run",
    }  # fmt: skip


def test_each_state_of_slurm_has_a_short_form() -> None:
    """An unknown state is shown as it is."""
    assert jobs.table([row(1, "UNKNOWN")], ("STATE",))[1] == "running UNKNOWN"
    assert len(set(jobs.CODES.values())) == len(jobs.CODES)


@pytest.mark.parametrize(
    ("keys", "ids"),
    [
        ("id", [101, 102, 103, 104]),
        ("-id", [104, 103, 102, 101]),
        ("-gpus,id", [102, 101, 103, 104]),
        ("elapsed,-id", [103, 101, 102, 104]),
        ("step", [102, 101, 103, 104]),
        ("state,-id", [104, 102, 101, 103]),
    ],
)
def test_ordered(keys: str, ids: list[int]) -> None:
    """By several columns. A job without a value comes last in both directions."""
    assert [each.listed.job.id for each in jobs.ordered(ROWS[:4], keys)] == ids


def test_columns() -> None:
    """Columns replace those of the list, or are added to them."""
    assert jobs.names("id,Name,gpu%,reason") == ("ID", "NAME", "GPU%", "NODELIST(REASON)")
    assert jobs.names("+exit,directory,id") == (*jobs.SHOWN, "EXIT", "DIRECTORY")
    with pytest.raises(UsageError, match=r"--format: found 'elasped'; did you mean elapsed\?\n  accepted: id, name"):
        jobs.names("id,elasped")


def test_states() -> None:
    """The words, Slurm's states, and their short forms."""
    assert jobs.states_of("running,PENDING,to, oom") == {"running", "PENDING", "TIMEOUT", "OUT_OF_MEMORY"}
    with pytest.raises(UsageError, match=r"--state: found 'eror'; did you mean error\?"):
        jobs.states_of("eror")


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        ({}, list(range(101, 113))),
        ({"partitions": ["debug"]}, [109]),
        ({"name": "train-*"}, [102]),
        ({"name": "*e*", "nodes": ["n3", "n9"]}, [103]),
        ({"nodes": ["n2", "n12"]}, [101, 102]),
    ],
)
def test_chosen(wanted: dict[str, object], ids: list[int]) -> None:
    """By partition, name and node."""
    found = jobs.chosen([each.listed for each in ROWS], **wanted)  # type: ignore[arg-type]
    if wanted.get("name") == "*e*":
        ids = [102, 103]
    assert [each.job.id for each in found] == ids


def test_words() -> None:
    """The rows above show every word."""
    assert {each.word for each in ROWS} == set(states.WORDS)
