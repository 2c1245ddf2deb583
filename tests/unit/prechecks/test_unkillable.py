"""A check that is really stuck in the kernel: no signal ends it, but the result is still there in time."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.prechecks.pace import given_time
from tests.waiting import HANG_S

ROOT = Path(__file__).parents[3]
# In new namespaces: no other process sees the mount, and all ends with the first process in them.
ALONE = ["unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]
PROGRAM = """
import json, os, sys

import prechecks
from tests.waiting import until

path, deadline = sys.argv[1], float(sys.argv[2])

def word(pid, name):
    lines = open(f"/proc/{pid}/status").read().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(f"{name}:"))

def children():
    found = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in found if pid not in (1, other_end) and word(pid, "PPid") == str(os.getpid())]

def by_item(item):
    return next(check for check in prechecks.CHECKS if check.item == item)

%s

state = f"{path}-run/state"
settings = {"deadline_s": deadline, "state": state, "mounts": {"paths": ["/", path], "read_only": ["/"], "local": True}}
verdicts = []
for _ in range(3):
    found = prechecks.run(prechecks.Context("prolog", "n1"), settings, checks=[hangs, by_item("mounts.local")])
    verdicts.append([[each.item, each.verdict, each.message] for each in found])
without = {**settings, "mounts": {**settings["mounts"], "paths": ["/"]}}
(elsewhere,) = prechecks.run(prechecks.Context("prolog", "n1"), without, checks=[by_item("mounts.paths")])
(stuck,) = children()
stands = until(lambda: (state := word(stuck, "State")) == "D" and state)  # on a busy machine the signal arrives late
pending = int(word(stuck, "ShdPnd"), 16)
alive = os.waitpid(stuck, os.WNOHANG)
let_go()
ended = os.waitpid(stuck, 0)[1]
again, _ = prechecks.run(prechecks.Context("prolog", "n1"), settings, checks=[hangs, by_item("mounts.local")])
print(json.dumps({"verdicts": verdicts, "stuck": stuck, "pending": pending, "alive": alive,
                  "state": stands, "ended": ended, "elsewhere": elsewhere.verdict,
                  "again": [again.verdict, again.message]}))
"""
# A file system whose other end answers nothing: `mounts` asks it.
FUSE = """
from slurm_plugin.sandbox import init

fuse = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
init.hung_mount(fuse, path)
other_end = os.fork()
if not other_end:
    init.swallow(fuse)
os.close(fuse)
hangs = by_item("mounts.paths")

def let_go():
    os.kill(other_end, 9)
"""
# A disk's file system, frozen as for a snapshot (ioctl_fsfreeze(2)): writers wait. It is always thawed at the end.
FROZEN = """
import fcntl, subprocess, time

FREEZE, THAW = 0xC0045877, 0xC0045878
disk = f"{path}.img"
with open(disk, "wb") as file:
    file.truncate(16 << 20)
subprocess.run(["/sbin/mkfs.ext4", "-q", disk], check=True)
subprocess.run(["mount", "-o", "loop", disk, path], check=True)
root = os.open(path, os.O_RDONLY)
other_end = os.fork()
if not other_end:
    time.sleep(250)
    fcntl.ioctl(root, THAW, 0)
    os._exit(0)
fcntl.ioctl(root, FREEZE, 0)

class Writes(prechecks.Check):
    item, problem = "writes", prechecks.NODE_PROBLEM

    def applies(self, context, settings):
        return True

    def look(self, context, settings):
        self.doing(path)
        open(f"{path}/written", "w").close()
        return prechecks.Finding(prechecks.OK, "written")

hangs = Writes()

def let_go():
    fcntl.ioctl(root, THAW, 0)
    os.kill(other_end, 9)
"""
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts file systems as root")


def stuck(tmp_path: Path, how: str) -> dict[str, Any]:
    """Run the hanging check three times, and once after the hang has ended. Return the results."""

    def look(deadline_s: float) -> tuple[float, Path, dict[str, Any]]:
        hangs = tmp_path / f"hangs{deadline_s:g}"
        hangs.mkdir()
        argv = [*ALONE, sys.executable, "-c", PROGRAM % how, str(hangs), str(deadline_s)]
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=HANG_S, check=False)
        assert done.returncode == 0, done.stderr
        return deadline_s, hangs, json.loads(done.stdout)

    def came_so_far(found: tuple[float, Path, dict[str, Any]]) -> bool:
        """Return whether the hanging check has started, and all others have ended."""
        rounds = found[2]["verdicts"]
        return rounds[0][0][2].endswith(f": {found[1]}") and all(local[1] == "ok" for _, local in rounds)

    deadline_s, hangs, found = given_time(look, came_so_far)
    (first, *later), locals_ = zip(*found["verdicts"], strict=True)
    assert [local[:2] for local in locals_] == [["mounts.local", "ok"]] * 3
    assert first[1:] == ["timeout", f"no answer within {deadline_s:g} s: {hangs}"]
    for _, verdict, message in later:
        assert verdict == "timeout"
        assert re.fullmatch(rf"\S+ \(process {found['stuck']}\) of an earlier run is still stuck: {hangs}", message)
    assert (found["state"], found["alive"], found["ended"]) == ("D", [0, 0], signal.SIGKILL)
    assert found["pending"] & 1 << signal.SIGKILL - 1
    assert "a look before" not in found["again"][1]
    assert found["elsewhere"] == "ok"  # a site may remove the path without waiting
    return found


@as_root
@pytest.mark.skipif(not Path("/dev/fuse").exists(), reason="no FUSE here")
def test_a_check_that_no_signal_ends(tmp_path: Path) -> None:
    """It is killed but stays, and is left behind and reported. No second one is started, and the others' verdicts hold.
    It dies when the mount releases it, and the next check is a new process.
    """
    verdict, message = stuck(tmp_path, FUSE)["again"]
    assert (verdict, message.count("not connected")) == ("failed", 1)


@as_root
@pytest.mark.skipif(not Path("/dev/loop-control").exists(), reason="no loop devices here")
def test_a_check_on_a_frozen_file_system(tmp_path: Path) -> None:
    """The same for a check that writes to a frozen disk."""
    assert stuck(tmp_path, FROZEN)["again"] == ["ok", "written"]
