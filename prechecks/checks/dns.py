"""`dns`: the names of this node, of every host of the job and in the site's hosts files resolve.

If N nodes each query N names, they overload the name servers, which then drop requests. So each node queries only a
share of a long list. The shares overlap, so that several nodes query each name. Every node also queries its own name
and the job's first host, where rank 0 is.

The check is `shared`, because nodes share a name server: in a prolog a failure is a job problem and drains no node.
If the node resolves no name of a node, and its own has not resolved since the boot, the check is skipped: on a site
with NodeAddr in slurm.conf these names may never resolve, and that is no fault of a node. The periodic check, which
also runs when slurmd starts, stores that the name resolved.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from prechecks.check import COUNT, PATHS, TEXTS, Check, Setting, Settings
from prechecks.verdict import FAILED, OK, SKIPPED, Context, Finding, first_few

SHARE_ABOVE, ASKED_BY = 16, 4


class Dns(Check):
    """Read `settings["dns"]`. A path in `hosts_files` may have `*` and `?` in its last part."""

    item = "dns"
    looks_at = (
        "whether names resolve: this node's, those of the job's hosts (each node of a large job checks some of "
        "them), and those that the site lists or has in hosts files"
    )
    settings: Mapping[str, Setting] = {
        "hosts_files": Setting(
            PATHS, ("/etc/volcano/*.host",), "files of names that must resolve; `*` and `?` in the name"
        ),
        "names": Setting(TEXTS, (), "further names that must resolve, on every node"),
        "share_above": Setting(
            COUNT,
            SHARE_ABOVE,
            "in a job of more hosts than this, a node checks only a share of any longer list of names",
        ),
        "asked_by": Setting(COUNT, ASKED_BY, "how many nodes check each name of a shared list"),
    }
    shared = True
    quick = True  # as long as a name server answers

    def look(self, context: Context, settings: Settings) -> Finding:
        """Fail for names that do not resolve."""
        own = self.own(settings)
        above, asked_by = own.get("share_above", SHARE_ABOVE), own.get("asked_by", ASKED_BY)
        mine = (context.node, *context.hosts[:1], *own.get("names", ()))
        lists = (context.hosts, names_of(own["hosts_files"]))
        names = dict.fromkeys(mine)
        every = dict.fromkeys((*mine, *lists[0], *lists[1]))
        for each in lists:
            names.update(dict.fromkeys(share(each, context, above, asked_by)))
        unresolved = [name for name in names if not resolves(name)]
        nodes = [name for name in names if name in (context.node, *context.hosts)]
        if context.hook == "periodic" and not unresolved and settings.get("remember", True):
            self._store(context.node, settings)
        if unresolved == nodes and not self._has_resolved(context.node, settings):
            has = "has" if len(nodes) == 1 else "have"
            return Finding(SKIPPED, f"{first_few(nodes)} {has} not resolved since the boot")
        known = (name for name in nodes if name not in unresolved and name != "localhost")
        local = {name: address for name in known if (address := loopback(name))}
        return judge(len(names), unresolved, len(every), local)

    def _has_resolved(self, node: str, settings: Settings) -> bool:
        """Return whether the node's own name has resolved since the boot."""
        from prechecks import boot_state  # noqa: PLC0415 - not in a prolog that passes

        return boot_state.load(settings["state"], self.item).get("resolved") == node

    def _store(self, node: str, settings: Settings) -> None:
        """Store that the node's own name has resolved."""
        from prechecks import boot_state  # noqa: PLC0415 - as above

        if not self._has_resolved(node, settings):
            boot_state.save(settings["state"], self.item, {"resolved": node})


def share(names: Sequence[str], context: Context, above: int, asked_by: int) -> Sequence[str]:
    """Return this node's share of a list that all nodes of the job have. `asked_by` nodes query each name.

    Return the whole list if the list or the job has at most `above` names, or if this node is not in the job.
    """
    count = len(context.hosts)
    if min(len(names), count) <= above or context.node not in context.hosts:
        return names
    place = context.hosts.index(context.node)
    return [name for number, name in enumerate(names) if (number - place) % count < asked_by]


def names_of(patterns: Iterable[str]) -> list[str]:
    """Return the names in all hosts files that match the patterns."""
    names: list[str] = []
    for path in hosts_files(patterns):
        with open(path, encoding="utf-8", errors="replace") as lines:  # noqa: PTH123 - as in prechecks.checks.gpu
            names += names_in(lines)
    return names


def hosts_files(patterns: Iterable[str]) -> list[str]:
    """Return the files that match the patterns, sorted by name. Ignore missing directories."""
    found: list[str] = []
    for pattern in patterns:
        directory, _, name = pattern.rpartition("/")
        try:
            entries = os.listdir(directory or "/")  # noqa: PTH208 - as in prechecks.checks.gpu
        except FileNotFoundError:
            continue
        from fnmatch import fnmatchcase  # noqa: PLC0415 - few nodes have such files

        found += sorted(f"{directory}/{entry}" for entry in entries if fnmatchcase(entry, name))
    return found


def names_in(lines: Iterable[str]) -> list[str]:
    """Return the host names in a hosts file: the first word of a line, or all words after an address."""
    names: list[str] = []
    for line in lines:
        first, *more = line.partition("#")[0].split() or [""]
        if ":" in first or first.replace(".", "").isdigit():
            names += more
        elif first:
            names.append(first)
    return names


def resolves(name: str) -> bool:
    """Return whether the node's own resolver knows the name. With a dead name server this takes seconds per name."""
    return bool(_addresses(name))


def loopback(name: str) -> str:
    """Return the first address of a name if it is a loopback address, such as Debian's 127.0.1.1; else empty.

    Programs that listen on the first address of their own name, such as PyTorch's Gloo, are then not reachable.
    """
    first = next(iter(_addresses(name)), "")
    return first if first.startswith("127.") or first == "::1" else ""


def _addresses(name: str) -> list[str]:
    # `_socket` is the core of `socket`, whose import takes as long as the start of Python.
    from _socket import SOCK_STREAM, gaierror, getaddrinfo  # noqa: PLC0415 - only the child needs it

    try:
        found = getaddrinfo(os.fsencode(name), None, type=SOCK_STREAM)  # bytes avoid the idna codec
    except (gaierror, ValueError):
        return []
    return [str(each[4][0]) for each in found]


def judge(count: int, unresolved: Sequence[str], of: int, local: Mapping[str, str] = {}) -> Finding:
    """Pass with `4 names` or `5 of 100 names`. Else fail, and name the first three that do not resolve.

    `local`: the nodes whose names resolve to the loopback address here. That is no fault: most programs do not care.
    """
    if not unresolved:
        asked = str(count) if count == of else f"{count} of {of}"
        words = [f"{name} is {address} here, which no other node can reach" for name, address in local.items()]
        note = f"; {first_few(words)}; see /etc/hosts" if words else ""
        return Finding(OK, (f"{asked} names" if of > 1 else "1 name") + note, count, count)
    verb = "does" if len(unresolved) == 1 else "do"
    message = f"{first_few(unresolved)} {verb} not resolve"
    return Finding(FAILED, message, count - len(unresolved), count)
