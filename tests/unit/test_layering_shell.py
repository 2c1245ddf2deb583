"""The deployed node side runs on a bare interpreter, and only its own rooms start processes."""

import ast
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import slurm_plugin
from slurm_plugin.archive import BINDING, NODE_SIDE
from slurm_plugin.site import render_site
from slurm_plugin.siteconfig import SiteConfig

PACKAGE = Path(str(slurm_plugin.__file__)).parent
INTERPRETER = "/usr/bin/python3"  # the default of the site file: the system's own
THIRD_PARTY = {"click", "jinja2", "markupsafe", "msgspec", "pyslurm", "pytest", "rich", "yaml"}
SLURM_COMMANDS = {"sacct", "salloc", "sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun", "sacctmgr"}
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
    """The deployed copy."""
    out = tmp_path_factory.mktemp("site")
    render_site(SiteConfig(), out)
    return out / "slurm_plugin.pyz"


def names(lib: Path) -> list[str]:
    """Every module of a deployed copy, but for those that run when they are imported."""
    with zipfile.ZipFile(lib) as found:
        paths = [Path(name).with_suffix("") for name in found.namelist() if name.endswith(".py")]
    return sorted(".".join(path.parts).removesuffix(".__init__") for path in paths if path.name != "__main__")


def imported(lib: Path, *modules: str) -> dict[str, list[str]]:
    """What a bare interpreter, that finds nothing but the deployed copy, has loaded after these imports."""
    argv = [INTERPRETER, "-I", "-S", "-c", IMPORT_ALL, lib, *modules]
    result = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, cwd="/", env={})
    assert (result.returncode, result.stderr) == (0, "")
    found: dict[str, list[str]] = json.loads(result.stdout)
    assert all(file.startswith(f"{lib}/") for file in found["files"]), found["files"]
    return found


def test_each_module_of_the_node_side(lib: Path) -> None:
    """Every deployed module imports from the deployed copy alone, loads no package, and does nothing by it."""
    modules = names(lib)
    assert {"slurm_plugin.hooks.prolog", "slurm_plugin.job.supervise", "slurm_plugin.slurm.commands"} <= set(modules)
    found = imported(lib, *modules)
    assert set(modules) <= set(found["modules"])
    assert not {name.partition(".")[0] for name in found["modules"]} & THIRD_PARTY
    assert found["acts"] == []


@pytest.mark.parametrize("hook", ["prolog", "epilog", "epilog_slurmctld"])
def test_hooks_load_no_command_line(lib: Path, hook: str) -> None:
    """A hook that finds nothing wrong does not pay for argparse, subprocess or the door's commands."""
    loaded = set(imported(lib, f"slurm_plugin.hooks.{hook}")["modules"])
    assert not loaded & {"argparse", "subprocess", "slurm_plugin.slurm.commands", "logging", "asyncio", "socket"}


def test_a_render_loads_what_it_is_made_of(tmp_path: Path) -> None:
    """Not the checks, which the rest of the site file is about, nor another mode than its own, nor what others need."""
    (tmp_path / "job.yaml").write_text("name: a\nmode: pytorch\ncommand: python t.py\n")
    (tmp_path / "site.yaml").write_text("command: /nonexistent/slurm-plugin\npolicy: {required: [account]}\n")
    code = (
        "import sys; from slurm_plugin.__main__ import main; "
        "code = main(['render', '--config', 'site.yaml', 'job.yaml']); "
        "print(*sys.modules, file=sys.stderr); sys.exit(code)"
    )
    environ = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    argv = [sys.executable, "-c", code]
    result = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path, env=environ)
    assert result.returncode == 0, result.stderr
    loaded = set(result.stderr.split())
    modes = {name for name in loaded if name.startswith("slurm_plugin.modes.")}
    assert modes == {f"slurm_plugin.modes.{name}" for name in ("base", "command", "pytorch", "step")}
    others = {
        "prechecks",
        "slurm_plugin.siteconfig",
        "slurm_plugin.job",
        "slurm_plugin.wrapper",
        "slurm_plugin.tracing",
    }
    slow = {"argparse", "dataclasses", "difflib", "jinja2.ext", "logging", "rich", "subprocess"}
    assert not loaded & (others | slow)


def test_node_side_is_complete(lib: Path) -> None:
    """What is deployed is what the list names, and nothing beside it but NVIDIA's binding, where it is installed."""
    with zipfile.ZipFile(lib) as found:
        paths = [Path(name).parts for name in found.namelist() if name.endswith(".py")]
    assert {parts[1] for parts in paths if parts[0] == "slurm_plugin"} == set(NODE_SIDE)
    assert {parts[0] for parts in paths} - {BINDING} == {"__main__.py", "slurm_plugin", "prechecks", "hostfiles"}


def sources() -> Iterator[tuple[str, ast.Module]]:
    """Every module of the package by its path in it."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield str(path.relative_to(PACKAGE)), ast.parse(path.read_text())


def imports(tree: ast.Module) -> set[str]:
    """The top-level names of every import."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module).partition(".")[0])
    return found


def test_who_starts_processes() -> None:
    """One each: Slurm's commands, pyslurm, the job's command, its hooks, its guards, py-spy, its fabric check."""
    found = {name for name, tree in sources() if imports(tree) & STARTERS and not name.startswith("sandbox/")}
    job = {f"job/{name}.py" for name in ("launch", "prestart", "guards", "stacks", "fabric")}
    assert found == {"slurm/process.py", "slurm/bridge.py", *job}


def test_who_imports_pyslurm() -> None:
    """Only the process that is made for it: it may end or stop whoever imports it."""
    assert {name for name, tree in sources() if "pyslurm" in imports(tree)} == {"slurm/pyslurm_process.py"}


def test_who_calls_os_to_start_something() -> None:
    """Beside those: the worker forks itself away, guards answer in a child, an epilog removes with rm. No shell."""
    starts = ("exec", "spawn", "posix_spawn", "fork", "system", "popen")
    found: dict[str, set[str]] = {}
    for name, tree in sources():
        for node in ast.walk(tree):
            of_os = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os"
            if of_os and node.attr.startswith(starts) and not name.startswith("sandbox/"):
                found.setdefault(name, set()).add(node.attr)
            if isinstance(node, ast.keyword) and node.arg == "shell":
                found.setdefault(name, set()).add("shell=")
    assert found == {
        "hooks/worker.py": {"fork"},
        "job/guard.py": {"fork"},
        "job/turn.py": {"fork"},
        "hooks/node_directory.py": {"spawnv"},
        "hooks/notify.py": {"fork", "posix_spawn"},  # the site's own command
        "job/enter.py": {"execve"},  # the user's shell on a worker
        "slurm/steps.py": {"execve"},  # the srun that brings a user there
        "cli/run.py": {"execve"},  # the script that a spec is, in the job itself
        "wrapper/real.py": {"execve"},  # the real one, behind the command that has its name
        "cli/sandbox.py": {"execve"},  # a shell inside the sandbox
    }


def test_one_door_to_slurm() -> None:
    """Only the door's rooms, and the sandbox in its own machines, hold an argument list that begins with a command."""
    found = {
        name
        for name, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.List | ast.Tuple)
        and node.elts
        and isinstance(node.elts[0], ast.Constant)
        and node.elts[0].value in SLURM_COMMANDS
    }
    assert {name for name in found if not name.startswith(("slurm/", "sandbox/"))} == ALLOWED
    assert "slurm/commands.py" in found


# A mode's launch line is text for the job's own script; the job itself starts it, through job/launch.py.
ALLOWED = {"modes/step.py"}


def test_pyslurm_is_the_doors() -> None:
    """Nothing outside the door imports pyslurm."""
    assert {name for name, tree in sources() if "pyslurm" in imports(tree) and not name.startswith("slurm/")} == set()
