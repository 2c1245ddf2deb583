"""The deployed code runs on a bare interpreter, and only certain packages start processes."""

import ast
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import slurm_plugin
from slurm_plugin.node.hook import HOOKS
from slurm_plugin.site.archive import BINDING, NODE_SIDE
from slurm_plugin.site.configuration import SiteConfig
from slurm_plugin.site.files import render_site
from tests.unit.test_layering import imports

PACKAGE = Path(str(slurm_plugin.__file__)).parent
INTERPRETER = "/usr/bin/python3"  # the default of the site file: the system's own
THIRD_PARTY = {"click", "jinja2", "markupsafe", "msgspec", "pyslurm", "pytest", "rich", "yaml"}
SLURM_COMMANDS = {"sacct", "salloc", "sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun", "sacctmgr"}
Sources = list[tuple[str, ast.Module]]
STARTERS = {"subprocess", "multiprocessing", "pty", "asyncio"}

IMPORT_ALL = """
import importlib, json, os, sys
lib, names = sys.argv[1], sys.argv[2:]
sys.path[:] = [lib, *(path for path in sys.path if "packages" not in path)]
os.environ = os.environb = os.getenv = None
acts = []
watched = ("os.exec", "os.fork", "os.posix_spawn", "os.putenv", "os.system", "signal.", "socket.connect", "subprocess.")
sys.addaudithook(lambda event, _: event.startswith(watched) and acts.append(event))
for name in names:
    importlib.import_module(name)
ours = [module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] in
        ("slurm_plugin", "prechecks", "hostfiles")]
print(json.dumps({"modules": list(sys.modules), "files": ours, "acts": acts}))
"""


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the deployed copy."""
    out = tmp_path_factory.mktemp("site")
    render_site(SiteConfig(), out)
    return out / "slurm_plugin.pyz"


def names(lib: Path) -> list[str]:
    """Return every module of a deployed copy, except those that run when imported, or need other packages."""
    with zipfile.ZipFile(lib) as found:
        paths = [Path(name).with_suffix("") for name in found.namelist() if name.endswith(".py")]
    of_users = ("slurm_plugin/experiment/runner/", "slurm_plugin/experiment/shim/")  # with PyTorch or Keras
    ours = [path for path in paths if path.name != "__main__" and not str(path).startswith(of_users)]
    return sorted(".".join(path.parts).removesuffix(".__init__") for path in ours)


def imported(lib: Path, *modules: str) -> dict[str, list[str]]:
    """Return the modules that a bare interpreter with only the deployed copy has loaded after these imports."""
    argv = [INTERPRETER, "-I", "-S", "-c", IMPORT_ALL, lib, *modules]
    result = subprocess.run(argv, capture_output=True, text=True, check=False, cwd="/", env={})
    assert (result.returncode, result.stderr) == (0, "")
    found: dict[str, list[str]] = json.loads(result.stdout)
    assert all(file.startswith(f"{lib}/") for file in found["files"]), found["files"]
    return found


def test_each_module_of_the_node_side(lib: Path) -> None:
    """Every deployed module imports only from the deployed copy, loads no package, and does nothing else."""
    modules = names(lib)
    assert {"slurm_plugin.node.prolog", "slurm_plugin.supervisor.supervise", "slurm_plugin.slurm.commands"} <= set(
        modules
    )
    found = imported(lib, *modules)
    assert set(modules) <= set(found["modules"])
    assert not {name.partition(".")[0] for name in found["modules"]} & THIRD_PARTY
    assert found["acts"] == []


def test_hooks_load_no_command_line(lib: Path) -> None:
    """A hook with no finding does not import argparse, subprocess or the code that runs Slurm's commands."""
    for hook in ["prolog", "epilog", "epilog_slurmctld"]:
        loaded = set(imported(lib, HOOKS[hook])["modules"])
        slow = {"argparse", "subprocess", "slurm_plugin.slurm.commands", "logging", "asyncio", "socket"}
        assert not loaded & slow, hook


def test_a_render_loads_what_it_is_made_of(tmp_path: Path) -> None:
    """Not the checks, which the rest of the site file configures, nor the other modes."""
    (tmp_path / "job.yaml").write_text("name: a\nmode: pytorch\ncommand: python t.py\n")
    (tmp_path / "site.yaml").write_text("command: /nonexistent/slurm-plugin\npolicy: {required: [account]}\n")
    code = (
        "import sys; from slurm_plugin.__main__ import main; "
        "code = main(['render', '--config', 'site.yaml', 'job.yaml']); "
        "print(*sys.modules, file=sys.stderr); sys.exit(code)"
    )
    environ = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    argv = [sys.executable, "-c", code]
    result = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path, env=environ)
    assert result.returncode == 0, result.stderr
    loaded = set(result.stderr.split())
    modes = {name for name in loaded if name.startswith("slurm_plugin.launch.")}
    own = ("command", "container", "env_file", "hooks", "log_copy", "pytorch", "variables", "mode")
    assert modes == {f"slurm_plugin.launch.{name}" for name in own}
    others = {
        "prechecks",
        "slurm_plugin.site.configuration",
        "slurm_plugin.supervisor.main",
        "slurm_plugin.submit.wrapper.build",
        "slurm_plugin.templates.tracing",
    }
    slow = {"argparse", "dataclasses", "difflib", "jinja2.ext", "logging", "rich", "subprocess"}
    assert not loaded & (others | slow)


def test_node_side_is_complete(lib: Path) -> None:
    """The list names all that is deployed, except NVIDIA's binding if it is installed."""
    with zipfile.ZipFile(lib) as found:
        paths = [Path(name).parts for name in found.namelist() if name.endswith(".py")]
    ours = {"/".join(parts[1:]) for parts in paths if parts[0] == "slurm_plugin"}
    assert all(name.startswith(NODE_SIDE) for name in ours)
    assert all(any(name.startswith(each) for name in ours) for each in NODE_SIDE)
    assert {parts[0] for parts in paths} - {BINDING} == {"__main__.py", "slurm_plugin", "prechecks", "hostfiles"}


@pytest.fixture(scope="module")
def sources() -> Sources:
    """Return every module of the package by its path."""
    return [(str(path.relative_to(PACKAGE)), ast.parse(path.read_text())) for path in sorted(PACKAGE.rglob("*.py"))]


def test_who_starts_processes(sources: Sources) -> None:
    """One each: Slurm's commands, its steps, pyslurm, the job's command, hooks, guards, py-spy, the fabric check, the
    recorder, the sharing, the supervisor of a trial and the search of its log, the periodic check by hand, the pager,
    and what a user opens on a worker (its relay starts nothing).
    """
    found = {name for name, tree in sources if STARTERS.intersection(imports(tree)) and not name.startswith("sandbox/")}
    names = ("launcher", "prestart", "guard/client", "guard/processes", "fabric", "recording/client", "share/process")
    job = {f"supervisor/{name}.py" for name in names}
    trial = {"experiment/worker.py", "experiment/log_values.py"}
    by_hand = {"cli/nodeside/check.py", "cli/nodeside/output.py", "cli/top/output.py"}
    opened = {f"supervisor/sessions/{name}.py" for name in ("relay", "server", "ssh")}
    assert found == {"slurm/process.py", "slurm/steps.py", "slurm/library.py", *trial, *by_hand, *job, *opened}


def test_who_imports_pyslurm(sources: Sources) -> None:
    """Only the process for it: pyslurm may end or stop its process."""
    assert {name for name, tree in sources if "pyslurm" in imports(tree)} == {"slurm/pyslurm_process.py"}


def test_the_system_log_has_one_writer(sources: Sources) -> None:
    """syslog(3) blocks if the log daemon does not read. The runner of Keras changes what TensorFlow logs."""
    found = {name for name, tree in sources if {"syslog", "logging"}.intersection(imports(tree))}
    assert found <= {"experiment/runner/keras/loop.py"}


def test_who_calls_os_to_start_something(sources: Sources) -> None:
    """Also: the worker forks, guards answer in a child, an epilog removes with rm. No shell."""
    starts = ("exec", "spawn", "posix_spawn", "fork", "system", "popen")
    found: dict[str, set[str]] = {}
    for name, tree in sources:
        for node in ast.walk(tree):
            of_os = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os"
            if of_os and node.attr.startswith(starts) and not name.startswith("sandbox/"):
                found.setdefault(name, set()).add(node.attr)
            if isinstance(node, ast.keyword) and node.arg == "shell":
                found.setdefault(name, set()).add("shell=")
    assert found == {
        "supervisor/guard/sampler.py": {"fork"},
        "supervisor/guard/server.py": {"fork"},
        "records/node_directory.py": {"posix_spawn"},
        "node/long_program.py": {"posix_spawn"},  # the site's own test of a node, and a reset of its GPUs
        "records/notify.py": {"posix_spawn"},  # the site's own command
        "supervisor/enter.py": {"execve"},  # the user's shell on a worker
        "supervisor/sessions/ssh.py": {"execve"},  # sshd
        "supervisor/script.py": {"execv"},  # the user's script, if no file can be written to its directory
        "slurm/steps.py": {"execve"},  # the srun of a user's shell
        "cli/run.py": {"execve"},  # a spec that is a batch script, in its job
        "submit/wrapper/__init__.py": {"execve"},  # the real sbatch
        "submit/wrapper/submission.py": {"fork"},  # removes a file when sbatch has ended
        "cli/sandbox.py": {"execve"},  # a shell inside the sandbox
    }


def test_one_door_to_slurm(sources: Sources) -> None:
    """Only slurm_plugin.slurm and the sandbox have an argument list that begins with a command of Slurm."""
    found = {
        name
        for name, tree in sources
        for node in ast.walk(tree)
        if isinstance(node, ast.List | ast.Tuple)
        and node.elts
        and isinstance(node.elts[0], ast.Constant)
        and node.elts[0].value in SLURM_COMMANDS
    }
    assert {name for name in found if not name.startswith(("slurm/", "sandbox/"))} == ALLOWED
    assert "slurm/commands.py" in found


# A mode's launch line is text for the job's script. The job starts it.
ALLOWED = {"launch/mode.py"}
