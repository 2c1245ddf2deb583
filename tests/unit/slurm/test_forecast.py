"""When a job would start: the output of `sbatch --test-only` on each release."""

from datetime import UTC, datetime

import pytest

from slurm_plugin.slurm import Forecast, SlurmAwayError, SlurmError, parse
from tests.unit.slurm.fake_commands import Bin

SAID = "sbatch: Job 1 to start at 2026-11-21T23:40:35 using 2 processors on nodes n[1-2] in partition main\n"
START = datetime.fromisoformat("2026-11-21T23:40:35").astimezone(UTC)  # in the caller's time zone
NO_NODES = "allocation failure: Requested node configuration is not available\n"


@pytest.mark.parametrize(
    "text",
    [
        SAID,
        SAID.replace("23:40:35", "23:40:35 a"),  # 26.05.5
        SAID.replace("23:40:35", "23:40:35 on cluster beta a"),
        f"sbatch: a word of the site\nsbatch: Job 9 to start at soon\n{SAID}",
    ],
)
def test_said(text: str) -> None:
    """The time, the nodes and the partition, after the output of the site's job_submit.lua."""
    assert parse.forecast(text) == Forecast(START, "n[1-2]", "main")


def test_said_of_a_heterogeneous_job() -> None:
    """The nodes of all components, and no partition."""
    text = "sbatch: Job 9 to start at 2026-11-21T23:40:35 using 5 processors on n[1-2]\n"
    assert parse.forecast(text) == Forecast(START, "n[1-2]")


@pytest.mark.parametrize("text", ["", "sbatch: Job 1 to start at\n", SAID.replace("2026-", "")])
def test_not_said(text: str) -> None:
    """Missing parts stay empty."""
    assert parse.forecast(text) is None


def test_asked(commands: Bin) -> None:
    """The script is on stdin, with the caller's time zone. No variable changes the format of times."""
    commands.recorded("sbatch", "", SAID)
    door = commands.door()
    assert door.forecast("#!/bin/sh\n", arguments=["--nodes=2"], directory="/") == Forecast(START, "n[1-2]", "main")
    assert commands.argv() == ["--test-only", "--nodes=2"]
    assert commands.read("stdin") == "#!/bin/sh\n"
    assert commands.read("pwd") == "/\n"
    assert commands.environment()["SLURM_TIME_FORMAT"] == "standard"


def test_refused(commands: Bin) -> None:
    """A refusal is an answer."""
    commands.recorded("sbatch", "", NO_NODES, 1)
    assert commands.door().forecast("") == Forecast(refused=NO_NODES.strip())


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
    """An error before the answer says nothing about the job."""
    commands.recorded("sbatch", "", said, code)
    with pytest.raises(SlurmError, match="could not ask when the job would start"):
        commands.door().forecast("")


def test_no_answer(commands: Bin) -> None:
    """An absent controller says nothing about the job, nor does an sbatch that prints no time."""
    commands.recorded("sbatch", "", "sbatch: error: Unable to contact slurm controller (connect failure)\n", 1)
    with pytest.raises(SlurmAwayError, match="could not ask when the job would start"):
        commands.door().forecast("")
    commands.recorded("sbatch", "", "Submitted batch job 7\n")
    with pytest.raises(SlurmError, match="sbatch said: Submitted batch job 7"):
        commands.door().forecast("")
