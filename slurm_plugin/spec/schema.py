"""The spec as JSON Schema, for editors: made from the types, so that it says what `load` accepts.

YAML gives an editor numbers and truth values where we read texts, so those are accepted for a text too. What hangs
together between keys is not in it: `slurm-plugin render` says that.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from slurm_plugin.spec import alternatives
from slurm_plugin.spec.record import Spec

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_WHOLE_NUMBER: Final = "^-?[0-9]+$"
_SCALAR: Final = ["string", "number", "boolean", "null"]
# What each key is for; its type says what is accepted.
MEANS: Final[Mapping[str, str]] = {
    "name": "The job's name",
    "extends": "A preset of the site's; the job's own keys win",
    "mode": "How the command is launched",
    "nodes": "How many nodes",
    "accelerators": "Of each node; as many processes are started there",
    "groups": "Nodes of several kinds in one job; the first group has the batch script and rank 0",
    "cpus": "CPUs for each process",
    "memory": "Of each node",
    "time": "The longest it may run: 90s, 30m, 4h, 2d, or as sbatch has it",
    "partition": "Where it may run; the first that starts it does",
    "account": "What is charged",
    "qos": "Quality of service",
    "constraint": "Features that the nodes must have",
    "nodelist": "Nodes that it must have",
    "exclude": "Nodes that it must not have",
    "reservation": "The reservation whose nodes it takes",
    "licenses": "Licences that it needs while it runs",
    "exclusive": "Whether other jobs may be on its nodes",
    "array": "Many jobs alike, by their numbers",
    "dependency": "Jobs that it waits for",
    "begin": "It does not start before",
    "deadline": "It is removed if it cannot end before",
    "nice": "How much it makes way for others",
    "mail": "Who is told by mail, of what",
    "sbatch": "Any other flag of sbatch's",
    "command": "What is run; no shell reads it but in mode script",
    "env": "Variables of the command; values are literal texts",
    "env_file": "Files with more of them, which stay out of the script",
    "modules": "Modules that are loaded before the command",
    "stage_in": "Data that each node copies to its own disk before the command",
    "hooks": "Files that are run once on each node, before the command or after it",
    "container": "What the command runs in: an image, with apptainer or pyxis",
    "workdir": "The job's directory",
    "output": "The log, with sbatch's patterns",
    "error": "Where stderr goes, apart from the log",
    "open_mode": "What becomes of a log that is there already",
    "logs": "A log for each rank or node, or ranks before the lines of the job's",
    "checkpoint": "Where the program keeps its checkpoints",
    "retries": "How often a fault may restart it",
    "queue_timeout": "How long it may wait after a fault: a time as in `time`; 0 or never for no end",
    "unconditional": "Whether any failure restarts it",
    "spares": "Nodes that take the place of faulty ones",
    "min_nodes": "How few nodes the program can do with",
    "grace": "How long the program may save after SIGUSR1: a time as in `time`",
    "hang_timeout": "A program that writes nothing for so long is started again: a time as in `time`",
    "hold_on_failure": "How long the nodes are kept after the command has failed: a time as in `time`",
    "infiniband": "Whether it uses InfiniBand, whose limits are then checked",
    "launch": "What a task is: node, a launcher; task, one process",
    "tensorflow": "Of mode tensorflow: which tasks are no workers",
    "ascend": "Of mode ascend: the rank table, and how much is told",
    "prechecks": "Checks besides the site's",
    "metadata": "Annotations of other training systems",
    "any_of": "The same job on other nodes; the first that can start runs",
}


def schema() -> dict[str, Any]:
    """The schema of a whole spec, draft 2020-12."""
    made = msgspec.json.schema(Spec)
    parts = {name: _for_yaml(part) for name, part in made["$defs"].items()}
    spec = parts.pop("Spec")
    required = spec.pop("required")
    for key, each in spec["properties"].items():
        each["description"] = ": ".join(filter(None, (MEANS[key], each.get("description"))))
    spec["properties"][alternatives.KEY] |= _alternatives()
    whole = {"anyOf": [{"required": required}, {"required": ["extends"]}]}  # a preset may say what must be given
    return {"$schema": DRAFT, **spec, "title": "A job of slurm-plugin", **whole, "$defs": parts}


def _alternatives() -> dict[str, Any]:
    """The list of `any_of`: mappings of some of the spec's own keys."""
    keys = {key: {"$ref": f"#/properties/{key}"} for key in alternatives.KEYS}
    each = {"type": "object", "properties": keys, "additionalProperties": False}
    return {"type": "array", "minItems": 2, "maxItems": alternatives.MOST, "items": each}


def _for_yaml(node: Any) -> Any:
    """A part of the schema as it is to be read for YAML; of a key that may be left out what it accepts otherwise."""
    if isinstance(node, list):
        return [_for_yaml(each) for each in node]
    if not isinstance(node, dict):
        return node
    found = {key: _for_yaml(value) for key, value in node.items() if (key, value) != ("default", None)}
    if "pattern" in found:
        found["pattern"] = found["pattern"].replace(r"\Z", "$")
    if found.get("type") == "string":
        found["type"] = ["string", "number"]
    if found.get("type") == "integer":
        found = {"pattern": _WHOLE_NUMBER, **found, "type": ["integer", "string"]}
    if str(found.get("$comment")).startswith("or one text"):
        found["type"] = ["array", "string", "number"]
    if found.get("enum") == ["false", "true"]:
        found["enum"] = ["false", "true", False, True]
    if isinstance(found.get("additionalProperties"), dict):
        found["additionalProperties"] = {"type": _SCALAR}
    if found.get("anyOf", [None])[-1] == {"type": "null"} and "description" in found["anyOf"][0]:
        found["description"] = found["anyOf"][0].pop("description")
    return found
