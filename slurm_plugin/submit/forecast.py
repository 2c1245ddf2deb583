"""`slurm-plugin forecast`: when a job would start, and what delays it. Pure: values in, text out."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from hostfiles import nodelist
from prechecks.report import OURS
from slurm_plugin.slurm import OUT_OF_SERVICE, Forecast, Node
from slurm_plugin.slurm.calls import against_a_job
from slurm_plugin.slurm.resources import Obstacle, Reservation, longest, obstacle

NOW: Final = timedelta(seconds=10)  # Slurm rounds to seconds, and reading its answer takes a few seconds
# Slurm plans a job without a time limit as if it ran for a year (job_scheduler.c, YEAR_SECONDS).
NO_TIME: Final = timedelta(days=300)
IN_USE: Final = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
MOST_LINES: Final = 8


@dataclass(frozen=True, slots=True)
class JobRequest:
    """The parts of a job's request that limit its nodes."""

    name: str
    nodes: str  # 4, or 2-4
    partitions: tuple[str, ...] = ()  # empty: the cluster's default
    limit_s: int | None = None  # its time limit; None: none, or the partition's default
    least: int = 1  # the fewest nodes


@dataclass(frozen=True, slots=True)
class Answer:
    """The forecast of one job."""

    request: JobRequest
    found: Forecast
    nodes: Mapping[str, Node]  # the nodes of its partitions; all nodes if the partitions are unknown
    now: datetime
    reservations: Sequence[Reservation] = ()  # those of other jobs
    unseen: str = ""  # why the nodes are unknown
    fits: bool = False  # whether Slurm has said that the job would start now with the time before a reservation

    @property
    def starts_now(self) -> bool:
        """Return whether the job would start now."""
        return self.found.start_time is not None and self.found.start_time <= self.now + NOW

    def record(self) -> dict[str, Any]:
        """Return the answer for `--json`."""
        start = self.found.start_time
        return {
            "name": self.request.name,
            "starts_now": self.starts_now,
            "start": start.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if start else None,
            "nodes": self.found.nodes,
            "partition": self.found.partition,
            "refused": self.found.refused,
            "states": {state: sorted(names) for state, names in self._states().items()},
            "reservation": found.reservation.name if (found := self.obstacle()) else "",
        }

    def lines(self) -> Iterator[str]:
        """Yield the lines of the answer."""
        name, found = self.request.name, self.found
        where = f"on {found.nodes}, partition {found.partition}" if found.partition else f"on {found.nodes}"
        if self.starts_now:
            yield f"{name}: would start now, {where}"
            return
        if found.start_time is None and self.fits:
            yield f"{name}: start unknown: it would wait for the end of a reservation"
        elif found.start_time is None:
            yield f"{name}: would not start as things are; Slurm says:"
            yield from (f"  {line}" for line in found.refused.splitlines())
        elif found.start_time - self.now > NO_TIME:
            yield f"{name}: start unknown, {where}: jobs without a time limit are before it"
        else:
            until = found.start_time - self.now
            yield f"{name}: would start at {found.start_time.astimezone():%Y-%m-%d %H:%M}, in {_about(until)}, {where}"
        yield from self._why()

    def _why(self) -> Iterator[str]:
        """Yield the number of nodes in each state, the reasons of nodes out of service, and commands to run next."""
        states = self._states()
        if found := self.obstacle():
            yield f"  {found.says(self.now, self.request.limit_s)}"
            yield "  when it is, and for whom: scontrol show reservation"
        if self.unseen:
            yield f"  asked for: {self.request.nodes} node(s); {self.unseen}"
            return
        counts = ", ".join(f"{len(names)} {state}" for state, names in states.items() if names)
        place = f"in {', '.join(self.request.partitions)}" if self.request.partitions else "of this cluster"
        yield f"  asked for: {self.request.nodes} node(s); {place}: {counts or 'none'}"
        reasons: dict[str, list[str]] = {}
        for node in states["out of service"]:
            without = (
                "reserved for maintenance" if "MAINTENANCE" in self.nodes[node].states else "down or not answering"
            )
            words = " ".join(self.nodes[node].standing_reason.split()) or without
            reasons.setdefault(words, []).append(node)
        for words, names in list(reasons.items())[:MOST_LINES]:
            yield f"    {nodelist.fold(names)}: {words}"
        if len(reasons) > MOST_LINES:
            yield f"    and {len(reasons) - MOST_LINES} reasons more; see: sinfo -R"
        then = "" if self.fits else against_a_job(self.found.refused)
        ours = [names[0] for words, names in reasons.items() if words.startswith(OURS)]
        if ours:
            yield f"  why a node is out: slurm-plugin why {ours[0]}"
        elif states["in use"] and not then:
            yield "  who is before it: squeue --start; sprio"
        if then:
            yield f"  {then}"

    def shorter(self) -> str:
        """Return the `time:` with which a refused job may start now, before a reservation; "" without one."""
        found = None if self.found.start_time else self._met(self.reservations, certain=True)
        return longest(found.reservation.start, self.now) if found else ""

    def obstacle(self) -> Obstacle | None:
        """Return the reservation after which the job starts, and which it would meet if it started now.

        `sbatch --test-only` refuses some jobs that would wait for the end of a reservation: see `fits`.
        """
        start = self.found.start_time
        if start is None:
            return self._met(self.reservations, certain=True) if self.fits else None
        return None if self.starts_now else self._met(each for each in self.reservations if each.end <= start + NOW)

    def _met(self, reservations: Iterable[Reservation], *, certain: bool = False) -> Obstacle | None:
        found: Mapping[str, Any] = {"usable": self.nodes, "idle": self._states()["idle"], "wanted": self.request.least}
        return obstacle(reservations, self.now, self.request.limit_s, **found, certain=certain)

    def _states(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {"idle": [], "in use": [], "reserved": [], "out of service": []}
        for name, node in self.nodes.items():
            if node.states & OUT_OF_SERVICE or "NOT_RESPONDING" in node.states:
                found["out of service"].append(name)
            elif node.states & IN_USE:
                found["in use"].append(name)
            else:
                found["reserved" if node.states & {"RESERVED", "PLANNED"} else "idle"].append(name)
        return found


def of_partitions(nodes: Mapping[str, Node], partitions: tuple[str, ...]) -> Mapping[str, Node]:
    """Return the nodes of these partitions; all nodes if there are no partitions."""
    return {name: node for name, node in nodes.items() if not partitions or {*partitions} & {*node.partitions}}


def _about(time: timedelta) -> str:
    """Return a rounded time: `5 min`, `3.2 h`, `2.5 days`."""
    minutes = time.total_seconds() / 60
    if minutes < 90:
        return f"{max(1, round(minutes))} min"
    return f"{minutes / 60:.1f} h" if minutes < 48 * 60 else f"{minutes / 1440:.1f} days"
