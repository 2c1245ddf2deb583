"""What the door through Slurm's commands runs, and what it makes of the answers."""

import errno
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.errors import MissingError
from slurm_plugin.slurm import JobNotFoundError, Node, Slurm, SlurmAwayError, SlurmError, connect
from slurm_plugin.slurm.records import form
from tests.unit.slurm.fake_commands import Bin
from tests.unit.slurm.test_records_scontrol import NODE, OURS, SETTINGS, SHOWN

CAPTURED = Path(__file__).parents[2] / "captured"
CALLS: dict[str, tuple[Callable[[Slurm], object], list[str]]] = {
    "update_job": (
        lambda door: door.update_job(7, Comment="a 'b' $(c)\nd", ExcNodeList=""),
        ["scontrol", "update", "JobId=7", "Comment=a 'b' $(c)\nd", "ExcNodeList="],
    ),
    "requeue": (lambda door: door.requeue(7), ["scontrol", "requeue", "7"]),
    "hold": (lambda door: door.hold(7), ["scontrol", "hold", "7"]),
    "release": (lambda door: door.release(7), ["scontrol", "release", "7"]),
    "drain": (
        lambda door: door.drain("n1", OURS),
        ["scontrol", "update", "NodeName=n1", "State=DRAIN", f"Reason={OURS}"],
    ),
    "resume": (lambda door: door.resume("n1"), ["scontrol", "update", "NodeName=n1", "State=RESUME"]),
    "nodes": (lambda door: door.nodes(["n1", "n2"]), ["scontrol", "show", "node", "n[1-2]"]),
    "all nodes": (lambda door: door.nodes([]), ["scontrol", "show", "node"]),
    "config": (lambda door: door.config(), ["scontrol", "show", "config"]),
    "ping": (lambda door: door.ping(), ["scontrol", "ping"]),
    "cancel": (lambda door: door.cancel(7), ["scancel", "7"]),
    "notify": (lambda door: door.notify(7, "a 'b'"), ["scontrol", "notify", "7", "a 'b'"]),
    "signal to the steps": (lambda door: door.signal(7, "USR1"), ["scancel", "--signal=USR1", "7"]),
    "signal to the script": (
        lambda door: door.signal(7, "USR1", "batch"),
        ["scancel", "--signal=USR1", "--batch", "7"],
    ),
    "signal to all": (lambda door: door.signal(7, "TERM", "all"), ["scancel", "--signal=TERM", "--full", "7"]),
}


SBATCH = """\
case "$*" in
  --help) cat {help} ;;
  --hint) echo "sbatch: option '--hint' requires an argument" >&2; exit 255 ;;
  --known) echo "sbatch: error: Batch script is empty!" >&2; exit 1 ;;
  *) echo "sbatch: unrecognized option '$*'" >&2; exit 255 ;;
esac
echo "$*" >>{asked}"""


def test_flags_of_sbatch(commands: Bin) -> None:
    """Those of the help, and those that it has besides; the beginning of another is none, nor is what is no name."""
    asked = commands.directory / "asked"
    commands.script("sbatch", SBATCH.format(help=CAPTURED / "sbatch-help-22.05.txt", asked=asked))
    found = connect(str(commands.directory)).sbatch_flags(["hint", "known", "nosuch", "swit", "switches", "-x", "a b"])
    assert {name: found.get(name) for name in ("hint", "known", "switches", "contiguous")} == {
        "hint": "value",
        "known": "optional",
        "switches": "value",
        "contiguous": "none",
    }
    assert not {"nosuch", "swit", "-x", "a b"} & set(found)
    assert asked.read_text() == "--help\n"


@pytest.mark.parametrize(("call", "argv"), CALLS.values(), ids=CALLS.keys())
def test_call(commands: Bin, call: Callable[[Slurm], object], argv: list[str]) -> None:
    """One command, every text one argument, seen by no shell, nothing on its stdin."""
    commands.recorded(argv[0])
    call(connect(str(commands.directory)))
    assert commands.argv() == argv[1:]
    assert commands.read("stdin") == ""
    assert commands.read("pwd") == f"{Path.cwd()}\n"


@pytest.mark.parametrize("answer", ["12\n", "12;cluster\n"])
def test_submit(commands: Bin, answer: str) -> None:
    """The script goes in on stdin, the number comes out, also of a cluster with a name and with warnings beside it."""
    commands.recorded("sbatch", answer, "sbatch: warning: can't run 1 processes on 2 nodes\n")
    door = connect(str(commands.directory))
    script = "#!/bin/bash\necho 'größer'\r\n"
    assert door.submit(script, arguments=["--hold", "--comment=a b"], directory="/usr") == 12
    assert commands.argv() == ["--parsable", "--hold", "--comment=a b"]
    assert (commands.directory / "stdin").read_bytes() == script.encode()
    assert commands.read("pwd") == "/usr\n"


@pytest.mark.parametrize("answer", ["Submitted", "", "\n", "1", "12", "12;clus", "x12\n", "-12\n"])
def test_submit_without_a_whole_number(commands: Bin, answer: str) -> None:
    """An answer that is no line with a job id, or a part of one, is an error that says how to find the job."""
    commands.recorded("sbatch", answer)
    words = f"sbatch answered {answer.strip()!r} in place of a job id\n  look for the job with: squeue --me"
    with pytest.raises(SlurmError) as caught:
        connect(str(commands.directory)).submit("")
    assert str(caught.value) == words


def test_nodes(commands: Bin) -> None:
    """As records.py reads them."""
    commands.recorded("scontrol", NODE.format(state="IDLE", reason=""))
    assert connect(str(commands.directory)).nodes(["n1"]) == {
        "n1": Node("n1", frozenset({"IDLE"}), "", partitions=("all", "long"))
    }


def test_settings(commands: Bin) -> None:
    """As records.py reads them; the release is one of them, and nowhere else."""
    commands.recorded("scontrol", SHOWN)
    door = connect(str(commands.directory))
    assert door.config() == SETTINGS
    with pytest.raises(SlurmError) as caught:
        door.version()
    assert str(caught.value) == (
        "could not read slurmctld's settings: scontrol said: no SLURM_VERSION\n  try: scontrol show config"
    )
    commands.recorded("scontrol", f"{SHOWN}SLURM_VERSION           = 24.11.5\n")
    assert door.version() == "24.11.5"


@pytest.mark.parametrize(
    ("script", "up"),
    [
        ("echo 'Slurmctld(primary) at ctl is UP'", True),
        ("echo 'Slurmctld(primary) at a is DOWN'; echo 'Slurmctld(backup) at b is UP'", True),
        ("echo 'Slurmctld(primary) at ctl is DOWN'", False),
        ("echo 'Slurmctld(primary) at ctl is DOWN'; exit 1", False),
        ("sleep 60", False),
    ],
)
def test_ping(commands: Bin, script: str, up: bool) -> None:
    """One controller that answers is enough; none is an answer too, no error."""
    commands.script("scontrol", script)
    assert connect(str(commands.directory), deadline_s=0.3 if not up else 10).ping() is up


REFUSED: dict[str, tuple[Callable[[Slurm], object], str, str, str]] = {
    "submit": (
        lambda door: door.submit(""), "submit the job", "sbatch", "try the same script with: sbatch --test-only"
    ),
    "jobs": (lambda door: door.jobs([7]), "read the jobs", "squeue", "try: squeue --all"),
    "job": (lambda door: door.job(7), "read the jobs", "squeue", "try: squeue --all"),
    "jobs_of": (lambda door: door.jobs_of(20001, "n1"), "read the jobs", "squeue", "try: squeue --all"),
    "nodes": (lambda door: door.nodes(["n1"]), "read the nodes", "scontrol", "try: scontrol show node"),
    "update_job": (
        lambda door: door.update_job(7, Comment="x", Nice="1"),
        "update job 7 (Comment, Nice)", "scontrol", "see it with: scontrol show job 7",
    ),
    "requeue": (lambda door: door.requeue(7), "requeue job 7", "scontrol", "see it with: scontrol show job 7"),
    "hold": (lambda door: door.hold(7), "hold job 7", "scontrol", "see it with: scontrol show job 7"),
    "release": (lambda door: door.release(7), "release job 7", "scontrol", "see it with: scontrol show job 7"),
    "signal": (
        lambda door: door.signal(7, "USR1"), "send USR1 to job 7", "scancel", "see it with: scontrol show job 7"
    ),
    "cancel": (lambda door: door.cancel(7), "cancel job 7", "scancel", "see it with: scontrol show job 7"),
    "drain": (lambda door: door.drain("n1", "x"), "drain node n1", "scontrol", "see it with: scontrol show node n1"),
    "resume": (lambda door: door.resume("n1"), "resume node n1", "scontrol", "see it with: scontrol show node n1"),
    "config": (lambda door: door.config(), "read slurmctld's settings", "scontrol", "try: scontrol show config"),
}  # fmt: skip


@pytest.mark.parametrize(("call", "asked", "program", "hint"), REFUSED.values(), ids=REFUSED)
def test_refusal(commands: Bin, call: Callable[[Slurm], object], asked: str, program: str, hint: str) -> None:
    """What was asked, Slurm's own words, and what to try."""
    commands.recorded(program, "", "Access/permission denied\n", 1)
    with pytest.raises(SlurmError) as caught:
        call(connect(str(commands.directory)))
    assert str(caught.value) == f"could not {asked}: {program} said: Access/permission denied\n  {hint}"
    assert not isinstance(caught.value, SlurmAwayError | JobNotFoundError)


def test_refusal_on_stdout(commands: Bin) -> None:
    """scontrol writes some of its errors there."""
    commands.recorded("scontrol", "Node n9 not found\n", "", 1)
    with pytest.raises(SlurmError, match="could not read the nodes: scontrol said: Node n9 not found"):
        connect(str(commands.directory)).nodes(["n9"])


def test_silent_refusal(commands: Bin) -> None:
    """Where Slurm says nothing, its exit code stands for it."""
    commands.script("scontrol", "exit 4")
    with pytest.raises(SlurmError, match="scontrol said: exit code 4, no message"):
        connect(str(commands.directory)).requeue(7)


def test_missing_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the directory, or the PATH where none was given, and how to get it."""
    with pytest.raises(MissingError, match=f"squeue was not found in {tmp_path}\n  install Slurm's client commands"):
        connect(str(tmp_path)).jobs([7])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingError, match="squeue was not found on the PATH"):
        connect().jobs([7])


def test_command_that_is_not_executable(commands: Bin) -> None:
    """A file without its execute bit is as missing."""
    commands.script("squeue", "exit 0")
    (commands.directory / "squeue").chmod(0o400)
    with pytest.raises(MissingError):
        connect(str(commands.directory)).jobs([7])


OUTER = {
    "SLURM_CONF": "/etc/slurm/slurm.conf",
    "SLURM_JOB_ID": "3",
    "SLURM_TIME_FORMAT": "relative",
    "SLURM_CLUSTERS": "other",
    "SQUEUE_FORMAT": "%i",
    "LANG": "de_DE",
    "TZ": "Asia/Tokyo",
}


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("scontrol", lambda door: door.requeue(7)),
        ("squeue", lambda door: door.jobs()),
        ("scancel", lambda door: door.cancel(7)),
    ],
)
def test_environment(
    commands: Bin, monkeypatch: pytest.MonkeyPatch, name: str, call: Callable[[Slurm], object]
) -> None:
    """Times are asked for in UTC, and nothing of an outer job or of the caller's changes the words."""
    for variable, value in OUTER.items():
        monkeypatch.setenv(variable, value)
    commands.recorded(name, "")
    call(connect(str(commands.directory)))
    given = commands.environment()
    assert {variable: given.get(variable) for variable in OUTER} == {
        **dict.fromkeys(OUTER), "SLURM_CONF": OUTER["SLURM_CONF"], "TZ": "UTC",
    }  # fmt: skip


def test_environment_of_submit(commands: Bin, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller's own goes to the job: its zone and its language, but no outer job's variables."""
    for variable, value in OUTER.items():
        monkeypatch.setenv(variable, value)
    commands.recorded("sbatch", "12\n")
    connect(str(commands.directory)).submit("")
    given = commands.environment()
    kept = ("SLURM_CONF", "SQUEUE_FORMAT", "LANG", "TZ")
    assert {variable: given.get(variable) for variable in OUTER} == {
        **dict.fromkeys(OUTER), **{variable: OUTER[variable] for variable in kept},
    }  # fmt: skip


def test_words_of_the_question_for_jobs(commands: Bin) -> None:
    """All jobs in one question, in whatever state and partition, each field whole."""
    commands.squeue([])
    connect(str(commands.directory)).jobs([7, 9])
    (asked,) = commands.asked()
    assert asked.argv == ["--noheader", "--all", "--array", "--states=all", "--jobs=7,9"]
    assert asked.variable == "SQUEUE_FORMAT2"
    assert asked.form == form(asked.nonce)


FAILURES = [errno.EAGAIN, errno.ENOMEM, errno.E2BIG]


@pytest.mark.parametrize("number", FAILURES, ids=map(errno.errorcode.get, FAILURES))
def test_command_that_does_not_start(commands: Bin, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """No process is left for it, or its arguments are too long: an error of the door's, and no controller is away."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    commands.recorded("scontrol")
    monkeypatch.setattr("subprocess.Popen", refuse)
    with pytest.raises(SlurmError) as caught:
        connect(str(commands.directory)).requeue(7)
    assert str(caught.value) == f"could not start scontrol: {os.strerror(number)}\n  see: df, ulimit -a"
    assert not isinstance(caught.value, SlurmAwayError)


def test_arguments_that_are_too_long(commands: Bin) -> None:
    """Linux takes 128 KiB in one, and in one variable."""
    commands.recorded("scontrol")
    with pytest.raises(SlurmError, match=r"^could not start scontrol: Argument list too long: .*\n  "):
        connect(str(commands.directory)).update_job(7, Comment="x" * (1 << 17))


def test_second_command_that_does_not_start(commands: Bin, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one ends with it, and nothing of it is left."""
    at = commands.directory
    commands.squeue([], lacks=["ExcNodes"])
    door = connect(str(at), deadline_s=10)
    door.jobs()
    commands.script("squeue", "exec sleep 300")
    started, start = list[subprocess.Popen[bytes]](), subprocess.Popen

    def once(*arguments: Any, **more: Any) -> "subprocess.Popen[bytes]":
        if started:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        started.append(start(*arguments, **more))
        return started[0]

    monkeypatch.setattr("subprocess.Popen", once)
    with pytest.raises(
        SlurmError, match=r"^could not start squeue: Resource temporarily unavailable\n  see: df, ulimit -a"
    ):
        door.jobs()
    assert started[0].returncode == -signal.SIGKILL
