"""Every call ends at its deadline, leaves no process, and says whether it may have reached the controller."""

import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from slurm_plugin.slurm import Slurm, SlurmAwayError, SlurmError
from slurm_plugin.slurm.commands import Commands
from slurm_plugin.slurm.process import Command, Result, run_together
from tests.gone import until_gone
from tests.unit.slurm.fake_commands import Bin
from tests.waiting import HANG_S, until

SHORT_S = 0.2


def wait_before_the_deadline(monkeypatch: pytest.MonkeyPatch, sign: Callable[[], object]) -> None:
    """Wait for a command's answer only from the moment of this sign."""
    real = subprocess.Popen.communicate

    def communicate(process: "subprocess.Popen[bytes]", *words: Any, **more: Any) -> Any:
        until(sign)
        return real(process, *words, **more)

    monkeypatch.setattr(subprocess.Popen, "communicate", communicate)


def pids(bin_: Bin, number: int) -> list[int]:
    """Return the processes that the commands have written; none until all have."""
    path = bin_.directory / "pids"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return list(map(int, lines)) if len(lines) == number and lines[-1].endswith("\n") else []


def test_deadline(commands: Bin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hanging command is killed with its children; the error has the next command."""
    at = commands.directory
    commands.script("scontrol", f"sleep 3600 & echo $! >> {at}/pids\necho $$ >> {at}/pids\nwait")
    wait_before_the_deadline(monkeypatch, lambda: pids(commands, 2))
    start = time.monotonic()
    with pytest.raises(SlurmAwayError) as caught:
        commands.door(SHORT_S).requeue(7)
    assert time.monotonic() - start >= SHORT_S
    assert caught.value.sent
    assert str(caught.value) == (
        "could not requeue job 7: scontrol gave no answer in 0.2 s\n  is slurmctld up? try: scontrol ping"
    )
    until_gone(*pids(commands, 2))


def test_what_came_before_the_deadline(commands: Bin, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the output of the hanging command."""
    at, said = commands.directory, "scontrol: error: slurm_persist_conn_open: failed"
    commands.script("scontrol", f"echo part of an answer; echo '{said}' >&2; touch {at}/said; exec sleep 3600")
    wait_before_the_deadline(monkeypatch, (at / "said").exists)
    with pytest.raises(SlurmAwayError) as caught:
        commands.door(SHORT_S).requeue(7)
    assert caught.value.sent
    assert str(caught.value) == (
        f"could not requeue job 7: scontrol gave no answer in 0.2 s, after: {said}\n"
        "  is slurmctld up? try: scontrol ping"
    )


LACKS = "echo 'squeue: error: Invalid job format specification: ExcNodes' >&2"


def test_deadline_of_two(commands: Bin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two commands side by side share one deadline, and both are killed."""
    at = commands.directory
    commands.script("squeue", f"[ -e {at}/hang ] || {{ {LACKS}; exit 0; }}\necho $$ >> {at}/pids\nexec sleep 3600")
    door: Any = commands.door()
    assert door.jobs() == {}
    (at / "hang").touch()
    door._deadline_s = SHORT_S
    wait_before_the_deadline(monkeypatch, lambda: pids(commands, 2))
    with pytest.raises(SlurmAwayError, match=r"could not read the jobs: squeue gave no answer in 0\.2 s\n"):
        door.jobs()
    until_gone(*pids(commands, 2))


def test_deadline_of_the_first_question(commands: Bin, monkeypatch: pytest.MonkeyPatch) -> None:
    """22.05: two commands in a row share one deadline."""
    commands.script("squeue", f"{LACKS}; sleep 0.5")
    left: list[float] = []

    def noted(argvs: Sequence[Command], *, deadline_s: float, **more: Any) -> list[Result]:
        left.append(deadline_s)
        return run_together(argvs, deadline_s=deadline_s, **more)

    monkeypatch.setattr("slurm_plugin.slurm.process.run_together", noted)
    assert commands.door().jobs() == {}
    first, second = left
    assert second + 0.5 <= first <= HANG_S


def test_no_time_for_the_second_question(commands: Bin, monkeypatch: pytest.MonkeyPatch) -> None:
    """22.05: the second command does not run after a missed deadline."""
    at = commands.directory
    commands.script("squeue", f"echo $$ >> {at}/pids; {LACKS}; exec sleep 3600")
    wait_before_the_deadline(monkeypatch, lambda: pids(commands, 1))
    with pytest.raises(SlurmAwayError, match=r"could not read the jobs: squeue gave no answer in 0\.2 s"):
        commands.door(SHORT_S).jobs()
    until_gone(*pids(commands, 1))


CALLS: dict[str, Callable[[Slurm], object]] = {
    "squeue": lambda door: door.jobs(),
    "scontrol": lambda door: door.requeue(7),
    "scancel": lambda door: door.cancel(7),
    "sbatch": lambda door: door.submit(""),
}
# The commands' messages, and whether the request may have arrived. tests/captured/door has the captured ones.
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


class Says(Commands):
    """A back end whose commands print this, and fail."""

    def __init__(self, said: str) -> None:
        super().__init__()
        self.said = said

    def _run(self, commands: Sequence[Command], end: float) -> list[Result]:
        return [Result(1, "", f"{self.said}\n") for _ in commands]


def refusals(words: Iterable[str]) -> Iterable[tuple[str, str, SlurmError]]:
    """Return each call's error for each message: the program, the message, and the error."""
    for program, call in CALLS.items():
        for said in words:
            with pytest.raises(SlurmError) as caught:
                call(Says(said))
            yield program, said, caught.value


def test_controller_that_is_away() -> None:
    """A specific error, with Slurm's message, what to try, and whether the request may have been done."""
    for program, said, error in refusals(AWAY):
        assert isinstance(error, SlurmAwayError), (program, said)
        assert error.sent is AWAY[said], (program, said)
        assert str(error).endswith(f": {program} said: {said}\n  is slurmctld up? try: scontrol ping")


REFUSALS = ["Access/permission denied", "Invalid user id for job 1", "Job is pending execution for job 7", "Socket", ""]


def test_refusal_is_not_away() -> None:
    """A refusal is no absent controller."""
    for program, said, error in refusals(REFUSALS):
        assert not isinstance(error, SlurmAwayError), (program, said)


def test_words_of_a_command_that_did_it(commands: Bin) -> None:
    """A warning with exit code 0 is no error."""
    commands.recorded("scontrol", "\n", "Unable to contact slurm controller (connect failure)\n")
    commands.door().requeue(7)


def test_interrupted(commands: Bin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C kills the command of a call."""
    at = commands.directory
    commands.script("scontrol", f"echo $$ >> {at}/pids; exec sleep 3600")

    def interrupt(*_: object, **__: object) -> None:
        until(lambda: pids(commands, 1))
        raise KeyboardInterrupt

    monkeypatch.setattr("subprocess.Popen.communicate", interrupt)
    with pytest.raises(KeyboardInterrupt):
        commands.door().requeue(7)
    until_gone(*pids(commands, 1))
