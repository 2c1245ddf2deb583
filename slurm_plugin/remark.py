"""What a dry run writes into a node's Comment: that it would be drained, and why. Pure.

It stands beside what an administrator wrote there and a claim (slurm_plugin.cap), and neither takes the other away. The
reason has no brackets in it, which would end the remark early, and no `=`: Slurm prints a node as `name=value`, and a
` Extra=` among the words would end the Comment for whoever reads it.
"""

import re
from typing import Final

from prechecks.report import OURS
from prechecks.verdict import one_line
from slurm_plugin.comment import without

_REMARK: Final = re.compile(r" ?\[slurm_plugin: would be drained: ([^\[\]]*)\]")
_PLAIN: Final = str.maketrans({"[": "(", "]": ")", "=": ":", '"': "'"})


def remarked(comment: str, reason: str) -> str:
    """A node's comment with the remark behind what stood there; at most 200 characters of this reason of ours."""
    words = one_line(reason.removeprefix(OURS)).translate(_PLAIN)
    return f"{unremarked(comment)} [slurm_plugin: would be drained: {words}]".lstrip()


def unremarked(comment: str) -> str:
    """A node's comment without a remark."""
    return without(_REMARK, comment)


def found(comment: str) -> str:
    """The reason in a comment's remark; empty where there is none."""
    match = _REMARK.search(comment)
    return match[1] if match else ""
