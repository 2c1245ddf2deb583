"""How ranks ended, as launchers print it."""

import signal

import pytest

from slurm_plugin.logs.endings import MOST, Ended, failed_nodes, first, read, stopped

TORCHRUN = """\
Failures:
[1]:
  time      : 2026-11-23_04:23:43
  host      : n1
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 29833)  (SIGTERM)
Root Cause (first observed failure):
[0]:
  time      : 2026-11-23_04:23:43
  host      : n2
  rank      : 2 (local_rank: 0)
  exitcode  : -9 (pid: 29837)  (SIGKILL)
"""


def test_torchrun() -> None:
    """Its summary has every rank that failed."""
    assert read(TORCHRUN) == {
        0: Ended(-15, "n1", "2026-11-23_04:23:43", outside=True, pid="29833"),
        2: Ended(-9, "n2", "2026-11-23_04:23:43", outside=True, first=True, pid="29837"),
    }


def test_srun() -> None:
    """A signal by its name, ranges of tasks, a core file."""
    text = (
        "srun: error: n1: task 0: Segmentation fault (core dumped)\n"
        "srun: error: n2: tasks 2-3: Exited with exit code 7\n"
        "srun: error: n[3-4]: tasks 4,6: Killed\n"
        "srun: error: n5: task 8: Something else\n"
    )
    assert read(text) == {
        0: Ended(-signal.SIGSEGV, "n1", first=True),
        2: Ended(7, "n2"),
        3: Ended(7, "n2"),
        4: Ended(-signal.SIGKILL),
        6: Ended(-signal.SIGKILL),
    }


@pytest.mark.parametrize(
    ("text", "rank", "end"),
    [
        (
            "mpirun noticed that process rank 3 with PID 0 on node n1 exited on signal 11 (Segmentation fault).\n",
            3,
            Ended(-signal.SIGSEGV, "n1", first=True, pid="0"),
        ),
        (
            "mpirun noticed that process rank 0 with PID 7 on node n1 exited on \nsignal 6 (Aborted).\n",
            0,
            Ended(-signal.SIGABRT, "n1", first=True, pid="7"),
        ),
        (
            "mpirun has exited due to process rank 2 with PID 0 on\nnode n1 exiting improperly. There are three\n",
            2,
            Ended(0, "n1", first=True, pid="0"),
        ),
        (
            'mpirun has exited due to process rank 2 with PID 9 on\nnode n1 exiting without calling "finalize". This\n',
            2,
            Ended(0, "n1", first=True, pid="9"),
        ),
        (
            "The first process to do so was:\n\n  Process name: [[28275,1],2]\n  Exit code:    7\n",
            2,
            Ended(7, first=True),
        ),
        (
            "The first process to do so was:\n\n   Process name: [prterun-n1-77@1,2]\n   Exit code:    7\n",
            2,
            Ended(7, first=True),
        ),
        (
            "MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\nwith errorcode 7.\n",
            2,
            Ended(7, first=True),
        ),
        (
            "MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\n  Proc: [[1,1],2]\n  Errorcode: 7\n",
            2,
            Ended(7, first=True),
        ),
    ],
)
def test_mpirun(text: str, rank: int, end: Ended) -> None:
    """The rank that it noticed first, in the words of Open MPI 1, 4 and 5."""
    assert read(text) == {rank: end}


def test_pals() -> None:
    """The rank that it names first ended first."""
    text = "n7.cm.example.gov: rank 23 exited with code 134\nn8.cm.example.gov: rank 25 died from signal 15\n"
    assert read(text) == {23: Ended(134, "n7", first=True), 25: Ended(-signal.SIGTERM, "n8")}


def test_who_ended_first() -> None:
    """By the launcher's word; of several launchers, the earliest."""
    ends = {0: Ended(-15, "n1", "4"), 2: Ended(1, "n2", "5", first=True), 3: Ended(1, "n3", "6", first=True)}
    assert first(ends) == 2
    assert first({**ends, 2: Ended(1, "n2", "6", first=True)}) is None
    assert first({}) is None


def test_what_a_launcher_had_to_end() -> None:
    """A process that it told to end was alive; one whose signal it did not send was ended by somebody else."""
    told = "".join(f"W1123 api.py:1028] Sending process {pid} closing signal SIGTERM\n" for pid in (29833, 7))
    assert stopped(told + TORCHRUN) == 1
    assert not read(told + TORCHRUN)[0].outside
    assert read(told.replace("29833", "8") + TORCHRUN)[0].outside


def test_numbers_that_are_too_many() -> None:
    """A text that names a thousand million tasks costs nothing."""
    assert read("srun: error: n1: tasks 0-999999999999: Killed\n") == {}
    assert len(read(f"srun: error: n1: tasks {'0-99999,' * 100}7: Killed\n" * 1000)) == MOST
    assert read(f"host : n1\n rank : {'9' * 5000} (local_rank: 0)\n exitcode : 1 (pid: 2)\n") == {}


def test_tasks_that_are_launchers() -> None:
    """The number of such a task is that of its node, and no rank."""
    text = "srun: error: n3: task 1: Exited with exit code 5\n"
    assert read(text) == {1: Ended(5, "n3", first=True)}
    assert read(text, by_node=True) == {}


FAILED_2 = "srun: error: n2: task 1: Exited with exit code 1\n"
ENDS = "srun: launch/slurm: _step_signal: Terminating StepId=1.1\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"{FAILED_2}{ENDS}srun: error: n1: task 0: Terminated\n", {"n2"}),
        (f"{FAILED_2}{ENDS}srun: error: n1: task 0: Exited with exit code 1\n", {"n2"}),
        ("srun: error: n2: task 1: Killed\nsrun: Terminating StepId=1.1\n", {"n2"}),
        (f"{FAILED_2}srun: error: n[1,3]: tasks 0,2: Exited with exit code 1\n{ENDS}", {"n1", "n2", "n3"}),
        (FAILED_2, set()),
    ],
)
def test_the_node_whose_launcher_failed(text: str, found: set[str]) -> None:
    """srun ends the others."""
    assert failed_nodes(text) == found
