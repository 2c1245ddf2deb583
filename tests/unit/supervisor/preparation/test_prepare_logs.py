"""Mirrors the logs of slurm_plugin/supervisor/preparation/prepare.py: the files of an attempt."""

from pathlib import Path

from tests.unit.supervisor.plans import plan
from tests.unit.supervisor.preparing import Prepare


def test_the_files_have_the_jobs_name_and_the_attempt(place: Path, prepare: Prepare) -> None:
    """In a directory that is made for them; a restart has new ones."""
    given = plan("./a.out", mode="pytorch", launch="task", logs=f"{place}/logs", logs_per="rank")
    for restart, stem in ((0, "a_b-7"), (2, "a_b-7-attempt-2")):
        argv = prepare(given, environ={"SLURM_JOB_NAME": "a b"}, restart=restart).launch({}).argv
        assert argv[-2:] == (f"{place}/logs/{stem}", "./a.out")
        assert argv[-4] == "-c"
        assert '"$0-proc-rank-$SLURM_PROCID-device-$SLURM_LOCALID.txt"' in argv[-3]
    assert (place / "logs").is_dir()
    assert prepare(given._replace(mode="openmpi", launch="node")).launch({}).argv[-2] == f"{place}/logs/job-7"


def test_a_directory_that_cannot_be_made(place: Path, prepare: Prepare) -> None:
    """The program starts; `tee` says why there is no file."""
    (place / "file").touch()
    prepare(plan("./a.out", logs=f"{place}/file/logs", logs_per="node"))


def test_labels_are_sruns(prepare: Prepare) -> None:
    """Of a step of ours alone."""
    given = plan("./a.out", mode="pytorch", launch="task", label=True)
    assert prepare(given).launch({}).argv[:2] == ("srun", "--label")
    assert prepare(given._replace(command=("srun", "./a.out"))).launch({}).argv == ("srun", "./a.out")
