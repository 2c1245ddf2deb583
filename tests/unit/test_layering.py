"""Who may know whom: the leaf packages know the standard library and themselves, and cost a hook little."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LEAVES = ("hostfiles", "prechecks")
THIRD_PARTY = ("click", "jinja2", "msgspec", "pynvml", "pyslurm", "rich", "yaml")
# What an MPI rank runs, with an interpreter of the job's: by its path, not as a module of ours.
# And NVIDIA's binding, which stands beside our code where a site has it: asked for in an item's child alone.
EXCEPT: dict[str, dict[str, set[str]]] = {
    "hostfiles": {},
    "prechecks": {"prechecks/fabric/program.py": {"mpi4py"}, "prechecks/nvml.py": {"pynvml"}},
}
SLOW = (
    "contextlib", "dataclasses", "enum", "functools", "glob", "importlib.util", "inspect", "json", "logging", "pathlib",
    "re", "shutil", "socket", "subprocess", "tempfile", "typing",
)  # fmt: skip


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    """The top-level package of every import in a file, wherever in the file it stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            yield str(node.module).partition(".")[0]


def isolated(code: str) -> str:
    """What `code` prints in a fresh interpreter without site-packages, as hooks run it."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"
    command = [sys.executable, "-I", "-S", "-c", code]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=60).stdout


@pytest.mark.parametrize("package", LEAVES)
def test_leaves_know_the_standard_library_and_themselves(package: str) -> None:
    """Neither slurm_plugin nor each other nor anything that must be installed."""
    allowed = set(sys.stdlib_module_names) | {package}
    found = {str(path.relative_to(ROOT)): set(imports(path)) - allowed for path in modules(package)}
    assert {path: names for path, names in found.items() if names} == EXCEPT[package]


@pytest.mark.parametrize("package", LEAVES)
def test_importing_a_leaf_is_cheap(package: str) -> None:
    """A prolog does so on every node of every job: nothing slow, and nothing that is not installed there."""
    loaded = isolated(f"import {package}; print(*sys.modules)").split()
    assert package in loaded
    assert not set(loaded) & {*SLOW, *THIRD_PARTY}


@pytest.mark.parametrize("package", LEAVES)
def test_importing_a_leaf_does_nothing(package: str) -> None:
    """No module reads the environment, starts a process, opens a connection or sets a signal."""
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in modules(package)]
    acts = ("os.exec", "os.fork", "os.posix_spawn", "os.putenv", "os.system", "signal.", "socket.", "subprocess.")
    code = (
        "import importlib, json, os; acts = []; "
        "os.environ = os.environb = os.getenv = None; "
        f"sys.addaudithook(lambda event, _: event.startswith({acts!r}) and acts.append(event)); "
        f"[importlib.import_module(name) for name in {names!r}]; "
        "print(acts)"
    )
    assert isolated(code) == "[]\n"
