"""The signatures of this release and of the site, read from YAML."""

import json
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from slurm_plugin.errors import UsageError
from slurm_plugin.logs.scan import Scanner, Source
from slurm_plugin.logs.signature import VERSION, Signature, compiled, read

OURS: Final = Path(__file__).with_name("signatures")
THE_SITES: Final = Path("/etc/slurm/slurm_plugin/signatures.d")
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is ten times faster
Entry = Mapping[str, Any]


class Finding(NamedTuple):
    """What is to be said of an entry of a file."""

    line: int
    text: str
    wrong: bool


def load() -> tuple[Signature, ...]:
    """Return our signatures and the site's; a later one replaces one of the same id."""
    return read(entry for entry, _ in _entries().values())


def origin(name: str) -> Path:
    """Return the file of a signature."""
    return _entries()[name][1]


def compile_all() -> str:
    """Return our signatures and the site's as JSON for a machine without YAML (signature.load reads it)."""
    entries = [{**entry, "example": "", "source": ""} for entry, _ in _entries().values()]
    return json.dumps({"v": VERSION, "signatures": entries}, separators=(",", ":")) + "\n"


def check(path: Path) -> tuple[int, list[Finding]]:
    """Return how many signatures a file has, and what is wrong in it or worth to know, in order of its lines."""
    try:
        text = path.read_text(encoding="utf-8")
        nodes, entries = yaml.compose(text, _LOADER), yaml.load(text, _LOADER)  # noqa: S506 - a safe one
    except yaml.MarkedYAMLError as error:
        where = error.problem_mark.line + 1 if error.problem_mark else 1
        return 0, [Finding(where, f"no YAML: {error.problem or error.context}", wrong=True)]
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError(f"{path}: {error}") from error
    if not isinstance(nodes, yaml.SequenceNode) or not entries:
        return 0, [Finding(1, "found no list of signatures; an entry begins with `- id: NAME`", wrong=True)]
    known = {name: each for name, each in _entries().items() if each[1].resolve() != path.resolve()}
    found, good = [], dict[str, Entry]()
    for node, entry in zip(nodes.value, entries, strict=True):
        line = node.start_mark.line + 1
        try:
            made = compiled(entry) if isinstance(entry, dict) else {}
            if not made:
                raise ValueError("found no signature; an entry begins with `- id: NAME`")
            if made["id"] in good:
                raise ValueError(f"{made['id']}: an entry above has this id")
        except ValueError as error:
            found.append(Finding(line, str(error), wrong=True))
            continue
        good[made["id"]] = made
        if made["id"] in known:
            text = f"{made['id']}: replaces the signature of this id in {known[made['id']][1]}"
            found.append(Finding(line, text, wrong=False))
        if others := _also_match(made["example"], [each for name, (each, _) in known.items() if name != made["id"]]):
            found.append(Finding(line, f"{made['id']}: its example is also one of {', '.join(others)}", wrong=False))
    return len(good), found


def _also_match(example: str, entries: list[Entry]) -> list[str]:
    """Return the ids of the causes that know an example line too."""
    scanner = Scanner(read(each for each in entries if each["role"] in ("root", "symptom")))
    scanner.read(BytesIO(example.encode()), Source("example"))
    return list(dict.fromkeys(each.signature.id for each in scanner.events))


def _entries() -> dict[str, tuple[Entry, Path]]:
    """Return each compiled entry with its file, by its id."""
    site = sorted(THE_SITES.glob("*.yaml")) if THE_SITES.is_dir() else []
    return {entry["id"]: (entry, path) for path in (*sorted(OURS.glob("*.yaml")), *site) for entry in _of_file(path)}


def _of_file(path: Path) -> Iterator[Entry]:
    """Yield the compiled entries of a file. Raises UsageError for what is wrong in it."""
    try:
        yield from (compiled(entry, trusted=path.parent == OURS) for entry in parsed(path))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError(f"{path}: {error}\n  for all that is wrong: slurm-plugin diagnose --test {path}") from error


def parsed(path: Path) -> list[Entry]:
    """Return the entries of a file, not compiled. Raise ValueError or YAMLError for another form."""
    entries = yaml.load(path.read_text(encoding="utf-8"), _LOADER) or []  # noqa: S506 - a safe one
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise ValueError("found no list of signatures")
    return entries
