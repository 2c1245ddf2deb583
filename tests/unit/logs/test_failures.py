"""Failures made for real: PyTorch on four ranks of two launchers, and the diagnosis of what they leave behind."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks import diagnosis
from slurm_plugin.logs import library
from slurm_plugin.logs.diagnosis import of_files
from tests.failures import cases
from tests.failures.cases import Case
from tests.waiting import until

if find_spec("torch") is None:  # each worker collects this file, and need not import it
    pytest.skip("PyTorch is not installed", allow_module_level=True)
ROOT = Path(__file__).parents[3]
# File systems that are full and read-only, and a network without names and without other programs' ports.
ALONE = """\
set -e
ip link set lo up
mkdir -p "$1/small" "$1/readonly"
mount -t tmpfs -o size=64k tmpfs "$1/small"
mount -t tmpfs -o ro tmpfs "$1/readonly"
mount -t tmpfs tmpfs /mnt
SMALL=$1/small READONLY=$1/readonly exec "$2" -m tests.failures.ranks "$1/runs"
"""


@contextmanager
def little_memory(name: str) -> Iterator[str]:
    """Make a control group with 64 MB, and yield the file that takes its processes; empty if none can be made."""
    for tree, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = Path(tree, name)
        try:
            group.mkdir()
            (group / limit).write_text(str(64 << 20))
        except OSError:
            with suppress(OSError):
                group.rmdir()
            continue
        try:
            yield str(group / "cgroup.procs")
        finally:
            until(lambda group=group: not (group / "cgroup.procs").read_text(), "the end of its processes")  # type: ignore[misc]
            group.rmdir()
        return
    yield ""


def run(group: Sequence[Case], place: Path, processes: str) -> Path:
    """Run the programs of a group, and return the directory that has a directory of each."""
    subprocess.run(
        ["unshare", "--mount", "--net", "--propagation=private", "sh", "-c", ALONE, "sh", str(place), sys.executable],
        input=json.dumps({each.name: [each.program, each.seconds] for each in group}), text=True, check=True, cwd=ROOT,
        timeout=850, env={**os.environ, "LITTLE_MEMORY": processes},
    )  # fmt: skip
    return place / "runs"


@pytest.mark.full  # over 5 s
@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")
@pytest.mark.parametrize("group", ["PYTHON", "SYSTEM", "HEALTHY"])
def test_failures(
    group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each gets its class, whose it is, the rank and node that began it, the verdict on the node and the evidence."""
    group_name = f"slurm_plugin-{os.getpid()}-{time.time_ns()}"  # each try has its own lines of the kernel
    with little_memory(group_name) as processes:
        programs = tuple(each for each in getattr(cases, group) if processes or cases.JOIN not in each.fault)
        runs, signatures = run(programs, tmp_path, processes), library.load()
    wrong = []
    for each in programs:
        found = of_files(sorted((runs / each.name).glob("node*/*")), signatures).cause
        if (found.failure, found.whose, found.ranks, found.nodes, found.verdict) != each.found:
            wrong.append(f"{each.name}: {found}")
        elif each.text not in (found.event.text if found.event else ""):
            wrong.append(f"{each.name}: {found.event}")
    assert wrong == []
    assert rates(runs, programs, monkeypatch, capsys) == {"right, 100%"}
    if (killed := runs / "oom-killed").exists() and (said := kernel_lines(group_name)):
        (killed / "node1/kernel.log").write_text(said)  # what `dmesg` says on that node confirms it
        found = of_files(sorted(killed.glob("node*/*")), signatures).cause
        assert (found.failure, found.confidence, found.ranks, found.nodes) == ("host_oom", "sure", (2,), ("node1",))


def rates(
    runs: Path, group: Sequence[Case], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> set[str]:
    """Write the labels of a group beside its logs, and return the rates that benchmarks/diagnosis.py prints."""
    labels = [("dir", "class", "blame", "culprit_rank", "culprit_node", "evidence", "evidence_file", "note")]
    for each in group:
        failure, whose, ranks, nodes, _ = each.found
        labels.append((each.name, failure, whose, ",".join(map(str, ranks)), ",".join(nodes), each.text, "", ""))
    (runs / "LABELS_MULTI.tsv").write_text("".join("\t".join(row) + "\n" for row in labels))
    monkeypatch.setattr(sys, "argv", ["diagnosis.py", "--smallest", "--multi", str(runs / "LABELS_MULTI.tsv")])
    diagnosis.main()
    said = capsys.readouterr().out
    assert "false alarms on healthy logs: 0; wrong excludes: 0" in said
    return set(re.findall(r"right, \d+%", said))


def kernel_lines(group: str) -> str:
    """What the kernel says of the process that it killed in a control group; empty if it cannot be read."""
    lines = subprocess.run(["dmesg"], capture_output=True, text=True, check=False).stdout.splitlines()
    found = [(line, pid[1]) for line in lines if f"/{group}," in line and (pid := re.search(r"pid=(\d+)", line))]
    return "".join(
        f"{line}\n" for line in lines if any(line == said or f"process {pid} " in line for said, pid in found)
    )
