"""Mirrors slurm_plugin/render.py: whole scripts, and directives as the real sbatch reads them.

To write the golden files again after a change that is meant: SLURM_PLUGIN_GOLDEN=write pytest tests/unit/test_render.py
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from slurm_plugin.errors import UsageError
from slurm_plugin.modes import MODES
from slurm_plugin.render import Site, directive, script
from slurm_plugin.spec import Spec, load

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
COMMAND = "/etc/slurm/slurm_plugin/bin/slurm-plugin"
HOME = Site("/home/ada/runs", COMMAND)
SBATCH = shutil.which("sbatch")

EVERYTHING = b"""
name: every.thing-1
mode: pytorch
nodes: 4
accelerators: {gpu: 8}
command: /opt/conda/envs/train/bin/python train.py --name 'two words' --note "it's"
env:
  NCCL_DEBUG: WARN
  GREETING: "it's $HOME, `date`\\nand a second line\\n#SBATCH --comment=x"
env_file: [keys.env, "/etc/it's"]
workdir: 'my runs/no #1'
time: 2d
output: logs/%x-%j.out
error: logs/%x-%j.err
checkpoint: /scratch/ada/checkpoints/
hooks: {before: setup.sh, after: [/opt/tidy.py], found: no}
stage_in: [{from: "/shared/data set", to: set}, {from: images}]
retries: 3
hold_on_failure: 4h
infiniband: yes
"""
SCRIPTS = {
    "openmpi-hello": ((ROOT / "examples/openmpi-hello.yaml").read_bytes(), HOME),
    "pytorch-hello": ((ROOT / "examples/pytorch-hello.yaml").read_bytes(), HOME),
    "pytorch-everything": (EVERYTHING, HOME),
    "pytorch-task": (
        b"name: ranks\nmode: pytorch\nnodes: 2\ncommand: python train.py\nlaunch: task\n"
        b"logs: {per: rank, label: yes}\n",
        HOME,
    ),
    "pytorch-groups": (
        b"name: actors\nmode: pytorch\nlaunch: task\ntime: 1h\ncommand: python train.py\ngroups:\n"
        b"- {nodes: 1, partition: cpu, cpus: 32}\n- {nodes: 4, accelerators: {gpu: 8}}\n",
        HOME,
    ),
    "single": (b"name: one\nmode: single\nopen_mode: truncate\ncommand: ./a.out\n", HOME),
    "mpich": (b"name: ring\nmode: mpich\nnodes: 2\nmodules: [gcc/12.2.0, mpich]\ncommand: ./a.out 3\n", HOME),
    "intelmpi": (b"name: ring\nmode: intelmpi\nnodes: 2\ncommand: ./a.out 3\n", HOME),
    "horovod": (b"name: hvd\nmode: horovod\nnodes: 2\naccelerators: {gpu: 4}\ncommand: python train.py\n", HOME),
    "deepspeed": (b"name: ds\nmode: deepspeed\nnodes: 2\ncommand: deepspeed train.py --deepspeed\n", HOME),
    "tensorflow": (
        b"name: tf\nmode: tensorflow\nnodes: 4\ntensorflow: {ps: 1, chief: yes, evaluator: yes}\n"
        b"command: python t.py\n",
        HOME,
    ),
    "ascend": (b"name: np\nmode: ascend\nnodes: 2\naccelerators: {npu: 8}\ncommand: python train.py\n", HOME),
    "ascend-cluster": (
        b"name: ms\nmode: ascend\naccelerators: {npu: 8}\nascend: {table: no, messages: diagnosis}\n"
        b"command: python x\n",
        HOME,
    ),
    "script": (b"name: any\nmode: script\nprechecks: [fabric]\ncommand: |\n  export A=1\n  ./x || sleep 5h\n", HOME),
    "openmpi-own-mpirun": (b"name: own\nmode: openmpi\nnodes: 2\ncommand: mpirun -np 4 ./a.out\n", HOME),
    "container-apptainer": (
        b"name: in\nmode: pytorch\nnodes: 2\naccelerators: {gpu: 2}\ncommand: python t.py\nworkdir: run\n"
        b"env: {NCCL_DEBUG: WARN}\n"
        b"container: {image: /shared/it's.sif, mounts: '/data:/data:ro,/scratch', workdir: /w s, home: no}\n",
        HOME,
    ),
    "container-pyxis": (
        b"name: in\nmode: openmpi\nnodes: 2\nlaunch: task\ncommand: ./a.out\ncontainer:\n"
        b"  image: nvcr.io#nvidia/pytorch:24.01-py3\n  mounts: [/data]\n  writable: yes\n",
        HOME,
    ),
    "openmpi-root": (b"name: small\nmode: openmpi\ncommand: ./a.out\n", Site("/root", COMMAND, root=True)),
}


def rendered(name: str) -> str:
    """One of the scripts above."""
    data, site = SCRIPTS[name]
    return script(load(data, name), site, f"{name}.yaml")


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_whole_script(name: str) -> None:
    """Compared with the file in tests/golden."""
    golden = GOLDEN / f"{name}.sh"
    if os.environ.get("SLURM_PLUGIN_GOLDEN") == "write":
        golden.write_text(rendered(name))
    assert rendered(name) == golden.read_text()


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.stem)
def test_each_example_is_a_spec_that_says_what_it_shows(path: Path) -> None:
    """Valid, and with a comment first."""
    data = path.read_bytes()
    assert data.startswith(b"# ")
    subprocess.run(["bash", "-n"], input=script(load(data, path.name), HOME), text=True, check=True, timeout=60)


def test_each_mode_has_an_example() -> None:
    """To copy from."""
    found = {load(path.read_bytes(), path.name).mode for path in (ROOT / "examples").glob("*.yaml")}
    assert found == set(MODES)


def test_no_golden_file_is_left_over() -> None:
    """Each belongs to a script above."""
    assert {path.stem for path in GOLDEN.glob("*.sh")} == set(SCRIPTS)


@pytest.mark.parametrize("name", SCRIPTS)
def test_bash_takes_the_script(name: str) -> None:
    """No syntax error in it."""
    subprocess.run(["bash", "-n"], input=rendered(name), text=True, check=True, timeout=60)


def run(text: str, directory: Path) -> list[str]:
    """Run a script with a stand-in for `slurm-plugin` that shows what it was given."""
    stand_in = directory / "slurm-plugin"
    stand_in.write_text('#!/bin/sh\nprintf "%s\\0" "$PWD" "$GREETING" "$@"\n')
    stand_in.chmod(0o755)
    done = subprocess.run(["bash"], input=text, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.split("\0")[:-1]


def test_every_word_reaches_supervise_as_it_was_written(tmp_path: Path) -> None:
    """Environment, directory and words survive bash, whatever they hold."""
    workdir = tmp_path / "my runs" / "no #1"
    workdir.mkdir(parents=True)
    spec = load(EVERYTHING, "job.yaml")
    assert run(script(spec, Site(str(tmp_path), str(tmp_path / "slurm-plugin"))), tmp_path) == [
        str(workdir),
        "it's $HOME, `date`\nand a second line\n#SBATCH --comment=x",
        *("job", "supervise", "--mode=pytorch", "--hold=14400"),
        *(f"--env-file={workdir}/keys.env", "--env-file=/etc/it's", "--own-env=NCCL_DEBUG,GREETING"),
        *(f"--before={workdir}/setup.sh", "--after=/opt/tidy.py", "--no-found-hooks"),
        *("--stage-in=set:/shared/data set", f"--stage-in=images:{workdir}/images"),
        *("--retries=3", "--slots=8", "--infiniband=yes"),
        *("--checkpoint=/scratch/ada/checkpoints", "--"),
        *("/opt/conda/envs/train/bin/python", "train.py", "--name", "two words", "--note", "it's"),
    ]


def test_a_missing_directory_ends_the_script() -> None:
    """Slurm would have started it in /tmp."""
    text = script(load(b"name: a\nmode: openmpi\ncommand: x\n", "a"), Site("/nonexistent", "/bin/echo"))
    done = subprocess.run(["bash"], input=text, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")


def test_a_file_name_cannot_write_into_the_script() -> None:
    """The spec's name stands in a comment: one with a newline is not shown."""
    spec = load(b"name: a\nmode: openmpi\ncommand: x\n", "a")
    assert script(spec, HOME, "a\nrm -rf x") == script(spec, HOME, "JOB.yaml")


@pytest.mark.parametrize("value", ["a\nb", "a\\b", 'a"b', "a\rb", "\x7f"])
def test_what_sbatch_cannot_read_is_refused(value: str) -> None:
    """A directory of submission is not checked by the spec: its name may hold anything."""
    with pytest.raises(UsageError, match="which sbatch cannot read from a script"):
        directive("chdir", value)


def test_a_percent_sign_in_the_directory_of_submission_is_refused() -> None:
    """sbatch puts that directory before the log's name, and would read a pattern there."""
    spec = load(b"name: a\nmode: openmpi\ncommand: x\n", "a")
    with pytest.raises(UsageError, match="found % in the directory of submission"):
        script(spec, Site("/data/50%j", COMMAND))


def read_by_sbatch(text: str, directory: Path) -> dict[str, str]:
    """The options that the real sbatch finds in a script: it shows them before it looks for a controller."""
    conf = directory / "slurm.conf"
    conf.write_text(
        "ClusterName=none\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort=1\nMessageTimeout=2\nAuthType=auth/munge\n"
        "NodeName=n1\nPartitionName=p Nodes=ALL Default=YES\n"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))}
    done = subprocess.run(
        [str(SBATCH), "--verbose"],
        input=text,
        env={**environ, "SLURM_CONF": str(conf)},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    lines = (line.removeprefix("sbatch: ").partition(" : ") for line in done.stderr.splitlines() if " : " in line)
    return {name.strip(): value for name, _, value in lines}


@pytest.mark.skipif(SBATCH is None, reason="no sbatch on this machine")
def test_sbatch_reads_the_directives_as_they_were_meant(tmp_path: Path) -> None:
    """The real reader of #SBATCH lines, on the script with the most of them."""
    assert read_by_sbatch(rendered("pytorch-everything"), tmp_path) == {
        "chdir": "/home/ada/runs/my runs/no #1",
        "comment": "[sp1;retries=3;ib=yes]",
        "gres": "gres:gpu:8",
        "job-name": "every.thing-1",
        "nodes": "4",
        "ntasks-per-node": "8",
        "open-mode": "a",
        "output": "/home/ada/runs/my runs/no #1/logs/%x-%j.out",
        "error": "/home/ada/runs/my runs/no #1/logs/%x-%j.err",
        "requeue": "requeue",
        "time": "2-00:00:00",
        "verbose": "1",
    }


@pytest.mark.skipif(SBATCH is None, reason="no sbatch on this machine")
@pytest.mark.parametrize("value", ["a b#c", "it's", "[x;y=1]", "#", "a=b --uid=0", " lead", "ü", "$HOME %x *"])
def test_sbatch_reads_any_value_that_we_accept(value: str, tmp_path: Path) -> None:
    """Blanks, `#`, quotes of the other kind: the value arrives whole."""
    text = f"#!/bin/bash\n#SBATCH {directive('comment', value)}\ntrue\n"
    assert read_by_sbatch(text, tmp_path)["comment"] == value


def test_a_spec_is_a_value() -> None:
    """The same spec on the same site is the same script."""
    spec: Spec = load(EVERYTHING, "job.yaml")
    assert script(spec, HOME) == script(spec, HOME)
