"""Expand a document into one document for each job that it requests, before the keys are checked.

`extends:` names a preset of the site; the job's own keys override it. `any_of:` lists variants of the
job for other nodes: all are submitted, and only the first to start runs.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct, structs
from msgspec.structs import replace

from slurm_plugin.records.nearest import suggestion
from slurm_plugin.spec import documents
from slurm_plugin.spec.documents import Document, Path, Problem, found
from slurm_plugin.spec.record import Spec

EXTENDS: Final = "extends"
ANY_OF: Final = "any_of"
MOST: Final = 8  # the comment of each job lists the ids of all
# The keys that alternatives may change: where the job runs, and what depends on that.
MAY_DIFFER: Final = (
    "nodes", "min_nodes", "spares", "accelerators", "cpus", "memory", "time", "partition", "account", "qos",
    "constraint", "nodelist", "exclude", "reservation", "licenses", "exclusive", "sbatch", "launch", "command", "env",
    "env_file", "modules", "container",
)  # fmt: skip
NULL: Final = "null"  # every scalar is read as a text, also YAML's null
_REQUIRED: Final = frozenset(field.encode_name for field in structs.fields(Spec) if field.required)
Presets = Mapping[str, Mapping[str, Any]]


def extend(document: Document, presets: Presets) -> tuple[Document, tuple[Problem, ...]]:
    """Return the document with the keys of its preset. The document's own keys win, and mappings are merged.

    A message about a key from the preset names the line of `extends`.
    """
    name = document.fields.get(EXTENDS)
    if not isinstance(name, str) or name == NULL:
        return document, ()
    if name not in presets:
        names = ", ".join(presets) or "nothing, as the site has no presets"
        return document, (Problem((EXTENDS,), f"found {found(name)}; accepted: {names}{suggestion(name, presets)}"),)
    preset = presets[name]
    fields = {**preset, **{key: _merged(preset.get(key), own) for key, own in document.fields.items()}}
    lines: dict[Path, int] = {(key,): document.lines.get((EXTENDS,), 1) for key in preset}
    return replace(document, fields=fields, lines={**lines, **document.lines}), ()


def problems(presets: Presets) -> Iterator[Problem]:
    """Yield the problems of a site's presets. A preset is a spec that may be incomplete."""
    for name, preset in presets.items():
        if EXTENDS in preset:
            yield Problem(("presets", name, EXTENDS), "found it in a preset; accepted: the other keys of a spec")
        own = {key: value for key, value in preset.items() if key != EXTENDS}
        yield from documents.partial(own, Spec, ("presets", name))


def _merged(preset: Any, own: Any) -> Any:
    """Return `own`; if both values are mappings, the merged mapping, in which the keys of `own` win."""
    return {**preset, **own} if isinstance(preset, dict) and isinstance(own, dict) else own


class Alternative(Struct, frozen=True):
    """One alternative as a separate document, and the place of its `own` keys in the whole document."""

    document: Document
    place: Path = ()
    own: frozenset[str] = frozenset()

    def placed(self, problems: tuple[Problem, ...]) -> Iterator[Problem]:
        """Yield problems of the alternative with their place in the whole document."""
        for each in problems:
            yield replace(each, path=(*self.place, *each.path)) if each.path[:1] and each.path[0] in self.own else each


def _without_nulls(document: Document) -> Document:
    """Return the document without the keys whose value is null: they have their default, whatever a preset says."""
    kept = {key: value for key, value in document.fields.items() if value != NULL or key in _REQUIRED}
    return replace(document, fields=kept)


def alternatives(document: Document) -> tuple[tuple[Alternative, ...], tuple[Problem, ...]]:
    """Return the document's alternatives, and the problems of the list; without `any_of`, the document itself.

    A key of an alternative replaces the spec's key; mappings are merged.
    """
    listed = document.fields.get(ANY_OF)
    if listed in (None, NULL):
        return (Alternative(_without_nulls(document)),), ()
    if (
        not isinstance(listed, list)
        or not all(isinstance(each, dict) for each in listed)
        or not 2 <= len(listed) <= MOST
    ):
        many = f"{len(listed)} of them" if isinstance(listed, list) else found(listed)
        text = f"found {many}; accepted: a list of 2 to {MOST} mappings, each with the keys in which it differs"
        return (), (Problem((ANY_OF,), text),)
    each_alone, wrong = [], []
    for number, own in enumerate(listed):
        place = (ANY_OF, str(number))
        wrong += [
            Problem(
                (*place, key),
                f"no alternative can change it; accepted: {', '.join(MAY_DIFFER)}{suggestion(key, MAY_DIFFER)}",
            )
            for key in own
            if key not in MAY_DIFFER
        ]
        merged_keys = {key: _merged(document.fields.get(key), value) for key, value in own.items() if key in MAY_DIFFER}
        fields = {**document.fields, **merged_keys}
        if "nodes" in own and "min_nodes" not in own:
            fields.pop("min_nodes", None)  # the spec's `min_nodes` fits only the spec's `nodes`
        alone = _without_nulls(replace(document, fields=fields))
        each_alone.append(Alternative(alone, place, frozenset(merged_keys)))
    return tuple(each_alone), tuple(wrong)
