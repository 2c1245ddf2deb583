"""How each rank ended, as launchers say at the end of a log. Pure; standard library only.

Formats: the summary of torch.distributed.run (torch/distributed/elastic/multiprocessing/errors/__init__.py), the lines
of srun (src/api/step_launch.c), mpirun's last words (help-orterun.txt of Open MPI), those of PALS (seen on Aurora).
"""

import re
import signal
from collections.abc import Mapping
from typing import Final, NamedTuple

from hostfiles import nodelist

LAST: Final = 1 << 20  # bytes of a log that hold its end
MOST: Final = 100_000  # ranks that are read; what a program writes can claim any number
_TORCH = re.compile(
    r"(?:time +: (?P<time>\S+)\n[^\n]*?)?host +: (?P<node>\S+)\n"
    r"[^\n]*?rank +: (?P<rank>\d{1,9}) \(local_rank: \d+\)\n"
    r"[^\n]*?exitcode +: (?P<code>-?\d{1,9}) \(pid: (?P<pid>\d+)\)"
)
# torch/distributed/elastic/multiprocessing/api.py, torch/multiprocessing/spawn.py
_STOPPED = re.compile(r"(?:Sending|Closing|Terminating) process (\d+) (?:closing|via) signal")
_SRUN = re.compile(
    r"srun: error: (?P<nodes>[\w.,\[\]-]+): tasks? (?P<tasks>[\d,-]+): "
    r"(?:Exited with exit code (?P<code>\d{1,9})|(?P<words>[A-Z][\w ]*?)(?: \(core dumped\))?$)",
    re.MULTILINE,
)
_MPIRUN = re.compile(
    r"process rank (?P<rank>\d{1,9}) with PID (?P<pid>\S+) on\s+node (?P<node>\S+)\s"
    r"(?:exited on\s+signal (?P<signal>\d{1,9})|exiting\s+(?:improperly|without\s+calling))"
    r"|The first process to do so was:\s+Process name: \[[^\n]*,(?P<named>\d{1,9})\]\s+Exit code: +(?P<code>\d{1,9})"
    r"|MPI_ABORT was invoked on rank (?P<aborted>\d{1,9}) in communicator MPI_COMM_WORLD\s+"
    r"(?:Proc: [^\n]*\s+Errorcode: |with errorcode )(?P<errorcode>-?\d{1,9})"
)
_HYDRA = re.compile(
    r"RANK (?P<rank>\d{1,9}) PID (?P<pid>\d+) RUNNING AT (?P<node>\S+)\s+=\s+KILLED BY SIGNAL: (?P<signal>\d{1,9})"
)
# PALS, the launcher of HPE Cray systems with PBS: what its mpiexec prints of each rank that fails.
_PALS = re.compile(
    r"^(?P<node>[\w.-]+): rank (?P<rank>\d{1,9}) "
    r"(?:exited with code (?P<code>\d{1,9})|died from signal (?P<signal>\d{1,9}))",
    re.MULTILINE,
)
_SIGNALS: Final[Mapping[str, int]] = {  # strsignal(3), as srun prints it
    "Killed": -9, "Terminated": -15, "Segmentation fault": -11, "Aborted": -6, "Bus error": -7, "Hangup": -1,
    "Interrupt": -2, "Illegal instruction": -4, "Floating point exception": -8, "Out Of Memory": -9,
}  # fmt: skip


class Ended(NamedTuple):
    """The end of a rank: its exit code, negative for a signal, and its node; empty where it is not known."""

    code: int
    node: str = ""
    time: str = ""  # when its launcher saw it, in the launcher's words; empty where it is not known
    outside: bool = False  # whether a signal that its launcher did not send ended it
    first: bool = False  # whether its launcher says that it was the first
    pid: str = ""


def read(text: str, *, by_node: bool = False) -> dict[int, Ended]:
    """Return how each rank ended, as far as the end of a log says it. `by_node`: srun's tasks are no ranks."""
    stopped = set(_STOPPED.findall(text))
    found: dict[int, Ended] = {}
    for each in _TORCH.finditer(text):
        outside = int(each["code"]) < 0 and each["pid"] not in stopped
        first = text.rfind("Root Cause", 0, each.start()) > text.rfind("Failures:", 0, each.start())
        found[int(each["rank"])] = Ended(
            int(each["code"]), each["node"], each["time"] or "", outside, first, each["pid"]
        )
    for each in _MPIRUN.finditer(text):
        rank = int(each["rank"] or each["named"] or each["aborted"])
        how = -int(each["signal"]) if each["signal"] else int(each["code"] or each["errorcode"] or 0)
        found.setdefault(rank, Ended(how, each["node"] or "", first=True, pid=each["pid"] or ""))
    if block := _HYDRA.search(text):  # it ends the others: their blocks follow
        found.setdefault(int(block["rank"]), Ended(-int(block["signal"]), block["node"], first=True, pid=block["pid"]))
    for each in _PALS.finditer(text):
        how = -int(each["signal"]) if each["signal"] else int(each["code"])
        found.setdefault(int(each["rank"]), Ended(how, each["node"].partition(".")[0], first=not found))
    read_so_far = 0
    for each in () if by_node else _SRUN.finditer(text):
        code = int(each["code"]) if each["code"] else _SIGNALS.get(each["words"])
        if code is None:
            continue
        nodes = nodelist.names(each["nodes"])
        first = not found
        tasks = _numbers(each["tasks"], MOST - read_so_far)
        read_so_far += len(tasks)
        for task in tasks:
            found.setdefault(task, Ended(code, nodes[0] if len(nodes) == 1 else "", first=first))
    return found


def failed_nodes(text: str) -> frozenset[str]:
    """Return the nodes whose launchers ended by themselves, as srun says: it ended the others, if it ended any."""
    before, terminates, _ = text.partition(": Terminating StepId=")
    found = _SRUN.finditer(before) if terminates else ()
    return frozenset(node for each in found for node in nodelist.names(each["nodes"]))


def first(ended: Mapping[int, Ended]) -> int | None:
    """Return the rank that ended first, by what launchers say; None where they do not, or name several."""
    found = firsts(ended)
    return found[0] if len(found) == 1 else None


def firsts(ended: Mapping[int, Ended]) -> tuple[int, ...]:
    """Return the ranks that ended first, by what launchers say; none if they do not say it, or name all ranks."""
    candidates = {rank: each for rank, each in ended.items() if each.first}
    earliest = min((each.time for each in candidates.values()), default="")
    found = tuple(rank for rank, each in sorted(candidates.items()) if each.time == earliest)
    return found if len(found) == 1 or len(found) < len(ended) else ()


def only_node(ended: Mapping[int, Ended]) -> tuple[str, ...]:
    """Return the node on which all ranks ran that failed by themselves; none if they ran on several."""
    found = {each.node for each in ended.values() if each.code not in (0, -signal.SIGTERM)} - {""}
    return tuple(found) if len(found) == 1 else ()


def stopped(text: str) -> int:
    """Return how many processes a launcher of PyTorch had to end without saying which ranks they were."""
    return len(set(_STOPPED.findall(text)) - {each["pid"] for each in _TORCH.finditer(text)})


def _numbers(text: str, most: int) -> list[int]:
    """Return the numbers of `0,2-4`, at most so many."""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part[:20].partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            several = range(int(first), int(last or first) + 1)
            found += several if len(several) <= most - len(found) else ()
    return found
