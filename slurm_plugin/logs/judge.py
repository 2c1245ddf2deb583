"""From the events of a job's logs to one cause, and to the rank or node that began it. Pure.

The order of arguments: a root outranks every symptom, whenever it was written; an exact root outranks a general one;
what a line accuses by name comes before what is left out; a rank that says nothing while all others complain is the
one that they wait for. What all ranks say at once is the program's, what one node says alone is that node's.
"""

import re
import signal
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from slurm_plugin.logs import endings, ranking
from slurm_plugin.logs.endings import Ended
from slurm_plugin.logs.ranking import ENDINGS
from slurm_plugin.logs.scan import Event
from slurm_plugin.logs.signature import CLASSES, Signature

CRASHES: Final = frozenset({-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGILL})
# Of these no rank is the culprit.
_WITHOUT_RANK: Final = ENDINGS | {"node_down", "launcher_config", "rendezvous"}
# Who speaks of these is most often a victim.
_OF_OTHERS: Final = frozenset({"unknown", "symptom_only", "rank_hang", "rendezvous", "cancelled"})
_NUMBER = re.compile(r"\d+")
_OTHER_HOST: Final = re.compile(r"(?!127\.|localhost|::1).").match
_WAITED: Final = frozenset({"rank_hang", "rendezvous", "collective_desync"})
# The verdict on a node that alone has such a fault, with all of its ranks.
_OF_ONE_NODE: Final[Mapping[str, str]] = {
    "import_env": "exclude", "driver_env": "exclude", "fs_error": "exclude", "net_name": "exclude",
    "missing_file": "check", "disk_full": "check",
}  # fmt: skip


class Cause(NamedTuple):
    """The likely cause of a failure."""

    failure: str  # a key of CLASSES
    whose: str
    confidence: str  # sure, likely, unknown
    event: Event | None = None
    ranks: tuple[int, ...] = ()  # the ranks that began it; none where it is all of them, or not known
    nodes: tuple[str, ...] = ()
    verdict: str = "clear"  # on those nodes
    others: tuple[Event, ...] = ()  # what else could be: one event of each other class
    beside: str = ""  # the evidence that is not in the log
    kernel: tuple[str, str] | None = None  # a node, and the line of its kernel that is evidence


def cause(
    events: Sequence[Event],
    ended: Mapping[int, Ended] | None = None,
    nodes: Mapping[int, str] | None = None,
    heard: Collection[int] = (),
    stopped: Mapping[str, int] | None = None,
) -> Cause:
    """Return the likely cause. `ended` and `nodes` have what is known of each rank; `heard`: ranks with a log.

    `stopped`: how many ranks of each node that `ended` lacks were alive until their launcher ended them.
    """
    ended, nodes = ended or {}, nodes or {}
    every, events = _Found(events, stopped or {}), ranking.told_apart(events)
    symptoms = [each for each in events if each.signature.role == "symptom"]
    roots = ranking.roots(events, symptoms, ended)
    if roots and (roots[0].signature.sure or roots[0].signature.failure not in ENDINGS):
        return _by_root(roots, every, ended, nodes)
    if found := _by_silence(symptoms, ended, nodes, heard, stopped or {}):
        return found
    if roots:
        return _by_root(roots, every, ended, nodes)
    if found := _by_operation(events, symptoms, ended, nodes, heard):
        return found
    if symptoms := [each for each in events if each.signature.role in ("symptom", "pointer")]:
        return _by_accusation(symptoms, ended, nodes)
    return Cause("none", "unknown", "sure")


class _Found(NamedTuple):
    """All events, also those that say nothing of the cause, and how many ranks of each node had to be ended."""

    events: Sequence[Event]
    stopped: Mapping[str, int]


def _by_root(roots: Sequence[Event], found: _Found, ended: Mapping[int, Ended], nodes: Mapping[int, str]) -> Cause:
    best = roots[0]
    signature = best.signature
    same = [each for each in roots if each.signature.failure == signature.failure]
    ranks = {by_pid(each, ended, nodes) if each.rank is None else each.rank for each in same} - {None}
    where = {_node_of(each, nodes) for each in same} - {""}
    whose, verdict = signature.whose, _verdict(signature)
    known = set(nodes.values())
    on_it = {rank for rank, name in nodes.items() if {name} == where}
    if signature.failure in _OF_ONE_NODE and len(known) > 1 and on_it and on_it <= ranks:
        alone = _got_past(where, roots, found, ended, nodes)
        whose, verdict = ("node", _OF_ONE_NODE[signature.failure]) if alone else (whose, "check")
    everywhere = len(nodes) > 1 and (ranks >= set(nodes) or (len(where) > 1 and 2 * len(ranks) >= len(nodes)))
    rank, node = best.rank, _node_of(best, nodes)
    if rank is None and (rank := by_pid(best, ended, nodes)) is not None:
        node = node or nodes.get(rank, "")
    if rank is None and signature.failure not in _WITHOUT_RANK and _of_one_rank(signature, same, ended):
        there = {number: each for number, each in ended.items() if node in ("", nodes.get(number))}
        rank = next(iter(ranks)) if len(ranks) == 1 else None if ranks else endings.first(there)
        node = node or ("" if rank is None else nodes.get(rank, ""))
    began = (
        set[int]() if rank is None or everywhere else on_it if whose == "node" and on_it and on_it <= ranks else {rank}
    )
    others = {each.signature.failure: each for each in reversed(roots) if each.signature.failure != signature.failure}
    at = tuple(dict.fromkeys(filter(_OTHER_HOST, (node, best.peer_node))))
    at = () if everywhere else at or (() if began else endings.only_node(ended))
    if everywhere and signature.failure == "segfault":  # launchers know which ranks crashed
        began = {rank for rank, each in ended.items() if each.code in CRASHES}
        began = began if len(began) < len(ended) else set()
        at = places(sorted(began), nodes)
    accused = Counter(each.peer for each in same if each.peer is not None).most_common(2)
    if everywhere and accused and (len(accused) == 1 or accused[0][1] > accused[1][1]):  # not only by one another
        began = {accused[0][0]}
        at = places(began, nodes)
    return Cause(
        signature.failure,
        whose,
        "sure" if signature.sure else "likely",
        best,
        tuple(sorted(began)),
        at,
        verdict,
        tuple(reversed(others.values())),
    )


def _verdict(signature: Signature) -> str:
    """Return the verdict on the node that a line of this signature names."""
    if signature.failure == "node_down" and not signature.sure:  # a launcher may have lost its daemon alone
        return "check"
    usual = CLASSES[signature.failure]
    if signature.whose == "user" != usual.whose:
        return "clear"
    return "check" if (usual.verdict, signature.whose) == ("clear", "node") else usual.verdict


def _of_one_rank(signature: Signature, same: Sequence[Event], ended: Mapping[int, Ended]) -> bool:
    """Return whether one rank wrote the lines of this signature: one line, or a signal ended one rank alone.

    What all ranks raise ends none of them by a signal.
    """
    failed = [each.code for each in ended.values() if each.code not in (0, -signal.SIGTERM)]
    once = sum(each.signature is signature and each.rank is None for each in same) == 1
    return once or (len(failed) == 1 and failed[0] < 0)


def _got_past(
    where: Collection[str],
    roots: Sequence[Event],
    found: "_Found",
    ended: Mapping[int, Ended],
    nodes: Mapping[int, str],
) -> bool:
    """Return whether ranks of other nodes got past such a failure, or were at least not ended before they could fail.

    Those that got past it wrote something else, or ended by themselves.
    """
    failure, signalled = roots[0].signature.failure, (-signal.SIGTERM, -signal.SIGKILL)
    others = {rank for rank, node in nodes.items() if node not in where}
    wrote = {
        each.rank
        for each in found.events
        if each.signature.role in ("root", "symptom")
        and not each.signature.summary
        and each.signature.failure not in {failure, *ENDINGS}
    }
    if others & (wrote | {rank for rank, each in ended.items() if each.code not in signalled}):
        return True
    return not (
        any(
            each.signature.failure in ENDINGS
            or (each.signature.role == "teardown" and _node_of(each, nodes) not in {"", *where})
            for each in found.events
        )
        or any(rank in ended for rank in others)
        or any(count for node, count in found.stopped.items() if node not in where)
    )


def by_pid(event: Event, ended: Mapping[int, Ended], nodes: Mapping[int, str]) -> int | None:
    """Return the rank whose process a line of the kernel names; None if launchers do not know this process."""
    found = event.signature.pattern.search(event.text)
    pid = found.groupdict().get("pid") if found else None
    same = [rank for rank, each in ended.items() if pid == each.pid != "" and event.node in ("", nodes.get(rank))]
    return same[0] if len(same) == 1 else None


def places(ranks: Iterable[int], nodes: Mapping[int, str]) -> tuple[str, ...]:
    """Return the nodes of these ranks, each once, as far as known."""
    return tuple(dict.fromkeys(nodes[rank] for rank in ranks if rank in nodes))


def _node_of(event: Event, nodes: Mapping[int, str]) -> str:
    """Return the node that an event names, or that its rank runs on; empty if neither is known."""
    return event.node or ("" if event.rank is None else nodes.get(event.rank, ""))


def _by_silence(
    symptoms: Sequence[Event],
    ended: Mapping[int, Ended],
    nodes: Mapping[int, str],
    heard: Collection[int],
    stopped: Mapping[str, int],
) -> Cause | None:
    """Return the cause where some ranks complain of the others, and one or few do not."""
    complaining = {each.rank for each in symptoms if each.rank is not None and not each.signature.summary}
    aborted = {rank for rank, each in ended.items() if each.code == -signal.SIGABRT}
    if aborted & {each.rank for each in symptoms if each.signature.failure == "rank_hang"}:
        complaining |= aborted  # PyTorch's watchdog aborts each rank that waited, and not all of them can say why
    silent = {*ended, *heard} - complaining
    if not complaining or not silent:
        return None
    # A launcher ends the others with SIGTERM: who ended otherwise began it.
    by_themselves = {
        rank for rank in silent if rank in ended and (ended[rank].code != -signal.SIGTERM or ended[rank].outside)
    }
    left = {rank for rank in silent if rank not in ended} if ended else set()
    alive = _alive(left, complaining - set(ended), nodes, stopped)
    left -= alive
    began = tuple(sorted(by_themselves or left or alive or silent))
    where = tuple(sorted({nodes[rank] for rank in began if rank in nodes}))
    codes = {ended[rank].code if rank in ended else 0 for rank in began}
    complaints = [each for each in symptoms if each.rank in complaining and not each.signature.summary]
    first = min(complaints, key=_says_least)
    if not by_themselves and not left:
        if not any(each.signature.failure in _WAITED for each in complaints):
            return None  # a connection was closed: a process that was alive until the end did not do that
        late = first.signature.failure == "rendezvous"
        return Cause("rendezvous" if late else "rank_hang", "unknown", "likely", first, began, where, "check")
    if codes == {0} and len(left) > len(complaining):  # most ranks were ready: a few called one collective too many
        began = tuple(sorted(complaining))
        where = places(began, nodes)
        return Cause("collective_desync", "user", "likely", first, began, where)
    spoke = {nodes.get(rank) for rank in ended}  # the nodes whose launcher says how ranks ended
    there = {rank for rank, node in nodes.items() if node in where}
    if left and not by_themselves and there and not spoke & set(where) and (len(there) > 1 or there - left):
        failure = "node_down" if there <= silent and len(where) == 1 else "unknown"
        confidence = "unknown" if failure == "unknown" else "likely"
        return Cause(failure, CLASSES[failure].whose, confidence, first, began, where, "check")
    if codes == {0}:
        return Cause("early_exit", "user", "likely", first, began, where)
    if codes & CRASHES:
        return Cause("segfault", "user", "likely", first, began, where)
    verdict = "check" if codes <= {-signal.SIGKILL, -signal.SIGTERM} else "clear"
    return Cause("unknown", "unknown", "unknown", _end_of(began, symptoms, ended) or first, began, where, verdict)


def _end_of(ranks: Collection[int], symptoms: Iterable[Event], ended: Mapping[int, Ended]) -> Event | None:
    """Return the line in which a launcher says how one of these ranks ended."""
    pids = {ended[rank].pid for rank in ranks if rank in ended} - {""}
    launchers = (each for each in symptoms if each.signature.summary)
    return next((each for each in launchers if each.peer in ranks or pids & {*_NUMBER.findall(each.text)}), None)


def _alive(
    left: Collection[int], listed: Collection[int], nodes: Mapping[int, str], stopped: Mapping[str, int]
) -> set[int]:
    """Return the ranks of `left` that their launchers had to end. `listed`: others that the launchers do not name."""
    found: set[int] = set()
    for node, count in stopped.items():
        here = {rank for rank in left if not node or nodes.get(rank) == node}
        others = sum(not node or nodes.get(rank) == node for rank in listed)
        if count - others >= len(here):
            found |= here
    return found


def _by_operation(
    events: Sequence[Event],
    symptoms: Sequence[Event],
    ended: Mapping[int, Ended],
    nodes: Mapping[int, str],
    heard: Collection[int],
) -> Cause | None:
    """Return the cause where each rank waited in a collective, and few of them in another one than the others."""
    waiting = [each for each in symptoms if each.rank is not None and each.signature.failure == "rank_hang"]
    if len({each.rank for each in waiting}) < 2:
        return None
    operations: dict[int, str] = {}
    for each in events:
        found = each.signature.pattern.search(each.text)
        operation = found.groupdict().get("operation") if found else None
        if operation and each.rank is not None:
            operations.setdefault(each.rank, operation.lower().replace("_", ""))
    counts = Counter(operations.values()).most_common()
    if len(counts) > 1:
        few = counts[-1][0]
        odd = [rank for rank, operation in sorted(operations.items()) if operation == few]
        ranks = tuple(odd) if counts[-1][1] < counts[0][1] else ()
        where = places(ranks, nodes)
        event = next((each for each in waiting if each.rank in ranks), waiting[0])
        return Cause("collective_desync", "user", "likely", event, ranks, where)
    known = {*heard, *ended}
    told = any("SeqNum=" in each.text or each.peer is not None for each in waiting)
    if known and {each.rank for each in waiting} >= known and not told:
        return Cause("collective_desync", "user", "unknown", waiting[0])  # none was missing
    # All waited and gave up but one: it came too late, and found the others gone.
    late = {*operations, *ended} - {each.rank for each in waiting}
    if len(late) != 1 or len({each.rank for each in waiting}) < 2:
        return None
    where = places(late, nodes)
    return Cause("rank_hang", "unknown", "likely", waiting[0], tuple(late), where, "check")


def _by_accusation(symptoms: Sequence[Event], ended: Mapping[int, Ended], nodes: Mapping[int, str]) -> Cause:
    """Return the cause where only consequences are known: the rank that most lines accuse, or who ended first."""
    best = min(symptoms, key=_says_least)
    accused = Counter(each.peer for each in symptoms if each.peer is not None)
    began = [rank for rank, each in sorted(ended.items()) if each.code not in (0, -signal.SIGTERM)]
    failure = best.signature.failure
    ranks: tuple[int, ...]
    if failure in ENDINGS:  # no rank did that
        return Cause(failure, best.signature.whose, "unknown", best)
    if accused:
        ranks = (accused.most_common(1)[0][0],)
    elif best.rank is not None and failure not in _OF_OTHERS:
        ranks = (best.rank,)
    elif (left := endings.first(ended)) is not None:
        ranks = (left,)
    else:
        ranks = endings.firsts(ended) or tuple(began if len(began) < len(ended) else ())
    where = places(ranks, nodes)
    named = Counter(each.peer_node for each in symptoms if _OTHER_HOST(each.peer_node))
    if named and not where:
        where = (named.most_common(1)[0][0],)
    if {ended[rank].code for rank in began} & CRASHES and failure in ("unknown", "symptom_only"):
        return Cause("segfault", "user", "likely", best, ranks, where)
    killed = failure == "unknown" and any(rank in ended and ended[rank].code == -signal.SIGKILL for rank in ranks)
    verdict = "check" if killed else _verdict(best.signature)
    whose = "unknown" if failure == "rank_hang" else best.signature.whose  # the ranks that wait do not know why
    return Cause(failure, whose, "unknown", best, ranks, where, verdict)


def _says_least(event: Event) -> tuple[int, bool, bool, bool]:
    """Order symptoms: a class of its own, a consequence, a line that points elsewhere, a summary.

    Of equal ones, first those that accuse a rank or a node, then those whose rank is known. The first line of a
    traceback says least.
    """
    level = int(event.signature.failure == "symptom_only")
    if event.signature.role == "pointer":
        level = 2
    elif event.signature.summary or event.signature.failure == "unknown":
        level = 3
    accuses = event.peer is not None or bool(event.peer_node)
    return level, not accuses, event.rank is None, event.signature.id == ranking.TRACEBACK
