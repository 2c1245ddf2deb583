"""What each check reads from the machine it runs on."""

import _socket
import os
import resource
from pathlib import Path

import pytest

import prechecks
from prechecks import Context
from prechecks.checks import disk, dns, gpu, ulimit
from tests.waiting import HANG_S


def test_available_space(tmp_path: Path) -> None:
    """As for a user without privileges. None for a missing directory."""
    found = disk.available(str(tmp_path))
    assert found is not None
    assert 0 < found <= os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize
    assert disk.available(str(tmp_path / "missing")) is None


def test_paths_that_the_site_names(tmp_path: Path) -> None:
    """All of them, through the runner. Skipped without paths."""
    check, missing = disk.DiskSizePaths(), str(tmp_path / "missing")
    settings = {"deadline_s": HANG_S, "disk-size": {"paths": [[str(tmp_path), 0], [missing, 1 << 30]]}}
    (found,) = prechecks.run(Context("prolog", "n1"), settings, checks=[check])
    assert found[:4] == ("disk-size.paths", "failed", "job_problem", f"{missing}: no such directory")
    (found,) = prechecks.run(
        Context("prolog", "n1"), {"deadline_s": HANG_S, "disk-size": {"paths": []}}, checks=[check]
    )
    assert (found.verdict, found.message) == ("skipped", "no further paths on this site")


def test_devices(tmp_path: Path) -> None:
    """A character device counts. A plain file, or none, does not."""
    (tmp_path / "gpu0").symlink_to("/dev/null")
    (tmp_path / "gpu1").write_text("")
    found = gpu.devices(f"{tmp_path}/gpu{number}" for number in range(3))
    assert found == {f"{tmp_path}/gpu0": True, f"{tmp_path}/gpu1": False, f"{tmp_path}/gpu2": False}


def test_soft_limits() -> None:
    """The soft limits, memory in kB, None for unlimited."""
    soft = resource.getrlimit(resource.RLIMIT_STACK)[0]
    found = ulimit.soft_limits()
    assert found["stack_size_kb"] == (None if soft == resource.RLIM_INFINITY else soft // 1024)
    assert found["open_files"] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert list(found) == ["max_locked_memory_kb", "open_files", "stack_size_kb", "max_user_processes"]


@pytest.mark.parametrize(
    ("name", "known"),
    [("localhost", True), ("127.0.0.1", True), ("no-such-host.invalid", False), ("x" * 300, False), ("a\0b", False)],
)
def test_resolves(name: str, known: bool) -> None:
    """The resolver's result. An impossible name does not resolve either."""
    assert dns.resolves(name) is known


def test_hosts_files(tmp_path: Path) -> None:
    """Those that match, by name. A missing directory has none."""
    for name in ("b.host", "a.host", "a.conf"):
        (tmp_path / name).write_text("")
    assert dns.hosts_files([f"{tmp_path}/*.host", f"{tmp_path}/missing/*"]) == [
        f"{tmp_path}/a.host",
        f"{tmp_path}/b.host",
    ]


def hosts(monkeypatch: pytest.MonkeyPatch, **addresses: list[str]) -> None:
    """Resolve these names, and no others."""

    def resolved(name: bytes, *_: object, **__: object) -> list[object]:
        if name.decode() not in addresses:
            raise _socket.gaierror(-2, "Name or service not known")
        return [(2, 1, 6, "", (address, 0)) for address in addresses[name.decode()]]

    monkeypatch.setattr(_socket, "getaddrinfo", resolved)


def test_dns_names_that_are_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian's first line of /etc/hosts passes: most programs do not care. The message names node and address."""
    hosts(monkeypatch, n1=["127.0.1.1", "10.0.0.1"], n2=["10.0.0.2", "127.0.1.1"], n3=["::1"], site=["127.0.0.1"])
    settings = {"dns": {"hosts_files": [], "names": ["site"]}}
    found = dns.Dns().look(Context("prolog", "n1", ("n2", "n1")), settings)
    said = "3 names; n1 is 127.0.1.1 here, which no other node can reach; see /etc/hosts"
    assert found[:4] == ("ok", said, 3, 3)
    found = dns.Dns().look(Context("prolog", "n2", ("n1", "n2", "n3")), {"dns": {"hosts_files": []}})
    said = "n1 is 127.0.1.1 here, which no other node can reach, n3 is ::1 here, which no other node can reach"
    assert found[:4] == ("ok", f"3 names; {said}; see /etc/hosts", 3, 3)
    found = dns.Dns().look(Context("prolog", "n2", ("n1", "n2", "n9")), {"dns": {"hosts_files": []}})
    assert found[:4] == ("failed", "n9 does not resolve", 2, 3)


def test_dns_looks_at_every_name_once(tmp_path: Path) -> None:
    """This node, the job's hosts, the site's names and hosts files. A name in several of them counts once."""
    (tmp_path / "job.host").write_text("localhost\nno-such-host.invalid\n")
    settings = {"dns": {"hosts_files": [f"{tmp_path}/*.host"], "names": ["localhost", "127.0.0.2"]}}
    finding = dns.Dns().look(Context("prolog", "localhost", ("localhost", "127.0.0.1")), settings)
    assert finding[:4] == ("failed", "no-such-host.invalid does not resolve", 3, 4)
