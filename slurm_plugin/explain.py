"""`slurm-plugin render --explain`: what gave each line of a script. Pure: values in, lines out."""

from collections.abc import Callable, Iterator, Sequence

from slurm_plugin.policy.judge import Verdict, clock
from slurm_plugin.render import Line
from slurm_plugin.yamltext import Path


def explained(lines: Sequence[Line], where: Callable[[Path], str], shipped: str, policy: Verdict) -> Iterator[str]:
    """The script with two columns before it: the template's line, and the key and where that stands.

    `shipped`: the directory of our own templates, which are named without it. What the site's policy would change or
    refuse in slurmctld follows.
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
        yield f"the site's policy refuses it: {refusal.text}"
