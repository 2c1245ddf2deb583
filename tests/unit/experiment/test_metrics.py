"""Reading what a program reports: hostile lines, files that change, and values in a log."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.experiment import log_values, metrics
from slurm_plugin.experiment.metrics import LOG, METRICS, Metrics
from slurm_plugin.records.experiments import Algorithm, Metric, Search


def search(**fields: Any) -> Search:
    """Return a search for `loss`."""
    return Search(Metric("loss", regex=fields.pop("regex", "")), {}, (Algorithm("random"),), **fields)


def read(directory: Path, text: bytes, name: str = METRICS, **fields: Any) -> list[dict[str, Any]]:
    """Return the events of a file with this text, without the places in it."""
    (directory / name).write_bytes(text)
    found = Metrics(directory, search(**fields), iter(())).new(last=True)
    return [{key: value for key, value in each.items() if key != "read"} for each in found]


def report(time: float, value: float | None) -> dict[str, Any]:
    """Return the event of a validation."""
    return {"e": "report", "time": float(time), "value": value}


LINES: list[tuple[dict[str, Any], dict[str, Any] | None]] = [
    ({"kind": "validation", "step": 3, "metrics": {"loss": 0.5}}, report(3, 0.5)),
    ({"kind": "validation", "step": 3, "batches": 30, "metrics": {"loss": 1}}, report(30, 1.0)),
    ({"loss": 0.5, "step": 7}, report(7, 0.5)),
    ({"loss": 0.5}, report(1, 0.5)),
    ({"loss": None, "step": 2}, report(2, None)),
    ({"loss": float("nan"), "step": 2}, report(2, None)),
    ({"loss": float("-inf"), "step": 2}, report(2, None)),
    ({"loss": 10**400, "step": 2}, report(2, None)),
    ({"loss": 0.5, "step": float("inf")}, report(1, 0.5)),
    ({"loss": 0.5, "step": "3"}, report(1, 0.5)),
    ({"loss": "0.5", "step": 2}, None),
    ({"loss": True, "step": 2}, None),
    ({"accuracy": 0.5, "step": 2}, None),
    ({"kind": "training", "step": 3, "metrics": {"loss": 0.5}}, None),
    ({"kind": "validation", "metrics": 5, "loss": 0.5}, report(1, 0.5)),
    ({"kind": "checkpoint", "name": "step-3", "step": 3}, {"e": "checkpoint", "name": "step-3", "time": 3.0}),
    *(({"kind": "checkpoint", "name": name}, None) for name in ("", ".", "..", "../a", "a/b", ".x", "a\nb", 3, None)),
    ({"kind": "checkpoint", "name": "ä" * 200}, None),
    ({"kind": "invalid_hp", "why": "no"}, {"e": "invalid", "why": "no"}),
    ({"kind": "start", "api": 1}, {"e": "start"}),
    ({"kind": "start", "api": 2}, None),
    ({"kind": ["validation"], "loss": 1}, None),
]


@pytest.mark.parametrize(("line", "event"), LINES)
def test_a_line(tmp_path: Path, line: dict[str, Any], event: dict[str, Any] | None) -> None:
    """A validation with a number, a checkpoint with a name, and what the script API says."""
    assert read(tmp_path, json.dumps(line).encode(), unit="batches") == ([event] if event else [])


def test_a_time_metric(tmp_path: Path) -> None:
    """The unit may be a reported metric. Without it the step counts."""
    lines = [{"step": 1, "metrics": {"loss": 0.5, "flops": 7}}, {"step": 2, "metrics": {"loss": 0.5}}]
    text = "\n".join(map(json.dumps, lines)).encode()
    assert read(tmp_path, text, unit="flops") == [report(7, 0.5), report(2, 0.5)]


def test_values_in_a_log(tmp_path: Path) -> None:
    """Each line with a number is a validation; of a progress bar the last one. slurm_plugin's lines are none."""
    text = b"loss=0.5\n[slurm_plugin] loss=9\nloss=x loss=0.4\rloss=0.3\nloss=nan\xff\nno\nloss=1e-2"
    expected = [report(1, 0.5), report(2, 0.3), report(3, None), report(4, 0.01)]
    assert read(tmp_path, text, LOG, regex=r"loss=(\S+?)(?:\s|$)")[:2] == expected[:2]
    assert read(tmp_path, text, LOG, regex=r"loss=([\w.-]+)") == expected
    assert read(tmp_path, text, LOG, regex="loss") == []


def test_a_long_progress_bar(tmp_path: Path) -> None:
    """It is searched in pieces, each at its end, so that an expression with quadratic time is fast enough."""
    bar = b"\r".join(b"%d%%|####      | 12/100 [00:01<00:09, 9.5it/s]" % n for n in range(1400))
    text = bar + b"\rloss=0.4\r" + b"x" * 9000 + b"\n" + b"y" * 9000 + b" loss=0.3\nloss=7 " + b"z" * 5000
    assert read(tmp_path, text, LOG, regex=r".*loss=(\S+)") == [report(1, 0.4), report(2, 0.3)]


def test_an_expression_that_takes_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is switched off, with one line in the task's log. Signals are handled meanwhile."""
    monkeypatch.setattr(log_values, "SEARCH_S", 1.0)
    alarms: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _frame: alarms.append(number))
    signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)
    said: list[str] = []
    try:
        (tmp_path / LOG).write_bytes(b"a" * 60 + b"\nloss=0.5\n")
        file = Metrics(tmp_path, search(regex="(a+)+b|loss=(.*)"), iter(()), said.append)
        assert file.new(last=True) == []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(alarms) > 1
    with (tmp_path / LOG).open("a") as log:
        log.write("loss=0.4\n")
    assert file.new(last=True) == []
    (line,) = said
    assert line.startswith("the metric's regex is switched off for this trial: it took more than 1 s for 1 KiB;")


def test_a_search_that_is_killed_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm may signal all processes of a step."""
    flag = tmp_path / "killed"
    child = f"import os\nif not os.path.exists({str(flag)!r}): open({str(flag)!r}, 'w'); os.kill(os.getpid(), 15)\n"
    monkeypatch.setattr(log_values, "_CHILD", child + log_values._CHILD)
    assert read(tmp_path, b"loss=0.5\n", LOG, regex=r"loss=(\S+)") == [report(1, 0.5)]
    assert flag.exists()


def test_only_what_is_new(tmp_path: Path) -> None:
    """A line counts when it is complete. A file that is replaced or cut is read from its beginning."""
    path, line = tmp_path / METRICS, json.dumps({"loss": 0.5, "step": 1}).encode()
    file = Metrics(tmp_path, search(), iter(()))
    assert file.new() == []
    path.write_bytes(line[:5])
    assert file.new() == []
    path.write_bytes(line + b"\n" + line)
    assert len(file.new()) == 1
    assert file.new() == []
    assert len(file.new(last=True)) == 1
    path.write_bytes(line + b"\n")  # shorter
    assert len(file.new()) == 1
    other = tmp_path / "other"
    other.write_bytes(line + b"\n" + line + b"\n" + line + b"\n")
    other.replace(path)
    assert len(file.new()) == 3
    path.unlink()
    path.symlink_to("/dev/zero")
    assert file.new() == []


def test_a_later_run_goes_on_where_the_first_one_ended(tmp_path: Path) -> None:
    """Without a step, it counts on, too."""
    text = b'{"loss": 0.5}\n{"loss": 0.4}\n'
    (tmp_path / METRICS).write_bytes(text)
    first = Metrics(tmp_path, search(), iter(())).new()
    (tmp_path / METRICS).write_bytes(text + b'{"loss": 0.3}\n')
    second = Metrics(tmp_path, search(), iter([*first, {"e": "report", "read": ["odd", "x"], "time": "x"}])).new()
    assert [(each["time"], each["value"]) for each in second] == [(3.0, 0.3)]


def test_long_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of 64 MB is skipped, in pieces, and the next one counts."""
    path = tmp_path / METRICS
    path.write_bytes(b'{"loss": 0.1, "x": "' + b"x" * (64 << 20) + b'"}\n{"loss": 0.5}\n')
    file = Metrics(tmp_path, search(), iter(()))
    monkeypatch.setattr(metrics, "MOST_BYTES", 10 << 20)
    found = file.new()
    assert not file.at_end
    while not file.at_end:
        found += file.new()
    assert [each["value"] for each in found] == [0.5]


@given(st.binary(max_size=400), st.integers(1, 50))
def test_no_bytes_break_it(tmp_path_factory: pytest.TempPathFactory, text: bytes, step: int) -> None:
    """And a line after them counts."""
    directory = tmp_path_factory.mktemp("bytes")
    found = read(directory, text + b'\n{"loss": 0.25, "step": %d}\n' % step)
    assert found[-1] == report(step, 0.25)
