"""The description of a machine, and the environment and limits of its programs."""

import os
import subprocess
import sys
from pathlib import Path

from slurm_plugin.sandbox import machine
from slurm_plugin.sandbox.machine import Bind, Spec
from tests.waiting import until


def test_a_spec_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    """heal starts a machine from the file that up wrote."""
    spec = Spec("n1", "10.77.0.11", "/", "/box/image/etc", 4, (Bind("/a", "/b"), Bind("/c", "/c", writable=True)))
    (tmp_path / "machines").mkdir()
    (tmp_path / "machines/n1.json").write_text(spec.to_json())
    assert machine.load_spec(tmp_path, "n1") == spec


def test_the_environment_holds_nothing_of_the_caller_s_but_term() -> None:
    """A variable of the shell that `sandbox run` was typed in does not reach the machine, but our back end's name."""
    chosen = {"SLURM_PLUGIN_BACKEND": "cli"}
    assert machine.environment("alice", chosen) == machine.environment("alice", {}) | chosen
    found = machine.environment("alice", {"TERM": "vt100", "SECRET": "x", "SLURM_JOB_ID": "7", "PATH": "/nowhere"})
    assert found == {
        "HOME": "/home/alice",
        "USER": "alice",
        "LOGNAME": "alice",
        "SHELL": "/bin/bash",
        "PATH": "/sandbox/bin:/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
        "LANG": "C.UTF-8",
        "TERM": "vt100",
        "SLURM_CONF": "/etc/slurm/slurm.conf",
    }


def test_entering_keeps_the_machine_s_limits_and_drops_to_the_user() -> None:
    """The command sets limits while it is still root, then becomes the user, then changes directory."""
    argv = machine.enter_argv(os.getpid(), ["srun", "-N2", "true"], user="alice", directory="/home/alice")
    assert argv[:9] == ["nsenter", "--target", str(os.getpid()), "--mount", "--uts", "--ipc", "--net", "--pid", "--"]
    assert [word.partition("=")[0] for word in argv[9:14]] == ["prlimit", "--memlock", "--nofile", "--nproc", "--stack"]
    assert argv[14:] == [
        "setpriv", "--reuid", "alice", "--regid", "alice", "--init-groups", "--",
        "env", "--default-signal", "--chdir=/home/alice", "--", "srun", "-N2", "true",
    ]  # fmt: skip


def test_only_processes_with_our_marker_and_directory_are_machines(tmp_path: Path) -> None:
    """A process in the host's PID namespace is no machine, even with the same command line."""
    words = [sys.executable, "-I", "-S", "-c", "input()", machine.MARKER, str(tmp_path), "n1"]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as process:
        assert machine.find(tmp_path) == {}
        assert process.stdin is not None
        process.stdin.close()


def test_children_are_found_by_parent_and_name(tmp_path: Path) -> None:
    """Only children of PID 1 are daemons."""
    daemon = tmp_path / f"d{os.getpid()}"  # a name that no other process has
    daemon.symlink_to("/bin/sleep")
    with subprocess.Popen([daemon, "1000000"]) as process:
        try:
            until(lambda: machine.children(os.getpid(), daemon.name), "the child to become the daemon")
            assert machine.children(os.getpid(), daemon.name) == (process.pid,)
            assert machine.children(1, daemon.name) == ()
        finally:
            process.kill()
