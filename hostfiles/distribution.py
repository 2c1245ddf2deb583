"""Which rank runs where: Slurm's distributions of a step's tasks over its nodes (srun(1), --distribution).

All three are one: nodes take turns, in order, and a node takes so many tasks a turn, until it has its number. One task
a turn is `cyclic`, N are `plane=N`, all at once are `block`. Seen alike with `srun --label` on 22.05.8, nodes with
unequal numbers of tasks included.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hostfiles.errors import HostfileError

_PLANE = re.compile(r"plane=([1-9][0-9]{0,8})", re.ASCII)
_BLOCK = ("", "*", "block", "pack", "nopack")  # the last two say how full a node gets, which the task counts show


def normal(text: str) -> str:
    """`block`, `cyclic` or `plane=N` from what --distribution and SLURM_DISTRIBUTION hold, as in `cyclic:block,nopack`.

    What stands behind `:` and `,` places tasks within a node. Raises HostfileError for any other, `arbitrary` included:
    its order is in a file of the user's.
    """
    first = re.split("[:,]", text.lower(), maxsplit=1)[0]
    if first in _BLOCK:
        return "block"
    if first == "cyclic" or _PLANE.fullmatch(first):
        return first
    raise HostfileError(f"the distribution {text[:40]!r}; block, cyclic and plane=N are known")


def places(counts: Sequence[int], distribution: str) -> tuple[tuple[int, int], ...]:
    """For each rank the index of its node and its rank on that node, `counts` being the tasks of each node."""
    found = _PLANE.fullmatch(distribution)
    turn = int(found[1]) if found else 1 if distribution == "cyclic" else max(counts)
    return tuple(
        (node, local)
        for begin in range(0, max(counts), turn)
        for node, count in enumerate(counts)
        for local in range(begin, min(begin + turn, count))
    )
