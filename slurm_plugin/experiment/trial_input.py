"""What a trial's program is given: its values in the command, in the environment and in a file, and its directory."""

import json
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import slurm_plugin
from slurm_plugin.errors import printable
from slurm_plugin.experiment import journal
from slurm_plugin.experiment.metrics import METRICS
from slurm_plugin.launch import variables
from slurm_plugin.records import search_space
from slurm_plugin.records.experiments import Experiment, Trial
from slurm_plugin.records.job_plan import JobPlan

HPARAMS: Final = "hparams.json"  # the values, nested; in the trial's directory
STOP: Final = "stop"  # exists: the trial shall stop; in the trial's directory
CHECKPOINTS: Final = "checkpoints"  # in the trial's directory
LIBRARY: Final = str(Path(str(slurm_plugin.__file__)).parents[1])  # of this code: a directory, or the deployed archive
PACKAGES: Final = ("slurm_plugin", "prechecks", "hostfiles")  # that LIBRARY has, perhaps among all of site-packages
LINKS: Final = "lib"  # links to PACKAGES; in the experiment's directory
_LONGEST_SHOWN: Final = 300


def text(value: Any) -> str:
    """Return a value for a command line or a variable: text as it is, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def shown(values: Mapping[str, Any]) -> str:
    """Return the values for a line of the log."""
    line = printable(", ".join(f"{name}={text(value)}" for name, value in search_space.flat(values).items()))
    return line if len(line) <= _LONGEST_SHOWN else f"{line[:_LONGEST_SHOWN]}..."


def library(directory: Path) -> str:
    """Return what a trial has on its PYTHONPATH: the deployed archive, or a directory with nothing but PACKAGES.

    LIBRARY itself may have another version of a package that the program uses.
    """
    return str(directory / LINKS) if Path(LIBRARY).is_dir() else LIBRARY


def _targets() -> dict[str, str]:
    """Return the packages and their directories; none of the deployed archive."""
    return {name: str(Path(LIBRARY, name).resolve()) for name in PACKAGES if Path(LIBRARY).is_dir()}


def link_library(directory: Path) -> None:
    """Make the links in `library`, those of another installation anew. Several tasks may do so. Raise OSError."""
    links = directory / LINKS
    for name, target in _targets().items():
        links.mkdir(exist_ok=True)
        link, new = links / name, links / f".{name}-{secrets.token_hex(4)}"
        if not link.is_symlink() or str(link.readlink()) != target:
            new.symlink_to(target)
            new.replace(link)


def environment(directory: Path, trial: Trial, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a trial: the task's own, and the variables of the trial."""
    place = journal.trial_directory(directory, trial.number)
    scalars = {
        name: value for name, value in search_space.flat(trial.values).items() if not isinstance(value, list | dict)
    }
    return {
        **{
            name: value for name, value in environ.items() if not name.startswith(search_space.HP)
        },  # this job's submitter's
        **{search_space.variable(name): text(value) for name, value in scalars.items()},
        "SLURM_PLUGIN_HPARAMS": str(place / HPARAMS),
        "SLURM_PLUGIN_TRIAL": str(trial.number),
        "SLURM_PLUGIN_EXPERIMENT": str(directory),
        "SLURM_PLUGIN_METRICS": str(place / METRICS),
        # After the user's own: a program may use the API, and a Trial class is run by this code.
        "PYTHONPATH": os.pathsep.join(filter(None, (environ.get("PYTHONPATH"), library(directory)))),
    }


def plan(given: JobPlan, directory: Path, trial: Trial) -> JobPlan:
    """Return the job plan of a trial. Its checkpoints are in its own directory, unless the spec has another one.

    A container also has the directory of the experiment, and slurm_plugin's own code.
    """
    own = str(journal.trial_directory(directory, trial.number) / CHECKPOINTS)
    again = trial.takes > 1 or trial.restarts > 0
    inside = given.container
    if inside:
        code = [f"{each}:{each}:ro" for each in _targets().values() or (LIBRARY,)]
        inside = {**inside, "mounts": [*inside.get("mounts", ()), str(directory), *code]}
    return given._replace(trial=trial.number, continued=again, checkpoint=given.checkpoint or own, container=inside)


def command(words: Sequence[str], experiment: Experiment, trial: Trial, *, escaped: bool) -> list[str]:
    """Return the words of a trial's command. `escaped`: a dollar in a word is doubled."""
    texts = {name: text(value) for name, value in search_space.flat(trial.values).items()}
    if escaped:
        texts = {name: value.replace("$", "$$") for name, value in texts.items()}
    found = [variables.with_hyperparameters(word, texts) for word in words]
    if experiment.give == "arguments":
        for name, value in texts.items():
            found += [f"--{name}", value]
    return found
