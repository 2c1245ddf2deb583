"""Return one verdict per host from the lines that the ranks printed, and name the hosts to blame. No side effects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from prechecks.fabric import ring
from prechecks.fabric.ring import Link, RankReport, Wire, read
from prechecks.verdict import ERROR, FAILED, JOB_PROBLEM, OK, SKIPPED, TIMEOUT, Verdict, first_few, one_line

ITEM = "fabric"
FEW = 2  # or a tenth of the job: if more hosts look bad, the launch is the likelier cause


class Thresholds(NamedTuple):
    """A link is slow below `share` of the ring's usual speed, or below `floor_mbs` (1e6 bytes/s) if that is set."""

    share: float = 0.3
    floor_mbs: float | None = None

    def least(self, usual_mbs: float | None) -> float | None:
        """Return the slowest speed that passes; None if there is no limit."""
        measures = [self.floor_mbs, usual_mbs * self.share if usual_mbs is not None else None]
        return max((measure for measure in measures if measure is not None), default=None)


def judge(
    hosts: Sequence[str],
    lines: Iterable[str],
    nonce: str,
    thresholds: Thresholds = Thresholds(),  # noqa: B008 - immutable
    complaint: str = "",
) -> dict[str, Verdict]:
    """Return one verdict per host, in the order of `hosts`. `complaint` is the last line of the launcher's output.

    `failed` blames a host. If a fault cannot be attributed to one host, the verdict is `timeout` or `error`.
    """
    if len(hosts) < 2:
        return unknown(hosts, SKIPPED, "one host has no neighbour")
    found = read(lines, nonce, hosts)
    trouble = _common_failure(found, complaint)
    if trouble:
        return unknown(hosts, *trouble)
    wires = ring.wires(found)
    least = thresholds.least(ring.usual(wires))
    blamed = _lost_hosts(found)
    bad = {
        index
        for index, wire in enumerate(wires)
        if _bad(wire.link, least) and wire.left not in blamed and wire.right not in blamed
    }
    if len(wires) >= ring.FEWEST and len(bad) == len(wires):
        return unknown(hosts, ERROR, f"every link of the ring is bad, no host can be named: {_table(wires)}")
    for name, indices in ring.cover(wires, bad, hosts).items():
        blamed[name] = _reason(name, [wires[index] for index in indices], least)
    wrong = [name for name, said in found.items() if said.wrong and name not in blamed]
    if wrong and not any(wires[index].link.corrupt for index in bad):
        if 2 * len(wrong) < len(hosts):
            blamed |= {name: f"{found[name].wrong} elements of its all-reduce are wrong" for name in wrong}
        elif not blamed:
            return unknown(hosts, ERROR, f"the all-reduce is wrong on {first_few(wrong)}: no host can be named")
    if len(blamed) > max(FEW, len(hosts) // 10):
        many = f"{len(blamed)} of {len(hosts)} hosts look bad ({first_few(list(blamed))}): too many for faults of hosts"
        return unknown(hosts, TIMEOUT, many)
    return {
        name: _failed(blamed[name], name, wires, least)
        if name in blamed
        else _unnamed(name, found[name], wires, least, list(blamed))
        for name in hosts
    }


def unknown(hosts: Iterable[str], verdict: str, message: str) -> dict[str, Verdict]:
    """Return the same verdict for every host, because the state of all hosts is unknown."""
    return {name: Verdict(ITEM, verdict, JOB_PROBLEM, one_line(message)) for name in hosts}


def _common_failure(found: Mapping[str, RankReport], complaint: str) -> tuple[str, str] | None:
    """Return the verdict and message for all hosts if the check itself did not work, else None."""
    errors = [(name, said.error) for name, said in found.items() if said.error]
    if errors and not any(said.done for said in found.values()):
        return ERROR, f"{errors[0][0]}: {errors[0][1]}"
    spoke = sum(said.hello for said in found.values())
    if not spoke:
        return ERROR, f"no rank was started: {complaint or 'the launcher said nothing'}"
    if 2 * spoke < len(found):
        return TIMEOUT, f"only {spoke} of {len(found)} ranks were started in time; {complaint}".rstrip("; ")
    return None


def _lost_hosts(found: Mapping[str, RankReport]) -> dict[str, str]:
    """Return the hosts to blame regardless of the ring, with reasons. Use weak signs only if there is no clear sign."""
    half = len(found) / 2
    answered = [name for name, said in found.items() if said.done or said.late or said.stopped]
    ready = [name for name, said in found.items() if said.ready]
    plain = {name: f"its rank is stopped, in phase {said.stopped}" for name, said in found.items() if said.stopped}
    plain |= {name: "its rank wrote nothing" for name, said in found.items() if not said.hello}
    if plain:
        return plain
    if len(answered) >= half:
        quiet = [name for name, said in found.items() if name not in answered and not said.error]
        # If several are silent after MPI_Init, one of them probably crashed, and mpirun ended the others.
        if len(quiet) == 1 or not ready:
            return dict.fromkeys(quiet, "its rank started, then wrote nothing more")
    if len(ready) >= half:
        return {name: "its rank did not return from MPI_Init" for name, said in found.items() if not said.ready}
    return {}


def _bad(link: Link, least: float | None) -> bool:
    return bool(link.stuck or link.corrupt) or (link.mbs is not None and least is not None and link.mbs < least)


def _reason(name: str, wires: Sequence[Wire], least: float | None) -> str:
    """Return the reason why a host is blamed: both its links are bad, or the link to one neighbour."""
    measure = f"; at least {_speed(least)} is wanted" if least is not None else ""
    if len(wires) > 1:
        return f"both its links are bad: {_links(name, wires)}{measure}"
    (wire,) = wires
    pair = f"the link {wire.left}-{wire.right} is bad: {_found(wire.link)}{measure}"
    return f"{pair}; {name} is blamed, but {wire.other(name)} may be the cause"


def _failed(why: str, name: str, wires: Sequence[Wire], least: float | None) -> Verdict:
    speeds = [wire.link.mbs for wire in wires if name in wire[:2] and wire.link.mbs is not None]
    return Verdict(ITEM, FAILED, JOB_PROBLEM, one_line(why), value=min(speeds, default=None), threshold=least)


def _unnamed(name: str, said: RankReport, wires: Sequence[Wire], least: float | None, blamed: Sequence[str]) -> Verdict:
    """Return the verdict of a host that is not blamed: `ok` if it is known to work, else `timeout` or `error`."""
    mine = [wire for wire in wires if name in wire[:2]]
    good = [wire for wire in mine if wire.link.mbs is not None and not _bad(wire.link, least)]
    if said.error:
        return Verdict(ITEM, ERROR, JOB_PROBLEM, one_line(said.error))
    if not good or not (said.done or blamed):
        return Verdict(ITEM, TIMEOUT, JOB_PROBLEM, one_line(_why_unknown(name, said, mine, blamed)))
    if said.stuck and not blamed:
        what = f"its {' and '.join(said.stuck)} did not end, its links are fine: {_links(name, mine)}"
        return Verdict(ITEM, TIMEOUT, JOB_PROBLEM, one_line(what))
    speed = min(wire.link.mbs for wire in good if wire.link.mbs is not None)
    times = [
        f"{label} {_us(us)}"
        for label, us in (
            ("latency", max(wire.link.latency_us or 0.0 for wire in good)),
            ("barrier", said.barrier_us),
            ("all-reduce", said.allreduce_us),
        )
        if us
    ]
    message = one_line(", ".join([_links(name, good), *times]))
    return Verdict(ITEM, OK, JOB_PROBLEM, message, value=speed, threshold=least)


def _why_unknown(name: str, said: RankReport, wires: Sequence[Wire], blamed: Sequence[str]) -> str:
    if not blamed:
        return f"not measured: {f'late in phase {said.late}' if said.late else 'its rank did not end'}"
    if any(wire.link != Link() for wire in wires):
        return f"no good link: {_links(name, wires)}, because of {first_few(blamed)}"
    return f"not measured, delayed by {first_few(blamed)}"


def _links(name: str, wires: Iterable[Wire]) -> str:
    return ", ".join(f"{_found(wire.link)} with {wire.other(name)}" for wire in wires)


def _table(wires: Iterable[Wire]) -> str:
    return ", ".join(f"{wire.left}-{wire.right} {_found(wire.link)}" for wire in wires)


def _found(link: Link) -> str:
    if link.stuck:
        return f"stuck ({link.stuck})"
    return f"{link.corrupt} corrupt bytes" if link.corrupt else _speed(link.mbs)


def _speed(mbs: float | None) -> str:
    return "no speed" if mbs is None else f"{mbs:.3g} MB/s" if mbs < 100 else f"{mbs:.0f} MB/s"


def _us(us: float) -> str:
    return f"{us:.0f} us" if us < 10_000 else f"{us / 1000:.0f} ms"
