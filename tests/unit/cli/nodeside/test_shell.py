"""`slurm-plugin shell` as a user types it."""

import json
from pathlib import Path

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.cli.nodeside import job_lookup
from slurm_plugin.records import job_directory, launch_record
from slurm_plugin.slurm import Request, steps
from slurm_plugin.slurm.resources import DeviceUse, Gres
from tests.fakes import BecameError, FakeSlurm, become, job
from tests.unit.supervisor.test_enter import LAUNCH


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeSlurm:
    """Return a door that knows job 7, whose directory is `work`."""
    fake = FakeSlurm([job(state="RUNNING", reason="", nodes="n[1-2]", restarts=0)])
    fake.directories[7] = str(tmp_path / "work")
    launched(tmp_path, LAUNCH._replace(slurm_plugin=("/bin/x", "-m")))

    monkeypatch.setattr(job_lookup, "connect", lambda **_: fake)
    monkeypatch.setattr(steps, "become", become)
    return fake


def launched(directory: Path, launch: launch_record.Saved) -> None:
    file = job_directory.directory(directory / "work", 7) / launch_record.FILE
    file.write_text(json.dumps({"v": launch_record.VERSION, **launch._asdict()}))


@pytest.mark.parametrize(
    ("words", "node", "number"), [([], "n1", 0), (["worker-1"], "n2", 1), (["n2"], "n2", 1), (["n1"], "n1", 0)]
)
def test_which_node(slurm: FakeSlurm, tmp_path: Path, words: list[str], node: str, number: int) -> None:
    """The shell opens on the first or the named worker; without a terminal the step gets none."""
    with pytest.raises(BecameError) as became:
        main(["shell", "7", *words])
    directory = f"{tmp_path}/work/.slurm_plugin/7"
    enter = ["/bin/x", "-m", "job", "enter", f"--directory={directory}", f"--worker={number}"]
    assert became.value.args[0] == steps.overlap_step(enter, 7, node, terminal=False)


@pytest.mark.parametrize(("node", "option"), [("n1", "--gpus=3"), ("n2", "--gres=none")])
def test_a_job_with_a_total_of_gpus(slurm: FakeSlurm, node: str, option: str) -> None:
    """The step requests those of its node: Slurm refuses one that inherits the number of the whole job."""
    slurm.requests[7] = Request("main", gres=None)
    slurm.uses = [DeviceUse(7, "n1", (Gres("gpu", "", 3),))]
    with pytest.raises(BecameError) as became:
        main(["shell", "7", node])
    assert [word for word in became.value.args[0] if word.startswith(("--gpus", "--gres"))] == [option]


def test_no_such_worker(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown worker gives the list of workers with their nodes."""
    assert main(["shell", "7", "worker-2\x1b"]) == 1
    assert capsys.readouterr().err == (
        "slurm-plugin: job 7 has no 'worker-2?'; it has\n  worker-0 is n1\n  worker-1 is n2\n"
    )


def test_no_launch(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A launch of an earlier run does not count; the message names the command for a plain shell."""
    launched(tmp_path, LAUNCH._replace(restart=1))
    assert main(["shell", "7"]) == 1
    assert "job 7 has not launched its command in this run yet\n" in capsys.readouterr().err
    (tmp_path / "work/.slurm_plugin/7" / launch_record.FILE).unlink()
    assert main(["shell", "7"]) == 1
    said = capsys.readouterr().err
    assert "launch.json: No such file or directory\n" in said
    assert said.endswith("  a shell without the launch's environment: srun --jobid=7 --overlap --pty bash\n")


def test_a_job_that_does_not_run(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """A job that does not run gives exit code 1."""
    slurm.known_jobs[7] = slurm.known_jobs[7]._replace(state="COMPLETED")
    assert main(["shell", "7"]) == 1
    assert capsys.readouterr().err == "slurm-plugin: job 7 has ended: it is COMPLETED\n  try: slurm-plugin why 7\n"
    assert main(["shell", "x"]) == 2
