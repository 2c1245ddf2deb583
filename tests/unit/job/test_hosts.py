"""`slurm-plugin hosts`: formats inside a job and for a list given by hand."""

import pytest

from slurm_plugin.job import hosts
from slurm_plugin.job.run import master_port


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment without a job."""
    for name in ("SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_NODEID", "SLURM_GPUS_ON_NODE", "SLURM_JOB_GPUS"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_by_hand(environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A node list and slots; one slot where none are given."""
    assert hosts.main(["openmpi", "--nodelist=n[08-10]", "--slots=4"]) == 0
    assert hosts.main(["openmpi", "--nodelist=gpu1"]) == 0
    assert capsys.readouterr() == ("n08 slots=4\nn09 slots=4\nn10 slots=4\ngpu1 slots=1\n", "")


def test_in_a_job(environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The job's own nodes and accelerators, without an option."""
    for name, value in {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[2,1]", "SLURM_GPUS_ON_NODE": "8"}.items():
        environ.setenv(name, value)
    assert hosts.main(["openmpi"]) == 0
    assert capsys.readouterr() == ("n2 slots=8\nn1 slots=8\n", "")


def test_pytorch(environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The same rendezvous on every node of a job, and another port for another job."""
    said = []
    for job_id in (7, 7, 8):
        assert hosts.main(["pytorch", "--nodelist=n[1-2]", "--slots=4", f"--job-id={job_id}"]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] != said[2]
    assert "MASTER_ADDR=n1\n" in said[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["openmpi"], "slurm-plugin: "),
        (["openmpi", "--nodelist=n[1"], "slurm-plugin: node list 'n[1', character 2: a '[' that is not closed"),
        (["openmpi", "--nodelist="], "slurm-plugin: node list '', character 1: an empty name"),
        (["openmpi", "--nodelist=n1", "--slots=-1"], "slurm-plugin: "),
        (["openmpi", "--nodelist=n[1-2]", "--tasks-per-node=1"], "slurm-plugin: 2 nodes in "),
        (["pytorch", "--nodelist=n1", "--job-id=-1"], "slurm-plugin: "),
        (["pytorch", "--nodelist=n[1-2]", "--task=2"], "slurm-plugin: "),
    ],
)
def test_cannot_be_read(
    environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    """Exit 2, one error in words, and nothing on stdout that a hostfile could be made of."""
    assert hosts.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(words)
    assert "Traceback" not in err


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["openmpi", "--slots=x"]])
def test_wrong_usage(environ: pytest.MonkeyPatch, arguments: list[str]) -> None:
    """Exit 2 for words that are not known."""
    with pytest.raises(SystemExit) as caught:
        hosts.main(arguments)
    assert caught.value.code == 2


def test_the_port_of_a_restart_is_the_supervisors(
    environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is printed inside a restarted job is what its program was given."""
    for name, value in {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_RESTART_COUNT": "2"}.items():
        environ.setenv(name, value)
    assert hosts.main(["pytorch"]) == 0
    assert f"MASTER_PORT={master_port(7, 2)}\n" in capsys.readouterr().out
    assert master_port(7, 2) != master_port(7, 0)
