"""What `sbatch --help` says of flags: which there are, and whether they take a value."""

import re
from collections.abc import Mapping
from typing import Final

NONE, OPTIONAL, VALUE = "none", "optional", "value"
# Two flags that the help shows without their value (opt.c: required_argument, optional_argument).
_TAKES: Final[Mapping[str, str]] = {"container": VALUE, "get-user-env": OPTIONAL}
NAME = re.compile(r"[a-z][a-z-]*[a-z]")
# The flag stands within the first eight columns; a description that names others stands further right.
_LINE = re.compile(rf" {{2,6}}(?:-[A-Za-z],? +)?--(?P<name>{NAME.pattern})(?P<value>\[=|=)?")


def parse(text: str) -> dict[str, str]:
    """The flags of a help text by name. Of one that stands there twice the first line counts."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if match := _LINE.match(line):
            kind = {None: NONE, "=": VALUE, "[=": OPTIONAL}[match["value"]]
            found.setdefault(match["name"], _TAKES.get(match["name"], kind))
    return found


def probed(said: str) -> str:
    """What a flag takes that the help does not name, from what sbatch says to it and an empty script
    (empty: it has no such flag).

    getopt_long(3) takes the beginning of a flag for that flag too: a name is not asked for that begins another.
    """
    if "unrecognized option" in said or "ambiguous" in said:
        return ""
    return VALUE if "requires an argument" in said else OPTIONAL
