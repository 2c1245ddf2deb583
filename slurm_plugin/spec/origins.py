"""Where a key of a spec stands: in its file, in an alternative of it, in a preset of the site's, nowhere."""

from collections.abc import Callable

from slurm_plugin import yamltext
from slurm_plugin.spec import alternatives
from slurm_plugin.spec.presets import KEY, Presets
from slurm_plugin.yamltext import Path

DEFAULT = "default"


def of(data: bytes, source: str, presets: Presets, number: int = 0) -> Callable[[Path], str]:
    """Says of a key where it stands: `JOB.yaml:3`, `preset short`, `default`; of the alternative of this number."""
    document = yamltext.read(data, source)
    several = document.fields.get(alternatives.KEY) or ()
    alternative = several[number] if number < len(several) else {}
    name = document.fields.get(KEY, "")
    preset = presets.get(name, {})

    def where(key: Path) -> str:
        place = (alternatives.KEY, str(number))
        if key[0] in alternative:
            return _line((*place, *key))
        if key[0] in document.fields and not (_inside(preset, key) and not _inside(document.fields, key)):
            return _line(key)
        return f"preset {name}" if key[0] in preset else DEFAULT

    def _line(path: Path) -> str:
        while path not in document.lines:
            path = path[:-1]
        return f"{source}:{document.lines[path]}"

    return where


def _inside(fields: object, key: Path) -> bool:
    for part in key:
        if not isinstance(fields, dict) or part not in fields:
            return False
        fields = fields[part]
    return True
