"""Mirrors slurm_plugin/cli/specs.py and submit.py: the commands as a user types them, with a fake Slurm."""

import io
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from slurm_plugin.__main__ import main
from slurm_plugin.cli import job_wait, specs, submit
from slurm_plugin.records import history, token
from slurm_plugin.records.grant import Grant, written
from slurm_plugin.records.progress_file import Point
from slurm_plugin.slurm import Job, JobNotFoundError, Listed, Request, SlurmError, Submitted
from slurm_plugin.slurm.resources import Reservation
from slurm_plugin.views.follow import Look
from tests import fakes
from tests.fake_slurm import FakeClock, FakeSlurm

SPEC = "name: a\nmode: openmpi\ncommand: ./a.out\n"
DONE = Job(17, "ada", "COMPLETED", "", "n1", "", 0, "", "", exit_code=0)


@pytest.fixture
def job_file(home: Path) -> Path:
    """Write a small spec."""
    path = home / "job.yaml"
    path.write_text(SPEC)
    return path


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """Return a door whose job has ended as COMPLETED."""
    fake = FakeSlurm(DONE)
    for module in (specs, submit, job_wait):
        monkeypatch.setattr(module, "connect", lambda **_: fake)
    return fake


def test_render_prints_the_script_and_submit_the_same_with_dry_run(
    job_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is submitted, and nothing else is printed."""
    assert main(["render", str(job_file)]) == 0
    script = capsys.readouterr().out
    assert script.startswith("#!/bin/bash\n#SBATCH --job-name=a\n")
    assert main(["submit", "--dry-run", str(job_file)]) == 0
    assert capsys.readouterr() == (script, "")
    assert main(["submit", "--dry-run", "--json", str(job_file)]) == 0
    assert json.loads(capsys.readouterr().out) == {"scripts": [script]}


def test_submit_prints_the_job_id(job_file: Path, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """sbatch gets exactly what render prints."""
    assert main(["submit", str(job_file)]) == 0
    assert capsys.readouterr() == ("17\n", "")
    main(["render", str(job_file)])
    assert slurm.submitted[0][0] == capsys.readouterr().out


@pytest.mark.parametrize(("state", "code"), [("COMPLETED", 0), ("CANCELLED", 1)])
def test_wait_tells_the_end_by_its_exit_code(
    state: str,
    code: int,
    job_file: Path,
    slurm: FakeSlurm,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Progress goes to stderr, JSON to stdout. Without a terminal no escape sequence is written."""
    monkeypatch.setattr(job_wait, "time", FakeClock())
    slurm.answers = [DONE._replace(state=state)]
    assert main(["submit", "--wait", "--json", str(job_file)]) == code
    out, err = capsys.readouterr()
    assert [json.loads(line) for line in out.splitlines()] == [
        {"job": 17},
        {"job": 17, "state": state, "exit_code": 0, "signal": None, "restarts": 0},
    ]
    then = (
        "  it ended: somebody cancelled it: its owner, an administrator, or Slurm after a failed prolog\n"
        f"  it has no output: there is no {job_file.parent}/a-17.out\n  how it goes, and why: slurm-plugin why 17\n"
    )
    assert err == f"job 17: {state}\n{then if code else ''}"


def test_wait_lets_a_job_start_sooner_where_no_site_does(
    slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once each restart, 2 s after COMPLETING: before, its nodes refuse it. A job with a grant is left alone."""
    clock = FakeClock()
    monkeypatch.setattr(job_wait, "time", clock)
    slurm.known_jobs[17] = DONE
    waits = DONE._replace(state="PENDING", reason="BeginTime", restarts=1, comment=str(token.Token(2)))
    sooner = job_wait._Sooner(slurm)
    given = waits._replace(admin_comment=written("", Grant(2)))
    for job in (given, None, waits._replace(restarts=0), waits._replace(reason="Resources")):
        for _ in range(5):
            sooner.look(job)
            clock.sleep(1)
    assert slurm.changes == []
    for restarts in (1, 2):
        for _ in range(5):
            sooner.look(waits._replace(restarts=restarts))
            clock.sleep(1)
        assert slurm.changes == [("update_job", 17, {"StartTime": "now"})] * restarts
    slurm.refusals["update_job", 17] = 1
    for _ in range(4):
        sooner.look(waits._replace(restarts=3))
        clock.sleep(1)
    assert "job 17: it waits for its start time: " in capsys.readouterr().err


def test_wait_for_a_job_on_another_cluster(
    job_file: Path, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That cluster is asked, never the local job with the same id. Commands to try name the cluster."""
    monkeypatch.setattr(job_wait, "time", FakeClock())
    slurm.made, slurm.answers = Submitted(17, "beta"), [SlurmError("asked here")]
    there = slurm.clusters["beta"] = FakeSlurm(DONE)
    there.known_jobs[17] = DONE
    assert main(["submit", "--wait", str(job_file)]) == 0
    assert capsys.readouterr() == ("17;beta\n", "job 17: COMPLETED\n")
    there.answers = [DONE._replace(state="FAILED")]
    assert main(["submit", "--wait", "--json", str(job_file)]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out.splitlines()[0]) == {"job": 17, "cluster": "beta"}
    assert err.splitlines()[-1] == "  how it goes, and why: squeue --clusters=beta --jobs=17"
    there.refusals["jobs", None] = 1
    assert main(["submit", "--wait", str(job_file)]) == 1
    assert capsys.readouterr().err == (
        "slurm-plugin: --wait cannot follow 17;beta on cluster beta: jobs was refused\n"
        "  it goes on; follow it on a machine of that cluster, or cancel it: scancel --clusters=beta 17\n"
    )


def test_wait_for_a_job_that_waits_for_a_reservation(
    job_file: Path, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named once, with the time limit that would fit."""
    monkeypatch.setattr(job_wait, "time", FakeClock())
    begins = datetime.now(UTC) + timedelta(hours=1)
    slurm.reserved = [Reservation("m", begins, begins + timedelta(hours=2), frozenset({"n1"}))]
    slurm.known_nodes = {"n1": fakes.node("n1", partitions=("main",))}
    waits = DONE._replace(
        state="PENDING", reason="ReqNodeNotAvail, Reserved for maintenance", partition="main", nodes=""
    )
    slurm.known_jobs[17] = waits
    monkeypatch.setattr(slurm, "request", lambda _: Request("main", nodes=1))
    slurm.answers = [waits, waits, waits, DONE]
    assert main(["submit", "--wait", str(job_file)]) == 0
    first, says, last = capsys.readouterr().err.splitlines()
    assert (first, last) == ("job 17: PENDING (ReqNodeNotAvail, Reserved for maintenance)", "job 17: COMPLETED")
    assert says.startswith("job 17: it has no time limit, and reaches into the reservation m, from ")
    assert says.endswith("; with `time: 55m` it could start now; see: scontrol show reservation")


FORGOTTEN = "as recorded: Slurm has forgotten it"
# What the last line of attempts.jsonl says, and slurmdbd -> the exit code, the state, and the first words.
ENDS: list[tuple[dict[str, object] | None, str, int, str, str]] = [
    ({"action": "finish", "code": 0}, "", 0, "COMPLETED", f"COMPLETED, {FORGOTTEN}"),
    (
        {"action": "finish", "code": 0, "cause": history.TOLD_TO_END},
        "",
        1,
        "UNKNOWN",
        "Slurm has forgotten it: it has ended, how is not known",
    ),
    ({"action": "fail", "code": 3}, "", 1, "FAILED", f"FAILED with exit code 3, {FORGOTTEN}"),
    ({"action": "requeue", "code": 3}, "", 1, "UNKNOWN", "Slurm has forgotten it: it has ended, how is not known"),
    ({"action": "finish", "code": "x"}, "", 1, "UNKNOWN", "Slurm has forgotten it: it has ended, how is not known"),
    (None, "", 1, "UNKNOWN", "Slurm has forgotten it: it has ended, how is not known"),
    (None, "COMPLETED", 0, "COMPLETED", f"COMPLETED, {FORGOTTEN}"),
    ({"action": "finish", "code": 0}, "TIMEOUT", 1, "TIMEOUT", f"TIMEOUT, {FORGOTTEN}"),
]


@pytest.mark.parametrize(("line", "accounted", "code", "state", "words"), ENDS)
def test_wait_for_a_job_that_slurm_has_forgotten(
    line: dict[str, object] | None,
    accounted: str,
    code: int,
    state: str,
    words: str,
    job_file: Path,
    slurm: FakeSlurm,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """slurmdbd, or else the history beside the job, says how it ended: also if Slurm never named its directory."""
    monkeypatch.setattr(job_wait, "time", FakeClock())
    slurm.answers = [JobNotFoundError("Slurm does not know job 17")]
    if accounted:
        slurm.accounted = [Listed(DONE._replace(state=accounted, end_time=datetime.now(UTC)), "17")]
    if line:
        own = job_file.parent / ".slurm_plugin/17"
        own.mkdir(parents=True)
        (own / "attempts.jsonl").write_text(json.dumps(line) + "\n")
    assert main(["submit", "--wait", "--json", str(job_file)]) == code
    out, err = capsys.readouterr()
    assert json.loads(out.splitlines()[1])["state"] == state
    assert err.splitlines()[0] == f"job 17: {words}"


def test_a_wrong_spec_is_wrong_usage(job_file: Path, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, all problems on stderr, and nothing is submitted."""
    job_file.write_text(SPEC + "retires: 3\n")
    assert main(["submit", str(job_file)]) == 2
    assert capsys.readouterr().err.startswith(f"slurm-plugin: {job_file}: 1 problem, nothing was submitted\n")
    assert not slurm.submitted


def test_a_batch_script_is_no_spec(job_file: Path, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """The message names the command for batch scripts."""
    job_file.write_text("#!/bin/bash\n#SBATCH -N1\ntrue\n")
    assert main(["submit", str(job_file)]) == 2
    said = f"slurm-plugin: {job_file}: this is a batch script\n  run: slurm-plugin sbatch {job_file}\n"
    assert capsys.readouterr().err == said
    assert not slurm.submitted


def test_a_missing_spec_is_wrong_usage(job_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The message has the file and the reason."""
    assert main(["render", "none.yaml"]) == 2
    assert capsys.readouterr().err == (
        "slurm-plugin: none.yaml: No such file or directory\n  begin with: slurm-plugin example\n"
    )


def test_ctrl_c_leaves_the_job_running(job_file: Path, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """The message has the command that cancels it."""
    slurm.answers = [KeyboardInterrupt()]
    assert main(["submit", "--wait", str(job_file)]) == 130
    assert capsys.readouterr() == ("17\n", "job 17 goes on; cancel it with: scancel 17\n")


def test_a_terminal_gets_a_status_line_and_the_changes() -> None:
    """With NO_COLOR there are no colours."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, no_color=True, width=80)
    points = [Point(1000.0 + number, 0, 1200 + number, 2400) for number in range(2)]
    with job_wait.progress(console, 17, lambda: points) as show:
        show(Look(DONE._replace(state="RUNNING", restarts=1), ("RUNNING on n1",)))
    assert "job 17: RUNNING on n1\n" in out.getvalue()
    assert "RUNNING, restart 1\x1b[0m 0:00:00 [##..] 1201/2400, 50%, 19 min 59 s left" in out.getvalue()


def test_flags_that_are_passed_through_are_asked_of_sbatch(
    job_file: Path, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    """This machine's sbatch is queried. Without an answer a script can be rendered, but not submitted."""
    job_file.write_text(SPEC + "sbatch: {contigous: yes}\n")
    for command in (["submit"], ["render"], ["submit", "--dry-run"]):
        assert main([*command, str(job_file)]) == 2
        assert "sbatch.contigous: this machine's sbatch has no --contigous; did you mean" in capsys.readouterr().err
    slurm.refusals["sbatch_flags", None] = 9
    assert main(["render", str(job_file)]) == 0
    assert "#SBATCH --contigous\n" in capsys.readouterr().out
    assert main(["submit", str(job_file)]) == 1
    assert not slurm.submitted


def test_a_container_of_pyxis_needs_an_srun_that_has_it(
    job_file: Path, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is checked before the submission. The site gives the runtime if the image does not."""
    with (job_file.parent / "site.yaml").open("a") as site:
        site.write("container: {runtime: pyxis}\n")
    job_file.write_text(f"{SPEC}container: {{image: 'python:3.12'}}\nlaunch: task\n")
    srun = job_file.parent / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text("#!/bin/sh\necho '      --account=name'\n")
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{srun.parent}:{os.environ['PATH']}")
    assert main(["submit", str(job_file)]) == 3
    assert "runtime pyxis: this machine's srun has no --container-image; see: srun --help" in capsys.readouterr().err
    assert not slurm.submitted
    srun.write_text("#!/bin/sh\necho '      --container-image=IMAGE'\n")
    assert main(["submit", str(job_file)]) == 0
    assert '"runtime": "pyxis"' in slurm.submitted[0][0]


def test_a_spec_extends_what_the_site_has(job_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A spec extends a preset of the site file."""
    with (job_file.parent / "site.yaml").open("a") as site:
        site.write("presets:\n  short: {time: 5m, partition: debug}\n")
    job_file.write_text(f"{SPEC}extends: short\n")
    assert main(["render", str(job_file)]) == 0
    assert "#SBATCH --partition=debug\n#SBATCH --time=00:05:00\n" in capsys.readouterr().out


def test_an_array_is_submitted_and_not_followed(
    job_file: Path, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    """--wait returns the end of one job, so with an array it is refused before the submission."""
    job_file.write_text(SPEC + "array: 0-3%2\n")
    assert main(["submit", "--wait", str(job_file)]) == 2
    assert "found an array; one job can be followed" in capsys.readouterr().err
    assert not slurm.submitted
    assert main(["submit", str(job_file)]) == 0
