"""Read a YAML file that a person wrote, with none of YAML 1.1's guesses.

Every scalar stays the text that stands in the file: `yes` is no boolean, `1:30:00` no number in base 60, and a version
`1.10` not 1.1; the record that the text is for says which of its fields are numbers. JSON files are read the same way.
"""

from collections.abc import Mapping
from typing import Any, Final

import yaml
from msgspec import Struct

from slurm_plugin.errors import UsageError

MAX_BYTES: Final = 1 << 20
Path = tuple[str, ...]


class Document(Struct, frozen=True):
    """A mapping of texts, lists and mappings, and the line (from 1) of each key."""

    fields: Mapping[str, Any]
    lines: Mapping[Path, int] = {}


class _Loader(yaml.BaseLoader):
    """Composes nodes and refuses aliases: a few nested ones are gigabytes when written out."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call] # untyped in types-PyYAML
            raise yaml.MarkedYAMLError(problem="aliases (*name) are not accepted", problem_mark=mark)
        return super().compose_node(parent, index)


def read(data: bytes, source: str) -> Document:
    """The document in `data`; `source` names it in messages. Raises UsageError."""
    if len(data) > MAX_BYTES:
        raise UsageError(f"{source}: more than {MAX_BYTES} bytes; a file written by hand has a few hundred")
    try:
        root = yaml.compose(data.decode("utf-8"), Loader=_Loader)
        lines: dict[Path, int] = {}
        fields = _value(root, (), lines) if root else {}
    except UnicodeDecodeError as error:
        raise UsageError(f"{source}: byte {error.start} is not UTF-8; save the file as UTF-8") from error
    except RecursionError:
        raise UsageError(f"{source}: nested too deeply; three levels are enough") from None
    except yaml.MarkedYAMLError as error:
        where = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        what = ", ".join(part for part in (error.problem, error.context) if part)
        raise UsageError(
            f"{source}: {where}{what}\n  YAML is accepted; quote a text that has `: `, ` #` or quotes in it"
        ) from error
    except (yaml.YAMLError, OverflowError, ValueError) as error:  # PyYAML leaves "\\UFFFFFFFF" to chr()
        raise UsageError(f"{source}: {error}\n  YAML of printable UTF-8 text is accepted") from error
    if not isinstance(fields, dict):
        raise UsageError(
            f"{source}: found {found(fields)}; `key: value` lines are accepted\n  see: docs/spec.md, docs/install.md"
        )
    return Document(fields, lines)


def found(value: object) -> str:
    """A value as a message shows it: short, on one line."""
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "a mapping"
    text = str(value)
    return repr(text if len(text) <= 60 else text[:57] + "...") if text else "nothing"


def _value(node: yaml.Node, path: Path, lines: dict[Path, int]) -> Any:
    """Plain values of a node; raises yaml.MarkedYAMLError for a key that stands twice."""
    if isinstance(node, yaml.SequenceNode):
        return [_value(part, (*path, str(index)), lines) for index, part in enumerate(node.value)]
    if not isinstance(node, yaml.MappingNode):
        return _paired(node.value)
    fields: dict[str, Any] = {}
    for key, part in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise yaml.MarkedYAMLError(problem="a key must be a word", problem_mark=key.start_mark)
        if key.value in fields:
            first = lines[*path, key.value]
            problem = f"{'.'.join((*path, key.value))}: found twice, first in line {first}"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
        lines[*path, key.value] = key.start_mark.line + 1
        fields[key.value] = _value(part, (*path, key.value), lines)
    return fields


def _paired(text: str) -> str:
    """A text in which two escapes of JSON, each half a surrogate pair, are the character that they stand for."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
