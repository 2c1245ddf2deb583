"""A check that is stuck in the kernel, for real: no signal ends it, and the answer is there in time all the same."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
DEADLINE_S = 0.5
# In namespaces of its own: the mount is seen by nobody else, and all of it ends with the first process in there.
ALONE = ["unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]
PROGRAM = """
import json, os, sys, time

import prechecks

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
took, verdicts = [], []
for _ in range(3):
    begin = time.monotonic()
    found = prechecks.run(prechecks.Context("prolog", "n1"), settings, checks=[hangs, by_item("mounts.local")])
    took.append(time.monotonic() - begin)
    verdicts.append([[each.item, each.verdict, each.message] for each in found])
without = {**settings, "mounts": {**settings["mounts"], "paths": ["/"]}}
(elsewhere,) = prechecks.run(prechecks.Context("prolog", "n1"), without, checks=[by_item("mounts.paths")])
(stuck,) = children()
until = time.monotonic() + 30  # a busy machine takes its time to have them see the signal
while (stands := word(stuck, "State")) != "D" and time.monotonic() < until:
    time.sleep(0.01)
pending = int(word(stuck, "ShdPnd"), 16)
alive = os.waitpid(stuck, os.WNOHANG)
let_go()
ended = os.waitpid(stuck, 0)[1]
again, _ = prechecks.run(prechecks.Context("prolog", "n1"), settings, checks=[hangs, by_item("mounts.local")])
print(json.dumps({"took": took, "verdicts": verdicts, "stuck": stuck, "pending": pending, "alive": alive,
                  "state": stands, "ended": ended, "elsewhere": elsewhere.verdict,
                  "again": [again.verdict, again.message]}))
"""
# A file system whose other end answers nothing: `mounts` asks it.
FUSE = """
from slurm_plugin.sandbox import hungmount

fuse = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
hungmount.mount(fuse, path)
other_end = os.fork()
if not other_end:
    hungmount.swallow(fuse)
os.close(fuse)
hangs = by_item("mounts.paths")

def let_go():
    os.kill(other_end, 9)
"""
# A file system of a disk, frozen as for a snapshot (ioctl_fsfreeze(2)): who writes there waits. Thawed come what may.
FROZEN = """
import fcntl, subprocess

FREEZE, THAW = 0xC0045877, 0xC0045878
disk = f"{path}.img"
with open(disk, "wb") as file:
    file.truncate(16 << 20)
subprocess.run(["/sbin/mkfs.ext4", "-q", disk], check=True)
subprocess.run(["mount", "-o", "loop", disk, path], check=True)
root = os.open(path, os.O_RDONLY)
other_end = os.fork()
if not other_end:
    time.sleep(40)
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
    """What happened where a check hangs in this way: three rounds of it, then it is let go, and looked at once more."""
    hangs = tmp_path / "hangs"
    hangs.mkdir()
    argv = [*ALONE, sys.executable, "-c", PROGRAM % how, str(hangs), str(DEADLINE_S)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert DEADLINE_S <= found["took"][0] < DEADLINE_S + 10
    assert min(found["took"][1:]) < DEADLINE_S  # nothing is sent after it, so nothing is waited for
    (first, *later), locals_ = zip(*found["verdicts"], strict=True)
    assert [local[:2] for local in locals_] == [["mounts.local", "ok"]] * 3
    assert first[1:] == ["timeout", f"no answer within {DEADLINE_S:g} s: {hangs}"]
    for _, verdict, message in later:
        assert verdict == "timeout"
        assert re.fullmatch(rf"\S+ \(process {found['stuck']}\) of a look before hangs there still: {hangs}", message)
    assert (found["state"], found["alive"], found["ended"]) == ("D", [0, 0], signal.SIGKILL)
    assert found["pending"] & 1 << signal.SIGKILL - 1
    assert "a look before" not in found["again"][1]
    assert found["elsewhere"] == "ok"  # a site that takes its path out need not wait for it
    return found


@as_root
@pytest.mark.skipif(not Path("/dev/fuse").exists(), reason="no FUSE here")
def test_a_check_that_no_signal_ends(tmp_path: Path) -> None:
    """It is killed, stays, is left behind and named; no other one is sent after it; the others' verdicts stand; it
    dies when the mount lets it go, and the next look is a new one."""
    verdict, message = stuck(tmp_path, FUSE)["again"]
    assert (verdict, message.count("not connected")) == ("failed", 1)


@as_root
@pytest.mark.skipif(not Path("/dev/loop-control").exists(), reason="no loop devices here")
def test_a_check_on_a_frozen_file_system(tmp_path: Path) -> None:
    """The same of one that writes to a disk that takes nothing."""
    assert stuck(tmp_path, FROZEN)["again"] == ["ok", "written"]
