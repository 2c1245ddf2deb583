"""`tasks`: several commands in one submission."""

import subprocess
from pathlib import Path

import pytest

from slurm_plugin.errors import SlurmPluginError
from slurm_plugin.spec import load
from slurm_plugin.submit.render import Site, script
from slurm_plugin.submit.submission import make_task_directories
from tests.unit.spec.small import unplaced

SMALL = "name: sizes\nmode: single\n"
TWO = "tasks:\n- ./a.out 'x y' $HOME\n- ./b.out --n 2\n"


def test_an_array_of_as_many_commands() -> None:
    """Each with a log in its own directory; an array that the user gives is kept."""
    spec = load(f"{SMALL}{TWO}".encode(), "job.yaml")
    assert (spec.array, spec.output) == ("0-1", "%x-%a/%x-%A_%a.out")
    spec = load(f"{SMALL}{TWO}array: 1%1\noutput: '%a.log'\n".encode(), "job.yaml")
    assert (spec.array, spec.output) == ("1%1", "%a.log")


@pytest.mark.parametrize(("task", "words"), [("0", ["./a.out", "x y", "${HOME}"]), ("1", ["./b.out", "--n", "2"])])
def test_the_script_chooses_the_command(tmp_path: Path, task: str, words: list[str]) -> None:
    """By the number of its task. bash runs the script with a slurm-plugin that prints its arguments."""
    command = tmp_path / "slurm-plugin"
    command.write_text('#!/bin/sh\nprintf "%s\\n" "$SLURM_PLUGIN_TASK_DIRECTORY" "$@"\n')
    command.chmod(0o755)
    spec = load(f"{SMALL}{TWO}".encode(), "job.yaml")
    text = script(spec, Site(str(tmp_path), str(command)))
    environ = {"PATH": "/usr/bin:/bin", "SLURM_ARRAY_TASK_ID": task, "SLURM_JOB_NAME": "sizes"}
    done = subprocess.run(["bash"], input=text, env=environ, capture_output=True, text=True, timeout=60, check=True)
    said = done.stdout.splitlines()
    assert said[0] == f"{tmp_path}/sizes-{task}"
    assert said[said.index("--") + 1 :] == words


def test_refused() -> None:
    """Each problem with its place."""
    assert unplaced(f"{SMALL}{TWO}command: ./c.out\n") == [
        "command: found it beside `tasks`, each of which is a command; keep one of the two"
    ]
    assert unplaced(f"{SMALL}{TWO}array: 0-2\n") == ["array: found 2, and 2 `tasks`; accepted: numbers from 0 to 1"]
    assert unplaced(SMALL + 'tasks: [./a.out, "./b \'x"]\n')[0].startswith("tasks.1: found ")
    assert unplaced(f"{SMALL}{TWO}any_of: [{{nodes: 1}}, {{nodes: 2}}]\n")[0].startswith(
        "any_of: found it with `tasks`"
    )
    assert unplaced(SMALL + "tasks: [3, {a: b}]\n")[0].startswith("tasks: found a mapping; accepted: a list of texts")
    assert unplaced(SMALL + "tasks: []\n")[0].startswith("command: missing")


def test_directories(tmp_path: Path) -> None:
    """One a task, kept where it exists; a file in its place is an error."""
    spec, site = load(f"{SMALL}{TWO}".encode(), "job.yaml"), Site(str(tmp_path), "slurm-plugin")
    (tmp_path / "sizes-0").mkdir()
    make_task_directories(spec, site)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sizes-0", "sizes-1"]
    (tmp_path / "sizes-1").rmdir()
    (tmp_path / "sizes-1").touch()
    with pytest.raises(SlurmPluginError, match=r"could not make .*/sizes-1: File exists"):
        make_task_directories(spec, site)
