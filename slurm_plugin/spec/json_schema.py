"""The spec as JSON Schema for editors, made from the types that `load` checks.

`load` reads every scalar as a text, but an editor reads YAML numbers and truth values. So the schema accepts them where
`load` wants a text. It does not check rules between keys: `slurm-plugin render` does.
"""

from typing import Any, Final

import msgspec

from slurm_plugin.spec import expand
from slurm_plugin.spec.record import WORDS, Spec

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_WHOLE_NUMBER: Final = "^-?[0-9]+$"
_TRUTHS: Final = ("yes", "no")
_SCALAR: Final = ["string", "number", "boolean", "null"]


def schema() -> dict[str, Any]:
    """Return the schema of a whole spec, draft 2020-12."""
    made = msgspec.json.schema(Spec)
    parts = {name: _for_yaml(part) for name, part in made["$defs"].items()}
    spec = parts.pop("Spec")
    required = spec.pop("required")
    for key, each in spec["properties"].items():
        each["description"] = ": ".join(filter(None, (WORDS[key].means, each.get("description"))))
    spec["properties"][expand.ANY_OF] |= _alternatives()
    whole = {"anyOf": [{"required": required}, {"required": ["extends"]}]}  # a preset may contain the required keys
    return {"$schema": DRAFT, **spec, "title": "A job of slurm-plugin", **whole, "$defs": parts}


def _alternatives() -> dict[str, Any]:
    """Return the schema of `any_of`: a list of mappings with some of the spec's keys."""
    keys = {key: {"$ref": f"#/properties/{key}"} for key in expand.MAY_DIFFER}
    each = {"type": "object", "properties": keys, "additionalProperties": False}
    return {"type": "array", "minItems": 2, "maxItems": expand.MOST, "items": each}


def _for_yaml(node: Any) -> Any:
    """Return a part of the schema that also accepts YAML's numbers and truth values. Keep the descriptions of keys."""
    if isinstance(node, list):
        return [_for_yaml(each) for each in node]
    if not isinstance(node, dict):
        return node
    found = {key: _for_yaml(value) for key, value in node.items() if (key, value) != ("default", None)}
    if isinstance(found.get("pattern"), str):  # else it is a key of a spec
        found["pattern"] = found["pattern"].replace(r"\Z", "$")
    if found.get("type") == "string":
        found["type"] = ["string", "number", *(["boolean"] if found.get("$comment") == "or yes, no" else [])]
    if found.get("type") == "integer":
        found = {"pattern": _WHOLE_NUMBER, **found, "type": ["integer", "string"]}
    if str(found.get("$comment")).startswith("or one text"):
        found["type"] = ["array", "string", "number"]
    if {*_TRUTHS} <= {*found.get("enum", ())} or found.get("enum") == ["false", "true"]:
        found["enum"] = [*found["enum"], False, True]
    if found.get("additionalProperties"):
        found["additionalProperties"] = {"type": _SCALAR}
    if found.get("anyOf", [None])[-1] == {"type": "null"} and "description" in found["anyOf"][0]:
        found["description"] = found["anyOf"][0].pop("description")
    return found
