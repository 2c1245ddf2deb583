"""Measure python-hostlist and ClusterShell on the node lists of benchmarks/nodelists.py, in their own environment.

Reads [[node list, names], ...] as JSON on stdin, and prints the CPU seconds of each package as JSON.
"""

import json
import sys

import hostlist
from ClusterShell.NodeSet import NodeSet

from benchmarks.measure import best


def measured(text: str, names: list[str], runs: int) -> dict[str, dict[str, float]]:
    """Return the CPU seconds of each package to expand the list and to fold the names."""
    assert hostlist.expand_hostlist(text) == names == list(NodeSet(text))
    return {
        "expand": {
            "python-hostlist": best(lambda: hostlist.expand_hostlist(text), runs),
            "ClusterShell": best(lambda: list(NodeSet(text)), runs),
        },
        "fold": {
            "python-hostlist": best(lambda: hostlist.collect_hostlist(names), runs),
            "ClusterShell": best(lambda: str(NodeSet.fromlist(names)), runs),
        },
    }


if __name__ == "__main__":
    print(json.dumps([measured(text, names, int(sys.argv[1])) for text, names in json.load(sys.stdin)]))
