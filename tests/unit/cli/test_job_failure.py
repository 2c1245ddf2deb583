"""`slurm-plugin diagnose JOB`: which logs are read, and what is known beside them."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.cli import diagnose
from slurm_plugin.cli.nodeside import job_lookup
from slurm_plugin.records import diagnoses, job_directory, log_files
from tests.fakes import FakeSlurm, away, job, node

AT, HOUR = datetime(2026, 3, 1, tzinfo=UTC), timedelta(hours=1)
LOG = """\
[slurm_plugin] attempt 0 of job 7 on n[1-2]
RuntimeError: CUDA error: uncorrectable ECC error encountered
[slurm_plugin] attempt 1 of job 7 on n[1-2]: restarted because x
[rank2]: Traceback (most recent call last):
[rank2]:   File "train.py", line 9, in step
[rank2]: KeyError: 'tokens'
"""
LINE: dict[str, Any] = {
    "restart": 0, "nodes": "n[1-2]", "slots": 2, "phase": "program", "code": 1, "verdicts": {}, "cause": "x",
    "start": "2026-03-01T00:00:00+00:00", "end": "2026-03-01T01:00:00+00:00", "action": "fail", "progress": False,
}  # fmt: skip


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeSlurm:
    """A door that knows job 7, which has made two attempts in the current directory."""
    fake = FakeSlurm([job(state="FAILED", nodes="n[1-2]", restarts=0)])
    fake.directories[7] = str(tmp_path)
    monkeypatch.setattr(job_lookup, "connect", lambda **_: fake)
    monkeypatch.chdir(tmp_path)
    own = job_directory.directory(tmp_path, 7)
    log_files.write_output(own, log_files.Output("train", str(tmp_path / "out"), "", "", "job"))
    (tmp_path / "out").write_text(LOG)
    job_directory.record(own, {**LINE, "n": 0, "action": "again"})
    job_directory.record(own, {**LINE, "n": 1})
    return fake


def told(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    """What `diagnose --json` says."""
    assert main(["diagnose", "--json", *words]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    """What `diagnose` says."""
    assert main(["diagnose", *words]) == code
    return capsys.readouterr().out


@pytest.mark.usefixtures("slurm")
def test_each_attempt_has_its_own_cause(capsys: pytest.CaptureFixture[str]) -> None:
    """The last one by default; the number of ranks on each node says where rank 2 ran."""
    last = told(capsys, "7")
    assert (last["class"], last["ranks"], last["of"], last["nodes"]) == ("user_code", [2], 4, {"n2": "clear"})
    assert (last["evidence"]["line"], last["place"]["line"]) == (6, 9)
    first = told(capsys, "7", "--attempt", "0")
    assert (first["class"], first["evidence"]["line"]) == ("gpu_hw", 2)


@pytest.mark.usefixtures("slurm")
def test_what_the_checks_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A lost node explains what the others complain of."""
    (tmp_path / "out").write_text("[rank0]: RuntimeError: Connection reset by peer\n")
    own = tmp_path / ".slurm_plugin/7"
    (own / job_directory.ATTEMPTS).unlink()
    job_directory.record(own, {**LINE, "n": 0, "verdicts": {"n2": "did not answer"}})
    found = told(capsys, "7")
    assert (found["class"], found["whose"], found["nodes"]) == ("node_down", "node", {"n2": "exclude"})


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (
            {"phase": None, "code": None, "cause": "n2 went down", "action": "requeue"},
            (0, "node_down", {"n2": "exclude"}),
        ),
        ({"phase": None, "code": None, "cause": "the node went down", "action": "requeue"}, (0, "node_down", {})),
        ({"code": 143, "cause": "the program ran into its time limit", "action": "requeue"}, (0, "time_limit", {})),
        ({"code": 137, "cause": "the program ran out of memory (signal 9)", "action": "again"}, (0, "host_oom", {})),
        ({"code": 143, "cause": "the program failed with signal 15"}, (2, "unknown", {})),
    ],
)
@pytest.mark.usefixtures("slurm")
def test_the_recorded_end_of_an_earlier_attempt(
    line: dict[str, Any], wanted: tuple[int, str, dict[str, str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Slurm's state is that of the last one; the record says how this one ended."""
    (tmp_path / "out").write_text(
        LOG.replace("RuntimeError: CUDA error: uncorrectable ECC error encountered", "step 1")
    )
    own = tmp_path / ".slurm_plugin/7"
    (own / job_directory.ATTEMPTS).unlink()
    job_directory.record(own, {**LINE, "n": 0, **line})
    job_directory.record(own, {**LINE, "n": 1})
    found = told(capsys, "7", "--attempt", "0", code=wanted[0])
    assert (found["class"], found["nodes"]) == wanted[1:]


@pytest.mark.parametrize(
    ("reason", "at", "wanted"),
    [
        ("slurm_plugin: gpu-check: failed: 3 of 4 GPUs", AT, ("gpu_hw", {"n2": "exclude"})),
        ("Not responding", AT, ("node_down", {"n2": "exclude"})),
        ("a fan", AT, ("rank_hang", {})),
        ("Not responding", AT - HOUR, ("rank_hang", {})),  # before the job
        ("Not responding", AT + 3 * HOUR, ("rank_hang", {})),  # after it
    ],
)
def test_a_node_that_was_drained_meanwhile(
    reason: str,
    at: datetime,
    wanted: tuple[str, dict[str, str]],
    slurm: FakeSlurm,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By Slurm, or by a check: it explains what the log only shows the consequences of."""
    (tmp_path / "out").write_text("[rank0]: Watchdog caught collective operation timeout\n")
    (tmp_path / ".slurm_plugin/7" / job_directory.ATTEMPTS).unlink()
    times = {"start_time": AT - HOUR / 2, "end_time": AT + HOUR}
    slurm.known_jobs[7] = job(nodes="n[1-2]", state="FAILED", restarts=0, exit_code=1, **times)
    slurm.known_nodes = {"n2": node("n2", "IDLE", "DRAIN", reason=reason, reason_time=at)}
    found = told(capsys, "7")
    assert (found["class"], found["nodes"]) == wanted


SIGNALLED = "torch.distributed.elastic.multiprocessing.api.SignalException: Process 26 got signal: 15\n"


@pytest.mark.parametrize(
    ("cause", "verdicts", "wanted"),
    [
        ("the program hung", {}, (0, "rank_hang", {})),
        ("the program was ended, and n2 gone", {"n2": "does not answer"}, (0, "node_down", {"n2": "exclude"})),
        ("the program was ended; its nodes are fine", {}, (2, "unknown", {})),
        ("the program failed with signal 15", {}, (0, "cancelled", {})),
    ],
)
@pytest.mark.usefixtures("slurm")
def test_a_program_that_the_supervisor_ended(
    cause: str,
    verdicts: dict[str, str],
    wanted: tuple[int, str, dict[str, str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its SIGTERM is in the log of torchrun; why it was sent is in the attempt's record."""
    (tmp_path / "out").write_text(SIGNALLED)
    own = tmp_path / ".slurm_plugin/7"
    (own / job_directory.ATTEMPTS).unlink()
    job_directory.record(own, {**LINE, "n": 0, "code": 143, "verdicts": verdicts, "cause": cause})
    found = told(capsys, "7", code=wanted[0])
    assert (found["class"], found["nodes"]) == wanted[1:]


@pytest.mark.parametrize(
    ("kernel", "wanted"),
    [
        ({"n2": "Out of memory: Killed process 9 (python)"}, (0, "host_oom")),
        ({"n2": 3}, (2, "unknown")),
        (7, (2, "unknown")),
    ],
)
@pytest.mark.usefixtures("slurm")
def test_what_a_kernel_said(
    kernel: object, wanted: tuple[int, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The supervisor has read it; its record has the line."""
    (tmp_path / "out").write_text("Killed\n")
    own = tmp_path / ".slurm_plugin/7"
    (own / job_directory.ATTEMPTS).unlink()
    job_directory.record(own, {**LINE, "n": 0})
    diagnoses.write(own, 0, {"kernel": kernel}, "")
    assert told(capsys, "7", code=wanted[0])["class"] == wanted[1]


def test_slurms_word(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A job that completed has not failed, whatever its log says; one that ran out of time has no other cause."""
    own = tmp_path / ".slurm_plugin/7"
    (own / job_directory.ATTEMPTS).unlink()
    job_directory.record(own, {**LINE, "n": 0, "code": 0, "action": "finish"})
    slurm.known_jobs[7] = job(state="COMPLETED", nodes="n[1-2]", restarts=0)
    assert told(capsys, "7", code=1)["class"] == "none"
    (tmp_path / "out").write_text("step 1\n")
    (own / job_directory.ATTEMPTS).unlink()
    slurm.known_jobs[7] = job(state="TIMEOUT", nodes="n[1-2]", restarts=0)
    assert told(capsys, "7")["class"] == "time_limit"


@pytest.mark.parametrize(
    ("log", "fields", "wanted", "beside"),
    [
        # A program that caught its exception.
        (LOG, {"state": "COMPLETED", "exit_code": 0}, (1, "none"), "Slurm's state of the job is COMPLETED"),
        ("step 1\n", {"state": "FAILED", "exit_code": 1}, (2, "unknown"), "the job failed with exit code 1"),
        ("step 1\n", {"state": "FAILED", "exit_signal": 9}, (2, "unknown"), "signal 9 (Killed) ended the job"),
        ("step 1\n", {"state": "FAILED", "exit_signal": 11}, (0, "segfault"), "signal 11 (Segmentation fault) ended "),
        ("KeyError: 'a'\n" + "bye\n" * 300, {"state": "FAILED", "exit_code": 1}, (0, "user_code"), ""),
        ("KeyError: 'a'\n" + "bye\n" * 300, {"state": "FAILED", "exit_signal": 9}, (2, "unknown"), "signal 9 "),
        ("step 1\n", {"state": "RUNNING", "exit_code": 0}, (1, "none"), ""),
    ],
)
def test_a_plain_job(
    log: str,
    fields: dict[str, Any],
    wanted: tuple[int, str],
    beside: str,
    slurm: FakeSlurm,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A job that slurm_plugin has no records of: its state and exit code are Slurm's."""
    (tmp_path / "out").write_text(log)
    (tmp_path / ".slurm_plugin/7" / job_directory.ATTEMPTS).unlink()
    slurm.known_jobs[7] = job(nodes="n[1-2]", restarts=0, **fields)
    found = told(capsys, "7", code=wanted[0])
    assert found["class"] == wanted[1]
    assert found["beside"].startswith(beside)
    text = said(capsys, "7", code=wanted[0])
    assert beside in text
    assert "in these logs" not in text or fields["state"] == "RUNNING"


def test_without_a_controller(
    slurm: FakeSlurm, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job's directory is enough."""
    for name in ("members", "config", "job"):
        monkeypatch.setattr(slurm, name, away)
    assert told(capsys, "7")["class"] == "user_code"
    assert main(["diagnose", "8"]) == 2
    assert "no slurmctld" in capsys.readouterr().err


@pytest.mark.parametrize("line", [{"slots": "x"}, {"slots": [1]}, {"slots": 10**9}, {"code": "y"}, {"verdicts": 3}])
@pytest.mark.usefixtures("slurm")
def test_records_of_any_content(line: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The job's user may write anything there: it is not used."""
    job_directory.record(tmp_path / ".slurm_plugin/7", {**LINE, "n": 1, **line})
    assert told(capsys, "7")["class"] == "user_code"


@pytest.mark.parametrize(
    ("fields", "reason", "wanted"),
    [
        # Slurm drained its node at that moment: the prolog.
        ({"state": "FAILED", "nodes": "n2", "end_time": AT}, "Prolog error", (0, "launcher_config", {"n2": "exclude"})),
        ({"state": "FAILED", "nodes": "n2", "end_time": AT}, "a fan", (2, "unknown", {})),
        ({"state": "FAILED", "nodes": "n2", "end_time": AT + HOUR}, "Prolog error", (2, "unknown", {})),
        ({"reason": "launch failed requeued held"}, "", (0, "launcher_config", {})),
        ({"reason": "BeginTime", "submit_time": AT}, "Prolog error", (0, "launcher_config", {"n2": "exclude"})),
        ({"state": "TIMEOUT", "nodes": "n2"}, "", (0, "time_limit", {})),
        ({"state": "COMPLETED", "nodes": "n2"}, "", (1, "none", {})),
    ],
)
def test_a_job_without_a_log(
    fields: dict[str, Any],
    reason: str,
    wanted: tuple[int, str, dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Slurm's state and reason are all that is known; the cause is a node that it drained for a prolog just then."""
    fake = FakeSlurm([job(**fields)], [node("n2", "IDLE", "DRAIN", reason=reason, reason_time=AT)])
    fake.outputs[7] = str(tmp_path / "out")
    monkeypatch.setattr(job_lookup, "connect", lambda **_: fake)
    code, failure, nodes = wanted
    found = told(capsys, "7", code=code)
    assert (found["class"], found["nodes"]) == (failure, nodes)
    if failure != "none":
        assert fields.get("state", fields.get("reason", "")) in found["beside"]


def test_a_job_that_waits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It has no log yet; the message says for what it waits."""
    fake = FakeSlurm([job(reason="Resources", restarts=0)])
    fake.outputs[7] = str(tmp_path / "out")
    monkeypatch.setattr(job_lookup, "connect", lambda **_: fake)
    assert main(["diagnose", "7"]) == 2
    assert "the job is PENDING (Resources)" in capsys.readouterr().err


@pytest.mark.parametrize("log", ["removed", "a directory"])
@pytest.mark.usefixtures("slurm")
def test_a_log_that_cannot_be_read(log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The attempt's record has its exit code and what the checks found; the log is named."""
    (tmp_path / "out").unlink()
    if log == "a directory":
        (tmp_path / "out").mkdir()
    found = told(capsys, "7", code=2)
    assert (found["class"], found["beside"]) == ("unknown", "the job failed with exit code 1")
    assert [each.partition(": ")[0] for each in found["unread"]] == [str(tmp_path / "out")]
    job_directory.record(tmp_path / ".slurm_plugin/7", {**LINE, "n": 2, "verdicts": {"n2": "did not answer"}})
    assert told(capsys, "7")["class"] == "node_down"


@pytest.mark.usefixtures("slurm")
def test_a_job_that_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    """Whether it failed cannot be told; the message says what to try."""
    assert main(["diagnose", "99999"]) == 2
    assert "slurm-plugin" in capsys.readouterr().err


@pytest.mark.usefixtures("slurm")
def test_progress(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A large log of a job shows how far the reading is, on a terminal."""
    monkeypatch.setattr(diagnose, "LARGE", 1)
    monkeypatch.setattr(os, "isatty", lambda _: True)
    assert main(["diagnose", "7"]) == 0
    assert "reading: 100 % of 0 MB" in capsys.readouterr().err
