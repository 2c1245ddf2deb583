"""What follows an error in its log: it counts only as the last words of a log, or if the program did not go on."""

import json
from pathlib import Path

import pytest

from slurm_plugin.logs import aftermath, library
from slurm_plugin.logs.diagnosis import of_files
from slurm_plugin.logs.known import Known
from slurm_plugin.logs.scan import Event
from tests.unit.logs.test_diagnosis import RAISED

LAST = [each for each in library.load() if each.role == "last"]
COPY = "cp: cannot stat '/data/x.bin': No such file or directory\n"
MPIRUN = f"{'-' * 74}\nPrimary job  terminated normally, but 1 process returned\na non-zero exit code.\n{'-' * 74}\n"
SRUN = "srun: error: n2: task 1: Exited with exit code 1\nsrun: Terminating StepId=7.0\n"
# Of a task that was still being started when another one ended the step.
TASK_PROLOG_ENDED = """\
slurmstepd-n1: error: slurm task_prolog did not exit normally. reason: export RANK=0

srun: error: n1: task 0: Exited with exit code 1
slurmstepd-n1: error: TaskProlog failed status=1
"""


def found(text: str, path: Path, known: Known | None = None) -> tuple[str, tuple[int, ...], str]:
    """The class of a log, the ranks that began it, and the line of evidence."""
    log = path / "job.out"
    log.write_text(text)
    cause = of_files([log], library.load(), known=known).cause
    return cause.failure, cause.ranks, cause.event.text if cause.event else ""


def test_an_example_alone_leads_to_its_class(tmp_path: Path) -> None:
    """As with the other signatures, of which none knows such a line; more lines of the program change it to none."""
    for each in LAST:
        log = f"step 1\n{each.example}\n"
        assert found(log, tmp_path) == (each.failure, (), each.example), each.id
        assert found(f"{log}step 2\n", tmp_path) == ("none", (), ""), each.id


@pytest.mark.parametrize(
    ("text", "failure", "ranks"),
    [
        (f"{COPY}make: *** [Makefile:2: run] Error 1\n", "missing_file", ()),
        (f"{COPY}\nreal\t0m0.2s\nuser\t0m0.1s\n", "missing_file", ()),
        (f"{COPY}{MPIRUN}", "missing_file", ()),
        (f"{COPY}++ module list\n+ exit 0\n", "missing_file", ()),  # a shell's set -x
        (f"{SRUN}{TASK_PROLOG_ENDED}", "unknown", (1,)),
        (f"1: {COPY}0: step 2\n{SRUN}", "missing_file", (1,)),
        (f"[1,1]<stderr>:{COPY}{MPIRUN}", "missing_file", (1,)),
        (f"step 1\n{MPIRUN}", "unknown", ()),
        (f"0: {COPY}0: step 2\n{SRUN}", "unknown", (1,)),  # another task's, and that one went on
        (f"1: {COPY}srun: error: n2: task 1: Killed\n", "unknown", (1,)),  # a signal has another reason
        (f"KeyError: 'tokens'\n{COPY}", "user_code", ()),  # an exact line says more
        (f"{COPY}training complete, 0 errors\n", "none", ()),
        ("error: 0, failed: 0, Killed: 0, retrying\n" * 2, "none", ()),  # a count, or a measure, is no error
        ("12:00:00 INFO Error: 0.25\n", "none", ()),
        ("error: 13\n", "user_code", ()),
        ("step 1\nslurmstepd: error: write pid 7 to cgroup.procs failed: Device or resource busy\n", "none", ()),
    ],
)
def test_what_may_follow(text: str, failure: str, ranks: tuple[int, ...], tmp_path: Path) -> None:
    """Launchers' lines and further complaints, but no work of the program itself."""
    assert found(text, tmp_path)[:2] == (failure, ranks)


def test_a_program_that_is_known_to_have_failed(tmp_path: Path) -> None:
    """What it wrote into its buffer before may follow the error."""
    assert found(f"{COPY}step 1\nstep 2\n", tmp_path, Known(code=1))[0] == "missing_file"
    assert found(COPY + "step 1\n" * 99, tmp_path, Known(code=1))[0] == "unknown"
    assert found(COPY, tmp_path, Known(code=0))[0] == "none"


def test_an_exception_that_the_program_caught(tmp_path: Path) -> None:
    """The program went on, and nothing else failed."""
    assert found(RAISED + "step 4 loss 0.2\n" * 300, tmp_path)[0] == "none"
    assert found(RAISED + "step 4 loss 0.2\nstep 5 loss 0.2\nstep 6 loss 0.2\n", tmp_path)[0] == "none"
    assert (
        found(RAISED + "wandb: epoch 1\nstep 5 loss 0.2\nstep 5 loss 0.2\nstep 6 loss 0.2\n", tmp_path)[0]
        == "user_code"
    )
    assert (
        found(RAISED + "step 4 loss 0.2\n" * 300 + "srun: error: n1: task 0: Exited with exit code 1\n", tmp_path)[0]
        == "user_code"
    )


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        ("FileNotFoundError: [Errno 2] No such file or directory: '/a'\n[2/5] a\n[3/5] a\n[4/5] a\n", "none"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/a'\n[2/5] a\n", "missing_file"),
        ("(raylet) A worker died or was killed while executing a task by an unexpected system error.\n"
         "(raylet) Task f failed. There are 3 retries remaining, so the task will be retried.\n[1, 2]\n", "none"),
    ],
)  # fmt: skip
def test_an_error_after_which_the_program_goes_on(text: str, failure: str, tmp_path: Path) -> None:
    """It makes further steps, or says that it tries again."""
    assert found(text, tmp_path)[0] == failure


@pytest.mark.parametrize(
    ("error", "alone"),
    [
        ("MemoryError", "host_oom"),
        ("RuntimeError: PytorchStreamReader failed reading zip archive: failed finding", "checkpoint"),
        ("NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.", "gpu_hw"),
    ],
)
def test_a_launcher_that_reports_no_failure(error: str, alone: str, tmp_path: Path) -> None:
    """Its rank caught the exception, also where the launcher repeats the line. It cannot catch a fault of the GPU."""
    rank = tmp_path / "rank1.err"
    rank.write_text(f"Traceback (most recent call last):\n{error}\n")
    assert of_files([rank], library.load()).cause.failure == alone
    agent = tmp_path / "agent.log"
    for said in ("", f"[default1]:{error}\n"):
        agent.write_text(said)
        found = of_files([rank, agent], library.load()).cause.failure
        assert found == ("gpu_hw" if alone == "gpu_hw" else "none")
    (tmp_path / "rank1.error.json").write_text(json.dumps({"message": {"message": error}}))  # it was not caught
    assert of_files([*tmp_path.iterdir()], library.load()).cause.failure == alone


def test_each_event_is_judged_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With thousands of ranks that caught an exception, once for each pair of events would take minutes."""
    judged: list[Event] = []
    real = aftermath._is_harmless
    monkeypatch.setattr(aftermath, "_is_harmless", lambda each: judged.append(each) or real(each))
    (tmp_path / "agent.log").write_text("")
    for rank in range(30):
        (tmp_path / f"rank{rank}.err").write_text("KeyError: 'x'\n")
    assert of_files(sorted(tmp_path.iterdir()), library.load()).cause.failure == "none"
    assert len(judged) == 30


def test_an_error_of_the_shell_that_the_job_survived(tmp_path: Path) -> None:
    """The batch script went on, and nothing else failed; without the lines after it, it is the cause."""
    wrong = "ERROR: Unable to locate a modulefile for 'cuda'\n"
    assert found(wrong + "step 4 loss 0.2\n" * 300, tmp_path)[0] == "none"
    assert found(wrong + "rows: 3\n" * 60, tmp_path)[0] == "none"
    for end in ("", "rows: 3\n" * 20, "rows: 3\n" * 60 + "cannot start\n"):
        assert found(wrong + end, tmp_path)[0] == "import_env", end
    assert found(wrong + "rows: 3\n" * 60, tmp_path, Known(code=1))[0] == "import_env"


OVER = "slurmstepd: error: *** JOB 41 ON n1 CANCELLED AT 2026-04-04T10:00:00 DUE TO TIME LIMIT ***\n"
STEPS = "step 4 loss 0.2\nstep 5 loss 0.2\nstep 6 loss 0.2\n"
ENDED = "srun: error: n1: tasks 0-3: Terminated\n"
IGNORED = "Exception ignored in: <function X.__del__ at 0x1>\n"
THROWN = 'Traceback (most recent call last):\n  File "x.py", line 3, in close\n    self.y()\nAttributeError: y\n'


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        (RAISED + STEPS + OVER, "time_limit"),
        (RAISED + STEPS + OVER + ENDED, "time_limit"),
        (RAISED + STEPS + OVER.replace(" DUE TO TIME LIMIT", ""), "cancelled"),
        ("module: command not found\n" + "cell 1 is ready\n" * 50 + OVER, "time_limit"),
        (STEPS + OVER + RAISED, "time_limit"),  # Slurm's SIGTERM raised it
        (RAISED + OVER, "user_code"),  # the others waited for that rank
        (RAISED + "n2: still waiting\n" * 300 + OVER, "user_code"),
        (RAISED + STEPS + "srun: error: n1: task 0: Exited with exit code 1\n" + OVER, "user_code"),
        (RAISED + STEPS + "failed (exitcode: 1) local_rank: 5 (pid: 7) of binary: python\n" + OVER, "user_code"),
    ],
)
def test_an_exception_before_slurm_ended_the_job(text: str, failure: str, tmp_path: Path) -> None:
    """A program that made steps after it had caught it; a rank that failed while the others waited had not."""
    assert found(text, tmp_path)[0] == failure


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        (f"{STEPS}{IGNORED}{THROWN}", "none"),
        (f"{STEPS}{IGNORED}BrokenPipeError: [Errno 32] Broken pipe\n", "none"),
        (f"{STEPS}Error in atexit._run_exitfuncs:\n{THROWN}", "none"),
        (f"{IGNORED}{THROWN}\nDuring handling of the above exception, another exception occurred:\n\n{THROWN}", "none"),
        (f"{IGNORED}{THROWN}{THROWN}", "user_code"),
        (f"{IGNORED}{THROWN}" * 12, "none"),  # more than are kept
        (f"{IGNORED}{THROWN}" * 12 + THROWN, "user_code"),
        ("".join(f"1: {line}\n0: step 1\n" for line in f"{IGNORED}{THROWN}".splitlines()), "none"),
    ],
)
def test_an_exception_that_python_ignored(text: str, failure: str, tmp_path: Path) -> None:
    """It ended no program; one that follows it may have."""
    assert found(text, tmp_path)[0] == failure


def test_more_exceptions_than_are_kept(tmp_path: Path) -> None:
    """Hundreds of lines follow the first ones. The last one ended the program."""
    assert found(RAISED * 99, tmp_path)[0] == "user_code"
    assert found(RAISED * 99 + "step 4 loss 0.2\n" * 300, tmp_path)[0] == "none"
    assert found("RuntimeError: 1\n" * 400, tmp_path)[0] == "user_code"


def test_modules_that_a_program_does_without(tmp_path: Path) -> None:
    """It says so, and goes on."""
    assert found(f"ModuleNotFoundError: No module named 'apex'\n{STEPS}", tmp_path)[0] == "none"
    assert found("ModuleNotFoundError: No module named 'apex'\n", tmp_path)[0] == "import_env"


DEACTIVATE = """\
CommandNotFoundError: Your shell has not been properly configured to use 'conda deactivate'.
To initialize your shell, run

    $ conda init <SHELL_NAME>
"""
YARN = "ERROR YarnClusterScheduler: Lost executor 9 on n9: Container killed by YARN for exceeding memory limits. 7.2 GB"


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        (DEACTIVATE, "import_env"),  # `set -e` ends the script there
        (f"{DEACTIVATE}step 1\nstep 2\n", "none"),
        ("CondaError: Run 'conda init' before 'conda deactivate'\nstep 1\nstep 2\n", "none"),
        (DEACTIVATE.replace("deactivate", "activate") + "step 1\n", "import_env"),
        (f"{YARN}\n", "host_oom"),
        (f"{YARN}\nINFO DAGScheduler: Job 0 finished\n", "none"),  # Spark started the executor again
        (f"SparkException: Job aborted due to stage failure: Task 3: {YARN}\nINFO SparkContext: stopped\n", "host_oom"),
    ],
)
def test_what_a_script_or_spark_survives(text: str, failure: str, tmp_path: Path) -> None:
    """It is the cause only where the log ends with it."""
    assert found(text, tmp_path)[0] == failure


@pytest.mark.parametrize(
    ("error", "after", "failure"),
    [
        ("Lmod has detected the following error: The following module(s) are unknown:\n", "Starting\nDONE\n", "none"),
        ("Lmod has detected the following error: The following module(s) are unknown:\n", "Starting\n", "import_env"),
        ("job.sh: line 1: !/usr/bin/bash: No such file or directory\n", "Task 1 done. Exiting.\n" * 12, "none"),
        ("job.sh: line 1: ./run: No such file or directory\n", "All done\n", "missing_file"),
        ("job.sh: line 1: ./run: No such file or directory\n", OVER, "time_limit"),  # the script still ran
    ],
)
def test_an_error_of_the_shell_after_which_all_was_done(error: str, after: str, failure: str, tmp_path: Path) -> None:
    """One word at the end is enough only after commands that prepare a program."""
    assert found(error + after, tmp_path)[0] == failure


def test_a_rank_that_survived_an_exception_and_then_lost_the_others(tmp_path: Path) -> None:
    """The one that failed began it, also if the other's exception is a better known one."""
    tracker = f"{THROWN.rpartition('AttributeError')[0]}urllib.error.URLError: <urlopen error [Errno 111] refused>\n"
    lost = THROWN.replace(
        "AttributeError: y",
        "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:33092",
    )
    chained = "\nDuring handling of the above exception, another exception occurred:\n\n"
    for between, error, failure, ranks in (
        ("", THROWN, "user_code", (1,)),
        (chained, THROWN, "external_service", (0,)),
        ("", lost, "external_service", (0,)),  # no other rank failed
    ):
        (tmp_path / "rank0.err").write_text(tracker + between + lost)
        (tmp_path / "rank1.err").write_text(error)
        cause = of_files(sorted(tmp_path.iterdir()), library.load()).cause
        assert (cause.failure, cause.ranks) == (failure, ranks)


EXITED = "failed (exitcode: 1) local_rank: 1 (pid: 10085) of binary: /opt/venv/bin/python3\n"


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        (f"{THROWN}{EXITED}[rank0] resuming from the snapshot\n{STEPS}training completed successfully\n", "none"),
        (f"{THROWN}{EXITED}{STEPS}", "user_code"),
        (f"{EXITED}[rank0] resuming at step 6\nstep 7\n", "unknown"),
        (f"training completed\nException in thread Thread-3 (_monitor):\n{THROWN}", "none"),
        (f"step 3\nException in thread Thread-3 (_monitor):\n{THROWN}", "user_code"),
    ],
)
def test_what_ended_nothing(text: str, failure: str, tmp_path: Path) -> None:
    """Torchrun started the ranks again, and they did all their work; a thread raised something after the work."""
    assert found(text, tmp_path)[0] == failure


def test_the_last_words_of_a_rank_with_two_files(tmp_path: Path) -> None:
    """Its stdout and its stderr; the launcher says that it failed."""
    agent = "Root Cause (first observed failure):\n[0]:\n  host      : n2\n  rank      : 1 (local_rank: 1)\n"
    (tmp_path / "agent.log").write_text(f"{EXITED}{agent}  exitcode  : 1 (pid: 9)\n")
    (tmp_path / "rank1.out").write_text("step 3\n")
    (tmp_path / "rank1.err").write_text("C1128 233102.303 loop: refresh failed, ending: ValueError('x')\n")
    cause = of_files(sorted(tmp_path.iterdir()), library.load()).cause
    assert (cause.failure, cause.ranks, cause.event and cause.event.source.rank) == ("user_code", (1,), 1)


def test_an_exception_of_a_rank_whose_launcher_reports_nothing(tmp_path: Path) -> None:
    """What ended a worker of its data loader did not end the rank. What a launcher itself raises is no such thing."""
    (tmp_path / "agent.log").write_text("")
    rank = tmp_path / "rank0.err"
    rank.write_text("RuntimeError: DataLoader worker (pid 9) is killed by signal: Segmentation fault.\n")
    assert of_files([*tmp_path.iterdir()], library.load()).cause.failure == "none"
    (tmp_path / "agent.log").write_text("torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError\n")
    assert of_files([*tmp_path.iterdir()], library.load()).cause.failure == "rendezvous"


def test_lines_of_other_ranks_after_an_exception(tmp_path: Path) -> None:
    """They do not show that the rank went on. After an exact line its own do not show it either."""
    for line, failure, own in (
        ("KeyError: 'x'", "user_code", "none"),
        ("OSError: [Errno 122] Disk quota exceeded", "quota", "quota"),
    ):
        error = f"[rank3]: Traceback (most recent call last):\n[rank3]: {line}\n"
        assert found(error + "[rank0]: fine\n" * 300, tmp_path)[:2] == (failure, (3,))
        assert found(error + "[rank3]: fine\n" * 300, tmp_path)[0] == own


def test_a_fault_that_ends_a_rank_whose_launcher_says_nothing(tmp_path: Path) -> None:
    """Its launcher may have been killed. No program works on with a GPU that has such a fault."""
    (tmp_path / "agent.log").write_text("")
    (tmp_path / "rank3.err").write_text(
        "Traceback (most recent call last):\nRuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    )
    assert of_files([*tmp_path.iterdir()], library.load()).cause.failure == "gpu_hw"


def test_advice_to_resume(tmp_path: Path) -> None:
    """It does not say that the ranks were started again."""
    assert found(f"{EXITED}To resume, run: sbatch resume.sh\nJob done\n", tmp_path)[0] == "unknown"


def test_a_job_in_a_listing(tmp_path: Path) -> None:
    """It may be another one."""
    assert found(f"{THROWN}1233 train gpu NODE_FAIL\n", tmp_path)[0] == "user_code"


def test_ranks_that_survived_exceptions_long_before_the_end(tmp_path: Path) -> None:
    """The other one failed."""
    lost = THROWN.replace("AttributeError: y", "ConnectionResetError: [Errno 104] Connection reset by peer")
    for rank in range(4):
        (tmp_path / f"rank{rank}.err").write_text(THROWN * 3 + "x\n" * 3000 + lost)
    (tmp_path / "rank4.err").write_text("KeyError: 1\n")
    assert of_files(sorted(tmp_path.iterdir()), library.load()).cause.ranks == (4,)
