"""Every call has an end, leaves nothing behind, and says whether the controller may have heard it."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_plugin.slurm import Slurm, SlurmAwayError, SlurmError, connect
from tests.unit.slurm.fake_commands import Bin, until_gone


def test_deadline(commands: Bin) -> None:
    """A command that hangs is killed with all that it started, and the error says what to look at."""
    at = commands.directory
    commands.script("scontrol", f"sleep 300 & echo $! > {at}/child\necho $$ > {at}/pid\nwait")
    start = time.monotonic()
    with pytest.raises(SlurmAwayError) as caught:
        connect(str(at), deadline_s=1.5).requeue(7)
    assert 1.5 <= time.monotonic() - start < 60
    assert caught.value.sent
    assert str(caught.value) == (
        "could not requeue job 7: scontrol gave no answer in 1.5 s\n  is slurmctld up? try: scontrol ping"
    )
    for name in ("pid", "child"):
        until_gone(int(commands.read(name)))


def test_what_came_before_the_deadline(commands: Bin) -> None:
    """What a command had complained of says why it hangs."""
    said = "scontrol: error: slurm_persist_conn_open: failed"
    commands.script("scontrol", f"echo part of an answer; echo '{said}' >&2; exec sleep 300")
    with pytest.raises(SlurmAwayError) as caught:
        connect(str(commands.directory), deadline_s=1.5).requeue(7)
    assert caught.value.sent
    assert str(caught.value) == (
        f"could not requeue job 7: scontrol gave no answer in 1.5 s, after: {said}\n"
        "  is slurmctld up? try: scontrol ping"
    )


LACKS = "echo 'squeue: error: Invalid job format specification: ExcNodes' >&2"


def test_deadline_of_two(commands: Bin) -> None:
    """Two that run at once share one deadline, and both are killed."""
    at = commands.directory
    commands.script("squeue", f"[ -e {at}/hang ] || {{ {LACKS}; exit 0; }}\necho $$ >> {at}/pids\nexec sleep 300")
    door = connect(str(at), deadline_s=1.5)
    assert door.jobs() == {}
    (at / "hang").touch()
    start = time.monotonic()
    with pytest.raises(SlurmAwayError, match=r"could not read the jobs: squeue gave no answer in 1\.5 s\n"):
        door.jobs()
    assert 1.5 <= time.monotonic() - start < 60
    pids = commands.read("pids").split()
    assert len(pids) == 2
    for pid in pids:
        until_gone(int(pid))


@pytest.mark.parametrize(("deadline_s", "run"), [(2.9, ["SQUEUE_FORMAT2", "SQUEUE_FORMAT"]), (0.3, ["SQUEUE_FORMAT2"])])
def test_deadline_of_the_first_question(commands: Bin, deadline_s: float, run: list[str]) -> None:
    """22.05: two that run one after the other share one deadline, too; the second is not run without time for it."""
    at = commands.directory
    commands.script(
        "squeue",
        f"name=SQUEUE_FORMAT${{SQUEUE_FORMAT2:+2}}\necho $name >> {at}/names; echo $$ >> {at}/pids\n"
        f"[ $name = SQUEUE_FORMAT2 ] || exec sleep 300\n{LACKS}; sleep 1.5",
    )
    start = time.monotonic()
    with pytest.raises(SlurmAwayError, match=f"could not read the jobs: squeue gave no answer in {deadline_s} s"):
        connect(str(at), deadline_s=deadline_s).jobs()
    assert deadline_s <= time.monotonic() - start < deadline_s + 1.2  # one for each would take 0.3 s longer
    assert commands.read("names").split() == run
    for pid in commands.read("pids").split():
        until_gone(int(pid))


CALLS: dict[str, Callable[[Slurm], object]] = {
    "squeue": lambda door: door.jobs(),
    "scontrol": lambda door: door.requeue(7),
    "scancel": lambda door: door.cancel(7),
    "sbatch": lambda door: door.submit(""),
}
# What the commands say, and whether the question may have arrived; tests/captured/door has them as they came.
AWAY = {
    "slurm_load_jobs error: Unable to contact slurm controller (connect failure)": False,
    "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)": False,
    "slurm_load_jobs error: Connection refused": False,
    "slurm_load_node error: Slurm backup controller in standby mode": False,
    "Unexpected message received for job 1": True,
    "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation": True,
    "slurm_load_jobs error: Zero Bytes were transmitted or received": True,
    "slurm_load_jobs error: Unable to contact slurm controller (send failure)": True,
    "scancel: error: Kill job error on job id 1: Communication connection failure": True,
    "Connection reset by peer": True,
}


@pytest.mark.parametrize(("said", "sent"), AWAY.items(), ids=AWAY)
@pytest.mark.parametrize(("program", "call"), CALLS.items(), ids=CALLS)
def test_controller_that_is_away(
    commands: Bin, program: str, call: Callable[[Slurm], object], said: str, sent: bool
) -> None:
    """An error of its own, with Slurm's words, what to try, and whether it may have been done all the same."""
    commands.script(program, f"echo '{said}' >&2; exit 1")
    with pytest.raises(SlurmAwayError) as caught:
        call(connect(str(commands.directory)))
    assert caught.value.sent is sent
    assert str(caught.value).endswith(f": {program} said: {said}\n  is slurmctld up? try: scontrol ping")


REFUSALS = ["Access/permission denied", "Invalid user id for job 1", "Job is pending execution for job 7", "Socket", ""]


@pytest.mark.parametrize("said", REFUSALS)
@pytest.mark.parametrize(("program", "call"), CALLS.items(), ids=CALLS)
def test_refusal_is_not_away(commands: Bin, program: str, call: Callable[[Slurm], object], said: str) -> None:
    """A controller that says no is there: to ask it again would not help."""
    commands.script(program, f"echo '{said}' >&2; exit 1")
    with pytest.raises(SlurmError) as caught:
        call(connect(str(commands.directory)))
    assert not isinstance(caught.value, SlurmAwayError)


def test_words_of_a_command_that_did_it(commands: Bin) -> None:
    """A warning beside an exit code of 0 is no error, whatever it says."""
    commands.recorded("scontrol", "\n", "Unable to contact slurm controller (connect failure)\n")
    connect(str(commands.directory)).requeue(7)


def test_interrupted(commands: Bin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ends a call early, Ctrl-C as well, its command does not live on."""
    at: Path = commands.directory
    commands.script("scontrol", f"echo $$ > {at}/pid.new; mv {at}/pid.new {at}/pid; exec sleep 300")

    def interrupt(*_: object, **__: object) -> None:
        end = time.monotonic() + 60
        while not (at / "pid").exists():
            assert time.monotonic() < end
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr("subprocess.Popen.communicate", interrupt)
    with pytest.raises(KeyboardInterrupt):
        connect(str(at)).requeue(7)
    until_gone(int(commands.read("pid")))
