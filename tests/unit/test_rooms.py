"""Which packages may import which (docs/explanation/architecture.md), and how large a file may be."""

import ast
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOP = ("slurm_plugin", "prechecks", "hostfiles")
ACTORS = {"supervisor", "node", "controller", "submit", "site", "experiment"}
READERS_OF_LOGS = {"supervisor", "views", "cli", "site", "testing"}
SHARED = {"records", "slurm", "spec", "launch"}
LONGEST, SHORTEST, MOST_FILES = 350, 60, 20
SHORT_BUT_SEPARATE = {
    "hostfiles.formats": "the registry of the formats, which a prolog does not load",
    "slurm_plugin.launch.horovod": "a mode, loaded by its name",
    "slurm_plugin.launch.openmpi": "a mode, loaded by its name",
    "slurm_plugin.node.burn_in": "one of the two uses of long_program, beside repair",
    "slurm_plugin.supervisor.share.process": "what it starts, a process of its own, loads more than a supervisor needs",
    "slurm_plugin.templates.tracing": "jinja2.ext, which it needs, costs 10 ms: only `render --explain` loads it",
}
PARENTS = {
    "prechecks": "prechecks.check is what a site's own check imports, and the registry names the checks",
    "slurm_plugin.supervisor": "its parts share the run, its log and the decisions",
}
MAY_BE_LARGE = {"prechecks/checks", "slurm_plugin/records"}  # one file a check, one file a record


@cache
def modules() -> Mapping[str, Path]:
    """Return every product module by its dotted name."""
    found = {}
    for path in (path for top in TOP for path in sorted((ROOT / top).rglob("*.py"))):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


@cache
def imports() -> Mapping[str, set[str]]:
    """Return the product modules that each module imports, also inside functions."""
    known, found = modules(), {}
    for name, path in known.items():
        nodes = [each for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, ast.ImportFrom)]
        whole = {f"{node.module}.{alias.name}": str(node.module) for node in nodes for alias in node.names}
        found[name] = {full if full in known else module for full, module in whole.items()} & set(known)
    return found


def room(module: str) -> str:
    """Return the package of a module: a package of slurm_plugin, or one of the other two."""
    first, _, rest = module.partition(".")
    return rest.partition(".")[0] if first == "slurm_plugin" and rest else first


def circles(graph: Mapping[str, Iterable[str]]) -> list[set[str]]:
    """Return the sets of nodes that reach each other."""

    def reached(start: str) -> set[str]:
        seen, left = set[str](), list(graph[start])
        while left:
            if (node := left.pop()) not in seen:
                seen.add(node)
                left += graph[node]
        return seen

    reach = {node: reached(node) for node in graph}
    found = [{each for each in reach[node] if node in reach[each]} for node in graph if node in reach[node]]
    return [each for place, each in enumerate(found) if each not in found[:place]]


def crossing(source: str, target: str) -> bool:
    """Return whether a package may not import another one."""
    if target == "logs":
        return source not in READERS_OF_LOGS
    if source == "logs":
        return target not in {"errors", "hostfiles", "prechecks", "records", "slurm"}
    if source in ACTORS:
        return target in ACTORS or target in ("views", "cli", "sandbox")
    if source in SHARED:
        return target in {*ACTORS, "views", "cli", "sandbox"}
    if source == "views":
        return target in ACTORS or target in ("cli", "sandbox")
    return target == "testing" or (target == "sandbox" and source not in {"cli", "testing"})


def test_rooms() -> None:
    """Actors' packages share records, slurm, spec and launch, and never import each other.

    Only cli and testing import sandbox. The diagnosis of logs reads records.
    """
    found = [
        f"{name} -> {each}"
        for name, those in imports().items()
        for each in sorted(those)
        if room(name) != room(each) and crossing(room(name), room(each))
    ]
    assert found == []


def test_no_circles() -> None:
    """Neither between packages nor between files. A package's __init__ may import its files."""
    rooms: dict[str, set[str]] = {room(name): set() for name in modules()}
    for name, those in imports().items():
        rooms[room(name)] |= {room(each) for each in those} - {room(name)}
    assert circles(rooms) == []
    assert circles({name: those - {name} for name, those in imports().items()}) == []


def test_no_circles_of_a_package_and_its_sub_packages() -> None:
    """What both need is below both. The packages of PARENTS are not divided so yet."""

    def package(name: str) -> str:
        return name if modules()[name].name == "__init__.py" else name.rpartition(".")[0]

    edges = {(package(name), package(each)) for name, those in imports().items() for each in those}
    both = {(one, other) for one, other in edges if (other, one) in edges and other.startswith(f"{one}.")}
    assert {one for one, _ in both if "." in one or one in ("prechecks", "hostfiles")} == set(PARENTS)


def test_the_package_itself_holds_rooms() -> None:
    """And three files for all packages or the interpreter."""
    files = {path.name for path in (ROOT / "slurm_plugin").glob("*.py")}
    assert files == {"__init__.py", "__main__.py", "errors.py"}


def test_sizes() -> None:
    """A file of more than 350 lines has two subjects; a short one with a single importer belongs to that importer."""
    lines = {name: len(path.read_text().splitlines()) for name, path in modules().items()}
    assert {name: count for name, count in lines.items() if count > LONGEST} == {}
    importers = {name: [other for other, those in imports().items() if name in those] for name in modules()}
    short = {
        name
        for name, path in modules().items()
        if lines[name] < SHORTEST and len(importers[name]) == 1 and not path.name.startswith("__")
    }
    assert short == set(SHORT_BUT_SEPARATE)
    files: dict[str, int] = {}
    for path in (each for each in modules().values() if each.name != "__init__.py"):
        files[str(path.parent.relative_to(ROOT))] = files.get(str(path.parent.relative_to(ROOT)), 0) + 1
    assert {name for name, count in files.items() if count > MOST_FILES} <= MAY_BE_LARGE
