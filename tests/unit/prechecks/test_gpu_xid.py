"""Xids in the kernel log: which ones are the node's fault. Each is judged once."""

import os
from pathlib import Path
from typing import Any

import pytest

import prechecks
from prechecks import Context, boot_state
from prechecks.checks import gpu_xid
from prechecks.checks.gpu_xid import Xid
from tests.unit.prechecks.vendor import captured, fake
from tests.waiting import HANG_S

LOG = captured("kernel-xid").splitlines()
FAIL = gpu_xid.GpuXid.settings["fail"].default


def test_the_kernels_records() -> None:
    """Only the driver's lines with Xids, each with its record."""
    last, found = gpu_xid.parse(LOG, -1)
    assert last == 3002
    assert found == [
        Xid(1003, "0000:00:05", "43"),
        Xid(1004, "0000:00:07", "31"),
        Xid(1005, "0000:00:08", "94"),
        Xid(2001, "0000:52:00", "48"),
        Xid(2002, "0000:52:00", "63"),
        Xid(2003, "0000:52:00", "94"),
        Xid(3001, "0000:5f:00", "79"),
    ]


def test_faults_of_programs_on_a_real_gpu() -> None:
    """What a driver writes at programs that fail is no fault of the node."""
    _, found = gpu_xid.parse(captured("kernel-xid-h100").splitlines(), -1)
    assert len(found) == 8
    assert gpu_xid.judge(found, FAIL)[:2] == ("ok", "only Xid 13, 31, 43 since the last check")


def test_only_what_is_behind_the_last_look() -> None:
    """The new position is the last record of the log, whoever wrote it."""
    assert gpu_xid.parse(LOG, 2003) == (3002, [Xid(3001, "0000:5f:00", "79")])
    assert gpu_xid.parse(LOG, 3002) == (3002, [])
    assert gpu_xid.parse([], 5) == (5, [])


@pytest.mark.parametrize(
    "line",
    [
        "14,9,1,-;NVRM: Xid (PCI:0000:5f:00): 79, written by a program to /dev/kmsg",
        "6,9,1,-;python[7]: NVRM: Xid (PCI:0000:5f:00): 79, in somebody's words",
        # Of a process named `NVRM: Xid (PCI:`, in the form of show_signal_msg (arch/x86/mm/fault.c).
        "6,9,1,-;NVRM: Xid (PCI:[4242]: segfault at 0 ip 0000000000401136 sp 00007ffd8c3a3f60 error 6 in x): 79,"
        "[401000+1000] likely on CPU 3 (core 3, socket 0)",
        "6,9,1,-;NVRM: Xid (PCI:0000:5f:00)",
        "NVRM: Xid (PCI:0000:5f:00): 79, no record",
        ";",
    ],
)
def test_what_is_no_xid(line: str) -> None:
    """A line that a program has influenced must not drain a node."""
    assert gpu_xid.parse([line], -1)[1] == []


@pytest.mark.parametrize(
    ("numbers", "verdict", "message"),
    [
        ([], "ok", "no Xid since the last check"),
        (["13", "31", "32", "43", "45"], "ok", "only Xid 13, 31, 32, 43, 45 since the last check"),
        (["94", "63", "94"], "ok", "only Xid 63, 94 since the last check"),
        (["79"], "failed", "Xid 79 on 0000:52:00: it fell off the bus, reboot the node"),
        (["31", "48"], "failed", "Xid 48 on 0000:52:00: reset the GPU"),
        (["74"], "failed", "Xid 74 on 0000:52:00: an NVLink failed, look at gpu-nvlink"),
        *(([number], "failed", f"Xid {number} on 0000:52:00: reset the GPU") for number in ("64", "95", "119", "140")),
    ],
)
def test_judge(numbers: list[str], verdict: str, message: str) -> None:
    """Faults of a program and mere warnings pass. Others have a remedy."""
    found = gpu_xid.judge([Xid(n, "0000:52:00", number) for n, number in enumerate(numbers)], FAIL)
    assert found[:2] == (verdict, message)


def test_the_site_says_which_fail() -> None:
    """Any number, even one that this code does not know."""
    found = gpu_xid.judge([Xid(1, "0000:52:00", "94"), Xid(2, "0000:52:00", "94"), Xid(3, "0000:52:00", "79")], ["94"])
    assert found[:3] == (
        "failed",
        "Xid 94 on 0000:52:00: see NVIDIA's list of Xids",
        "Xid 94 on 0000:52:00 (2 times), Xid 79 on 0000:52:00",
    )


def look(tmp_path: Path, hook: str = "prolog") -> prechecks.Verdict:
    """Check once, with a file in place of the log."""
    settings: dict[str, Any] = {
        "deadline_s": HANG_S,
        "state": f"{tmp_path}/run/state",
        "gpu-check": {"tool": fake(tmp_path, "smi", "")},
        "gpu-xid": {"fail": FAIL},
    }
    (found,) = prechecks.run(Context(hook, "n1", gpus=(0,)), settings, checks=[gpu_xid.GpuXid()])
    return found


def test_each_is_judged_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An Xid drains the node once. A check by hand does not hide it from the hooks."""
    log = list(LOG)
    monkeypatch.setattr(gpu_xid, "records", lambda: log)
    assert [look(tmp_path, hook).verdict for hook in ("hand", "hand", "prolog", "epilog", "hand")] == [
        *["failed"] * 3,
        *["ok"] * 2,
    ]
    log.append("4,4000,1,-;NVRM: Xid (PCI:0000:5f:00): 79, GPU has fallen off the bus.")
    assert look(tmp_path, "epilog").message == "Xid 79 on 0000:5f:00: it fell off the bus, reboot the node"
    assert look(tmp_path).message == "no Xid since the last check"
    assert look(tmp_path, "recheck").verdict == "skipped"  # as a user, who may not read the log


def test_after_a_boot_all_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers of records begin again at 0."""
    monkeypatch.setattr(gpu_xid, "records", lambda: LOG)
    assert look(tmp_path).verdict == "failed"
    (tmp_path / "boot_id").write_text("another\n")
    monkeypatch.setattr(boot_state, "BOOT_ID", f"{tmp_path}/boot_id")
    assert look(tmp_path).verdict == "failed"
    assert look(tmp_path).verdict == "ok"


def test_a_log_is_read_to_its_end(tmp_path: Path) -> None:
    """It does not wait for more."""
    os.mkfifo(tmp_path / "kmsg")
    reader = os.open(tmp_path / "kmsg", os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(tmp_path / "kmsg", os.O_WRONLY)
    os.write(writer, b"4,1,1,-;x")
    assert gpu_xid.records(str(tmp_path / "kmsg")) == ["4,1,1,-;x"]
    os.close(reader)
    os.close(writer)


def test_a_log_in_a_file(tmp_path: Path) -> None:
    """As in some containers: each line is a record, wherever a read ends."""
    lines = [f"4,{number},1,-;{'x' * 100}" for number in range(1000)]
    (tmp_path / "kmsg").write_text("\n".join([*lines, ""]))
    assert gpu_xid.records(str(tmp_path / "kmsg")) == lines
    (tmp_path / "kmsg").write_text("")
    assert gpu_xid.parse(gpu_xid.records(str(tmp_path / "kmsg")), -1) == (-1, [])


def test_memory(tmp_path: Path) -> None:
    """Empty at first, then complete; the last record counts."""
    state = f"{tmp_path}/run/state"
    assert boot_state.load(state, "a") == {}
    boot_state.save(state, "a", {"record": 1})
    boot_state.save(state, "a", {"record": 2})
    boot_state.save(state, "b", {"x": "y"})
    stored = [boot_state.load(state, item) for item in "abc"]
    assert stored == [{"record": 2}, {"x": "y"}, {}]
    assert sorted(os.listdir(state)) == ["a.json", "b.json"]  # noqa: PTH208


def test_memory_leaves_the_run_directory_open(tmp_path: Path) -> None:
    """Whatever root's umask is: users' tasks must reach their files below it."""
    before = os.umask(0o077)
    try:
        boot_state.save(f"{tmp_path}/run/state", "a", {})
    finally:
        os.umask(before)
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("text", ["", "{", "[]", '{"boot": "x"}', '{"boot": "other", "values": {"record": 9}}'])
def test_memory_that_is_not_whole_is_none(tmp_path: Path, text: str) -> None:
    """Reporting twice is better than failing."""
    boot_state.save(f"{tmp_path}/state", "a", {})
    (tmp_path / "state/a.json").write_text(text)
    assert boot_state.load(f"{tmp_path}/state", "a") == {}


def test_memory_follows_no_link(tmp_path: Path) -> None:
    """Root writes there: a link is replaced, not followed, and a link in place of the directory is refused."""
    (tmp_path / "precious").write_text("whole")
    state = tmp_path / "state"
    state.mkdir()
    (state / "a.json").symlink_to(tmp_path / "precious")
    assert boot_state.load(str(state), "a") == {}
    boot_state.save(str(state), "a", {"record": 1})
    assert (tmp_path / "precious").read_text() == "whole"
    assert boot_state.load(str(state), "a") == {"record": 1}
    (tmp_path / "link").symlink_to(state)
    with pytest.raises(OSError):
        boot_state.save(str(tmp_path / "link"), "a", {})
