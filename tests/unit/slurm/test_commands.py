"""The door through Slurm's commands: what users write into their jobs forges nothing, and every call has an end."""

import json
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurm_plugin.errors import MissingError
from slurm_plugin.slurm import Job, JobNotFoundError, Node, SlurmError, connect

# Prints records as squeue does: each field of -o or -O followed by what the format has behind it, -O's padded.
SQUEUE = """#!{python} -IS
import json, re, sys
records = json.load(open("{directory}/records"))
form = sys.argv[sys.argv.index("-o" if "-o" in sys.argv else "-O") + 1]
if "-o" in sys.argv:
    lines = [re.sub("%([A-Za-z])", lambda found: record[found[1]], form) for record in records]
else:
    fields = [re.fullmatch("([A-Za-z_]+):([0-9]+)(.*)", field) for field in form.split(",")]
    lines = ["".join(record[f[1]][: int(f[2])].ljust(int(f[2])) + f[3] for f in fields) for record in records]
out = "".join(line + chr(10) for line in lines)
sys.stdout.write(out[: int(open("{directory}/cut").read())])
"""


@dataclass(frozen=True)
class Bin:
    """A directory of commands that are scripts of ours."""

    directory: Path

    def script(self, name: str, text: str) -> None:
        path = self.directory / name
        path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def squeue(self, records: Sequence[dict[str, str]], cut: int = 1 << 30) -> None:
        (self.directory / "records").write_text(json.dumps(records))
        (self.directory / "cut").write_text(str(cut))
        self.script("squeue", SQUEUE.format(python="/usr/bin/python3", directory=self.directory))

    def recorded(self, name: str, answer: str = "") -> None:
        """A command that writes down its arguments, one a line, and its stdin."""
        at = self.directory
        self.script(name, f'printf "%s\\n" "$@" > {at}/argv\ncat > {at}/stdin\nenv > {at}/env\nprintf "%s" "{answer}"')

    def read(self, name: str) -> str:
        return (self.directory / name).read_text()


@pytest.fixture
def commands(tmp_path: Path) -> Bin:
    """An empty directory of commands."""
    return Bin(tmp_path)


def record(job_id: int = 7, **fields: str) -> dict[str, str]:
    """A job as squeue's two formats name its fields."""
    number = str(job_id)
    long = {"A": number, "u": "alice", "T": "RUNNING", "r": "None", "N": "n[1-2]", "x": "", "S": "2024-05-01T10:00:00"}
    fixed = {"JobID": number, "RestartCnt": "0", "exit_code": "0", "admin_comment": ""}
    return {**long, "k": "(null)", **fixed, **fields}


PLAIN = Job(7, "alice", "RUNNING", "", "n[1-2]", "", 0, "", "", 0, None, "2024-05-01T10:00:00")


def test_plain_job(commands: Bin) -> None:
    """Every field; squeue's words for nothing are nothing."""
    commands.squeue([record()])
    assert connect(str(commands.directory)).jobs([7]) == {7: PLAIN}


def test_pending_job(commands: Bin) -> None:
    """A requeued job with its reason, what it leaves out, its comments, and no start time yet."""
    fields = {"T": "PENDING", "r": "BeginTime", "N": "", "x": "n[3,5]", "S": "N/A", "k": "a [sp1;retries=3]"}
    commands.squeue([record(**fields, RestartCnt="2", admin_comment='project sp1:{"granted":3}')])
    assert connect(str(commands.directory)).job(7) == Job(
        7, "alice", "PENDING", "BeginTime", "", "n[3,5]", 2, "a [sp1;retries=3]", 'project sp1:{"granted":3}', 0
    )


@pytest.mark.parametrize(
    ("status", "code", "signal"),
    [
        ("0", 0, None),
        ("256", 1, None),
        ("23808", 93, None),
        ("9", None, 9),
        ("", None, None),
        ("0:0", 0, None),
        ("7:0", 7, None),
        ("0:9", None, 9),
        ("7:", None, None),
        ("x:0", None, None),
    ],
)
def test_exit(commands: Bin, status: str, code: int | None, signal: int | None) -> None:
    """squeue's exit_code is a wait status (22.05) or `code:signal`: one of the two; unreadable, it is neither."""
    commands.squeue([record(exit_code=status)])
    job = connect(str(commands.directory)).job(7)
    assert (job.exit_code, job.exit_signal) == (code, signal)


HOSTILE = [
    "line\nline",
    "\n",
    "\n8\nbob",
    "8~0123456789abcdef~root~0123456789abcdef~RUNNING~0123456789abcdef~",
    "\n8~~root~~RUNNING~~None~~n1~~~~N/A~~[sp1;retries=128]~~\n",
    "\x00"[:0] + "\x1b[2J\t\r",
    "%A|%u|%T",
    "ümlaut 名 🙂",
    "N/A ",
    " leading and trailing ",
    "x" * 1024,
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_comment(commands: Bin, text: str) -> None:
    """A comment that looks like a record, or like several, is a comment: whole, and only of its own job."""
    commands.squeue([record(6), record(k=text), record(9)])
    found = connect(str(commands.directory)).jobs([6, 7, 8, 9])
    assert list(found) == [6, 7, 9]
    assert found[7].comment == text
    assert (found[6].comment, found[9].comment) == ("", "")
    assert {job.user for job in found.values()} == {"alice"}


def test_nonce_is_new_each_time(commands: Bin) -> None:
    """No user can know what ends a field: two calls use different ones, of 64 random bits."""
    seen = set()
    for _ in range(2):
        commands.recorded("squeue")
        connect(str(commands.directory)).jobs([7])
        form = commands.read("argv").splitlines()[-1]
        seen.add(form)
        assert form.startswith("JobID:12~")
        assert len(form.split("~")[1]) == 16
    assert len(seen) == 2


def test_cut_off_output(commands: Bin) -> None:
    """Output that stops anywhere shows the whole jobs before that, and never part of one."""
    records = [record(6, k="six"), record(k="7\n8\n9"), record(9, k="nine")]
    commands.squeue(records)
    door = connect(str(commands.directory))
    whole = door.jobs([6, 7, 9])
    for cut in (0, 1, 20, 100, 175, 200, 300, 350, 400, 500, 8300):
        commands.squeue(records, cut)
        assert door.jobs([6, 7, 9]).items() <= whole.items()


def test_jobs_that_are_not_known(commands: Bin) -> None:
    """Absent from an answer for many; by itself an error of its own kind. Asking for none asks nothing."""
    commands.script("squeue", 'echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1')
    door = connect(str(commands.directory))
    assert door.jobs([7]) == {}
    with pytest.raises(JobNotFoundError, match="Slurm does not know job 7"):
        door.job(7)
    (commands.directory / "squeue").unlink()
    assert door.jobs([]) == {}


def test_words_of_the_question(commands: Bin) -> None:
    """All jobs in one question, in whatever state and partition."""
    commands.recorded("squeue")
    connect(str(commands.directory)).jobs([7, 9])
    assert commands.read("argv").splitlines()[:-2] == ["--noheader", "--all", "--array", "--states=all", "--jobs=7,9"]


NODE = (
    "NodeName=n1 Arch=x86_64 CoresPerSocket=1 CPUAlloc=0 CPUEfctv=2 CPUTot=2 CPULoad=0.07 AvailableFeatures=(null)"
    " ActiveFeatures=(null) Gres=gpu:4 NodeAddr=n1 NodeHostName=n1 Version=22.05.8 OS=Linux 6.1.0-18 #1 SMP"
    " RealMemory=900 AllocMem=0 FreeMem=500 Sockets=2 Boards=1 State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1"
    " Owner=N/A MCS_label=N/A Partitions=all BootTime=2024-05-01T10:00:00 CfgTRES=cpu=2,mem=900M,billing=2 AllocTRES="
    " CapWatts=n/a CurrentWatts=0 AveWatts=0 ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s{reason}"
)
AUTHOR = " [root@2024-05-01T10:00:01]"
OURS = "slurm_plugin: gpu-check: 3 of 4 GPUs [job 7]"

NODES = {
    "idle": ("IDLE", "", {"IDLE"}, ""),
    "drained by us": ("IDLE+DRAIN", f" Reason={OURS}{AUTHOR}", {"IDLE", "DRAIN"}, OURS),
    "draining": ("ALLOCATED+DRAIN", f" Reason=disk{AUTHOR}", {"ALLOCATED", "DRAIN"}, "disk"),
    "not responding": ("DOWN*", f" Reason=Not responding{AUTHOR}", {"DOWN", "NOT_RESPONDING"}, "Not responding"),
    "not responding, drained": ("DOWN*+DRAIN", f" Reason=x{AUTHOR}", {"DOWN", "DRAIN", "NOT_RESPONDING"}, "x"),
    "idle, not responding": ("IDLE*", "", {"IDLE", "NOT_RESPONDING"}, ""),
    "powered down": ("IDLE~", "", {"IDLE"}, ""),
    "three flags": ("MIXED+CLOUD+PLANNED", "", {"MIXED", "CLOUD", "PLANNED"}, ""),
    "of a later Slurm": ("SLEEPING+HUMMING", "", {"SLEEPING", "HUMMING"}, ""),
    "a reason of many words": ("DOWN", f" Reason=State=IDLE NodeName=n9 Reason=y [a] b{AUTHOR}", {"DOWN"},
                               "State=IDLE NodeName=n9 Reason=y [a] b"),
}  # fmt: skip


@pytest.mark.parametrize(("state", "reason", "states", "words"), NODES.values(), ids=NODES.keys())
def test_node(commands: Bin, state: str, reason: str, states: set[str], words: str) -> None:
    """The base state, its flags, and the reason without the one who wrote it; a reason changes nothing else."""
    (commands.directory / "out").write_text(NODE.format(state=state, reason=reason) + " \n")
    commands.script("scontrol", f"cat {commands.directory}/out")
    assert connect(str(commands.directory)).nodes(["n1"]) == {"n1": Node("n1", frozenset(states), words)}


def test_node_without_a_state(commands: Bin) -> None:
    """What cannot be read is UNKNOWN, never a state."""
    commands.script("scontrol", "echo NodeName=n1 Arch=x86_64; echo 'Node n2 not found'")
    assert connect(str(commands.directory)).nodes([]) == {"n1": Node("n1", frozenset({"UNKNOWN"}), "")}


CALLS = {
    "update_job": (
        lambda door: door.update_job(7, Comment="a 'b' $(c)\nd", ExcNodeList="n[1-2]"),
        ["update", "JobId=7", "Comment=a 'b' $(c)", "d", "ExcNodeList=n[1-2]"],
    ),
    "requeue": (lambda door: door.requeue(7), ["requeue", "7"]),
    "drain": (lambda door: door.drain("n1", OURS), ["update", "NodeName=n1", "State=DRAIN", f"Reason={OURS}"]),
    "resume": (lambda door: door.resume("n1"), ["update", "NodeName=n1", "State=RESUME"]),
    "nodes": (lambda door: door.nodes(["n1", "n2"]), ["-o", "show", "node", "n1,n2"]),
    "all nodes": (lambda door: door.nodes([]), ["-o", "show", "node"]),
}


@pytest.mark.parametrize(("call", "argv"), CALLS.values(), ids=CALLS.keys())
def test_scontrol(commands: Bin, call: object, argv: list[str]) -> None:
    """One scontrol a call, every text one argument, seen by no shell."""
    commands.recorded("scontrol")
    call(connect(str(commands.directory)))  # type: ignore[operator]
    assert commands.read("argv").splitlines() == argv


def test_cancel(commands: Bin) -> None:
    """scancel is the one for that."""
    commands.recorded("scancel")
    connect(str(commands.directory)).cancel(7)
    assert commands.read("argv") == "7\n"


@pytest.mark.parametrize("answer", ["12", "12;cluster"])
def test_submit(commands: Bin, answer: str) -> None:
    """The script goes in on stdin, the number comes out, also of a cluster with a name."""
    commands.recorded("sbatch", answer)
    assert connect(str(commands.directory)).submit("#!/bin/bash\ntrue\n", arguments=["--hold"]) == 12
    assert commands.read("argv").splitlines() == ["--parsable", "--hold"]
    assert commands.read("stdin") == "#!/bin/bash\ntrue\n"


def test_submit_without_a_number(commands: Bin) -> None:
    """An answer that is no job id is an error that says how to find the job."""
    commands.recorded("sbatch", "Submitted")
    with pytest.raises(SlurmError, match="'Submitted' in place of a job id\n  look for the job with: squeue --me"):
        connect(str(commands.directory)).submit("")


def test_refusal(commands: Bin) -> None:
    """What was asked, and Slurm's own words."""
    commands.script("scontrol", 'echo "Access/permission denied" >&2; exit 1')
    with pytest.raises(SlurmError) as caught:
        connect(str(commands.directory)).requeue(7)
    assert str(caught.value) == "could not requeue job 7: scontrol said: Access/permission denied"


def test_silent_refusal(commands: Bin) -> None:
    """Where Slurm says nothing, its exit code stands for it."""
    commands.script("scontrol", "exit 4")
    with pytest.raises(SlurmError, match="scontrol said: exit code 4, no message"):
        connect(str(commands.directory)).requeue(7)


def test_deadline(commands: Bin) -> None:
    """A command that hangs is killed with all that it started, and the error says what to look at."""
    at = commands.directory
    commands.script("scontrol", f"sleep 300 & echo $! > {at}/child\necho $$ > {at}/pid\nwait")
    start = time.monotonic()
    with pytest.raises(SlurmError, match=r"scontrol gave no answer in 0\.5 s\n  is slurmctld up\? try: scontrol ping"):
        connect(str(at), deadline_s=0.5).requeue(7)
    assert time.monotonic() - start < 5
    for name in ("pid", "child"):
        until_gone(int(commands.read(name)))


def until_gone(pid: int) -> None:
    """Wait until a process has ended, or is a zombie of somebody's."""
    end = time.monotonic() + 5
    while Path(f"/proc/{pid}").exists() and Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z":
        assert time.monotonic() < end, f"process {pid} lives on"
        time.sleep(0.02)


def test_missing_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the directory, or the PATH where none was given, and how to get it."""
    with pytest.raises(MissingError, match=f"squeue was not found in {tmp_path}\n  install Slurm's client commands"):
        connect(str(tmp_path)).jobs([7])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingError, match="squeue was not found on the PATH"):
        connect().jobs([7])


def test_command_that_is_not_executable(commands: Bin) -> None:
    """A file without its execute bit is as missing, unless one is root."""
    commands.script("squeue", "exit 0")
    path = commands.directory / "squeue"
    path.chmod(stat.S_IRUSR)
    with pytest.raises(MissingError):
        connect(str(commands.directory)).jobs([7])


OUTER = {
    "SLURM_CONF": "/etc/slurm/slurm.conf",
    "SLURM_JOB_ID": "3",
    "SLURM_TIME_FORMAT": "relative",
    "SLURM_CLUSTERS": "other",
    "SQUEUE_FORMAT": "%i",
    "LANG": "de_DE",
}


@pytest.mark.parametrize(("name", "call"), [("sbatch", "submit"), ("scontrol", "requeue")])
def test_environment_of_a_call(commands: Bin, monkeypatch: pytest.MonkeyPatch, name: str, call: str) -> None:
    """What a command really gets, of an outer job's environment."""
    for variable, value in OUTER.items():
        monkeypatch.setenv(variable, value)
    commands.recorded(name, "12")
    getattr(connect(str(commands.directory)), call)("7")
    given = dict(line.split("=", 1) for line in commands.read("env").splitlines())
    assert given["SLURM_CONF"] == OUTER["SLURM_CONF"]
    assert {variable for variable in given if variable.startswith("SLURM_")} == {"SLURM_CONF"}
    assert ("LANG" in given) is (name == "sbatch")


def test_settings(commands: Bin) -> None:
    """Names and values of `scontrol show config`, nothing for what is not set, a value's own `=` kept."""
    answer = """Configuration data as of 2026-11-20T23:55:40
BOOT_TIME               = 2026-11-20T23:55:40
CommunicationParameters = (null)
PowerPlugin             =
SchedulerParameters     = bf_interval=1,defer
SlurmctldHost[0]        = ctl(10.0.0.1)

Slurmctld(primary) at ctl is UP
"""
    commands.recorded("scontrol", answer)
    assert connect(str(commands.directory)).config() == {
        "BOOT_TIME": "2026-11-20T23:55:40",
        "CommunicationParameters": "",
        "PowerPlugin": "",
        "SchedulerParameters": "bf_interval=1,defer",
        "SlurmctldHost[0]": "ctl(10.0.0.1)",
    }
    assert commands.read("argv").split() == ["show", "config"]


@pytest.mark.parametrize(
    ("script", "up"),
    [
        ("echo 'Slurmctld(primary) at ctl is UP'", True),
        ("echo 'Slurmctld(primary) at a is DOWN'; echo 'Slurmctld(backup) at b is UP'", True),
        ("echo 'Slurmctld(primary) at ctl is DOWN'", False),
        ("echo 'Slurmctld(primary) at ctl is DOWN'; exit 1", False),
    ],
)
def test_ping(commands: Bin, script: str, up: bool) -> None:
    """One controller that answers is enough; none is an answer too, no error."""
    commands.script("scontrol", script)
    assert connect(str(commands.directory)).ping() is up
