"""`slurm-plugin open` as a user types it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.cli import open_new
from slurm_plugin.cli.nodeside import job_lookup
from slurm_plugin.records import job_directory, launch_record, open_program
from slurm_plugin.records.open_program import OpenProgram
from slurm_plugin.slurm import steps
from tests.fakes import BecameError, FakeSlurm, become, job
from tests.unit.supervisor.test_enter import LAUNCH

LINK = "/run/7.0.0/user"


class Steps:
    """Steps of srun in memory: what was started, and what the next one prints."""

    def __init__(self) -> None:
        self.started: list[list[str]] = []
        self.prints = ""

    def in_background(self, argv: list[str], answer: Callable[[str], Any], deadline_s: float) -> tuple[Any, str]:
        self.started.append(argv)
        return answer(self.prints), self.prints


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """Return a Slurm without jobs."""
    fake = FakeSlurm()
    monkeypatch.setattr(job_lookup, "connect", lambda **_: fake)
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.9 40000 192.0.2.5 22")
    return fake


@pytest.fixture
def step(monkeypatch: pytest.MonkeyPatch) -> Steps:
    """Return the steps that the command starts."""
    fake = Steps()
    monkeypatch.setattr(steps, "in_background", fake.in_background)
    monkeypatch.setattr(steps, "become", become)
    return fake


def runs(door: FakeSlurm, workdir: Path, number: int = 7, *, state: str = "RUNNING", **changes: Any) -> Path:
    """Add a job with a launch record. Return its directory."""
    door.known_jobs[number] = job(number, state=state, reason="", nodes="n[1-2]", restarts=0, name="sizes")
    door.directories[number] = str(workdir)
    own = job_directory.directory(workdir, number)
    launch = LAUNCH._replace(job=number, cwd=str(workdir), **changes)
    (own / launch_record.FILE).write_text(json.dumps({"v": launch_record.VERSION, **launch._asdict()}))
    return own


def answers(what: str = "jupyter", *shows: str) -> str:
    """Return what a step prints when the program answers."""
    return f"{OpenProgram(what, 'n1', f'{LINK}/{what}.sock', '/?token=x', '7.3', shows).line}\n"


def asked(argv: list[str]) -> list[str]:
    """Return the arguments of `job open` in the command of a step."""
    return [word for word in argv[argv.index("open") + 1 :] if not word.startswith("--directory")]


def test_jupyter(door: FakeSlurm, step: Steps, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The step starts it on the worker. Its answer becomes the line and the URL."""
    runs(door, tmp_path)
    step.prints = f"srun: something\n{answers()}"
    assert main(["open", "7", "jupyter", "--worker=n2", "--port=9000", "--json"]) == 0
    form = json.loads(capsys.readouterr().out)
    assert (form["job"], form["node"], form["url"]) == (7, "n2", "http://localhost:9000/?token=x")
    assert form["ssh"].startswith(f"ssh -N -L 9000:{LINK}/jupyter.sock ")
    assert "@192.0.2.5 " in form["proxy_command"]  # the address by which the user's ssh came
    assert form["proxy_command"].endswith(" open 7 code --carry --worker=worker-1")
    assert asked(step.started[0]) == ["jupyter", "--worker=1"]
    assert main(["open", "7", "jupyter", "--login=front"]) == 0
    assert "@front " in capsys.readouterr().out


def test_it_does_not_start(door: FakeSlurm, step: Steps, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the step said is the message, without what could control the terminal."""
    runs(door, tmp_path)
    step.prints = "slurm-plugin: jupyter cannot be started on n1\n  found no x\x1b[2J on the PATH\nsrun: error: n1: x\n"
    assert main(["open", "7", "jupyter"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "slurm-plugin: jupyter cannot be started on n1\n  found no x?[2J on the PATH\n"
    step.prints = "srun: error: Unable to create step\n"
    assert main(["open", "7", "jupyter"]) == 1
    assert capsys.readouterr().err == "slurm-plugin: srun: error: Unable to create step\n"
    step.prints = ""
    assert main(["open", "7", "code"]) == 1
    assert "n1 did not answer in 60 s" in capsys.readouterr().err


def test_shell_code_and_the_carrier(
    door: FakeSlurm, step: Steps, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They become steps on the worker. srun must not hold back bytes of the ssh connection."""
    own = runs(door, tmp_path)
    with pytest.raises(BecameError) as shell:
        main(["open", "7", "shell"])
    enter = ["slurm-plugin", "job", "enter", f"--directory={own}", "--worker=0"]
    assert shell.value.args[0] == steps.overlap_step(enter, 7, "n1", terminal=False)
    with pytest.raises(BecameError) as carrier:
        main(["open", "7", "code", "--carry", "--worker=worker-1"])
    words = ["slurm-plugin", "job", "carry", f"--directory={own}", "--worker=1"]
    quick = ("--quiet", "--unbuffered")
    assert carrier.value.args[0] == steps.overlap_step(words, 7, "n2", terminal=False, options=quick)
    step.prints = f"{open_program.HAS_SSH}\n"
    assert main(["open", "7", "code"]) == 0
    assert "  Host job-7-worker-0\n" in capsys.readouterr().out


def test_a_new_job_that_cannot_be_opened(
    door: FakeSlurm, step: Steps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The user hears of the job that now waits."""
    runs(door, tmp_path)
    monkeypatch.setattr(open_new, "submit", lambda spec_file: {"job.yaml": 7}[spec_file])
    step.prints = "slurm-plugin: no\n"
    assert main(["open", "--new", "job.yaml", "jupyter"]) == 1
    assert capsys.readouterr().err == (
        "job 7 runs and waits for you; end it with: slurm-plugin stop 7\nslurm-plugin: no\n"
    )
    step.prints = answers()
    assert main(["open", "--new", "job.yaml", "jupyter"]) == 0
    assert "Jupyter runs on n1 (worker-0 of job 7)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["jupyter"], "found no job; accepted: JOB or --new SPEC"),
        (["7", "shell", "--new=x"], "found JOB and --new SPEC"),
        (["7", "8", "jupyter"], "found 2 jobs; only tensorboard shows several"),
        (["7", "jupyter", "--logdir=x"], "--logdir: found jupyter; only tensorboard has one"),
        (["7", "shell", "--carry"], "--carry: the lines that slurm-plugin open prints use it"),
    ],
)
def test_wrong_usage(door: FakeSlurm, words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, before Slurm is asked."""
    assert main(["open", *words]) == 2
    assert said in capsys.readouterr().err
    for port in ("0", "65536", "x"):
        with pytest.raises(SystemExit):
            main(["open", "7", "jupyter", f"--port={port}"])


def test_tensorboard_of_jobs(door: FakeSlurm, step: Steps, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It runs beside the first job that runs, and shows each job's directory, also those of ended jobs, once."""
    step.prints = answers("tensorboard", "=/x")
    for number, name, state in (
        (5, "a b", "COMPLETED"),
        (6, "c", "RUNNING"),
        (8, "c", "RUNNING"),
        (9, "d/c", "FAILED"),
    ):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
        runs(door, tmp_path / name, number, state=state)
    assert main(["open", "5", "6", "8", "9", "tensorboard"]) == 0
    shows = [f"a_b={tmp_path}/a b", f"c={tmp_path}/c", f"c.2={tmp_path}/d/c"]
    assert asked(step.started[0]) == ["tensorboard", *shows, "--worker=0"]
    assert "--jobid=6" in step.started[0]
    assert main(["open", "6", "tensorboard", "--logdir=runs"]) == 0
    assert asked(step.started[1]) == ["tensorboard", "=runs", "--worker=0"]
    assert main(["open", "6", "tensorboard"]) == 0
    assert asked(step.started[2]) == ["tensorboard", f"={tmp_path}/c", "--worker=0"]
    capsys.readouterr()
    assert main(["open", "5", "9", "tensorboard"]) == 1
    said = capsys.readouterr().err
    assert said == (
        "slurm-plugin: job 5 has ended: it is COMPLETED\n"
        f"  for TensorBoard in a job of its own: slurm-plugin open --new SPEC tensorboard --logdir '{tmp_path}/a b'\n"
    )


def test_tensorboard_of_a_batch(door: FakeSlurm, step: Steps, tmp_path: Path) -> None:
    """All directories of its tasks, also of tasks that Slurm has forgotten."""
    step.prints = answers("tensorboard", "=/x")
    for name in ("sizes-0", "sizes-1", "sizes-2", "sizes-x", "other-1"):
        (tmp_path / name).mkdir()
    for number, state in ((21, "COMPLETED"), (22, "RUNNING")):
        environ = {"SLURM_PLUGIN_TASK_DIRECTORY": f"{tmp_path}/sizes-{number - 20}"}
        runs(door, tmp_path, number, state=state, environ=environ)
        door.names[f"20_{number - 20}"] = number
    assert main(["open", "20", "tensorboard"]) == 0
    shows = [f"sizes-{number}={tmp_path}/sizes-{number}" for number in range(3)]
    assert asked(step.started[0]) == ["tensorboard", *shows, "--worker=0"]
    assert "--jobid=22" in step.started[0]
    assert main(["open", "20_2", "tensorboard"]) == 0
    assert asked(step.started[1]) == ["tensorboard", f"={tmp_path}/sizes-2", "--worker=0"]


def test_tensorboard_of_an_experiment(
    door: FakeSlurm, step: Steps, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its trials, on the node of one that runs."""
    from slurm_plugin.experiment import journal
    from slurm_plugin.records.experiments import Algorithm, Experiment, Metric, Search

    step.prints = answers("tensorboard", "=/x")
    place = tmp_path / "sweep"
    place.mkdir()
    journal.create(place, Experiment("sweep", Search(Metric("loss"), {}, (Algorithm("random"),), trials=2)))
    assert main(["open", str(place), "tensorboard"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("slurm-plugin: none of its tasks runs now\n")
    assert said.endswith(f"slurm-plugin open --new SPEC tensorboard --logdir {place}/trials\n")
    events = [
        {"e": "new", "n": 1, "values": {}, "bracket": 0, "algorithm": 0},
        {"e": "take", "n": 1, "task": "30_1", "job": 31, "restart": 0},
    ]
    file = journal.Journal(place)
    with file.locked():
        file.append(*({**each, "at": 1.0} for each in events))
    runs(door, tmp_path, 31)
    assert main(["open", str(place), "tensorboard"]) == 0
    assert asked(step.started[0]) == ["tensorboard", f"={place}/trials", "--worker=0"]
    assert "--jobid=31" in step.started[0]
    assert main(["open", "no-such-sweep", "tensorboard"]) == 1
