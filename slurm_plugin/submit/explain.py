"""`slurm-plugin render --explain`: the source of each line of a script. Pure: values in, lines out."""

from collections.abc import Callable, Iterator, Sequence

from slurm_plugin.spec import documents, expand
from slurm_plugin.spec.documents import Path
from slurm_plugin.spec.expand import Presets
from slurm_plugin.submit.policy_verdict import Verdict, clock
from slurm_plugin.submit.render import Line


def explained(lines: Sequence[Line], where: Callable[[Path], str], shipped: str, policy: Verdict) -> Iterator[str]:
    """Yield the script with two columns before each line: the template's line, and the key with its place.

    `shipped`: slurm_plugin's directory of templates, which is left out of the first column. The changes and refusals
    of the site's policy follow the script.
    """
    rows = [
        (
            line.template.removeprefix(f"{shipped}/"),
            f"{'.'.join(line.key)} {where(line.key)}" if line.key else "",
            line.text,
        )
        for line in lines
    ]
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    for place, key, text in rows:
        yield f"{place:<{first}}  {key:<{second}}  {text}".rstrip()
    for name, value in policy.changes:
        shown = clock(value) if isinstance(value, int) and name == "time" else value
        yield f"the site's policy sets {name} to {shown} ({policy.because[name]})"
    for refusal in policy.refusals:
        yield f"the site's policy refuses it: {refusal}"


def key_places(data: bytes, source: str, known: Presets, number: int = 0) -> Callable[[Path], str]:
    """Return a function that returns the place of a key: `JOB.yaml:3`, `preset short` or `default`.

    `number`: the index of the alternative in `any_of`.
    """
    document = documents.read(data, source)
    several = document.fields.get(expand.ANY_OF) or ()
    alternative = several[number] if number < len(several) else {}
    name = document.fields.get(expand.EXTENDS, "")
    preset = known.get(name, {})

    def where(key: Path) -> str:
        place = (expand.ANY_OF, str(number))
        if key[0] in alternative:
            return _line((*place, *key))
        if key[0] in document.fields and not (_inside(preset, key) and not _inside(document.fields, key)):
            return _line(key)
        return f"preset {name}" if key[0] in preset else "default"

    def _line(path: Path) -> str:
        while path not in document.lines:
            path = path[:-1]
        return f"{source}:{document.lines[path]}"

    return where


def _inside(fields: object, key: Path) -> bool:
    """Return whether nested mappings have a key."""
    for part in key:
        if not isinstance(fields, dict) or part not in fields:
            return False
        fields = fields[part]
    return True
