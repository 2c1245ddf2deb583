"""`slurm-plugin report`: what is read, and what is written."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.cli.nodeside import job_lookup
from slurm_plugin.records import diagnoses, job_directory, log_files, node_drains, progress_file, usage
from slurm_plugin.records.progress_file import Point
from slurm_plugin.slurm import SlurmAwayError
from slurm_plugin.supervisor import hold
from tests import reports
from tests.elements import Elements
from tests.fakes import FakeSlurm, node
from tests.reports import BEGAN, DIAGNOSIS, ended

FAULT = "gpu-check: 1 of 2 GPUs"
LOG = """\
[slurm_plugin] attempt 0 of job 17 on n[1-4]
[slurm_plugin] dns: ok on n[1-4]
step 22
RuntimeError: CUDA error: device lost
[slurm_plugin] n2 gpu-check: failed: 1 of 2 GPUs
[slurm_plugin] attempt 1 of job 17 on n[1,3-5]: restarted because x
step 60
"""


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeSlurm:
    """Return a Slurm that knows job 17, whose records are in the current directory, and node n2, which is out."""
    drained = reports.moment(BEGAN + 12)
    out = node("n2", "IDLE", "DRAIN", reason=f"slurm_plugin: {FAULT} [job 17]", reason_time=drained)
    past = node_drains.with_drain("", ["gpu-check"], (drained - timedelta(seconds=1)).timestamp())
    past = node_drains.with_resume(node_drains.with_drain(past, ["dns"], BEGAN + 15), BEGAN + 20)
    fake = FakeSlurm([ended()], [out._replace(comment=past), node("n1")])
    fake.directories[17] = str(tmp_path)
    monkeypatch.setattr(job_lookup, "connect", lambda **_: fake)
    monkeypatch.chdir(tmp_path)
    own = job_directory.directory(tmp_path, 17)
    log_files.write_output(own, log_files.Output("demo", str(tmp_path / "out"), "", "", "job"))
    (tmp_path / "out").write_text(LOG)
    demo = reports.demo()
    for line in demo.attempts:
        job_directory.record(own, {name: each for name, each in line.items() if name != "diagnosis"})
    evidence = {**DIAGNOSIS["evidence"], "file": str(tmp_path / "out"), "byte": LOG.index("RuntimeError")}
    diagnoses.write(own, 0, {**DIAGNOSIS, "evidence": evidence}, "")
    usage.write(own / usage.FILE, demo.samples, 4)
    progress_file.write(own / progress_file.FILE, [Point(BEGAN + 6, 0, 24), Point(BEGAN + 16, 1, 21)])
    return fake


def form(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    """Return what --json prints."""
    assert main(["report", "--json", *words]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.usefixtures("slurm")
def test_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It has the verdict, drains, checks, the lines of the log around the evidence, and the commands of `why`."""
    assert main(["report", "17", "--utc"]) == 0
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.startswith(f"written: {tmp_path / 'job-17.html'} (")
    assert last == "  It succeeded after 23 s."
    text = (tmp_path / "job-17.html").read_text()
    for part in (
        "It was restarted once, because the program failed with exit code 1, and n2 gpu-check: 1 of 2 GPUs.",
        "The program ran again after 8 s, and made 4 steps twice.",
        "step 22\n<mark>RuntimeError: CUDA error: device lost</mark>\n[slurm_plugin] n2",
        "passed on n[1-4]: dns",
        "<li>n2 gpu-check: failed: 1 of 2 GPUs",
        "2026-05-28 20:26:52<td>slurm_plugin drains the node<td>n2<td>gpu-check: 1 of 2 GPUs",
        "2026-05-28 20:26:55<td>slurm_plugin drains the node<td>n2<td>dns",
        "Accelerators in use, %",
        "<code>slurm-plugin why n2</code>",
    ):
        assert part in text, part
    assert text.count("slurm_plugin drains the node<td>") == 2
    assert Elements(text).tags.count("figure") == 9


def test_a_hold_whose_cause_is_no_text(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The job's user may write anything into its records: another one's terminal does not get it."""
    slurm.known_jobs[17] = ended(state="RUNNING", restarts=0)
    noted = {"restart": 0, "state": "held", "until": "2026-11-21T12:00:00+00:00", "cause": "a\ud800\x1b[2Jb"}
    (job_directory.directory(tmp_path, 17) / hold.STATE).write_text(json.dumps(noted))
    assert main(["report", "17"]) == 0
    assert "a??[2Jb" in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.usefixtures("slurm")
def test_json_and_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both go to a file or to stdout."""
    found = form(capsys, "17")
    assert (found["v"], found["job"], found["state"]) == (1, 17, "succeeded")
    assert main(["report", "17", "--trace"]) == 0
    assert "open it in https://ui.perfetto.dev" in capsys.readouterr().out
    assert json.loads((tmp_path / "job-17.trace.json").read_text())["otherData"] == {"job": 17, "state": "succeeded"}
    assert main(["report", "17", "-o", "-"]) == 0
    assert capsys.readouterr().out.startswith("<!doctype html>")
    assert main(["report", "17", "--json", "-o", "x.json"]) == 0
    assert json.loads((tmp_path / "x.json").read_text()) == found


def test_several_jobs(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A page for each, and with --json a line for each."""
    slurm.known_jobs[18] = ended(18, state="PENDING", nodes="", restarts=0)
    slurm.directories[18] = str(tmp_path)
    assert main(["report", "17", "18"]) == 0
    assert {each.name for each in tmp_path.glob("*.html")} == {"job-17.html", "job-18.html"}
    capsys.readouterr()
    assert main(["report", "17", "18", "--json"]) == 0
    assert [json.loads(line)["job"] for line in capsys.readouterr().out.splitlines()] == [17, 18]


def test_without_slurm(slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The records are enough, of a job that Slurm has forgotten and without a controller, which is asked once."""
    del slurm.known_jobs[17]
    assert form(capsys, "17")["state"] == "succeeded"
    asked = []

    def away(*_: object) -> None:
        asked.append(1)
        raise SlurmAwayError("no slurmctld")

    for name in ("members", "config", "job", "nodes"):
        monkeypatch.setattr(slurm, name, away)
    assert form(capsys, "17")["state"] == "succeeded"
    assert len(asked) == 1
    assert main(["report", "99"]) == 2
    assert "no slurmctld" in capsys.readouterr().err


def test_records_that_cannot_be_read(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The report says so, of a job that has begun."""
    slurm.known_jobs[18] = ended(18, state="RUNNING", restarts=0, start_time=reports.moment(BEGAN))
    slurm.known_jobs[19] = ended(19, state="PENDING", nodes="", restarts=0)
    slurm.directories |= {18: str(tmp_path), 19: str(tmp_path)}
    assert form(capsys, "18")["note"] == (
        f"No records of it can be read in {tmp_path}/.slurm_plugin/18: this is what Slurm says."
    )
    assert form(capsys, "17")["note"] == form(capsys, "19")["note"] is None


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ([], 2, "found no job"),
        (["x"], 2, "'x' is no job"),
        (["17", "17", "-o", "x"], 2, "--output names one file for 2 jobs"),
        (["17", "--json", "--trace"], 2, "a report has one form"),
        (["17", "-o", "/nonexistent/x"], 1, "name a place where you may write"),
        (["99"], 1, "nothing is known of job 99"),
        (["40"], 2, "accepted are its tasks, each with its own report: 40_1 40_2"),
    ],
)
def test_errors(slurm: FakeSlurm, words: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each says what was found and what is accepted."""
    slurm.names = {"40_1": 41, "40_2": 40}
    assert main(["report", *words]) == code
    assert says in capsys.readouterr().err
