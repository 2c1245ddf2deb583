"""Jobs by squeue: with one process, on 22.05 with two."""

import pytest

from slurm_plugin.slurm import JobNotFoundError, SlurmError
from slurm_plugin.slurm.commands import MOST_IDS
from tests.refusals import refusal_of
from tests.unit.slurm.fake_commands import Bin, record
from tests.unit.slurm.test_records import PLAIN

HOSTILE = "\n8~fedcba9876543210~root~fedcba9876543210~RUNNING~fedcba9876543210~\r\n"


def test_jobs(commands: Bin) -> None:
    """One squeue returns several jobs in their order; unknown ones are absent."""
    commands.squeue([record(9, ExcNodes="n4"), record(7, Comment=HOSTILE)])
    found = commands.door().jobs([7, 8, 9])
    assert list(found.items()) == [(7, PLAIN._replace(comment=HOSTILE)), (9, PLAIN._replace(id=9, excluded="n4"))]
    assert len(commands.asked()) == 1


def test_all_jobs(commands: Bin) -> None:
    """None asks for all jobs."""
    commands.squeue([record(9), record(7)])
    assert set(commands.door().jobs()) == {7, 9}
    assert not [word for word in commands.asked()[0].argv if word.startswith("--jobs")]


def test_one_job(commands: Bin) -> None:
    """One job takes the same command."""
    commands.squeue([record()])
    assert commands.door().job(7) == PLAIN
    assert "--jobs=7" in commands.asked()[0].argv


def test_work_directory(commands: Bin) -> None:
    """A working directory takes another command. Its text forges no other job."""
    commands.squeue([record(WorkDir="/home/alice/a\n8~x~/tmp~b")])
    door = commands.door()
    assert door.work_directory(7) == "/home/alice/a\n8~x~/tmp~b"
    (asked,) = commands.asked()
    assert asked.variable == "SQUEUE_FORMAT"
    assert asked.nonce.strip("~") not in " ".join(asked.argv)
    commands.recorded("squeue", "", "slurm_load_jobs error: Invalid job id specified\n", 1)
    with pytest.raises(JobNotFoundError):
        door.work_directory(8)


@pytest.mark.parametrize(("number", "named"), [(MOST_IDS, True), (MOST_IDS + 1, False)])
def test_many_jobs(commands: Bin, number: int, named: bool) -> None:
    """Too many ids for a command line ask for all jobs; the others are left out."""
    commands.squeue([record(1), record(MOST_IDS), record(50_000)])
    assert set(commands.door().jobs(range(1, number + 1))) == {1, MOST_IDS}
    (asked,) = commands.asked()
    assert [word for word in asked.argv if word.startswith("--jobs")] == (
        [f"--jobs={','.join(map(str, range(1, number + 1)))}"] if named else []
    )


def test_jobs_that_are_not_known(commands: Bin) -> None:
    """An unknown job is absent among many and an error alone; no ids ask nothing."""
    commands.recorded("squeue", "", "slurm_load_jobs error: Invalid job id specified\n", 1)
    door = commands.door()
    assert door.jobs([7, 8]) == {}
    said = refusal_of(JobNotFoundError, door.job, 7)
    assert said == "Slurm does not know job 7 (any longer)\n  see what runs with: squeue --me"
    (commands.directory / "squeue").unlink()
    assert door.jobs([]) == {}


def test_refusal(commands: Bin) -> None:
    """A failed or cut answer is an error."""
    commands.recorded("squeue", "", "squeue: error: Invalid user\n", 1)
    door = commands.door()
    with pytest.raises(SlurmError, match="could not read the jobs: squeue said: squeue: error: Invalid user"):
        door.jobs([7])
    commands.recorded("squeue", "7", "")
    with pytest.raises(SlurmError, match="ends in the middle of a job"):
        door.jobs([7])


def test_nonce_is_new_each_time(commands: Bin) -> None:
    """Two calls use different nonces of at least 48 random bits."""
    commands.squeue([record()])
    door = commands.door()
    door.jobs([7])
    door.jobs([7])
    nonces = [asked.nonce for asked in commands.asked()]
    assert len(set(nonces)) == 2
    assert min(len(nonce.strip("~")) for nonce in nonces) >= 8


JOBS_OF_22_05 = [record(6), record(7, Comment=HOSTILE, ExcNodes="n[3-4]", exit_code="256")]


def test_nonce_is_on_no_command_line(commands: Bin) -> None:
    """The nonce is on no command line, which any user can read."""
    commands.squeue(JOBS_OF_22_05, lacks=["ExcNodes"])
    door = commands.door()
    door.jobs([6, 7])
    door.jobs()
    found = commands.asked()
    assert len(found) == 4
    for asked in found:
        words = " ".join(asked.argv)
        assert asked.nonce.strip("~") not in words
        assert not {"-o", "-O", "--format", "--Format"} & {word.partition("=")[0] for word in asked.argv}
        assert "%" not in words


def test_squeue_that_lacks_a_field(commands: Bin) -> None:
    """22.05: the first answer shows it. Only the missing field is requested again, and the fact is remembered.

    From then on both processes run at the same time. In both cases the same nonce ends the fields of both.
    """
    commands.squeue(JOBS_OF_22_05, lacks=["ExcNodes"])
    door = commands.door()
    wanted = {6: PLAIN._replace(id=6), 7: PLAIN._replace(comment=HOSTILE, excluded="n[3-4]", exit_code=1)}
    assert door.jobs([6, 7]) == wanted
    first, second = commands.asked()
    assert (first.variable, second.variable) == ("SQUEUE_FORMAT2", "SQUEUE_FORMAT")
    assert (first.nonce, first.argv) == (second.nonce, second.argv)
    (commands.directory / "together").touch()
    assert door.jobs([6, 7]) == wanted
    second, first = sorted(commands.asked())
    assert (first.variable, second.variable) == ("SQUEUE_FORMAT2", "SQUEUE_FORMAT")
    assert (first.nonce, first.argv) == (second.nonce, second.argv)
    assert second.form == f"%A{first.nonce}%x{first.nonce}"


def test_each_door_learns_for_itself(commands: Bin) -> None:
    """Each door learns the missing field by itself."""
    commands.squeue(JOBS_OF_22_05, lacks=["ExcNodes"])
    commands.door().jobs([6])
    commands.asked()
    commands.squeue(JOBS_OF_22_05)
    assert commands.door().jobs([7])[7].excluded == "n[3-4]"
    assert len(commands.asked()) == 1


def test_job_that_is_in_one_answer_only(commands: Bin) -> None:
    """A job submitted between the two commands is left out, alone."""
    commands.squeue(JOBS_OF_22_05, lacks=["ExcNodes"])
    script = commands.read("squeue").replace(
        "for record in records:", "for record in records[: 1 if name == 'SQUEUE_FORMAT' else None]:"
    )
    commands.script("squeue", script)
    assert set(commands.door().jobs()) == {6}


@pytest.mark.parametrize("again", [False, True], ids=["first question", "later"])
def test_second_answer_that_is_no_answer(commands: Bin, again: bool) -> None:
    """A job without its excluded nodes is an error."""
    commands.squeue(JOBS_OF_22_05, lacks=["ExcNodes"])
    door = commands.door()
    if again:
        door.jobs()
    for line, said in (
        ("sys.exit('no')", "could not read the jobs: squeue said: no\n  try: squeue --all"),
        (
            "print('7'), sys.exit(0)",
            "squeue's answer ends in the middle of a job\n  ask again; it may have been killed",
        ),
    ):
        commands.squeue(JOBS_OF_22_05, lacks=["ExcNodes"])
        script = commands.read("squeue").replace(
            "records, lacks", f"name == 'SQUEUE_FORMAT' and ({line}); records, lacks"
        )
        commands.script("squeue", script)
        assert refusal_of(SlurmError, door.jobs) == said
