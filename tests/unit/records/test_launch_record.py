"""The record of a launch for a later shell: complete, without the step's own variables, and only for its owner."""

import json
import os
from pathlib import Path

import pytest

import hostfiles
from slurm_plugin.records import launch_record
from slurm_plugin.records.job_plan import JobPlan
from slurm_plugin.records.launch_record import Saved, SavedError
from slurm_plugin.supervisor.preparation.prepare import Preparation
from slurm_plugin.supervisor.run import Run
from tests.unit.supervisor.plans import APPTAINER, PYXIS, plan

GIVEN = {
    "HOME": "/h",
    "SECRET": "s",
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "n[1-2]",
    "SLURM_NTASKS": "4",
    "SLURM_CONF": "/etc/slurm/slurm.conf",
    "SLURM_STEP_ID": "4294967291",
    "SLURM_PROCID": "0",
    "SLURM_TASK_PID": "9",
    "SLURM_CPUS_ON_NODE": "2",
    "SLURM_JOB_GPUS": "0,1",
    "SLURMD_NODENAME": "n1",
    "SLURM_PLUGIN_LAUNCH": "7.0.0",
    "SLURM_PLUGIN_ATTEMPT": "0",
}


def prepared(workdir: Path, given: JobPlan) -> Preparation:
    """Prepare a launch of job 7 on two nodes, from its plan."""
    allocation = hostfiles.from_lists("n[1-2]", slots=given.slots, tasks_per_node="1,1", job_id=7)
    site = {"run_directory": str(workdir / "run"), "infiniband_partitions": [], "prechecks": {"deadline_s": 1.0}}
    return Preparation(given, Run(7, 0, "main", allocation), site, GIVEN, print)


def kept(workdir: Path, given: JobPlan) -> launch_record.Keeper:
    """Write the record of such a launch."""
    keeper = launch_record.Keeper(workdir, print)
    keeper.begins(prepared(workdir, given).record("program", GIVEN))
    return keeper


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_is_kept(work: Path) -> None:
    """Command, nodes and directory are read back unchanged, and the record has the state of the launch."""
    keeper = kept(work, plan("python train.py", mode="pytorch", slots=2, launch="task"))
    found = launch_record.read(work)
    assert (found.state, found.code, found.phase) == ("running", None, "program")
    assert (found.job, found.restart, found.attempt, found.nodes) == (7, 0, 0, ("n1", "n2"))
    assert (found.cwd, found.words, found.firsts) == (str(work), ("python", "train.py"), (0, 2))
    assert (found.argv[0], found.argv[-2:]) == ("srun", ("python", "train.py"))
    assert found.slurm_plugin[-1] in ("slurm_plugin", "/etc/slurm/slurm_plugin/bin/slurm-plugin")
    assert keeper.ended(5) == 5
    assert launch_record.read(work) == found._replace(state="failed", code=5)
    assert keeper.ended(0) == 0
    assert launch_record.read(work).state == "ended"


def test_its_environment(work: Path) -> None:
    """The caller's variables and the whole job's; none of a step, of one node or of our own launch."""
    assert launch_record.of_the_job(GIVEN) == {
        name: GIVEN[name]
        for name in (
            *("HOME", "SECRET", "SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_NTASKS", "SLURM_CONF"),
            "SLURM_PLUGIN_ATTEMPT",
        )
    }


def test_only_its_owner_reads_it(work: Path) -> None:
    """Whatever the umask. A value that is no UTF-8 is read back unchanged."""
    before = os.umask(0)
    try:
        launch = prepared(work, plan("./a.out")).record("program", {**GIVEN, "ODD": "caf\udcff"})
        launch_record.Keeper(work, print).begins(launch)
    finally:
        os.umask(before)
    assert [path.name for path in work.iterdir() if path.is_file()] == [launch_record.FILE]
    assert (work / launch_record.FILE).stat().st_mode & 0o777 == 0o600
    assert launch_record.read(work).environ["ODD"] == "caf\udcff"


def test_it_costs_no_job(work: Path) -> None:
    """An unwritable directory is only a line in the log."""
    said: list[str] = []
    keeper = launch_record.Keeper(work / "gone", said.append)
    keeper.begins(prepared(work, plan("./a.out")).record("program", GIVEN))
    assert keeper.ended(3) == 3
    (line,) = set(said)
    assert line.startswith("could not keep the launch for slurm-plugin shell: ")


def test_what_is_not_taken(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing file, a link, another form or version, and above all a file of another user: it would be run."""
    with pytest.raises(SavedError, match="No such file"):
        launch_record.read(work)
    file = work / launch_record.FILE
    for text in ("", "[]", "{", json.dumps({"v": 1}), json.dumps({"v": 3}), "\xff"):
        file.write_bytes(text.encode("latin1"))
        with pytest.raises(SavedError, match=r"its content is not valid|of version [13]; accepted: 2"):
            launch_record.read(work)
    kept(work, plan("./a.out"))
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(SavedError, match="it is not yours"):
        launch_record.read(work)
    monkeypatch.undo()
    file.rename(work / "other")
    file.symlink_to("other")
    with pytest.raises(SavedError, match="symbolic links"):
        launch_record.read(work)


STEP = ("srun", "--nodes=2", "--mpi=pmix", "python", "-m", "x", "--y")
OWN = ("mpirun", "-np", "4", "./a.out")


@pytest.mark.parametrize(
    ("words", "argv", "first", "second"),
    [
        (("python", "-m", "x", "--y"), STEP, STEP[3:], STEP[3:]),
        (("./a.out",), OWN, OWN, ()),
        (STEP, STEP, STEP, ()),  # an srun of the user's own
    ],
)
def test_the_command_on_one_worker(
    work: Path, words: tuple[str, ...], argv: tuple[str, ...], first: tuple[str, ...], second: tuple[str, ...]
) -> None:
    """A command that srun starts on each node can run there; a launcher only on its own node."""
    made = Saved(7, 0, 0, "program", "failed", 5, ("n1", "n2"), (0, 1), (), "/", words, argv, {}, (), "", "")
    assert (made.here(0), made.here(1)) == (first, second)


def test_workers_by_name() -> None:
    """By their order in the launch, or by the node's name."""
    for name, number in [
        ("worker-0", 0),
        ("worker-1", 1),
        ("n2", 1),
        ("worker-2", None),
        ("n3", None),
        ("1", None),
        ("worker-x", None),
    ]:
        assert launch_record.worker(("n1", "n2"), name) == number, name


def test_all_workers() -> None:
    """Each with its node."""
    assert launch_record.workers(("n7", "n2")) == ["worker-0 is n7", "worker-1 is n2"]


def test_a_launch_in_a_container(work: Path) -> None:
    """How to enter the container, and the command without it."""
    (work / "t.sif").touch()
    kept(work, plan("python train.py", mode="pytorch", slots=2, launch="task", container=APPTAINER))
    found = launch_record.read(work)
    assert found.inside == ("apptainer", "exec", f"--bind={work}", f"--pwd={work}", f"{work}/t.sif")
    assert (found.contained, found.step, found.here(1)) == (True, (), ("python", "train.py"))

    kept(work, plan("python train.py", mode="pytorch", slots=2, launch="task", container=PYXIS))
    found = launch_record.read(work)
    assert (found.step[0], found.contained, found.here(0)) == ("--container-image=x#t", True, ("python", "train.py"))
    assert "RANK=$SLURM_PROCID" in found.told
