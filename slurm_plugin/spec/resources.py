"""What a spec asks of sbatch besides what every script of ours says: one option a key."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from slurm_plugin.spec import passed
from slurm_plugin.spec.kinds import joined
from slurm_plugin.spec.record import Spec
from slurm_plugin.yamltext import Path

_SIZE = re.compile(r"([0-9]+) ?([KMGT]?)", re.ASCII | re.IGNORECASE)
# Keys that sbatch has by the same name.
_WHERE: Final = ("partition", "account", "qos", "constraint", "nodelist", "exclude", "reservation", "licenses")
_WHEN: Final = ("array", "dependency", "begin", "deadline")


class Asked(NamedTuple):
    """One option of sbatch's, and the key that it comes from; `value` is None for one without."""

    key: Path
    option: str
    value: str | int | None


def asked(spec: Spec) -> Iterator[Asked]:
    """The options of a spec's own keys, in the keys' order, then those that are passed through."""
    if gres := ",".join(filter(None, (spec.accelerators.gres, spec.sbatch.get(passed.GRES)))):
        yield Asked(("accelerators",) if spec.accelerators.gres else (passed.KEY, passed.GRES), "gres", gres)
    if spec.cpus:
        yield Asked(("cpus",), "cpus-per-task", spec.cpus)
    if spec.memory:
        yield Asked(("memory",), "mem", slurm_size(spec.memory))
    yield from (Asked((key,), key, text) for key in _WHERE if (text := joined(getattr(spec, key))))
    if spec.exclusive != "no":
        yield Asked(("exclusive",), "exclusive", None if spec.exclusive == "yes" else spec.exclusive)
    yield from (Asked((key,), key, text) for key in _WHEN if (text := joined(getattr(spec, key))))
    if spec.nice is not None:
        yield Asked(("nice",), "nice", spec.nice)
    if spec.mail:
        yield Asked(("mail", "type"), "mail-type", joined(spec.mail.type).replace(" ", "").upper())
    if spec.mail and spec.mail.user:
        yield Asked(("mail", "user"), "mail-user", spec.mail.user)
    others = {flag: value for flag, value in spec.sbatch.items() if flag not in passed.JOINED}
    yield from (Asked((passed.KEY, flag), flag, None if each == passed.BARE else each) for flag, each in others.items())


def slurm_size(text: str) -> str:
    """A size as --mem has it: `64G` of `64GB`, `0` of `0`. Raises ValueError for any other text."""
    found = _SIZE.match(text)
    if not found:
        raise ValueError(f"{text!r} is no size")
    return found[1] + found[2].upper()
