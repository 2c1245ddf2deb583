"""`slurm-plugin hosts`: formats inside a job, and for a node list on the command line."""

import json
import os
from pathlib import Path

import pytest

from hostfiles import DEVICES, FORMATS
from slurm_plugin.cli.nodeside import hosts as hosts_command
from slurm_plugin.supervisor.run import master_port
from tests.unit.supervisor.hosts.hosts_command import printed


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Return an environment without a job."""
    for name in os.environ:
        if name.startswith("SLURM"):
            monkeypatch.delenv(name)
    return monkeypatch


def test_by_hand(environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A node list and slots, by default one slot."""
    assert hosts_command.main(["openmpi", "--nodelist=n[08-10]", "--slots=4"]) == 0
    assert hosts_command.main(["openmpi", "--nodelist=gpu1"]) == 0
    assert capsys.readouterr() == ("n08 slots=4\nn09 slots=4\nn10 slots=4\ngpu1 slots=1\n", "")


def test_in_a_job(environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The job's nodes and accelerators, without an option."""
    for name, value in {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[2,1]", "SLURM_GPUS_ON_NODE": "8"}.items():
        environ.setenv(name, value)
    assert hosts_command.main(["openmpi"]) == 0
    assert capsys.readouterr() == ("n2 slots=8\nn1 slots=8\n", "")


def test_pytorch(environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The same rendezvous on every node of a job, and another port for another job."""
    said = []
    for job_id in (7, 7, 8):
        assert hosts_command.main(["pytorch", "--nodelist=n[1-2]", "--slots=4", f"--job-id={job_id}"]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] != said[2]
    assert "MASTER_ADDR=n1\n" in said[0]


def test_cannot_be_read(environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2, one error, and nothing on stdout that looks like a hostfile."""
    for arguments, words in [
        (["openmpi"], "slurm-plugin: "),
        (["openmpi", "--nodelist=n[1"], "slurm-plugin: node list 'n[1', character 2: a '[' that is not closed"),
        (["openmpi", "--nodelist="], "slurm-plugin: node list '', character 1: an empty name"),
        (["openmpi", "--nodelist=n1", "--slots=-1"], "slurm-plugin: "),
        (["openmpi", "--nodelist=n[1-2]", "--tasks-per-node=1"], "slurm-plugin: 2 nodes in "),
        (["pytorch", "--nodelist=n1", "--job-id=-1"], "slurm-plugin: "),
        (["pytorch", "--nodelist=n[1-2]", "--task=2"], "slurm-plugin: "),
        (["pytorch", "--nodelist=n[1-2]", "--node=2"], "slurm-plugin: node 2 of 2; nodes count from 0"),
        (
            ["mpich", "--nodelist=fe80::1"],
            "slurm-plugin: node list 'fe80::1', character 5: a ':', which no host's name has",
        ),
        (["mpich", "--nodelist=n[1-2]", "--slots=4(x3)"], "slurm-plugin: 2 nodes in 'n[1-2]', and 3 slot counts in "),
        (
            ["deepspeed", "--nodelist=n1,n1"],
            "slurm-plugin: the host n1 appears twice in an allocation; each is there once",
        ),
        (["mpich", "--nodelist=n1", "--ps=1"], "slurm-plugin: --ps is no option of mpich; tensorflow takes it"),
        (
            ["tensorflow", "--nodelist=n1", "--node=0"],
            "slurm-plugin: --node is no option of tensorflow; pytorch takes it",
        ),
        (["tensorflow", "--nodelist=n1", "--ps=1"], "slurm-plugin: 1 tasks, 1 parameter servers"),
        (
            ["pytorch", "--nodelist=n1", "--uneven"],
            "slurm-plugin: --uneven is no option of pytorch; ranktable-1.0, ranktable-2, ranktable-1.2 take it",
        ),
        (
            ["mpich", "--nodelist=n1", "--devices=lines"],
            "slurm-plugin: --devices is no option of mpich; ranktable-1.0, ranktable-2, ranktable-1.2, ascend take it",
        ),
        (["ranktable-2", "--table=x.json"], "slurm-plugin: --table is no option of ranktable-2; ascend takes it"),
        (
            ["pytorch", "--nodelist=n1", "--distribution=arbitrary"],
            "slurm-plugin: the distribution 'arbitrary'; block, ",
        ),
    ]:
        assert hosts_command.main(arguments) == 2, arguments
        out, err = capsys.readouterr()
        assert out == "", arguments
        assert err.startswith(words), arguments
        assert "Traceback" not in err, arguments


def test_wrong_usage(environ: pytest.MonkeyPatch) -> None:
    """Exit 2 for unknown words."""
    for arguments in [
        [],
        ["nonsense"],
        ["openmpi", "--slots=x"],
    ]:
        with pytest.raises(SystemExit) as caught:
            hosts_command.main(arguments)
        assert caught.value.code == 2, arguments
    for arguments in (["openmpi", "--job-id=7"], ["pytorch", "--distribution=block"]):
        assert hosts_command.main(arguments) == 2, arguments


def test_the_port_of_a_restart_is_the_supervisors(
    environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Inside a restarted job the output is what its program got."""
    for name, value in {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_RESTART_COUNT": "2"}.items():
        environ.setenv(name, value)
    assert hosts_command.main(["pytorch"]) == 0
    assert f"MASTER_PORT={master_port(7, 2)}\n" in capsys.readouterr().out
    assert master_port(7, 2) != master_port(7, 0)


JOB = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "n[1-4]",
    "SLURM_TASKS_PER_NODE": "4(x3),2",
    "SLURM_GPUS_ON_NODE": "4",
    "SLURM_DISTRIBUTION": "plane=2",
}
BY_HAND = ["--nodelist=n[1-4]", "--tasks-per-node=4(x3),2", "--slots=4", "--distribution=plane=2", "--job-id=7"]


def test_a_job_and_its_description_give_the_same(
    environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Inside from Slurm's variables, outside from the options."""
    asked = [(form, *more) for form in FORMATS if form not in DEVICES for more in ((), ("--task=9",))]

    def said(*more: str) -> dict[tuple[str, ...], str]:
        return {words: printed(capsys, words[0], *more, *words[1:]) for words in asked}

    by_hand = said(*BY_HAND)
    for name, value in JOB.items():
        environ.setenv(name, value)
    assert said() == by_hand
    assert all(by_hand.values())


def test_in_a_step_the_answer_is_for_who_asks(environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The calling task, or its node, among the nodes of the step."""
    step = {"SLURM_STEP_ID": "1", "SLURM_STEP_NODELIST": "n[2-3]", "SLURM_STEP_TASKS_PER_NODE": "2(x2)"}
    for name, value in {**JOB, **step, "SLURM_PROCID": "3", "SLURM_NODEID": "1"}.items():
        environ.setenv(name, value)
    assert hosts_command.main(["pytorch"]) == 0
    said = capsys.readouterr().out
    assert "MASTER_ADDR=n2\n" in said
    assert "WORLD_SIZE=2\nexport RANK=1\n" in said
    assert hosts_command.main(["tensorflow", "--ps=1", "--chief"]) == 0
    said = capsys.readouterr().out.removeprefix("export TF_CONFIG='").removesuffix("'\n")
    assert json.loads(said)["task"] == {"type": "ps", "index": 0}


def test_the_port_of_a_step(environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Parallel steps have different ports. In a job with a supervisor every step prints the program's port."""
    said = []
    for step, ours in ((None, None), ("0", None), ("1", None), ("1", "61009")):
        for name, value in {**JOB, "SLURM_STEP_NODELIST": "n1", "SLURM_STEP_TASKS_PER_NODE": "1"}.items():
            environ.setenv(name, value)
        if step:
            environ.setenv("SLURM_STEP_ID", step)
        if ours:
            environ.setenv("SLURM_PLUGIN_PORT", ours)
            environ.setenv("SLURM_PLUGIN_DIRECTORY", f"/w/.slurm_plugin/{JOB['SLURM_JOB_ID']}")
        assert hosts_command.main(["pytorch"]) == 0
        said.append(capsys.readouterr().out.split("MASTER_PORT=")[1].split()[0])
    assert said[0] == said[1] != said[2]
    assert said[3] == "61009"


def test_the_port_of_another_job_is_not_told(environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The job that submitted this one has passed its environment on."""
    outer = {"SLURM_PLUGIN_PORT": "61009", "SLURM_PLUGIN_DIRECTORY": "/w/.slurm_plugin/99"}
    for name, value in {**JOB, **outer}.items():
        environ.setenv(name, value)
    assert hosts_command.main(["pytorch"]) == 0
    assert f"MASTER_PORT={master_port(7, 0)}\n" in capsys.readouterr().out


def test_output(environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The whole file atomically, no other file, no output. An error keeps the old file."""
    path = tmp_path / "hostfile"
    assert hosts_command.main(["mpich", "--nodelist=n[1-2]", "--slots=2", f"--output={path}"]) == 0
    assert hosts_command.main(["mpich", "--nodelist=n[1-2", f"--output={path}"]) == 2
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"hostfile": "n1:2\nn2:2\n"}
    assert capsys.readouterr().out == ""


def test_output_that_cannot_be_written(
    environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """One line that names the file."""
    path = tmp_path / "missing" / "hostfile"
    assert hosts_command.main(["mpich", "--nodelist=n1", f"--output={path}"]) == 2
    assert capsys.readouterr().err == f"slurm-plugin: {path}: No such file or directory; nothing was written\n"


def test_a_device_or_a_pipe_is_written_to(environ: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Root would replace /dev/stdout by a file, and remove it if no rank table can be made."""
    out = tmp_path / "out"
    out.symlink_to("/dev/null")
    lines = tmp_path / "lines"
    lines.write_text("n1 10.0.0.1 0=192.168.1.8\n")
    assert hosts_command.main(["openmpi", "--nodelist=n1", f"--output={out}"]) == 0
    assert hosts_command.main(["ranktable-1.0", f"--devices={lines}", f"--output={out}"]) == 0
    assert hosts_command.main(["ranktable-1.0", "--devices=/nonexistent", f"--output={out}"]) == 2
    assert out.readlink() == Path("/dev/null")
