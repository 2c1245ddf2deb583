"""The lines of a log as a terminal would show them, and who wrote them. Pure; standard library only."""

import re
from typing import Final, NamedTuple

OURS: Final = "[slurm_plugin] "  # before lines of slurm_plugin in the job's log
LONGEST: Final = 4000  # characters of a line that are looked at
# Escape sequences (ECMA-48, 5.4 and 5.6), and control characters other than tabs.
ESCAPE: Final = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[@-Z\\-_])"
_ESCAPES = re.compile(ESCAPE + r"|[\x00-\x08\x0b-\x1f\x7f]")
# What launchers put before a line, and the rank in it. torchrun knows the local rank alone, so PyTorch's own prefix
# counts, if there is one. Horovod lists the tensors that a rank did not send after its number.
_PREFIXES = re.compile(
    r"\s*(?:(?:\[default\d{1,6}\]:)?\[rank(\d{1,6})\]:|\[default(?P<local>\d{1,6})\]:|\[(?:\d+,)?(\d{1,6})\]<std\w+>:?"
    r"|(\d{1,6}): (?!\[[\w./]*(?i:reduce|gather|broadcast|alltoall|barrier)[\w./]*[],]))\s?"
)
_TAGS = re.compile(r"\[\d+,\d+\]<std\w+>:")  # mpirun puts one before each write, also within a line
# The prefixes of log collectors, of Ray, and of the loggers of vLLM and glog. A line may have several.
_COLLECTORS = re.compile(
    r"(?:\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d):? ?"
    r"|\((?:[A-Z]\w+ (?:TP\d+ |rank=\d+ )?)?pid=\d+(?:, ip=[\d.]+)?\) ?"
    r"|(?:ERROR|CRITICAL) \d\d-\d\d [\d:]+ \[[\w./]+:\d+\] ?|E\d{4} [\d:.]+ +\d+ \S+:\d+\] ?"
    r"|\d{4}-\d\d-\d\d [\d:.,]{8,15} (?=\[rank\d)"
    r"|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d [\d:]{8} \d{4}(?=\[\d+,\d+\]<std)"  # mpirun --timestamp-output
    r")+"
)
# What pdsh puts before it: the name of a node. Lines of other programs begin so too.
HOST: Final = re.compile(r"(?!python)([a-z][\w.-]*\d|\d+(?:\.\d+){3}): (?=\S)")
# What syslog and journalctl put before a line of the kernel: the time, and the name of the node.
KERNEL: Final = re.compile(r"(?:[A-Z][a-z]{2} [ \d]\d [\d:.]+ )?([\w.-]+) kernel: ")
# What NCCL puts before it: the time if it is asked to, the name of the node, the process, the thread and the device.
NCCL: Final = re.compile(r"(?:\[[\d :.-]+\] )?([\w.-]+):\d+:\d+ \[-?\d+\] ")
# What UCX puts before it: the time, the name of the node, the process, and one or two numbers of the thread.
UCX: Final = re.compile(r"(?:\[\d+\.\d+\] )?\[(?=[\d.-]*[A-Za-z])([\w.-]+):\d+ *:\d+(?::\d+)?\] ")
WRITERS: Final = (KERNEL, NCCL, UCX)  # each begins with the node that wrote the line
_NAMED_RANK = re.compile(r"[Rr](?:ank|ANK)(?<!\w\w{4})[ =:](\d{1,6})\b")


class Line(NamedTuple):
    """One line: its text without prefixes, and the rank that wrote it; None where the line does not say."""

    text: str
    rank: int | None
    local: bool = False  # whether it is the rank on its node


def shown(raw: bytes) -> str:
    """Return a line as text: no escape sequences, what a carriage return has overwritten left out, not too long."""
    if len(raw) > 2 * LONGEST:
        raw = raw[:LONGEST] + b" ... " + raw[-LONGEST:]
    text = raw.decode("utf-8", "replace").rstrip("\r\n").rpartition("\r")[2]
    return text if text.isprintable() else _ESCAPES.sub("", text)


def unlabelled(text: str) -> Line:
    """Return the text without the prefix that a launcher gave it, and the rank in the prefix."""
    if found := _PREFIXES.match(text):
        rank = int(next(filter(None, found.groups())))
        return Line(_TAGS.sub("", text[found.end() :]), rank, local=found["local"] is not None)
    return Line(text, None)


def read(raw: bytes) -> Line:
    """Return the line without prefixes of collectors and launchers, and the rank that wrote it, if the line says so."""
    text = shown(raw)
    if found := _COLLECTORS.match(text):
        text = text[found.end() :]
    line = unlabelled(text)
    if (
        line.rank is None
        and ("ank" in line.text or "ANK" in line.text)
        and (found := _NAMED_RANK.search(line.text[:200]))
    ):
        return Line(line.text, int(found[1]))
    return line
