"""Mirrors slurm_plugin/job/logs.py: where a step's tasks write, and which launches have it."""

from slurm_plugin.job import logs
from tests.unit.job.preparing import Prepare


def test_options_of_srun() -> None:
    """A directory of the job's own; a file a rank or a node, which a restart goes on in."""
    where = logs.directory("/w/logs", 7)
    assert where == "/w/logs/7"
    assert logs.options(where, "rank", label=False) == ("--output=/w/logs/7/rank-%t.log", "--open-mode=append")
    assert logs.options(where, "node", label=True) == (
        "--output=/w/logs/7/node-%N.log",
        "--open-mode=append",
        "--label",
    )
    assert logs.options(logs.directory("", 7), "rank", label=True) == ("--label",)
    assert logs.options(logs.directory("", 7), "rank", label=False) == ()


def test_only_an_srun_of_ours_has_them(prepare: Prepare) -> None:
    """The user's own, and any other launcher, is left as it is."""
    words = "--slots=1 --logs=/w --logs-per=node"
    argv = prepare(f"--mode=pytorch --launch=task {words} -- ./a.out").launch({}).argv
    assert argv[:3] == ("srun", "--output=/w/7/node-%N.log", "--open-mode=append")
    assert argv[-1] == "./a.out"
    assert prepare(f"--mode=pytorch {words} -- srun ./a.out").launch({}).argv == ("srun", "./a.out")
    assert "output" not in " ".join(prepare(f"--mode=openmpi {words} -- ./a.out").launch({}).argv)
    assert prepare("--mode=pytorch --launch=task --slots=1 -- x").launch({}).argv[1].startswith("--nodes=")
