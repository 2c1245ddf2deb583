"""The launch as it is kept for a shell: whole, without what is a step's, and for its owner alone."""

import json
import os
from pathlib import Path

import pytest

import hostfiles
from slurm_plugin.job import _parser, saved
from slurm_plugin.job.prepare import Preparation
from slurm_plugin.job.run import Run
from slurm_plugin.job.saved import Saved, SavedError

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


def prepared(workdir: Path, words: str) -> Preparation:
    """A launch of job 7 on two nodes, from the words behind `job supervise`."""
    before, _, command = words.partition(" -- ")
    options = _parser().parse_args(["supervise", *before.split(), "--", *command.split()])
    allocation = hostfiles.from_lists("n[1-2]", slots=options.slots, tasks_per_node="1,1", job_id=7)
    site = {"run_directory": str(workdir / "run"), "infiniband_partitions": [], "prechecks": {"deadline_s": 1.0}}
    return Preparation(options, Run(7, 0, "main", allocation), site, GIVEN, print)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_is_kept(work: Path) -> None:
    """What was run, where and in what: read again it is the same, and says how it goes and how it ended."""
    keeper = saved.Keeper(work, prepared(work, "--mode=pytorch --slots=2 --launch=task -- python train.py"), print)
    keeper.begins("program", GIVEN)
    found = saved.read(work)
    assert (found.state, found.code, found.phase) == ("running", None, "program")
    assert (found.job, found.restart, found.attempt, found.nodes) == (7, 0, 0, ("n1", "n2"))
    assert (found.cwd, found.words, found.firsts) == (str(work), ("python", "train.py"), (0, 2))
    assert (found.argv[0], found.argv[-2:]) == ("srun", ("python", "train.py"))
    assert found.slurm_plugin[-1] in ("slurm_plugin", "/etc/slurm/slurm_plugin/bin/slurm-plugin")
    assert keeper.ended(5) == 5
    assert saved.read(work) == found._replace(state="failed", code=5)
    assert keeper.ended(0) == 0
    assert saved.read(work).state == "ended"


def test_its_environment(work: Path) -> None:
    """The caller's and the whole job's; of a step, of one node and of our own launch nothing."""
    assert saved.of_the_job(GIVEN) == {
        name: GIVEN[name]
        for name in (
            *("HOME", "SECRET", "SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_NTASKS", "SLURM_CONF"),
            "SLURM_PLUGIN_ATTEMPT",
        )
    }


def test_only_its_owner_reads_it(work: Path) -> None:
    """Whatever the umask; and a value that is no text comes back as it was."""
    before = os.umask(0)
    try:
        keeper = saved.Keeper(work, prepared(work, "--mode=single --slots=1 -- ./a.out"), print)
        keeper.begins("program", {**GIVEN, "ODD": "caf\udcff"})
    finally:
        os.umask(before)
    assert [path.name for path in work.iterdir() if path.is_file()] == [saved.FILE]
    assert (work / saved.FILE).stat().st_mode & 0o777 == 0o600
    assert saved.read(work).environ["ODD"] == "caf\udcff"


def test_it_costs_no_job(work: Path) -> None:
    """A directory that cannot be written is a line in the log."""
    said: list[str] = []
    keeper = saved.Keeper(work / "gone", prepared(work, "--mode=single --slots=1 -- ./a.out"), said.append)
    keeper.begins("program", GIVEN)
    assert keeper.ended(3) == 3
    (line,) = set(said)
    assert line.startswith("could not keep the launch for slurm-plugin shell: ")


def test_one_of_the_version_before(work: Path) -> None:
    """Which told how many tasks a node has: a job that is held can be entered after an upgrade."""
    saved.Keeper(work, prepared(work, "--mode=single --slots=1 -- ./a.out"), print).begins("program", GIVEN)
    fields = json.loads((work / saved.FILE).read_text())
    for name in ("firsts", "groups", "inside", "step", "told"):
        del fields[name]
    (work / saved.FILE).write_text(json.dumps(fields | {"v": 1, "tasks": 4, "nodes": ["n1", "n2", "n3"]}))
    found = saved.read(work)
    assert (found.firsts, found.groups, found.contained) == ((0, 4, 8), (), False)


def test_what_is_not_taken(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None, a link, another form, another version, and above all a file of another user's: it would be run."""
    with pytest.raises(SavedError, match="No such file"):
        saved.read(work)
    file = work / saved.FILE
    for text in ("", "[]", "{", json.dumps({"v": 1}), json.dumps({"v": 3}), "\xff"):
        file.write_bytes(text.encode("latin1"))
        with pytest.raises(SavedError, match=r"not as we wrote it|of version 3; accepted: 1, 2"):
            saved.read(work)
    keeper = saved.Keeper(work, prepared(work, "--mode=single --slots=1 -- ./a.out"), print)
    keeper.begins("program", GIVEN)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(SavedError, match="it is not yours"):
        saved.read(work)
    monkeypatch.undo()
    file.rename(work / "other")
    file.symlink_to("other")
    with pytest.raises(SavedError, match="symbolic links"):
        saved.read(work)


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
    """What srun starts on each node can be started there; what starts others only where it was."""
    made = Saved(7, 0, 0, "program", "failed", 5, ("n1", "n2"), (0, 1), (), "/", words, argv, {}, (), "", "")
    assert (made.here(0), made.here(1)) == (first, second)


@pytest.mark.parametrize(
    ("name", "number"),
    [("worker-0", 0), ("worker-1", 1), ("n2", 1), ("worker-2", None), ("n3", None), ("1", None), ("worker-x", None)],
)
def test_workers_by_name(name: str, number: int | None) -> None:
    """In the order of the launch's nodes, or by the node's own name."""
    assert saved.worker(("n1", "n2"), name) == number


def test_all_workers() -> None:
    """Each with its node."""
    assert saved.workers(("n7", "n2")) == ["worker-0 is n7", "worker-1 is n2"]


def test_a_launch_in_a_container(work: Path) -> None:
    """How one gets in there, and the words without that; a file of a version before has no container."""
    (work / "t.sif").touch()
    made = prepared(work, "--mode=pytorch --slots=2 --launch=task --container-image=t.sif -- python train.py")
    saved.Keeper(work, made, print).begins("program", GIVEN)
    found = saved.read(work)
    assert found.inside == ("apptainer", "exec", f"--bind={work}", f"--pwd={work}", f"{work}/t.sif")
    assert (found.contained, found.step, found.here(1)) == (True, (), ("python", "train.py"))

    words = "--mode=pytorch --slots=2 --launch=task --container-image=x#t --container-runtime=pyxis -- python train.py"
    saved.Keeper(work, prepared(work, words), print).begins("program", GIVEN)
    found = saved.read(work)
    assert (found.step[0], found.contained, found.here(0)) == ("--container-image=x#t", True, ("python", "train.py"))
    assert "RANK=$SLURM_PROCID" in found.told

    fields = json.loads((work / saved.FILE).read_text())
    before = {name: value for name, value in fields.items() if name not in ("inside", "step", "told")}
    (work / saved.FILE).write_text(json.dumps(before))
    assert not saved.read(work).contained
