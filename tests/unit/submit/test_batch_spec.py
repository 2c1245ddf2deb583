"""A spec that is a batch script: its rendering, and its comparison with the job."""

import re
import shutil
import subprocess
from collections.abc import Container
from pathlib import Path

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.errors import UsageError
from slurm_plugin.slurm import Job, Queueing, Request
from slurm_plugin.slurm.resources import gres
from slurm_plugin.spec import Spec, load
from slurm_plugin.submit import batch_spec
from slurm_plugin.submit.batch_spec import Given, SlurmAnswers, given, made
from tests.refusals import refusal_of

COMMAND = "/opt/env/bin/slurm-plugin"
TEXT = """\
# what this is
#SBATCH --partition=big --nodes=9
#SBATCH --nodes=9

name: train
mode: pytorch
nodes: 2
accelerators: {gpu: 4}
time: 90m
retries: 3
command: python train.py
"""
BATCH = f"""\
#!{COMMAND} run
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
#SBATCH --time=01:30:00
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --comment="[sp1;retries=3;ib=auto]"
# what this is
#SBATCH --partition=big --nodes=9

""" + TEXT.split("\n\n")[1]
FITS = Given(2, 4, "/home/ada", "/home/ada", 5400, "mine [sp1;retries=3;ib=auto;again=1]", lines={"no-kill": ""})
KEYS = ("nodes", "accelerators")


def spec(text: str = TEXT) -> Spec:
    """Return a spec."""
    return load(text.encode(), "a.yaml")


def fit(spec: Spec, keys: Container[str], given: Given) -> Spec:
    """Return the spec of a run. Assert that nothing is printed."""
    said: list[str] = []
    made = batch_spec.fit(spec, keys, given, said.append)
    assert said == []
    return made


def test_the_whole_file() -> None:
    """The lines are above the unchanged spec. Rendered again, the file is the same."""
    assert made(spec(), TEXT, COMMAND, "a.yaml") == BATCH
    assert made(spec(BATCH), BATCH, COMMAND, "a.yaml") == BATCH
    assert spec(BATCH) == spec()


def test_a_directory_is_named_where_the_spec_does() -> None:
    """Without `workdir` it is the directory of submission, as with any script."""
    text = f"{TEXT}workdir: runs\n"
    assert "\n#SBATCH --chdir=runs\n" in made(spec(text), text, COMMAND, "a.yaml")
    assert "chdir" not in BATCH


def test_what_sbatch_or_the_kernel_would_not_take() -> None:
    """The rendering reports it; else the job would never start."""
    cases = [
        (TEXT.replace("\n", "\r\n"), COMMAND, r"found DOS line ends.*\n  run: sed"),
        (TEXT, "/" + "x" * 120 + "/slurm-plugin", "found 140 bytes in the first line"),
        (TEXT, "/opt/my env/slurm-plugin", "accepted: 127 bytes without blanks"),
    ]
    for text, command, what in cases:
        assert re.search(what, refusal_of(UsageError, made, spec(text), text, command, "a.yaml")), text


def test_a_key_that_contradicts_ends_the_run() -> None:
    """The message has both values, and the line that would agree."""
    cases = [
        ({"nodes": 3}, "`nodes: 2`, and Slurm gave 3: #SBATCH --nodes=2"),
        ({"gpus": 0}, "`accelerators: {gpu: 4}`, and Slurm gave 0: #SBATCH --gres=gpu:4"),
        ({"time_limit_s": 5340}, "`time: 90m`, and Slurm gave 01:29:00: #SBATCH --time=01:30:00"),
        ({"comment": ""}, "`retries: 3`, and the job's comment asks for nothing: #SBATCH --comment=[sp1;retries=3;"),
        ({"comment": "[sp1;retries=1;ib=auto]"}, "the job's comment asks for [sp1;retries=1;ib=auto]: #SBATCH"),
    ]  # fmt: skip
    for wrong, words in cases:
        assert fit(spec(), KEYS, FITS) == spec(), wrong
        with pytest.raises(UsageError, match=r"^1 key contradicts what Slurm gave this job; it ends here\n") as caught:
            fit(spec(), KEYS, FITS._replace(**wrong))  # type: ignore[arg-type] # of its own fields
        assert words in str(caught.value), wrong


def test_nodes_with_unlike_numbers_of_gpus() -> None:
    """A program would start as many ranks on each node as the first one has GPUs."""
    devices = {"n1": gres("gpu:4(IDX:0-3)"), "n2": gres("gpu:a100:1,gpu:v100:1"), "n3": gres("gpu:4")}
    environ = {"SLURM_JOB_NUM_NODES": "3", "SLURM_GPUS_ON_NODE": "4"}
    found = given(environ, "/w", SlurmAnswers(devices=devices), b"")
    assert (found.gpus, found.unlike) == (2, "4 on n[1,3], 2 on n2")
    text = "name: a\nmode: {}\ncommand: x\n"
    words = "`accelerators` is missing, and Slurm gave the nodes unlike numbers of GPUs: 4 on n[1,3], 2 on n2\n  "
    refusal = refusal_of(UsageError, fit, spec(text.format("pytorch")), (), found)
    assert refusal == f"{words}correct the #SBATCH lines: --gpus-per-node or --gres, not --gpus"
    assert fit(spec(text.format("script")), (), found).accelerators.gpu == 2
    alike = given(environ, "/w", SlurmAnswers(devices={"n1": devices["n1"], "n3": devices["n3"]}), b"")
    assert (alike.gpus, alike.unlike) == (4, "")


def test_all_contradictions_are_told_at_once() -> None:
    """Also a wrong working directory."""
    text = f"{TEXT}workdir: runs\nspares: 1\n"
    said = refusal_of(UsageError, fit, spec(text), KEYS, FITS._replace(nodes=4, gpus=1))
    assert said.splitlines()[:2] == [
        "3 keys contradict what Slurm gave this job; it ends here",
        "  `nodes: 2` and `spares: 1`, and Slurm gave 4: #SBATCH --nodes=3",
    ]
    assert "`workdir: runs`, and Slurm started it in /home/ada: #SBATCH --chdir=runs" in said


def test_what_somebody_changed_is_said_and_ends_no_job() -> None:
    """If the #SBATCH lines agree with the keys, or in a requeued run."""
    said: list[str] = []
    shortened = FITS._replace(time_limit_s=60, lines={"time": "90"})
    assert batch_spec.fit(spec(), KEYS, shortened, said.append) == spec()
    assert said == ["`time: 90m`, and Slurm gave 00:01:00; the job runs all the same"]
    assert batch_spec.fit(spec(), KEYS, FITS._replace(comment="", restarted=True), said.append) == spec()
    assert said[1:] == ["`retries: 3`, and the job's comment asks for nothing; the job runs all the same"]


def test_what_slurm_does_not_say_contradicts_nothing() -> None:
    """An unknown time limit, no answer of the controller, a minute that Slurm rounded up."""
    assert fit(spec(), KEYS, FITS._replace(time_limit_s=None, comment=None)) == spec()
    text = TEXT.replace("90m", "5399s")
    assert fit(spec(text), KEYS, FITS) == spec(text)


def test_what_the_spec_does_not_say_is_as_slurm_gave_it() -> None:
    """The nodes and accelerators."""
    text = "name: a\nmode: pytorch\ncommand: python x\n"
    found = fit(spec(text), (), FITS._replace(comment=""))
    assert (found.nodes, found.slots) == (2, 4)


def test_what_slurm_gave() -> None:
    """From the variables of the batch script and the controller's answers."""
    job = Job(7, "a", "RUNNING", "", "n1", "", 0, "c", "")
    environ = {"SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_GPUS": "0,2", "SLURM_SUBMIT_DIR": "/s"}
    told, script = SlurmAnswers(job, Queueing(60), Request("big")), BATCH.encode()
    found = given(environ, "/d", told, script)
    assert found._replace(lines=None) == Given(2, 2, "/d", "/s", 60, "c", Request("big"))
    assert found.lines is not None
    assert found.lines.items() >= {"time": "01:30:00", "requeue": "", "partition": "big", "nodes": "9"}.items()
    found = given({**environ, "SLURM_RESTART_COUNT": "1"}, "/d", SlurmAnswers(queueing=Queueing(60, 30)), script)
    assert (found.time_min_s, found.restarted) == (30, True)
    environ = {"SLURM_JOB_NUM_NODES": "1", "SLURM_GPUS_ON_NODE": "3"}
    assert given(environ, "/d", SlurmAnswers(), b"name: a\n") == Given(1, 3, "/d", "/d", lines={})
    assert given(environ, "/d", SlurmAnswers(), b"#SBATCH --nosuch\n").lines is None
    with pytest.raises(UsageError, match="submit the spec with: sbatch"):
        given({}, "/d", SlurmAnswers(), b"")


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`render --batch` prints it. `run` outside a job, or with arguments, prints what to do."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.delenv("SLURM_JOB_NUM_NODES", raising=False)
    Path("a.yaml").write_text(TEXT)
    assert main(["render", "--batch", "a.yaml"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].endswith("slurm-plugin run")
    assert out.split("\n", 1)[1] == BATCH.split("\n", 1)[1]
    assert main(["run", "a.yaml"]) == 2
    assert "submit the spec with: sbatch JOB.yaml" in capsys.readouterr().err
    assert main(["run", "a.yaml", "b"]) == 2
    assert "it takes no arguments" in capsys.readouterr().err


@pytest.mark.skipif(not shutil.which("/usr/bin/python3"), reason="no other interpreter")
def test_a_deployed_copy_says_what_is_missing() -> None:
    """It cannot read YAML."""
    root = Path(__file__).parents[3]
    code = f"import sys; sys.path.insert(0, {str(root)!r}); from slurm_plugin.__main__ import main; "
    code += "sys.exit(main(['run', 'x']))"
    done = subprocess.run(["/usr/bin/python3", "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "pip install slurm_plugin" in done.stderr
    assert "render --batch does" in done.stderr


@pytest.mark.parametrize("key", ["groups: [{}, {nodes: 2}]\ncommand: ./a.out\n", "tasks: [./a.out, ./b.out]\n"])
def test_a_submission_of_several_kinds_is_refused(key: str) -> None:
    """The #SBATCH lines above the spec are for one command on nodes of one kind."""
    several, name = spec(f"name: a\nmode: pytorch\n{key}"), key.partition(":")[0]
    with pytest.raises(UsageError, match=f"found {name}, which a batch script cannot have"):
        made(several, TEXT, COMMAND, "a.yaml")
    with pytest.raises(UsageError, match=f"found {name}, and sbatch was given one job of one kind"):
        fit(several, {}, FITS)
