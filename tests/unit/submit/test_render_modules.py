"""The part of a batch script that loads modules: with a fake `module`, and with the real one if there is one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_plugin.spec import load
from slurm_plugin.submit.render import Site, script
from slurm_plugin.submit.wrapper import plugin_command

REAL = [path for path in ("/etc/profile.d/lmod.sh", "/etc/profile.d/modules.sh") if Path(path).exists()]
# Like the real ones, it reads unset variables, has failing commands, and prints errors to stderr.
STAND_IN = """
: $NOT_SET; false | true
module() {
  case "$1 $2" in "load gcc/12"|"load cuda") export LOADED="$LOADED$2 "; false; return 0 ;; esac
  echo "Lmod has detected the following error: $2" >&2; return 1
}
"""


def started(place: Path, modules: str, *, env: str = "{}", **environ: str) -> "subprocess.CompletedProcess[str]":
    """Run the script with a `slurm-plugin` that prints its options, LOADED, and the active options of `set`."""
    shows = place / "slurm-plugin"
    shows.write_text('#!/bin/sh\necho "started ${LOADED-} ${MINE-}"\n')
    shows.chmod(0o755)
    spec = load(f"name: a\nmode: single\ncommand: x\nmodules: {modules}\nenv: {env}\n".encode(), "a")
    text = script(spec, Site(str(place), str(shows))).replace(
        "\nslurm_plugin=", '\necho "$-"; set -o\nslurm_plugin=', 1
    )
    given = {"PATH": os.environ["PATH"], **environ}
    return subprocess.run(["bash"], input=text, env=given, capture_output=True, text=True, check=False)


@pytest.fixture
def home(tmp_path: Path) -> str:
    """Make a MODULESHOME."""
    (tmp_path / "init").mkdir()
    (tmp_path / "init/bash").write_text(STAND_IN)
    return str(tmp_path)


def test_each_is_loaded_in_order(tmp_path: Path, home: str) -> None:
    """Before `env`, which wins. Then `set -euo pipefail` holds again."""
    done = started(tmp_path, "[gcc/12, cuda]", env="{LOADED: own}", MODULESHOME=home)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "started own "
    plain = started(tmp_path, "[gcc/12, cuda]", MODULESHOME=home).stdout.splitlines()
    assert plain[-1] == "started gcc/12 cuda  "
    assert {"e", "u"} <= set(plain[0])
    assert "pipefail       \ton" in plain


def test_the_python_of_a_module(tmp_path: Path) -> None:
    """PYTHONHOME and PYTHONPATH are for the program: the Python of slurm_plugin, which pip installed, ignores them."""
    (tmp_path / "dataclasses.py").write_text("raise SystemExit('for an old Python')\n")
    command = tmp_path / "slurm-plugin"
    command.write_text(
        f"#!{sys.executable}\nimport os, slurm_plugin, sys\n"
        "print(sys.flags.ignore_environment, os.environ['PYTHONHOME'])\n"
    )
    command.chmod(0o755)
    spec = load(f"name: a\nmode: single\ncommand: x\nenv: {{PYTHONHOME: /old, PYTHONPATH: {tmp_path}}}\n".encode(), "a")
    site = Site(str(tmp_path), str(command), python=sys.executable, options=plugin_command.options({}))
    done = subprocess.run(["bash"], input=script(spec, site), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 /old\n", "")


def test_slurm_plugin_on_pythonpath() -> None:
    """Its Python needs that variable."""
    assert plugin_command.options({"PYTHONPATH": f"/opt:{Path(__file__).parents[3]}"}) == "-P"
    assert plugin_command.options({"PYTHONPATH": "/opt"}) == "-EP"


def test_one_that_is_missing_ends_the_job(tmp_path: Path, home: str) -> None:
    """With `module`'s message, its name and the node's. No other is loaded, and nothing starts."""
    done = started(tmp_path, "gcc/12,none,cuda", MODULESHOME=home)
    assert (done.returncode, done.stderr) == (1, "Lmod has detected the following error: none\n")
    where = os.uname().nodename
    why = f"none was not loaded on {where}, as it says above; see: module avail"
    assert done.stdout == f"[slurm_plugin] error,exiting: modules: {why}\n"


def test_a_function_that_came_with_the_job_is_taken(tmp_path: Path, home: str) -> None:
    """As bash exports it. A user's own `module use` is in its environment."""
    function = '() { export LOADED="$LOADED$2! "; }'
    done = started(tmp_path, "a", **{"MODULESHOME": home, "BASH_FUNC_module%%": function})
    assert done.stdout.splitlines()[-1] == "started a!  "


@pytest.mark.skipif(bool(REAL), reason="this machine has a module command")
def test_a_node_without_any(tmp_path: Path) -> None:
    """The message names it."""
    done = started(tmp_path, "gcc")
    where = os.uname().nodename
    said = f"modules: {where} has no module command: install Lmod or Environment Modules"
    assert (done.returncode, done.stdout) == (1, f"[slurm_plugin] error,exiting: {said}\n")


@pytest.mark.skipif(not REAL, reason="neither Lmod nor Environment Modules is installed")
def test_the_real_one(tmp_path: Path) -> None:
    """A test module is loaded, and the log has its message about a missing one."""
    files = tmp_path / "modulefiles"
    files.mkdir()
    (files / "own").mkdir()
    (files / "own/1.0").write_text("#%Module1.0\nsetenv MINE loaded\nprepend-path LD_LIBRARY_PATH /none\n")
    done = started(tmp_path, "own/1.0", MODULEPATH=str(files), MODULEPATH_ROOT=str(files))
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "started  loaded"), done.stderr
    missing = started(tmp_path, "own/1.0,own/2.0", MODULEPATH=str(files), MODULEPATH_ROOT=str(files))
    assert missing.returncode == 1
    assert "own/2.0" in missing.stderr
    assert "[slurm_plugin] error,exiting: modules: own/2.0 was not loaded on " in missing.stdout
