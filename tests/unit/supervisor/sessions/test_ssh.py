"""The ssh server on the stdin and stdout of a step."""

import os
import pwd
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_plugin.errors import UsageError
from slurm_plugin.records import open_program
from slurm_plugin.supervisor.sessions import ssh
from tests.unit.supervisor.sessions.test_server import ENVIRON, prepared

SESSION = ("/opt/x", "job", "enter", "--directory=/a b", "--worker=0", "--session")


def test_its_configuration() -> None:
    """It accepts any key, runs sessions by `job enter`, forwards no port of the node, and logs no other user in."""
    echo = next(path for path in ssh.ECHOS if Path(path).exists())
    found = ssh.configuration("/run/u", "alice", SESSION, {"CUDA_VISIBLE_DEVICES": "0,1", "TERM": "a b"}, "/lib/sftp")
    assert found == (
        "HostKey /run/u/ssh_host_key\n"
        "AuthorizedKeysFile none\n"
        f"AuthorizedKeysCommand {echo} %t %k\n"
        "AuthorizedKeysCommandUser alice\n"
        "AuthenticationMethods publickey\n"
        "PermitRootLogin yes\n"
        "StrictModes no\n"
        "PidFile none\n"
        "UseDNS no\n"
        "PrintMotd no\n"
        "X11Forwarding no\n"
        "AllowTcpForwarding local\n"
        "StreamLocalBindMask 0177\n"
        "ClientAliveInterval 30\n"
        "ClientAliveCountMax 4\n"
        "LogLevel ERROR\n"
        "Subsystem sftp /lib/sftp\n"
        "SetEnv CUDA_VISIBLE_DEVICES=0,1\n"
        "ForceCommand /opt/x job enter '--directory=/a b' --worker=0 --session\n"
    )
    assert "\nSubsystem" not in ssh.configuration("/run/u", "alice", SESSION, {})
    with pytest.raises(UsageError, match="found control characters"):
        ssh.configuration("/run/u", "alice", (*SESSION, "x\nPermitOpen any"), {})


def test_it_becomes_the_server(tmp_path: Path) -> None:
    """With one host key for the run, which only the user can read."""
    argv = prepared(tmp_path, "")
    (tmp_path / "bin/sshd").write_text('#!/bin/sh\necho "$SLURM_PLUGIN_SPARED $*"\ncat\n')
    (tmp_path / "bin/sshd").chmod(0o755)
    argv[argv.index("open")] = "carry"
    folder = tmp_path / "jobs/7.0.0/user"
    keys = []
    for _ in range(2):
        done = subprocess.run(argv, env=ENVIRON, capture_output=True, input=b"\0bytes", check=False, cwd="/")
        assert done.stdout == f"1 -i -f {folder}/sshd_config -E {folder}/sshd.log\n\0bytes".encode(), done.stderr
        keys.append((folder / ssh.KEY).read_bytes())
        assert stat.S_IMODE((folder / ssh.KEY).stat().st_mode) == 0o600
        text = (folder / ssh.CONFIG).read_text()
        assert f"AuthorizedKeysCommandUser {pwd.getpwuid(os.geteuid()).pw_name}\n" in text
        assert "SetEnv CUDA_VISIBLE_DEVICES=1\n" in text
    assert keys[0] == keys[1]
    probe = subprocess.run([*argv, "--probe"], env=ENVIRON, capture_output=True, text=True, check=False, cwd="/")
    assert (probe.returncode, probe.stdout) == (0, f"{open_program.HAS_SSH}\n")


def test_the_key_of_a_step_that_was_ended(tmp_path: Path) -> None:
    """ssh-keygen refuses to replace the half of a key that it left; no later call would get a server."""
    for half in (f"{ssh.KEY}.new", f"{ssh.KEY}.new.pub"):
        (tmp_path / half).write_text("half")
    ssh._make_key(f"{tmp_path}/{ssh.KEY}")
    assert (tmp_path / ssh.KEY).read_text().startswith("-----BEGIN OPENSSH PRIVATE KEY-----")


@pytest.mark.skipif(bool(shutil.which("sshd", path=ssh.PLACES)), reason="this machine has an sshd")
def test_a_node_without_one(tmp_path: Path) -> None:
    """Exit code 3. Nothing is on stdout, where ssh expects the server."""
    argv = [sys.executable, *prepared(tmp_path, "")[1:]]
    argv[argv.index("open")] = "carry"
    done = subprocess.run(argv, env=ENVIRON, capture_output=True, text=True, check=False, cwd="/")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("slurm-plugin: n2 has no sshd, which this needs as a program, not as a service\n")
