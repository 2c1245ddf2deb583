"""What a site can say to a check, as plain values: the site file is made of these, and so is `check --list`.

A check declares its settings beside its code; `kind` says what the site file accepts, `default` is written as there.
Every check has the settings of COMMON besides: where it applies and what a failure of it means.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping

TYPE_CHECKING = False  # as in `typing`, which is too slow to import here (see prechecks.verdict)
if TYPE_CHECKING:
    from typing import Any

SIZE = "size"  # 512MB, 32GB; compiled to bytes
SECONDS = "seconds"  # 10s, 2m; compiled to seconds
SPACES = "spaces"  # texts such as /scratch 100GB; compiled to pairs of a path and bytes
COUNT = "count"  # a whole number from 0
PORTS = "ports"  # numbers from 1 to 65535
SHARE = "share"  # 0 to 1
TEXT = "text"
TEXTS = "texts"
PATH = "path"  # absolute
PATHS = "paths"  # the same, several
DEVICE = "device"  # a path with %d
FLAG = "flag"  # yes or no; compiled to true or false
NODES = "nodes"  # a node list in Slurm's form; compiled to names

HOOKS = ("prolog", "epilog", "barrier", "recheck", "periodic", "hand")
USES = ("gpu", "infiniband")
ON_FAILURE = ("drain", "leave-out", "log")  # drain the node, keep this job away from it, or nothing but a line


class Setting(namedtuple("Setting", "kind default means accepted optional", defaults=((), False))):
    """One setting: what it accepts, its default, what it means.

    `accepted`: the words that a text may be; all without any. `optional`: null is accepted, as it is where it is the
    default.
    """

    __slots__ = ()
    kind: str
    default: Any
    means: str
    accepted: tuple[str, ...]
    optional: bool


COMMON: Mapping[str, Setting] = {
    "nodes": Setting(NODES, None, "only on these nodes"),
    "partitions": Setting(TEXTS, None, "only for jobs of these partitions"),
    "hooks": Setting(TEXTS, None, "only there", HOOKS),
    "uses": Setting(TEXT, None, "only for jobs that use it", USES),
    "on-failure": Setting(TEXT, None, "what a failure does", ON_FAILURE),
}
