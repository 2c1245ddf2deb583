"""Asking when a job would start: what `sbatch --test-only` says of it, on each release."""

from datetime import UTC, datetime

import pytest

from slurm_plugin.slurm import Forecast, SlurmAwayError, SlurmError, connect, records
from tests.unit.slurm.fake_commands import Bin

SAID = "sbatch: Job 1 to start at 2026-11-21T23:40:35 using 2 processors on nodes n[1-2] in partition main\n"
START = datetime.fromisoformat("2026-11-21T23:40:35").astimezone(UTC)  # of the zone of whoever asks
NO_NODES = "allocation failure: Requested node configuration is not available\n"


@pytest.mark.parametrize(
    "text",
    [
        SAID,
        SAID.replace("23:40:35", "23:40:35 a"),  # 26.05.5
        f"sbatch: a word of the site\nsbatch: Job 9 to start at soon\n{SAID}",
    ],
)
def test_said(text: str) -> None:
    """The time, the nodes and the partition, behind whatever the site's job_submit.lua says."""
    assert records.forecast(text) == Forecast(START, "n[1-2]", "main")


def test_said_of_a_heterogeneous_job() -> None:
    """The nodes of all components, and no partition."""
    text = "sbatch: Job 9 to start at 2026-11-21T23:40:35 using 5 processors on n[1-2]\n"
    assert records.forecast(text) == Forecast(START, "n[1-2]")


@pytest.mark.parametrize("text", ["", "sbatch: Job 1 to start at\n", SAID.replace("2026-", "")])
def test_not_said(text: str) -> None:
    """Nothing is made of what is not there."""
    assert records.forecast(text) is None


def test_asked(commands: Bin) -> None:
    """The script on stdin, the caller's own zone, and a format of times that nobody's variable changes."""
    commands.recorded("sbatch", "", SAID)
    door = connect(str(commands.directory))
    assert door.forecast("#!/bin/sh\n", arguments=["--nodes=2"], directory="/") == Forecast(START, "n[1-2]", "main")
    assert commands.argv() == ["--test-only", "--nodes=2"]
    assert commands.read("stdin") == "#!/bin/sh\n"
    assert commands.read("pwd") == "/\n"
    assert commands.environment()["SLURM_TIME_FORMAT"] == "standard"


def test_refused(commands: Bin) -> None:
    """That is an answer."""
    commands.recorded("sbatch", "", NO_NODES, 1)
    assert connect(str(commands.directory)).forecast("") == Forecast(refused=NO_NODES.strip())


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("", 137),
        ("sbatch: fatal: out of memory\n", 1),
        ("allocation failure: Protocol authentication error\n", 1),
        ("allocation failure: Slurm temporarily unable to accept job, sleeping and retrying: timed out\n", 1),
    ],
)
def test_nobody_could_tell(commands: Bin, said: str, code: int) -> None:
    """What goes wrong on the way is no word on the job."""
    commands.recorded("sbatch", "", said, code)
    with pytest.raises(SlurmError, match="could not ask when the job would start"):
        connect(str(commands.directory)).forecast("")


def test_no_answer(commands: Bin) -> None:
    """A controller that is away says nothing of the job, nor does an sbatch that says no time."""
    commands.recorded("sbatch", "", "sbatch: error: Unable to contact slurm controller (connect failure)\n", 1)
    with pytest.raises(SlurmAwayError, match="could not ask when the job would start"):
        connect(str(commands.directory)).forecast("")
    commands.recorded("sbatch", "", "Submitted batch job 7\n")
    with pytest.raises(SlurmError, match="sbatch said: Submitted batch job 7"):
        connect(str(commands.directory)).forecast("")
