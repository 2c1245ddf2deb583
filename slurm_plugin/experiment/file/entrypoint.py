"""The `entrypoint` of an experiment file: a Trial class, a launcher of Determined, or a shell command.

A Trial class is found in the syntax tree of its file. Importing the file would run the user's code, and need torch.
"""

import ast
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from slurm_plugin.errors import printable
from slurm_plugin.records.nearest import suggestion

RUNNER: Final = "python3 -m slurm_plugin.experiment.runner"
PYTORCH, KERAS = "pytorch", "keras"
MODES: Final = {PYTORCH: "pytorch", KERAS: "tensorflow"}  # framework of a Trial class -> mode of a job
# Base classes -> framework. "": known, and not supported.
_BASES: Final = {"PyTorchTrial": PYTORCH, "TFKerasTrial": KERAS}
_NO_LONGER: Final = ("DeepSpeedTrial", "LightningAdapter", "EstimatorTrial")
_TRIAL = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
# The launchers of Determined that start a command: their modules -> the mode that does the same here.
_LAUNCHERS: Final = {
    "determined.launch.torch_distributed": "pytorch",
    "determined.launch.horovod": "horovod",
    "determined.launch.autohorovod": "horovod",
    "determined.launch.deepspeed": "deepspeed",
}
_PYTHON = re.compile(r"(?:.*/)?python[0-9.]*", re.DOTALL)
_MOST_BYTES: Final = 1 << 20
_DEEPEST: Final = 8  # modules from which a base class is imported, one from another


class Program(NamedTuple):
    """What an entrypoint starts."""

    mode: str
    command: str
    trial: str = ""  # module:Class; empty: no Trial class
    framework: str = ""  # of the Trial class


def program(entrypoint: Sequence[str], directory: Path | None) -> Program:
    """Return the program of an entrypoint: one text, or the words of a command.

    `directory` has the files of the experiment; None: do not look for them, and take a Trial class for PyTorch's. Raise
    ValueError with what was found, and what is accepted.
    """
    text = entrypoint[0].strip() if len(entrypoint) == 1 else shlex.join(entrypoint)
    if not text:
        raise ValueError("found nothing; accepted: a Trial class as module:Class, or a command")
    if _TRIAL.fullmatch(text):
        return _of_trial(text, directory)
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"found {printable(text)!r}; accepted: a command as in a shell ({error})") from None
    if len(words) > 2 and _PYTHON.fullmatch(words[0]) and words[1] == "-m" and words[2] in _LAUNCHERS:
        return _launched(words, directory)
    return Program("script", text)


def _launched(words: Sequence[str], directory: Path | None) -> Program:
    """Return the program that a launcher of Determined would start: a Trial class, or a command on several nodes."""
    launcher, rest = words[2], list(words[3:])
    trials = [word for word in rest if _TRIAL.fullmatch(word)]
    if "--trial" in rest or (trials and trials[0] == rest[-1]):
        if not trials:
            raise ValueError(f"found {launcher} --trial without a class; accepted: --trial module:Class")
        return _of_trial(trials[0], directory)
    while rest and rest[0].startswith("-"):  # options of the launcher: the mode sets its own
        if rest.pop(0) == "--":
            break
    if not rest:
        raise ValueError(f"found {launcher} without a command; accepted: --trial module:Class, or a command after it")
    return Program(_LAUNCHERS[launcher], shlex.join(rest))


def _of_trial(trial: str, directory: Path | None) -> Program:
    framework = PYTORCH if directory is None else _framework(trial, directory)
    return Program(MODES[framework], f"{RUNNER} {trial}", trial, framework)


def _framework(trial: str, directory: Path) -> str:
    """Return the framework of a Trial class by its base classes. Raise ValueError if that cannot be told."""
    module, _, name = trial.partition(":")
    path = _file(module, directory)
    if path is None:
        looked = f"{module.replace('.', '/')}.py"
        raise ValueError(f"found {trial}, and no file {looked} in {directory}; accepted: module:Class of a file there")
    bases = list(_bases(_tree(path), name, directory, _DEEPEST))
    if found := next((_BASES[base] for base in bases if base in _BASES), ""):
        return found
    if unsupported := next((base for base in bases if base in _NO_LONGER), ""):
        raise ValueError(f"found the base {unsupported} in {path.name}; accepted: {', '.join(_BASES)}")
    classes = [node.name for node in ast.walk(_tree(path)) if isinstance(node, ast.ClassDef)]
    if name not in classes and not bases:
        near = suggestion(name, classes)
        raise ValueError(f"found no class {name} in {path.name}; accepted: {', '.join(classes) or 'a class'}{near}")
    named = ", ".join(printable(base) for base in bases if base)
    said = f"the bases {named}" if named else "no bases"
    raise ValueError(f"found {said} of {name} in {path.name}; accepted: one of {', '.join(_BASES)}")


def _file(module: str, directory: Path) -> Path | None:
    """Return the file of a module in the directory; None if it is not there."""
    stem = directory.joinpath(*module.split("."))
    return next((each for each in (stem.with_suffix(".py"), stem / "__init__.py") if each.is_file()), None)


def _tree(path: Path) -> ast.Module:
    """Return the syntax tree of a file. Raise ValueError if it is no Python."""
    try:
        with path.open("rb") as file:
            return ast.parse(file.read(_MOST_BYTES))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError) as error:
        what = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"found {path.name}, which cannot be read as Python: {printable(str(what))}") from None


def _bases(tree: ast.Module, name: str, directory: Path, deepest: int) -> Iterator[str]:
    """Yield the names of a class's bases, and of their bases, also from other modules in the directory."""
    if deepest <= 0:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == name:
            for base in node.bases:
                plain = base.value if isinstance(base, ast.Subscript) else base
                last = plain.attr if isinstance(plain, ast.Attribute) else getattr(plain, "id", "")
                original = _imported(tree, last)
                yield original[1] if original else last
                if isinstance(plain, ast.Name) and last != name:
                    yield from _bases(tree, last, directory, deepest - 1)
                elif isinstance(plain, ast.Attribute) and isinstance(plain.value, ast.Name):
                    yield from _bases_in(_module_of(tree, plain.value.id), last, directory, deepest)
            return
    if original := _imported(tree, name):
        module, other = original
        if other in _BASES:
            yield other
        yield from _bases_in(module, other, directory, deepest)


def _bases_in(module: str, name: str, directory: Path, deepest: int) -> Iterator[str]:
    """Yield the bases of a class of a module in the directory."""
    path = _file(module, directory) if module else None
    if path:
        yield from _bases(_tree(path), name, directory, deepest - 1)


def _imported(tree: ast.Module, name: str) -> tuple[str, str] | None:
    """Return the module and the original name of an imported name; None if it is not imported by name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return node.module or "", alias.name
    return None


def _module_of(tree: ast.Module, name: str) -> str:
    """Return the module that a name was imported from: `import base as b`, `from package import base`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return alias.name
    found = _imported(tree, name)
    return ".".join(filter(None, found)) if found else ""
