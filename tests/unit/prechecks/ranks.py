"""Output lines of the ranks of a fabric check, and verdicts as letters."""

from collections.abc import Mapping

from prechecks import Verdict

HOSTS = ("n1", "n2", "n3", "n4")


def said(host: str, *events: str, nonce: str = "abc") -> list[str]:
    """Return the lines of one host."""
    return [f"slurm_plugin-fabric {nonce} {host} {event}" for event in events]


def whole(
    hosts: tuple[str, ...] = HOSTS,
    links: Mapping[tuple[int, int], str] = {},
    instead: Mapping[str, tuple[str, ...]] = {},
) -> list[str]:
    """Return the lines of a healthy run. `links` and `instead` replace the lines of some links and hosts."""
    lines = []
    for rank, host in enumerate(hosts):
        if host in instead:
            lines += said(host, *instead[host])
            continue
        lines += said(host, f"hello rank={rank}", f"ready rank={rank} size={len(hosts)}")
        lines += said(host, "barrier us=80", "allreduce us=900")
        for peer in {(rank + 1) % len(hosts), (rank - 1) % len(hosts)}:
            words = links.get((min(rank, peer), max(rank, peer)), "latency_us=20 mbs=1000")
            lines += said(host, f"link peer={peer} {words}")
        lines += said(host, "done")
    return lines


def words(verdicts: Mapping[str, Verdict]) -> str:
    """Return the verdicts in order, one letter each: o(k) f(ailed) t(imeout) e(rror) s(kipped)."""
    return "".join(verdict.verdict[0] for verdict in verdicts.values())
