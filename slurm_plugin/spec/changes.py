"""Change keys of a spec that is a text: for `slurm-plugin clone --set KEY=VALUE`.

The order of the keys and the quotes of the values stay. Comments are lost if a key changes.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import yaml

from slurm_plugin.errors import UsageError, printable
from slurm_plugin.spec import documents

_WIDTH: Final = 1 << 20  # PyYAML would fold longer values
ACCEPTED: Final = "KEY=VALUE, such as nodes=8, accelerators.gpu=4 or sbatch.hint=; without a value the key is removed"


class Change(NamedTuple):
    """A key, with the keys around it, and its new value as YAML; an empty value removes the key."""

    key: tuple[str, ...]
    value: str


def read(text: str) -> Change:
    """Parse `KEY=VALUE`. Raise UsageError for another text."""
    key, equals, value = text.partition("=")
    parts = tuple(key.split("."))
    if not equals or not all(part and part.isprintable() for part in parts):
        raise UsageError(f"--set: found {documents.found(printable(text))}; accepted: {ACCEPTED}")
    return Change(parts, value.strip())


def applied(data: bytes, changes: Sequence[Change], source: str) -> bytes:
    """Return the spec with these changes; the same bytes if there are none. Raise UsageError for an unfit change."""
    if not changes:
        return data
    documents.read(data, source)  # raises UsageError for what is no mapping of words
    root = yaml.compose(data.decode(), Loader=yaml.BaseLoader)
    for change in changes:
        _apply(root, change)
    return str(yaml.serialize(root, Dumper=yaml.BaseDumper, allow_unicode=True, width=_WIDTH)).encode()


def _apply(root: yaml.Node | None, change: Change) -> None:
    """Set or remove one key. Make the mappings around it if they are missing."""
    node, place = root, 0
    for place, name in enumerate(change.key, 1):
        if not isinstance(node, yaml.MappingNode):
            where = printable(".".join(change.key[: place - 1]))
            raise UsageError(f"--set {printable('.'.join(change.key))}: {where} has no keys; set {where} as a whole")
        pairs = node.value
        index = next((number for number, (key, _) in enumerate(pairs) if key.value == name), len(pairs))
        if place == len(change.key):
            pairs[index : index + 1] = [(_text(name), _value(change.value))] if change.value else []
            return
        if index == len(pairs):
            pairs.append((_text(name), yaml.MappingNode("tag:yaml.org,2002:map", [])))
        node = pairs[index][1]


def _value(text: str) -> yaml.Node:
    """Return a list, a mapping or a quoted text as YAML reads it, and anything else as it is."""
    if text[0] in "[{'\"":
        try:
            return yaml.compose(text, Loader=yaml.BaseLoader) or _text(text)
        except yaml.YAMLError as error:
            raise UsageError(f"--set: found {documents.found(text)}, which is no YAML: {error}") from error
    return _text(text)


def _text(text: str) -> yaml.ScalarNode:
    return yaml.ScalarNode("tag:yaml.org,2002:str", text)
