"""`dns`: this node, every host of the job and every name in the site's hosts files resolves (row A2).

N nodes that ask for N names each are a load that name servers drop. So of a long list each node asks for a share: the
names at its own place in the job and behind it, in a ring, so that each name is asked for by several nodes. Besides,
every node asks for its own name and for the job's first host, where rank 0 is.

A job problem: a name server is shared, and what fails everywhere at once must not drain nodes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from prechecks.check import Check
from prechecks.setting import COUNT, PATHS, TEXTS, Setting
from prechecks.verdict import FAILED, NODE_PROBLEM, OK, Context, Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SHARE_ABOVE, ASKED_BY = 16, 4
NAMED = 3  # how many of the names that do not resolve a message holds


class Dns(Check):
    """`settings["dns"]["hosts_files"]`: files of names, with `*` and `?` in the last part of a path."""

    item = "dns"
    looks_at = (
        "this node's name, every host of the job, shared among the nodes of a large one, every name that the site "
        "lists or its hosts files hold"
    )
    settings: Mapping[str, Setting] = {
        "hosts_files": Setting(
            PATHS, ("/etc/volcano/*.host",), "files of names that must resolve; `*` and `?` in the name"
        ),
        "names": Setting(TEXTS, (), "further names that must resolve, on every node"),
        "share_above": Setting(
            COUNT, SHARE_ABOVE, "in a job of more hosts, lists of more names are shared among its nodes"
        ),
        "asked_by": Setting(COUNT, ASKED_BY, "nodes that ask for each name of a shared list"),
    }
    shared = True
    problem = NODE_PROBLEM
    quick = True  # as long as a name server answers
    condition = ""

    def applies(self, context: Context, settings: Mapping[str, Any]) -> bool:
        """To every job."""
        return True

    def look(self, context: Context, settings: Mapping[str, Any]) -> Finding:
        """All of the names resolve."""
        own = self.own(settings)
        above, asked_by = own.get("share_above", SHARE_ABOVE), own.get("asked_by", ASKED_BY)
        mine = (context.node, *context.hosts[:1], *own.get("names", ()))
        lists = (context.hosts, names_of(own["hosts_files"]))
        names = dict.fromkeys(mine)
        every = dict.fromkeys((*mine, *lists[0], *lists[1]))
        for each in lists:
            names.update(dict.fromkeys(share(each, context, above, asked_by)))
        return judge(len(names), [name for name in names if not resolves(name)], len(every))


def share(names: Sequence[str], context: Context, above: int, asked_by: int) -> Sequence[str]:
    """What this node asks for of a list that every node of the job has: each name falls to `asked_by` of them.

    All of it where the list or the job is no longer than `above`, and where this node is none of the job's hosts.
    """
    count = len(context.hosts)
    if min(len(names), count) <= above or context.node not in context.hosts:
        return names
    place = context.hosts.index(context.node)
    return [name for number, name in enumerate(names) if (number - place) % count < asked_by]


def names_of(patterns: Iterable[str]) -> list[str]:
    """The names in all hosts files that match the patterns."""
    names: list[str] = []
    for path in hosts_files(patterns):
        with open(path, encoding="utf-8", errors="replace") as lines:  # noqa: PTH123 - as in prechecks.gpu
            names += names_in(lines)
    return names


def hosts_files(patterns: Iterable[str]) -> list[str]:
    """The files that match the patterns, by name; a directory that does not exist has none."""
    found: list[str] = []
    for pattern in patterns:
        directory, _, name = pattern.rpartition("/")
        try:
            entries = os.listdir(directory or "/")  # noqa: PTH208 - as in prechecks.gpu
        except FileNotFoundError:
            continue
        from fnmatch import fnmatchcase  # noqa: PLC0415 - few nodes have such files

        found += sorted(f"{directory}/{entry}" for entry in entries if fnmatchcase(entry, name))
    return found


def names_in(lines: Iterable[str]) -> list[str]:
    """The host names in a hosts file: one that begins a line, or all that follow an address; `#` begins a comment."""
    names: list[str] = []
    for line in lines:
        first, *more = line.partition("#")[0].split() or [""]
        if ":" in first or first.replace(".", "").isdigit():
            names += more
        elif first:
            names.append(first)
    return names


def resolves(name: str) -> bool:
    """Whether the node's own resolver knows the name; a dead name server costs seconds a name."""
    # The core of the socket module, which alone costs the child as much as a bare Python; the same three names.
    from _socket import SOCK_STREAM, gaierror, getaddrinfo  # noqa: PLC0415 - only the child needs it

    try:
        getaddrinfo(os.fsencode(name), None, type=SOCK_STREAM)  # bytes: no detour through the idna codec
    except (gaierror, ValueError):
        return False
    return True


def judge(count: int, unresolved: Sequence[str], of: int) -> Finding:
    """`4 names` passes, or `5 of 100 names`; else the first three that do not resolve are named."""
    if not unresolved:
        asked = str(count) if count == of else f"{count} of {of}"
        return Finding(OK, f"{asked} names" if of > 1 else "1 name", count, count)
    more = f" and {len(unresolved) - NAMED} more" if len(unresolved) > NAMED else ""
    verb = "does" if len(unresolved) == 1 else "do"
    message = f"{', '.join(unresolved[:NAMED])}{more} {verb} not resolve"
    return Finding(FAILED, message, count - len(unresolved), count)
