"""Whole logs: what is read of them, whose they are, and the line of the program."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.logs import library
from slurm_plugin.logs.diagnosis import Diagnosis, Place, form, of_files
from slurm_plugin.logs.known import Known
from slurm_plugin.views import diagnosis as view

CLOSED = """\
Traceback (most recent call last):
  File "/home/ada/train.py", line 17, in <module>
    dist.all_reduce(x)
  File "/env/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 3252, in all_reduce
    work.wait()
RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:59042.
"""
CLOSED_BY = CLOSED.splitlines(keepends=True)[-1]
ENDED_BY_SRUN = "srun: error: n2: task 1: Exited with exit code 1\nsrun: error: n1: task 0: Terminated\n"
NO_MODULE = "[rank1]: ModuleNotFoundError: No module named 'a'\n"
RAISED = """\
step 3 loss 0.25
Traceback (most recent call last):
  File "/home/ada/train.py", line 10, in <module>
    step(batch)
  File "/home/ada/model.py", line 4, in step
    return batch["tokens"]
  File "/env/lib/python3.11/site-packages/torch/x.py", line 1, in get
    raise KeyError(key)
KeyError: 'tokens'
"""
SUMMARY = """\
W1123 api.py:1028] Sending process 25398 closing signal SIGTERM
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
Failures:
[1]:
  host      : n1
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 25398)  (SIGTERM)
Root Cause (first observed failure):
[0]:
  host      : n2
  rank      : 2 (local_rank: 0)
  exitcode  : {code} (pid: 25402)
"""


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """What torchrun left of four ranks of which rank 2 raised."""
    for rank in range(4):
        place = tmp_path / f"logs/run/attempt_0/{rank}"
        place.mkdir(parents=True)
        (place / "stderr.log").write_text(RAISED if rank == 2 else CLOSED)
        (place / "stdout.log").write_text("step 3 loss 0.25\n")
    (tmp_path / "logs/agent.log").write_text(SUMMARY.format(code=1))
    return tmp_path / "logs"


def diagnosed(logs: Path, limit: int = sys.maxsize, known: Known | None = None) -> Diagnosis:
    """The diagnosis of all files."""
    return of_files(sorted(logs.rglob("*.log")), library.load(), limit=limit, known=known)


def test_the_rank_that_raised(logs: Path) -> None:
    """Its exception, its node by the launcher's summary, and the innermost line of the program itself."""
    found = diagnosed(logs)
    assert (found.cause.failure, found.cause.ranks, found.cause.nodes) == ("user_code", (2,), ("n2",))
    assert (found.place, found.ranks) == (Place("/home/ada/model.py", 4, "step"), 4)
    assert found.cause.event is not None
    assert found.cause.event.text == "KeyError: 'tokens'"
    text = "\n".join(view.lines(found, on=False))
    assert "began with: rank 2 of 4 on n2\n" in text
    assert ">      9 | KeyError: 'tokens'" in text
    assert len(text.splitlines()) < 20


def test_a_rank_that_was_killed(logs: Path) -> None:
    """Its log ends in silence: the others' complaints and the launcher's summary name it, and no reason is made up."""
    (logs / "run/attempt_0/2/stderr.log").write_text("")
    (logs / "agent.log").write_text(SUMMARY.format(code=-9))
    found = diagnosed(logs)
    assert (found.cause.failure, found.cause.ranks, found.cause.confidence) == ("unknown", (2,), "unknown")


def test_what_is_known_beside_the_log(logs: Path) -> None:
    """It is part of the judgement: a rank that was killed, and Slurm saw why."""
    (logs / "run/attempt_0/2/stderr.log").write_text("")
    (logs / "agent.log").write_text(SUMMARY.format(code=-9))
    found = diagnosed(logs, known=Known(oom=True, nodes={2: "n2"}))
    assert (found.cause.failure, found.cause.ranks, found.cause.nodes) == ("host_oom", (2,), ("n2",))
    assert "  Slurm saw the out-of-memory killer" in view.lines(found, on=False)


@pytest.mark.parametrize(
    ("host", "by_slurm", "wanted"),
    [
        ("n2", "n2", "n2"),
        ("n2.cluster.example.org", "n2", "n2"),
        ("n2.cluster.example.org", "n2.cluster.example.org", "n2.cluster.example.org"),
        ("10.0.0.2", "n2", "n2"),  # rank 2 is there
        ("n2.cluster.example.org", "", "n2.cluster.example.org"),
    ],
)
def test_a_host_has_slurms_name_of_its_node(host: str, by_slurm: str, wanted: str, tmp_path: Path) -> None:
    """In the summary of torchrun and in lines that name a host: else the supervisor knows no such node."""
    nodes = {0: "n1", 2: by_slurm} if by_slurm else {}
    ecc = "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    (tmp_path / "log").write_text(ecc + SUMMARY.format(code=1).replace(": n2", f": {host}"))
    found = of_files([tmp_path / "log"], library.load(), known=Known(nodes=nodes))
    assert (found.cause.failure, found.cause.ranks, found.cause.nodes) == ("gpu_hw", (2,), (wanted,))
    (tmp_path / "log").write_text(f"srun: error: Node failure on {wanted if host[0] == '1' else host}\n")
    found = of_files([tmp_path / "log"], library.load(), known=Known(nodes=nodes))
    assert (found.cause.failure, found.cause.nodes) == ("node_down", (wanted,))


def test_a_verdict_on_a_node(tmp_path: Path) -> None:
    """In one line; in --json on every node, and those where nothing began are clear."""
    log = tmp_path / "log"
    log.write_text("Jan  1 00:00:00 gpu07 kernel: NVRM: Xid (PCI:0000:5f:00): 79, GPU has fallen off the bus.\n")
    found = view.lines(of_files([log], library.load()), on=False)
    assert ("  began with: gpu07" in found, "  verdict: gpu07: exclude" in found) == (True, True)
    assert found[-1] == "another run may succeed"
    (tmp_path / "log").write_text("srun: error: Node failure on n2\n")
    every = form(of_files([tmp_path / "log"], library.load(), known=Known(nodes={0: "n1", 1: "n2"})))
    assert (every["nodes"], every["verdicts"]) == ({"n2": "exclude"}, {"n1": "clear", "n2": "exclude"})


def test_a_cause_that_is_not_known(logs: Path) -> None:
    """That is said, with the last lines of the log that was written last."""
    for each in logs.rglob("stderr.log"):
        each.write_text("")
    (logs / "agent.log").write_text("")
    for rank in (0, 1, 3):
        os.utime(logs / f"run/attempt_0/{rank}/stdout.log", (0, 0))
    found = diagnosed(logs, known=Known(code=137, nodes=dict.fromkeys(range(4), "n1")))
    assert form(found)["last"] == {"file": str(logs / "run/attempt_0/2/stdout.log"), "lines": ["step 3 loss 0.25"]}
    said = view.lines(found, on=False)
    assert said[0] == "likely cause: unknown; the program ended without a reason in the log"
    assert f"the last lines: {logs}/run/attempt_0/2/stdout.log" in said
    assert said[-1] == "whether another run succeeds is not known"


def test_a_cause_that_no_line_says(logs: Path) -> None:
    """The last lines are those of the rank that began it."""
    for each in logs.rglob("stderr.log"):
        each.write_text("")
    (logs / "agent.log").write_text(SUMMARY.format(code=-9))
    os.utime(logs / "run/attempt_0/2/stdout.log", (0, 0))
    found = diagnosed(logs, known=Known(code=1, oom=True))
    assert (found.cause.failure, found.cause.ranks, found.cause.event) == ("host_oom", (2,), None)
    assert form(found)["last"] == {"file": str(logs / "run/attempt_0/2/stdout.log"), "lines": ["step 3 loss 0.25"]}


@pytest.mark.parametrize(
    ("text", "known", "failure", "retry"),
    [
        ("", Known(state="PREEMPTED"), "preempted", True),
        ("", Known(state="NODE_FAIL"), "node_down", True),
        ("", Known(state="OUT_OF_MEMORY"), "host_oom", False),
        ("", Known(faults={"n1": "gpu-check: 3 of 4 GPUs"}), "gpu_hw", True),
        ("Killed\n", Known(), "unknown", None),
        (CLOSED, Known(), "symptom_only", None),
        ("[rank1]: KeyError: 'x'\n", Known(), "user_code", False),
        # Its line is a watchdog's; that the node was lost is not in the log.
        ("[rank1]: Watchdog caught collective operation timeout\n", Known(state="NODE_FAIL"), "node_down", True),
        # What fails on one node of two may succeed elsewhere, unless the other one was ended before it could fail.
        (NO_MODULE, Known(nodes={0: "n1", 1: "n2"}), "import_env", True),
        (NO_MODULE + ENDED_BY_SRUN, Known(nodes={0: "n1", 1: "n2"}), "import_env", False),
        (NO_MODULE + ENDED_BY_SRUN, Known(nodes={0: "n1", 1: "n2"}, by_node=True), "import_env", False),
        (
            NO_MODULE + "Sending process 7 closing signal SIGTERM\n",
            Known(nodes={0: "n1", 1: "n2"}),
            "import_env",
            False,
        ),
        (f"{NO_MODULE}[rank0]: {CLOSED_BY}", Known(nodes={0: "n1", 1: "n2"}), "import_env", True),
    ],
)
def test_what_to_do(text: str, known: Known, failure: str, retry: bool | None, tmp_path: Path) -> None:
    """Each cause has advice, and whether another run may succeed, also where no line shows it."""
    (tmp_path / "log").write_text(text)
    found = form(of_files([tmp_path / "log"], library.load(), known=known))
    assert (found["class"], found["retry"], bool(found["fix"])) == (failure, retry, True)


def test_what_else_could_be(tmp_path: Path) -> None:
    """Another root has a line with its place. On a terminal the line of the cause is painted, and no other."""
    (tmp_path / "log").write_text(f"step 1\nOSError: [Errno 28] No space left on device\n{NO_MODULE}")
    found = of_files([tmp_path / "log"], library.load())
    assert f"or: a module or library was not there: {tmp_path}/log, line 3" in view.lines(found, on=False)
    painted = [line for line in view.lines(found, on=True) if "\x1b[1;31m" in line]
    assert painted == [">      2 | \x1b[1;31mOSError: [Errno 28] No space left on device\x1b[0m"]


@pytest.mark.parametrize(
    ("text", "known", "command"),
    [
        ("", Known(state="CANCELLED", job="7_1"), "sacct -j 7_1 "),
        ("", Known(state="CANCELLED"), "sacct -j JOB "),
        ("ModuleNotFoundError: No module named 'a.b'", Known(), "python -c 'import a.b'"),
        ("slurmstepd: error: execve(): ./a.out: Permission denied", Known(), "chmod +x ./a.out"),
        ("slurmstepd: error: execve(): ./a;reboot: Permission denied", Known(), "chmod +x FILE"),
        ("slurmstepd: error: execve(): --x: Permission denied", Known(), "chmod +x FILE"),
        ("srun: error: Node failure on n2", Known(), "scontrol show node n2"),
        ("ssh: Could not resolve hostname n4: Name or service not known", Known(), "getent hosts n4"),
    ],
)
def test_advice_is_ready_to_copy(text: str, known: Known, command: str, tmp_path: Path) -> None:
    """It names what the log names, unless a shell would take that for more than a word."""
    (tmp_path / "log").write_text(text)
    found = form(of_files([tmp_path / "log"], library.load(), known=known))
    assert command in " ".join(found["fix"])


def test_what_the_kernel_wrote(logs: Path) -> None:
    """It says why a rank was killed, whose process it was, and what to do; it is in no file."""
    (logs / "run/attempt_0/2/stderr.log").write_text("")
    (logs / "agent.log").write_text(SUMMARY.format(code=-9))
    line = "[12.5] Out of memory: Killed process 25402 (python) total-vm:1kB, UID:1000"
    found = diagnosed(logs, known=Known(nodes={2: "n2"}, kernel={"n1": "[12.1] fine", "n2": line}))
    assert (found.cause.failure, found.cause.ranks, found.cause.nodes) == ("host_oom", (2,), ("n2",))
    assert form(found)["kernel"] == {"n2": line}
    said = view.lines(found, on=False)
    assert f"  the kernel of n2: {line}" in said
    assert "to do: ask for more with `memory`, or use fewer data loader workers" in said


def test_the_command(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Directories and files; 0: a cause, 1: none, 2: the logs do not tell, or there are none."""
    assert main(["diagnose", "--json", str(logs)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["class"], said["ranks"], said["nodes"]) == ("user_code", [2], {"n2": "clear"})
    assert said["place"] == {"file": "/home/ada/model.py", "line": 4, "name": "step"}
    assert main(["diagnose", str(logs / "run/attempt_0/2/stdout.log")]) == 1
    assert capsys.readouterr().out == "found no failure in these logs\n"
    socket.socket(socket.AF_UNIX).bind(str(logs / "s.log"))  # it cannot be read, as if its owner had forbidden it
    assert main(["diagnose", str(logs / "run/attempt_0/2/stdout.log"), str(logs / "s.log")]) == 2
    (logs / "agent.log").write_text("bash: line 1:  77 Killed   python train.py\n")
    assert main(["diagnose", str(logs / "agent.log")]) == 2
    (logs / "void.out").touch()
    assert main(["diagnose", str(logs / "void.out")]) == 2
    assert f"{logs / 'void.out'} is empty: it does not tell" in capsys.readouterr().err
    for wrong in (logs / "gone", logs / "empty"):
        (logs / "empty").mkdir(exist_ok=True)
        assert main(["diagnose", str(wrong)]) == 2
        assert f"{wrong}: found no" in capsys.readouterr().err


def test_stdin() -> None:
    """As a file."""
    argv = [sys.executable, "-m", "slurm_plugin", "diagnose", "-"]
    said = subprocess.run(argv, input=RAISED, capture_output=True, text=True, check=True).stdout
    assert "evidence: stdin, line 9\n" in said


def test_no_regular_files(tmp_path: Path) -> None:
    """They are not opened for long, and said."""
    os.mkfifo(tmp_path / "a.log")
    (tmp_path / "b.log").mkdir()
    (tmp_path / "c.log").write_text(RAISED)
    found = of_files([tmp_path / name for name in ("a.log", "b.log", "c.log", "d.log")], library.load())
    assert found.cause.failure == "user_code"
    assert [each.rpartition(": ")[2] for each in found.unread] == [
        "is not a regular file",
        "is not a regular file",
        "No such file or directory",
    ]


def test_the_only_node_that_a_log_names_need_not_be_the_one(tmp_path: Path) -> None:
    """The tasks of the other node were ended for the lost one."""
    (tmp_path / "log").write_text("srun: error: n1: task 0: Killed\nsrun: error: Node failure on n2\n")
    assert of_files([tmp_path / "log"], library.load()).cause.nodes == ("n2",)
    (tmp_path / "log").write_text("RuntimeError: CUDA error: uncorrectable ECC error encountered\n")
    known = Known(nodes={0: "n1", 1: "n1"})
    assert of_files([tmp_path / "log"], library.load(), known=known).cause.nodes == ("n1",)


@pytest.mark.parametrize(
    ("log", "failure", "ranks", "verdict"),
    [
        ("{killed}{cancelled}{ended}", "unknown", (1,), "check"),
        ("{failed}{cancelled}{ended}", "unknown", (1,), "clear"),
        ("{cancelled}{killed}{ended}", "cancelled", (), "clear"),  # KillWait after the SIGTERM
        ("{cancelled}{ended}", "cancelled", (), "clear"),
    ],
)
def test_a_step_that_srun_ended(log: str, failure: str, ranks: tuple[int, ...], verdict: str, tmp_path: Path) -> None:
    """Srun ended it because of a failed task; if no task had failed, a user cancelled the job."""
    lines = {
        "killed": "srun: error: n2: task 1: Killed\n",
        "failed": "srun: error: n2: task 1: Exited with exit code 3\n",
        "cancelled": "slurmstepd-n1: error: *** STEP 1.1 ON n1 CANCELLED AT 2026-11-27T17:43:02 ***\n",
        "ended": "srun: error: n1: task 0: Terminated\n",
    }
    (tmp_path / "log").write_text(log.format(**lines))
    found = of_files([tmp_path / "log"], library.load()).cause
    assert (found.failure, found.ranks, found.verdict) == (failure, ranks, verdict)


@pytest.mark.parametrize(
    ("before", "status", "failure"),
    [
        ("slurm task_prolog did not exit normally. reason: ", 1, "unknown"),  # SIGKILL, with its step
        ("slurm task_prolog did not exit normally. reason: Run command failed", 1, "launcher_config"),
        ("anything else", 3, "launcher_config"),
    ],
)
def test_a_task_prolog(tmp_path: Path, before: str, status: int, failure: str) -> None:
    """One that ended with its step is no cause: on a slow node the others may have failed by then."""
    lines = f"slurmstepd-n3: error: {before}\nslurmstepd-n3: error: TaskProlog failed status={status}\n"
    (tmp_path / "log").write_text(f"srun: error: n1: task 0: Exited with exit code 5\n{lines}")
    assert of_files([tmp_path / "log"], library.load()).cause.failure == failure
