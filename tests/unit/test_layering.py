"""Which packages may import which: the leaf packages import only the standard library, and cost a hook little time."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LEAVES = ("hostfiles", "prechecks")
THIRD_PARTY = ("click", "jinja2", "msgspec", "pynvml", "pyslurm", "rich", "yaml")
# An MPI rank runs it by its path, with the job's interpreter.
# And NVIDIA's binding, which may be in the zip. Only the child of a check imports it.
EXCEPT: dict[str, dict[str, set[str]]] = {
    "hostfiles": {},
    "prechecks": {"prechecks/fabric/program.py": {"mpi4py"}, "prechecks/measure/nvml.py": {"pynvml"}},
}
SLOW = (
    "contextlib", "dataclasses", "enum", "functools", "glob", "importlib.util", "inspect", "json", "logging", "pathlib",
    "re", "shutil", "socket", "subprocess", "tempfile", "typing",
)  # fmt: skip


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imports(tree: ast.Module) -> Iterator[str]:
    """Yield the top-level package of every import of a module, also inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, ast.unparse(node)
            yield str(node.module).partition(".")[0]


def isolated(code: str) -> str:
    """Return what `code` prints in a new interpreter without site-packages, as in hooks."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"
    command = [sys.executable, "-I", "-S", "-c", code]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def test_leaves_know_the_standard_library_and_themselves() -> None:
    """Neither slurm_plugin, nor each other, nor any installed package."""
    for package in LEAVES:
        allowed = set(sys.stdlib_module_names) | {package}
        found = {
            str(path.relative_to(ROOT)): set(imports(ast.parse(path.read_text()))) - allowed
            for path in modules(package)
        }
        assert {path: names for path, names in found.items() if names} == EXCEPT[package], package


def test_a_diagnosis_needs_the_standard_library_alone() -> None:
    """On nodes nothing else may be there. The signatures are compiled for them, and Hyperscan only makes it faster."""
    allowed = set(sys.stdlib_module_names) | {"hostfiles", "prechecks", "slurm_plugin"}
    found = {path.name: set(imports(ast.parse(path.read_text()))) - allowed for path in modules("slurm_plugin/logs")}
    assert {name: more for name, more in found.items() if more} == {"library.py": {"yaml"}, "scan.py": {"hyperscan"}}


def test_importing_a_leaf_is_cheap() -> None:
    """A prolog imports them on every node of every job: nothing slow, and nothing that may be missing."""
    for package, used in (("hostfiles", "hostfiles"), ("prechecks", "prechecks.run")):
        loaded = isolated(f"import {package}; {used}; print(*sys.modules)").split()
        assert package in loaded, package
        assert not set(loaded) & {*SLOW, *THIRD_PARTY}, package


def test_importing_a_leaf_does_nothing() -> None:
    """No module reads the environment, starts a process, opens a connection or sets a signal."""
    for package in LEAVES:
        names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in modules(package)]
        acts = ("os.exec", "os.fork", "os.posix_spawn", "os.putenv", "os.system", "signal.", "socket.", "subprocess.")
        code = (
            "import importlib, json, os; acts = []; "
            "os.environ = os.environb = os.getenv = None; "
            f"sys.addaudithook(lambda event, _: event.startswith({acts!r}) and acts.append(event)); "
            f"[importlib.import_module(name) for name in {names!r}]; "
            "print(acts)"
        )
        assert isolated(code) == "[]\n", package
