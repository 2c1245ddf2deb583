"""Mirrors slurm_plugin/submit/render.py: whole scripts, and directives as the real sbatch reads them.

Rewrite the golden files after an intended change: SLURM_PLUGIN_GOLDEN=write pytest tests/unit/submit/test_render.py
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from slurm_plugin.errors import UsageError
from slurm_plugin.launch import MODES, variables
from slurm_plugin.launch.variables import placeholder
from slurm_plugin.records import job_plan
from slurm_plugin.records.job_plan import JobPlan
from slurm_plugin.spec import Spec, keyed, load
from slurm_plugin.submit.render import Site, directive, script
from slurm_plugin.supervisor.main import _read
from tests.refusals import refusal_of
from tests.unit.shells import assert_bash_reads

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests" / "golden"
COMMAND = "/etc/slurm/slurm_plugin/bin/slurm-plugin"
HOME = Site("/home/ada/runs", COMMAND)

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
hooks: {before: setup.sh, after: [/opt/tidy.py], on_restart: [a.sh, b.py], on_hold: /opt/tell.sh, found: no}
share: {group: team, access: read-write}
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
    "mpich": (
        b"name: ring\nmode: mpich\nnodes: 2\ntime: 1h\ngrace: 2m\nmodules: [gcc/12.2.0, mpich]\ncommand: ./a.out 3\n",
        HOME,
    ),
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
    "experiment": (
        b"name: lr\nmode: pytorch\narray: 0-11%4\ncommand: python train.py --lr {lr}\n",
        Site("/home/ada/runs", COMMAND, experiment="/home/ada/runs/it's lr"),
    ),
    "openmpi-root": (b"name: small\nmode: openmpi\ncommand: ./a.out\n", Site("/root", COMMAND, root=True)),
}


def rendered(name: str) -> str:
    """Render one of the scripts above."""
    data, site = SCRIPTS[name]
    return script(load(data, name), site, f"{name}.yaml")


def test_the_whole_script() -> None:
    """Compared with the file in tests/golden."""
    for name in SCRIPTS:
        golden = GOLDEN / f"{name}.sh"
        if os.environ.get("SLURM_PLUGIN_GOLDEN") == "write":
            golden.write_text(rendered(name))
        assert rendered(name) == golden.read_text(), name


def examples() -> list[Spec]:
    """Return the examples, also that of a search."""
    paths = sorted((ROOT / "examples").glob("*.yaml"))
    return [spec for path in paths for spec, _ in keyed(path.read_bytes(), path.name, search=lambda _: ())]


def test_each_example_is_a_spec_that_says_what_it_shows() -> None:
    """It is valid, begins with a comment, and its script is bash."""
    assert all(path.read_bytes().startswith(b"# ") for path in (ROOT / "examples").glob("*.yaml"))
    assert_bash_reads([script(spec, HOME) for spec in examples()])


def test_each_mode_has_an_example() -> None:
    """To copy from."""
    assert {spec.mode for spec in examples()} == set(MODES)


def test_no_golden_file_is_left_over() -> None:
    """Each belongs to a script above."""
    assert {path.stem for path in GOLDEN.glob("*.sh")} == set(SCRIPTS)


def test_bash_takes_the_script() -> None:
    """It has no syntax error."""
    assert_bash_reads(map(rendered, SCRIPTS))


def run(text: str, directory: Path) -> list[str]:
    """Run a script with a fake `slurm-plugin` that prints what it gets."""
    stand_in = directory / "slurm-plugin"
    stand_in.write_text('#!/bin/sh\nprintf "%s\\0" "$PWD" "$GREETING" "$@"\n')
    stand_in.chmod(0o755)
    done = subprocess.run(["bash"], input=text, capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[:-1]


def test_every_word_reaches_supervise_as_it_was_written(tmp_path: Path) -> None:
    """Environment, directory and words pass through bash unchanged, whatever they contain."""
    workdir = tmp_path / "my runs" / "no #1"
    workdir.mkdir(parents=True)
    spec = load(EVERYTHING, "job.yaml")
    assert run(script(spec, Site(str(tmp_path), str(tmp_path / "slurm-plugin"))), tmp_path) == [
        str(workdir),
        "it's $HOME, `date`\nand a second line\n#SBATCH --comment=x",
        *("job", "supervise"),
        job_plan.text(
            JobPlan(
                mode="pytorch",
                slots=8,
                retries=3,
                hold_s=14400,
                infiniband="yes",
                checkpoint="/scratch/ada/checkpoints",
                env_files=(f"{workdir}/keys.env", "/etc/it's"),
                own_env=("NCCL_DEBUG", "GREETING"),
                before=(f"{workdir}/setup.sh",),
                after=("/opt/tidy.py",),
                found_hooks=False,
                on_restart=(f"{workdir}/a.sh", f"{workdir}/b.py"),
                on_hold=("/opt/tell.sh",),
                share_group="team",
                share_access="read-write",
                stage_in=("set:/shared/data set", f"images:{workdir}/images"),
            )
        ),
        *("--", "/opt/conda/envs/train/bin/python", "train.py", "--name", "two words", "--note", "it's"),
    ]


def test_variables_of_a_command_reach_supervise_as_variables(tmp_path: Path) -> None:
    """With `variables` in the plan bash replaces no dollar, and supervise reads the variables back."""
    text = b"name: x\nmode: single\ncommand: python a.py --n=$SLOTS $$X '$Y'\n"
    shown = tmp_path / "supervise"
    shown.write_text("#!/bin/sh\nprintf '%s\\0' \"$@\"\n")
    shown.chmod(0o755)
    written = script(load(text, "x.yaml"), Site(str(tmp_path), str(shown)))
    words = subprocess.run(["bash"], input=written, capture_output=True, text=True, check=True).stdout.split("\0")
    given = _read(words[:-1][1:]).plan
    assert variables.words(given.command) == ("python", "a.py", f"--n={placeholder('SLOTS')}", "$X", "$Y")
    wrong = given._replace(command=("a", "$("))
    assert refusal_of(UsageError, variables.words, wrong.command).startswith("command: $(: this $ begins no variable")


def test_a_missing_directory_ends_the_script() -> None:
    """Slurm would have started it in /tmp."""
    text = script(load(b"name: a\nmode: openmpi\ncommand: x\n", "a"), Site("/nonexistent", "/bin/echo"))
    done = subprocess.run(["bash"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")


def test_a_file_name_cannot_write_into_the_script() -> None:
    """The spec's name is in a comment. A name with a newline is not shown."""
    spec = load(b"name: a\nmode: openmpi\ncommand: x\n", "a")
    assert script(spec, HOME, "a\nrm -rf x") == script(spec, HOME, "JOB.yaml")


def test_what_sbatch_cannot_read_is_refused() -> None:
    """The spec does not check the directory of submission: its name may contain anything."""
    for value in ["a\nb", "a\\b", 'a"b', "a\rb", "\x7f"]:
        assert re.search("which sbatch cannot read from a script", refusal_of(UsageError, directive, "chdir", value)), (
            value
        )


def test_a_percent_sign_in_the_directory_of_submission_is_refused() -> None:
    """sbatch prepends that directory to the log's name, and would read a pattern there."""
    spec = load(b"name: a\nmode: openmpi\ncommand: x\n", "a")
    with pytest.raises(UsageError, match="found % in the directory of submission"):
        script(spec, Site("/data/50%j", COMMAND))


def test_no_time_limit_is_said_in_words() -> None:
    """Without the line the job would get the limit of its partition."""
    spec = load(b"name: a\nmode: openmpi\ncommand: x\ntime: UNLIMITED\n", "a")
    assert "#SBATCH --time=UNLIMITED\n" in script(spec, HOME)


def test_a_spec_is_a_value() -> None:
    """The same spec on the same site gives the same script."""
    spec: Spec = load(EVERYTHING, "job.yaml")
    assert script(spec, HOME) == script(spec, HOME)
