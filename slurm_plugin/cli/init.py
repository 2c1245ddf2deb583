"""`slurm-plugin init`: ask five questions and write a commented job spec."""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click
import yaml

from slurm_plugin.cli import specs
from slurm_plugin.cli.nodeside import spec_file
from slurm_plugin.errors import SlurmPluginError, UsageError, printable
from slurm_plugin.launch import MODES
from slurm_plugin.spec import submit_config

QUESTIONS: Final = {
    "command": "The command to run",
    "nodes": "How many nodes",
    "gpus": "GPUs on each node",
    "mode": "How the command is launched",
    "time": "Time limit, such as 30m, 4h or 2d",
}
DEFAULTS: Final[Mapping[str, str]] = {"command": "python train.py", "nodes": "1", "gpus": "1", "time": "4h"}
LAUNCHERS: Final = {
    "deepspeed": "deepspeed", "horovodrun": "horovod", "mpiexec": "openmpi", "mpirun": "openmpi", "torchrun": "pytorch",
}  # fmt: skip
ABOUT: Final[Mapping[str, str]] = {
    "single": "one node; the command runs once, unchanged",
    "openmpi": "mpirun starts one rank per GPU, on CPUs one per node",
    "mpich": "MPICH's mpiexec.hydra starts one rank per GPU, on CPUs one per node",
    "intelmpi": "Intel MPI's mpiexec.hydra starts one rank per GPU, on CPUs one per node",
    "horovod": "mpirun starts one rank per GPU, on CPUs one per node",
    "pytorch": "torchrun on each node, one rank per GPU",
    "deepspeed": "DeepSpeed's launcher on each node, one rank per GPU",
    "tensorflow": "the command runs on each node, with its TF_CONFIG",
    "ascend": "one process per device, with a rank table",
    "script": "a bash script, run unchanged on the first node",
}
TEXT: Final = """\
# Written by `slurm-plugin init`. See the script: slurm-plugin render {file}. Submit it: slurm-plugin submit {file}
name: {name}
mode: {mode} # {about}
command: {command}
nodes: {nodes}
accelerators: {{gpu: {gpus}}} # on each node
time: {time} # Slurm ends the job then
retries: 1 # restarts after a fault of a node, which also asks for checks of the nodes; 0: none
# Remove the # before a key to use it. All keys: slurm-plugin schema
# partition: main # the cluster's default without this line
# cpus: 4 # for each process
# memory: 64GB # on each node; 0: all of it
# checkpoint: checkpoints # the program finds this directory in SLURM_PLUGIN_CHECKPOINT, also after a restart
# grace: 2m # SIGUSR1 that long before the end, so that the program can save
# hang_timeout: 30m # restart a program that writes nothing for so long
# env: {{OMP_NUM_THREADS: "4"}}
# modules: [cuda] # of Lmod or Environment Modules
"""


@click.command()
@click.argument("file", metavar="[FILE]", default="job.yaml", type=click.Path(dir_okay=False, allow_dash=True))
@specs.config_option
@click.option("--force", is_flag=True, help="Replace FILE.")
def init(file: str, config: Path | None, *, force: bool) -> None:
    """Ask five questions and write a commented job spec to FILE, job.yaml by default (`-`: to stdout).

    Press Enter for the answer in brackets.
    """
    if file != "-" and not force and Path(file).exists():
        raise UsageError(f"{printable(file)}: found this file\n  name another one, or replace it with --force")
    settings = submit_config.load(config)
    given = dict(DEFAULTS)
    for key, question in QUESTIONS.items():
        given["mode"] = given.get("mode") or ""
        while True:
            default = _guess(given) if key == "mode" else given[key]
            shown = f"{question} ({', '.join(MODES)})" if key == "mode" else question
            answer = click.prompt(shown, default, err=True).strip()
            wrong = _wrong({**given, key: answer}, key, settings)
            if not wrong:
                given[key] = answer
                break
            click.echo(f"  {wrong}", err=True)
    text = spec_text(given, file)
    if file == "-":
        click.echo(text, nl=False)
        return
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise SlurmPluginError(f"{printable(file)}: {error.strerror}\n  name a file that you may write") from error
    click.echo(f"written: {printable(file)}\n  submit it: slurm-plugin submit {shlex.quote(file)}", err=True)


def spec_text(given: Mapping[str, str], file: str) -> str:
    """Return the spec for these answers."""
    mode = given["mode"] or _guess(given)
    file = "JOB.yaml" if file == "-" else shlex.quote(file)
    quoted = {key: _yaml(given[key]) for key in ("command", "time")}
    own = {"name": _name(given["command"]), "mode": mode, "about": ABOUT[mode], "file": file}
    return TEXT.format(**{**given, **quoted, **own})


def _wrong(given: Mapping[str, str], key: str, settings: submit_config.SubmitConfig) -> str:
    """Return why the answer `key` is not accepted; "" if it is."""
    if key in ("nodes", "gpus") and not re.fullmatch("[0-9]{1,5}", given[key], re.ASCII):
        return f"found {printable(given[key])}; accepted: a number"
    if key == "mode" and given[key] not in MODES:
        return f"found {printable(given[key])}; accepted: {', '.join(MODES)}"
    try:
        spec_file.load_specs(spec_text(given, "job.yaml").encode(), "job.yaml", settings, lambda _: None)
    except SlurmPluginError as error:
        return str(error)
    return ""


def _guess(given: Mapping[str, str]) -> str:
    """Return the mode that fits the command, the nodes and the GPUs."""
    words = given["command"].split()
    named = (LAUNCHERS[program] for word in words if (program := word.rpartition("/")[2]) in LAUNCHERS)
    several = given["nodes"] not in ("0", "1") or given["gpus"] not in ("0", "1")
    python = bool(words) and re.match(r"python[0-9.]*$", words[0].rpartition("/")[2]) is not None
    return next(named, "single" if not several else "pytorch" if python else "openmpi")


def _name(command: str) -> str:
    """Return a name for the job: that of the first file of the command, or of its first word that is no launcher."""
    words = [word for word in command.split() if word[0] not in "-0123456789"]
    first = next((word for word in words if word.rpartition("/")[2] not in LAUNCHERS), "")
    script = next((word for word in words if "." in word.rpartition("/")[2][1:]), first)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", script.rpartition("/")[2].partition(".")[0]).strip("-._")
    return name[:64] or "job"


def _yaml(value: Any) -> str:
    """Return a value on one line of YAML."""
    return yaml.safe_dump(value, width=10**6, allow_unicode=True).removesuffix("...\n").strip()
