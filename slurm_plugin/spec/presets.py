"""`extends:` of a spec: a preset of the site's, under the job's own keys."""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from slurm_plugin import validate
from slurm_plugin.nearest import suggestion
from slurm_plugin.spec.record import Spec
from slurm_plugin.validate import Problem
from slurm_plugin.yamltext import Document, Path, found

KEY = "extends"
Presets = Mapping[str, Mapping[str, Any]]


def extended(document: Document, presets: Presets) -> tuple[Document, tuple[Problem, ...]]:
    """The document with the keys of the preset that it names, its own first; of a mapping, each key for itself.

    A key that comes from the preset has the line of `extends`.
    """
    name = document.fields.get(KEY)
    if not isinstance(name, str) or name == "null":
        return document, ()
    if name not in presets:
        names = ", ".join(presets) or "nothing, as the site has no presets"
        return document, (Problem((KEY,), f"found {found(name)}; accepted: {names}{suggestion(name, presets)}"),)
    preset = presets[name]
    fields = {**preset, **{key: merged(preset.get(key), own) for key, own in document.fields.items()}}
    lines: dict[Path, int] = {(key,): document.lines.get((KEY,), 1) for key in preset}
    return replace(document, fields=fields, lines={**lines, **document.lines}), ()


def problems(presets: Presets) -> Iterator[Problem]:
    """What is wrong with a site's presets: each is a spec that need not be whole."""
    for name, preset in presets.items():
        if KEY in preset:
            yield Problem(("presets", name, KEY), "found it in a preset; accepted: the other keys of a spec")
        own = {key: value for key, value in preset.items() if key != KEY}
        yield from validate.partial(own, Spec, ("presets", name))


def merged(preset: Any, own: Any) -> Any:
    """A key's value: its own; where both are mappings, those of the one that it extends stand below its own."""
    return {**preset, **own} if isinstance(preset, dict) and isinstance(own, dict) else own
