"""A port for rank 0 that every node computes alike, outside the range the kernel hands out by itself."""

from __future__ import annotations

from hostfiles.errors import HostfileError

EPHEMERAL = (32768, 60999)  # Linux's default of /proc/sys/net/ipv4/ip_local_port_range
_LAST = 65535
_ENOUGH = 1000  # ports to spread over; with fewer, jobs on one node meet too soon
_STEP_STRIDE = 1237  # a prime: step 1 of a job does not meet step 0 of the next
_AGAIN_STRIDE = 389  # another one, for where a port is taken


def master_port(job_id: int, step_id: int = 0, ephemeral: tuple[int, int] = EPHEMERAL, *, again: int = 0) -> int:
    """The port of a job's step: above the ephemeral range where 1000 ports are left there, else below it.

    Never a privileged port (below 1024), and rather none below 10000, where services listen. On a host that hands out
    every port there is no safe one, and any unprivileged port is as good. Consecutive jobs get different ports.
    `again` counts from 1 through the ports to try where that one is taken.
    """
    low, high = ephemeral
    if min(job_id, step_id, again) < 0 or not 0 <= low <= high <= _LAST:
        raise HostfileError(f"job {job_id}, step {step_id}, ephemeral ports {low}-{high}; none of them fits a port")
    choices = ((high + 1, _LAST), (10000, low - 1), (1024, low - 1))
    first, last = next(
        ((max(first, 1024), last) for first, last in choices if last - max(first, 1024) + 1 >= _ENOUGH), (1024, _LAST)
    )
    return first + (job_id + step_id * _STEP_STRIDE + again * _AGAIN_STRIDE) % (last - first + 1)


def ephemeral_range(text: str) -> tuple[int, int]:
    """The two numbers in the text of ip_local_port_range, as in `32768 60999`. Raises HostfileError for any other."""
    words = text.split()
    if len(words) != 2 or not all(word.isascii() and word.isdigit() for word in words):
        raise HostfileError(f"{text[:40]!r} is no port range; ip_local_port_range holds two numbers")
    return int(words[0]), int(words[1])
