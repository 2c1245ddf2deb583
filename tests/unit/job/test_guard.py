"""The guard of a node, as a process of its own: what it answers, and when it ends the ranks beside it."""

import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from subprocess import Popen

import pytest

from prechecks import seen
from slurm_plugin.hooks import marker
from slurm_plugin.job import barrier, files, guard, turn
from tests.guarded import EOF_S, LEASE_S, MOST_BYTES, Machine, Talk, until

AGES = 600.0  # a lease that does not run out in a test
KILLED = -signal.SIGKILL


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """This machine, as a node of a job of its own."""
    machine = Machine(tmp_path)
    yield machine
    machine.close()


def question(machine: Machine, **fields: object) -> str:
    """A question as the supervisor writes it, about nothing unless told otherwise."""
    plain = barrier.Request(
        hook="barrier",
        job_id=machine.job_id,
        directory="7.0.0",
        run_directory=str(machine.directory / "run"),
        hosts="n[1-2]",
        infiniband=False,
        check=False,
        settings={"deadline_s": 10.0},
    )
    return json.dumps({**asdict(plain), **fields})


def answered(line: str, number: int, node: str) -> bool:
    """Whether a line is this node's whole answer to a question."""
    part = barrier.part(line)
    assert part, line
    assert prechecks_of(part[4]) == node
    return part[:4] == (number, node, 1, 1)


def prechecks_of(text: str) -> str:
    """Whose report this is."""
    return str(json.loads(text)["node"])


def beaten(talk: Talk, number: int = 1) -> str:
    """What a guard says to a beat."""
    talk.tell(f"beat {number}")
    return talk.line()


def lives(rank: "Popen[bytes]") -> bool:
    """Whether nobody has ended it."""
    return rank.poll() is None


def test_questions_are_answered(machine: Machine) -> None:
    """Each with its number, any number of times, in whatever pieces they come."""
    talk = machine.guard("n2")
    first, second = f"ask 3 {question(machine)}\nask 4", f" {question(machine)}\n"
    assert talk.stdin
    talk.stdin.write(first.encode())
    assert answered(talk.line(), 3, "n2")
    talk.stdin.write(second.encode())
    assert answered(talk.line(), 4, "n2")
    assert talk.end() == 0


def test_a_beat_is_answered(machine: Machine) -> None:
    """With its number, and nothing more from a node that is in service."""
    talk = machine.guard("n2", lease_s=AGES)
    assert beaten(talk, 8) == "slurm_plugin-guard n2 alive 8"
    assert beaten(talk, 9) == "slurm_plugin-guard n2 alive 9"


def test_words_of_a_later_version(machine: Machine) -> None:
    """Are passed over."""
    talk = machine.guard("n2", lease_s=AGES)
    talk.tell("sing 1 loud", "", "beat 1")
    assert talk.line() == "slurm_plugin-guard n2 alive 1"


@pytest.mark.parametrize(("nodes", "beats"), [(1, 1), (64, 1), (65, 2), (128, 2), (129, 3), (10_000, 8)])
def test_period(nodes: int, beats: int) -> None:
    """At most 64 answers a beat, however many nodes there are."""
    assert guard.period(nodes) == beats


def test_guards_of_many_nodes_take_turns(machine: Machine) -> None:
    """Of 65 every second one answers a beat, by its place."""
    talk = machine.guard("n2", tasks=65, number=1, lease_s=AGES)
    talk.tell("beat 1", "beat 2", "beat 3")
    assert [talk.line(), talk.line()] == ["slurm_plugin-guard n2 alive 1", "slurm_plugin-guard n2 alive 3"]


@pytest.mark.skipif(os.geteuid() != 0, reason="what root remembers is root's own file")
def test_a_drained_node_says_why(machine: Machine, tmp_path: Path) -> None:
    """As root's check has written it down, in one line; only where Slurm has said yes to it."""
    state = str(tmp_path / "state")
    talk = machine.guard("n2", lease_s=AGES)
    talk.tell(f"ask 1 {question(machine, settings={'deadline_s': 10.0, 'state': state})}")
    assert answered(talk.line(), 1, "n2")
    assert beaten(talk) == "slurm_plugin-guard n2 alive 1"
    for done, told in ((False, ""), (True, " slurm_plugin: gpu-check: 3 of 4 GPUs")):
        seen.save(state, marker.DRAINED, {"reason": "slurm_plugin: gpu-check:\n3 of 4  GPUs", "done": done})
        assert beaten(talk) == f"slurm_plugin-guard n2 alive 1{told}"


def test_a_check_that_hangs_keeps_no_beat_from_its_answer(machine: Machine) -> None:
    """Questions are answered by processes of their own, and the guard ends without them."""
    report = machine.directory / "run/jobs/7.0.0/report.json"
    report.parent.mkdir(parents=True)
    os.mkfifo(report)
    talk = machine.guard("n2", lease_s=AGES)
    talk.tell(f"ask 1 {question(machine, check=True)}")
    assert beaten(talk) == "slurm_plugin-guard n2 alive 1"
    talk.tell("bye n2")
    assert talk.wait(10) == 0


def test_wipe(machine: Machine) -> None:
    """Ends what the attempt has left; the answer says how much cannot be ended. The guard stays."""
    rank, talk = machine.rank(), machine.guard("n2", lease_s=AGES)
    assert beaten(talk)
    talk.tell("wipe 5")
    assert talk.line() == "slurm_plugin-guard n2 gone 5 0"
    assert rank.wait(10) == KILLED
    assert beaten(talk, 6) == "slurm_plugin-guard n2 alive 6"


def test_a_wipe_before_the_first_beat_begins_no_lease(machine: Machine) -> None:
    """Nobody would renew it."""
    talk = machine.guard("n2", lease_s=0.2)
    talk.tell("wipe 1")
    assert talk.line() == "slurm_plugin-guard n2 gone 1 0"
    rank = machine.rank()
    time.sleep(0.5)
    assert lives(rank)
    assert lives(talk)


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_the_supervisor_is_spared_where_it_is(machine: Machine, node: str) -> None:
    """On the first node; elsewhere that pid is anybody's."""
    supervisor = machine.rank()
    talk = machine.guard(node, lease_s=AGES, supervisor=supervisor.pid)
    talk.tell("beat 1", "wipe 2")
    assert talk.line() == f"slurm_plugin-guard {node} alive 1"
    assert talk.line() == f"slurm_plugin-guard {node} gone 2 0"
    assert lives(supervisor) == (node == "n1")


def test_bye(machine: Machine) -> None:
    """Ends the guards of the nodes that it names, and nothing else; those of others go on."""
    rank, talk = machine.rank(), machine.guard("n2", lease_s=AGES)
    talk.tell("beat 1", "bye n[3-20],n1", "beat 2")
    assert talk.line() == "slurm_plugin-guard n2 alive 1"
    assert talk.line() == "slurm_plugin-guard n2 alive 2"
    talk.tell("bye n[1-2]", "bye n1")
    assert talk.wait(10) == 0
    assert lives(rank)


def test_a_lease_that_runs_out(machine: Machine) -> None:
    """The node's ranks are ended, and then the guard: it can be told nothing any more."""
    rank, talk = machine.rank(), machine.guard("n2")
    start = time.monotonic()
    assert beaten(talk)
    assert rank.wait(10) == KILLED
    assert time.monotonic() - start > LEASE_S * 0.9
    assert talk.wait(10) == 0


def test_beats_renew_the_lease(machine: Machine) -> None:
    """For as long as they come."""
    rank, talk = machine.rank(), machine.guard("n2", lease_s=0.8)
    for number in range(12):
        assert beaten(talk, number)
        time.sleep(0.1)
    assert lives(rank)
    assert rank.wait(10) == KILLED


@pytest.mark.parametrize("goes_on", [True, False])
@pytest.mark.parametrize("still_s", [0.7, 1.5])
def test_a_job_that_is_suspended_and_resumed(machine: Machine, still_s: float, goes_on: bool) -> None:
    """All of it stood still, the guard too, or the network did: its ranks are stopped until a beat comes that is fresh.

    What waited on stdin says nothing of now. Where none comes the node counts as lost, and they are ended.
    """
    rank, talk = machine.rank(), machine.guard("n2", lease_s=0.6)
    assert beaten(talk)
    talk.send_signal(signal.SIGSTOP)
    talk.tell(*(f"beat {number} {time.monotonic()}" for number in (2, 3)))
    time.sleep(still_s)
    talk.send_signal(signal.SIGCONT)
    assert until(lambda: state(rank) == "T")
    if goes_on:
        talk.tell(f"beat 4 {time.monotonic()}")
        assert until(lambda: state(rank) != "T")
        assert talk.line().split()[2:4] == ["alive", "4"]
        assert lives(rank)
    else:
        assert talk.wait(10) == 0
        assert rank.wait(10) == KILLED


def test_beats_that_come_one_by_one_behind_a_cut_hold_no_lease(machine: Machine) -> None:
    """Each was sent long before: the lease counts from the sending, as the supervisor counts."""
    rank, talk = machine.rank(), machine.guard("n2", lease_s=0.6)
    talk.tell(f"beat 1 {time.monotonic()}")
    sent = time.monotonic() + 0.05
    time.sleep(0.4)
    for number in range(2, 5):
        talk.tell(f"beat {number} {sent}")
        time.sleep(0.2)
    assert until(lambda: state(rank) == "T", 0.3)


def state(process: "Popen[bytes]") -> str:
    """Its letter in /proc: T where it is stopped."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_an_end_before_the_first_beat(machine: Machine) -> None:
    """Nothing of ours runs there: the guard ends at once, and ends nothing."""
    rank, talk = machine.rank(), machine.guard("n2", lease_s=AGES, eof_s=AGES)
    talk.tell(f"ask 1 {question(machine)}")
    assert answered(talk.line(), 1, "n2")
    assert talk.end() == 0
    assert lives(rank)


def test_an_end_of_the_supervisor(machine: Machine) -> None:
    """The ranks are ended soon, not at once: Slurm may be about to end them itself."""
    rank, talk = machine.rank(), machine.guard("n2", lease_s=AGES)
    assert beaten(talk)
    start = time.monotonic()
    assert talk.end() == 0
    assert time.monotonic() - start > EOF_S * 0.9
    assert rank.wait(10) == KILLED


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_end_by_slurm(machine: Machine, number: signal.Signals) -> None:
    """It ends all of the job, and the program may take its time to save; the guard does not shorten that."""
    rank, talk = machine.rank(), machine.guard("n2", lease_s=AGES, eof_s=0.2)
    assert beaten(talk)
    talk.send_signal(number)
    assert talk.end() == 0
    assert lives(rank)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP])
def test_signals_that_end_nothing(machine: Machine, number: signal.Signals) -> None:
    """A program is told to save by them; a supervisor that ends then has ended by itself."""
    rank, talk = machine.rank(), machine.guard("n2", lease_s=AGES, eof_s=0.2)
    assert beaten(talk)
    talk.send_signal(number)
    assert beaten(talk, 2) == "slurm_plugin-guard n2 alive 2"
    assert talk.end() == 0
    assert rank.wait(10) == KILLED


def test_slurms_signal_does_not_keep_a_lease(machine: Machine) -> None:
    """A supervisor that is there and not heard may be cut off: what it was told then counts for nothing."""
    rank, talk = machine.rank(), machine.guard("n2", lease_s=0.4)
    assert beaten(talk)
    talk.send_signal(signal.SIGTERM)
    assert talk.wait(10) == 0
    assert rank.wait(1) == KILLED


def test_a_later_run(machine: Machine) -> None:
    """The first node sees it, ends the ranks there and tells the supervisor; an attempt of the same run is none."""
    rank, talk = machine.rank(), machine.guard("n1", lease_s=AGES)
    turn.take(machine.directory, 1, 4)
    assert beaten(talk)
    time.sleep(0.2)
    assert lives(rank)
    turn.take(machine.directory, 2, 5)
    assert talk.line() == "slurm_plugin-guard n1 turn 1"
    assert rank.wait(10) == KILLED
    assert beaten(talk, 2) == "slurm_plugin-guard n1 alive 2"


def test_another_cluster_has_a_job_of_this_number(machine: Machine) -> None:
    """In the same directory, on a file system that both have: its runs are no later runs of this one."""
    rank, talk = machine.rank(), machine.guard("n1", lease_s=AGES, cluster="ours")
    turn.take(machine.directory, 1, 4, "ours")
    assert beaten(talk)
    time.sleep(0.2)
    turn.take(machine.directory, 2, 5, "theirs")
    time.sleep(0.2)
    assert lives(rank)
    turn.take(machine.directory, 2, 5, "ours")
    assert talk.line() == "slurm_plugin-guard n1 turn 1"


def test_only_the_first_node_looks_for_a_later_run(machine: Machine) -> None:
    """Thousands of nodes that read one file each second are a load of their own."""
    talk = machine.guard("n2", lease_s=AGES)
    assert beaten(talk)
    turn.take(machine.directory, 2, 5)
    time.sleep(0.2)
    assert beaten(talk, 2) == "slurm_plugin-guard n2 alive 2"


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_who_looks_for_a_later_run_is_ended(machine: Machine) -> None:
    """By a user's `pkill python`, or for memory: no later run has begun by that, and the next one is still seen."""
    rank, talk = machine.rank(), machine.guard("n1", lease_s=AGES, cluster="ours")
    turn.take(machine.directory, 1, 4, "ours")
    assert beaten(talk)
    time.sleep(0.2)
    (looks,) = children(talk.pid)
    os.kill(looks, signal.SIGKILL)
    assert until(lambda: len({*children(talk.pid)} - {looks}) == 1)
    assert beaten(talk, 2) == "slurm_plugin-guard n1 alive 2"
    assert lives(rank)
    turn.take(machine.directory, 2, 5, "theirs")
    time.sleep(0.2)
    assert lives(rank)
    files.write(machine.directory / turn.NAME, "2 5\n")
    assert talk.line() == "slurm_plugin-guard n1 turn 1"


def test_a_line_without_an_end(machine: Machine) -> None:
    """Fills no memory: the guard ends, and its silence tells."""
    talk = machine.guard("n2")
    assert talk.stdin
    with pytest.raises(BrokenPipeError):
        for _ in range(64):
            talk.stdin.write(b"a" * MOST_BYTES)
    assert talk.wait(10) == 1
