"""`mounts`: the kernel's table, its judgement, and a mount that never answers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import prechecks
from prechecks import Context, Finding
from prechecks.checks import mounts
from prechecks.checks.mounts import Mount
from tests.unit.prechecks.pace import given_time
from tests.waiting import HANG_S

ROOT = Path(__file__).parents[3]
# The first two as Linux 6.18 shows an ext4 image mounted with errors=remount-ro, before and after `echo err
# >/sys/fs/ext4/loop0/trigger_fs_error`; the third as kernels before 6.12 do; the others from other machines.
FINE = "235 148 7:0 / /tmp/cs/m rw,relatime - ext4 /dev/loop0 rw,errors=remount-ro"
EMERGENCY = "235 148 7:0 / /tmp/cs/m rw,relatime - ext4 /dev/loop0 rw,errors=remount-ro,emergency_ro"
OLD = "28 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 ro,errors=remount-ro"
BIND_READ_ONLY = "41 28 8:1 /usr /srv/usr ro,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro"
READ_ONLY = "43 28 8:2 / /opt ro,relatime shared:9 - xfs /dev/sda2 ro,attr2"
NFS = r"98 28 0:45 / /mnt/a\040b rw,relatime shared:50 master:2 - nfs4 fs1:/home rw,vers=4.2,hard,addr=10.0.0.1"


def test_parse() -> None:
    """With any number of optional fields, and with the table's escapes for blanks."""
    rw = frozenset({"rw", "relatime"})
    assert mounts.parse(FINE + "\n") == Mount("7:0", "/tmp/cs/m", rw, "ext4", frozenset({"rw", "errors=remount-ro"}))
    assert mounts.parse(NFS)[:4] == ("0:45", "/mnt/a b", rw, "nfs4")


def test_the_table_of_this_machine() -> None:
    """Every line can be read."""
    found = list(mounts.mounts())
    assert "/" in {mount.point for mount in found}
    assert all({"rw", "ro"} & mount.options and {"rw", "ro"} & mount.state for mount in found)


def test_a_carriage_return_in_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel does not escape it, and a user may mount there: the table stays readable."""
    table = tmp_path / "mountinfo"
    table.write_bytes(f"{FINE}\n300 28 0:50 / /tmp/a\rb rw,nosuid - fuse.sshfs host: rw\n{READ_ONLY}\n".encode())
    monkeypatch.setattr(mounts, "MOUNTINFO", str(table))
    assert [mount.point for mount in mounts.mounts()] == ["/tmp/cs/m", "/tmp/a\rb", "/opt"]


@pytest.mark.parametrize(
    ("lines", "finding"),
    [
        ([FINE, READ_ONLY], Finding("ok", "local file systems: 2", 2, 2)),
        ([BIND_READ_ONLY], Finding("ok", "local file systems: 1", 1, 1)),
        ([], Finding("ok", "local file systems: 0", 0, 0)),
        (
            [EMERGENCY, FINE.replace("7:0", "7:1")],
            Finding("failed", "/tmp/cs/m (ext4) is mounted rw and takes no writes: emergency_ro", 1, 2),
        ),
        ([OLD, OLD, BIND_READ_ONLY], Finding("failed", "/ (ext4) is mounted rw and takes no writes: ro", 0, 1)),
    ],
)
def test_judge_local(lines: list[str], finding: Finding) -> None:
    """Deliberately read-only ones pass. Each file system is reported once."""
    assert mounts.judge_local(map(mounts.parse, lines)) == finding


@pytest.mark.parametrize(
    ("why", "line", "message"),
    [
        ("", FINE, None),
        ("Stale file handle", NFS, "/a: Stale file handle"),
        ("", "", "/a: not mounted"),
        ("No such file or directory", "", "/a: No such file or directory"),
        ("", READ_ONLY, "/a: read-only"),
        ("", BIND_READ_ONLY, "/a: read-only"),
        ("", EMERGENCY, "/a: read-only"),
    ],
)
def test_judge(why: str, line: str, message: str | None) -> None:
    """Mounted, answering, and writable unless the site says otherwise."""
    found = [("/a", why, mounts.parse(line) if line else None), ("/b", "", mounts.parse(FINE))]
    assert mounts.judge(found, ["/b"]) == Finding(
        "failed" if message else "ok", message or "/a, /b", 2 - bool(message), 2
    )
    writable = mounts.judge(found, ["/a"])
    assert (writable.verdict == "ok") is (message is None or message.endswith("read-only"))


def test_ask(tmp_path: Path) -> None:
    """A directory that answers; the system's message for a missing one."""
    (tmp_path / "file").write_text("")
    assert mounts.ask(str(tmp_path)) == ""
    assert mounts.ask(str(tmp_path / "missing")) == "No such file or directory"
    assert mounts.ask(str(tmp_path / "file")) == "Not a directory"


def run(*paths: str, read_only: tuple[str, ...] = ()) -> tuple[prechecks.Verdict, ...]:
    settings = {"deadline_s": HANG_S, "mounts": {"paths": paths, "read_only": read_only, "local": True}}
    return prechecks.run(Context("prolog", "n1"), settings, checks=[mounts.MountPaths(), mounts.MountLocal()])


def test_mounts_of_this_machine(tmp_path: Path) -> None:
    """The root is one, also by another name. A directory in it is not."""
    (tmp_path / "root").symlink_to("/")
    required, local = run("/", str(tmp_path / "root"), str(tmp_path), read_only=("/", str(tmp_path / "root")))
    assert required[:4] == ("mounts.paths", "failed", "job_problem", f"{tmp_path}: not mounted")
    assert local[:2] == ("mounts.local", "ok")
    assert run()[0].verdict == "skipped"


# A FUSE mount whose daemon, this process, never reads what it is asked.
HANGS = """
import ctypes, json, os, sys
sys.path.insert(0, sys.argv[2])
import prechecks
from prechecks.checks import mounts
fuse = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0".encode()
if ctypes.CDLL(None, use_errno=True).mount(b"dead", sys.argv[1].encode(), b"fuse.dead", 0, options):
    sys.exit(f"cannot mount: errno {ctypes.get_errno()}")
own = {"paths": ["/", sys.argv[1], "/proc"], "read_only": ["/"], "local": True}
settings = {"deadline_s": float(sys.argv[3]), "mounts": own}
verdicts = prechecks.run(prechecks.Context("prolog", "n1"), settings, checks=[mounts.MountPaths(), mounts.MountLocal()])
print(json.dumps([(verdict.verdict, verdict.message) for verdict in verdicts]))
"""


@pytest.mark.skipif(os.geteuid() != 0 or not Path("/dev/fuse").exists(), reason="mounting takes root and FUSE")
def test_a_mount_that_never_answers(tmp_path: Path) -> None:
    """It is reported in time, and the kernel's table is still read."""

    def look(deadline_s: float) -> tuple[str, str]:
        command = ["unshare", "-m", sys.executable, "-I", "-S", "-c", HANGS, str(tmp_path), str(ROOT), str(deadline_s)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=2 * HANG_S)
        if "Operation not permitted" in done.stderr or "cannot mount" in done.stderr:
            pytest.skip(done.stderr)
        words = f"no answer within {deadline_s:g} s: {tmp_path}"
        return f'[["timeout", "{words}"], ["ok", "', done.stdout + done.stderr

    wanted, found = given_time(look, lambda each: each[0] in each[1])
    assert wanted in found
