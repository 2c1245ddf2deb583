"""Accounts, name service and slurm_plugin itself in the machines."""

from pathlib import Path

import pytest

from slurm_plugin.sandbox import image

ACCOUNTS = "root:x:0:0:root:/root:/bin/bash\nslurm:x:64030:64030::/nonexistent:/usr/sbin/nologin\n"


def test_accounts_are_added_and_those_of_the_base_kept() -> None:
    """Users are added, and service accounts that the base lacks."""
    assert image.add_accounts(ACCOUNTS, "passwd") == ACCOUNTS + (
        "alice:x:20001:20001::/home/alice:/bin/bash\n"
        "bob:x:20002:20002::/home/bob:/bin/bash\n"
        "carol:x:20003:20003::/home/carol:/bin/bash\n"
        "munge:x:20011:20011::/nonexistent:/usr/sbin/nologin\n"
    )
    assert image.add_accounts("root:x:0:\nmunge:x:105:\nslurm:x:64030:\n", "group") == (
        "root:x:0:\nmunge:x:105:\nslurm:x:64030:\nalice:x:20001:\nbob:x:20002:\ncarol:x:20003:\n"
        "team:x:20100:alice,bob\n"
    )


def test_an_account_is_looked_up_in_the_text() -> None:
    """Accounts are read from the given text."""
    assert image.account(ACCOUNTS, "slurm") == (64030, 64030)
    with pytest.raises(KeyError):
        image.account(ACCOUNTS, "alice")


def test_name_service_asks_files_alone_for_accounts() -> None:
    """Accounts and hosts come from files; other databases stay."""
    assert image.name_service("passwd:  files sss\nhosts: files mymachines\nrpc: db files\n") == (
        "passwd: files\ngroup: files\nshadow: files\ngshadow: files\nhosts: files dns\nrpc: db files\n"
    )


def test_secrets_of_the_base_are_not_copied(tmp_path: Path) -> None:
    """The machines' /etc has the base's files, its links as links, and neither shadow nor keys."""
    etc = tmp_path / "base/etc"
    for name in ("passwd", "group", "shadow", "ssh/ssh_host_key", "munge/munge.key", "hosts", "ssl/cert.pem"):
        (etc / name).parent.mkdir(parents=True, exist_ok=True)
        (etc / name).write_text("root:x:0:0\n")
    (etc / "localtime").symlink_to("/usr/share/zoneinfo/Etc/UTC")
    out = tmp_path / "out"
    image.write_etc(tmp_path / "base", out, "127.0.0.1 localhost\n")
    assert sorted(str(path.relative_to(out)) for path in out.rglob("*") if not path.is_dir() or path.is_symlink()) == [
        "group", "hosts", "localtime", "machine-id", "nsswitch.conf", "passwd", "resolv.conf", "ssl/cert.pem",
    ]  # fmt: skip
    assert (out / "hosts").read_text() == "127.0.0.1 localhost\n"


def test_our_program_is_bound_where_every_user_reaches_it() -> None:
    """Package and interpreter, read-only, nothing of a checkout but its packages."""
    binds = {bind.target: bind for bind in image.program_binds()}
    assert "/sandbox/venv" in binds
    assert {"/sandbox/src/slurm_plugin", "/sandbox/src/prechecks", "/sandbox/src/hostfiles"} <= binds.keys()
    assert not any(bind.writable for bind in binds.values())
    assert all(target.startswith(("/sandbox/venv", "/sandbox/src/")) or Path(target).is_dir() for target in binds)


def test_the_wrapper_runs_an_interpreter_that_fits_the_root(tmp_path: Path) -> None:
    """Ours on this machine's own root; the root's own on another release's, that of pyslurm where it has one."""
    assert image.python_wrapper(Path("/")) == '#!/bin/sh\nexec /sandbox/venv/bin/python3 "$@"\n'
    assert image.program_wrapper(Path("/")).startswith("#!/sandbox/venv/bin/python3\nimport os\n")
    assert image.program_wrapper(tmp_path).startswith("#!/usr/bin/python3\n")
    assert image.python(tmp_path) == "/usr/bin/python3"
    (tmp_path / "opt/pyslurm/bin").mkdir(parents=True)
    (tmp_path / "opt/pyslurm/bin/python3").symlink_to("/usr/bin/python3.of-the-root")
    assert image.program_wrapper(tmp_path).startswith("#!/opt/pyslurm/bin/python3\n")
    assert image.python(tmp_path) == "/opt/pyslurm/bin/python3"
    assert image.python(Path("/")) == "/usr/bin/python3"


def test_what_is_missing_is_named_with_the_command_that_gets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty root lacks every program; without root that comes first."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(image.MissingError, match=r"(?s)slurmctld, slurmd, munged.*apt-get install slurm-wlm munge"):
        image.require(tmp_path)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(image.MissingError, match="sudo"):
        image.require(tmp_path)


def test_hooks_get_an_interpreter_that_they_can_use(tmp_path: Path) -> None:
    """A newer interpreter is used if the release's own is too old."""
    programs = tmp_path / "usr/bin"
    programs.mkdir(parents=True)
    for name in ("python3.9", "python3.11"):
        (programs / name).touch()
    (tmp_path / "etc/alternatives").mkdir(parents=True)
    (programs / "python3").symlink_to("/etc/alternatives/python3")
    for version, chosen in (("9", "/usr/bin/python3.11"), ("11", "/usr/bin/python3")):
        (tmp_path / "etc/alternatives/python3").unlink(missing_ok=True)
        (tmp_path / "etc/alternatives/python3").symlink_to(f"../../usr/bin/python3.{version}")
        assert image.python(tmp_path) == chosen
    (programs / "python3.11").unlink()
    assert image.python(tmp_path) == "/usr/bin/python3"
