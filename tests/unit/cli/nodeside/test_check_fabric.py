"""`slurm-plugin check fabric` as a user types it, with a fake Slurm and a fake mpirun."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.cli.nodeside import job_lookup
from slurm_plugin.records import site_settings
from slurm_plugin.slurm import steps
from tests.fakes import BecameError, FakeSlurm, node
from tests.guarded import gone
from tests.unit.supervisor.test_fabric import HEALTHY
from tests.waiting import HANG_S, until

ROOT = Path(__file__).parents[4]
COMMAND = (sys.executable, "-m", "slurm_plugin", "check", "fabric", "--nodes=n[1-2]")


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeSlurm:
    """Return a door that knows four nodes. There is an mpirun on the PATH."""
    drained = node("n4", "IDLE", "DRAIN", reason="bad cable")
    fake = FakeSlurm(nodes=[node("n1"), node("n2"), node("n3", "MIXED"), drained])

    def become(argv: list[str], variables: dict[str, str]) -> None:
        assert variables == {"SLURM_EXIT_ERROR": "2", "SLURM_EXIT_IMMEDIATE": "2"}
        raise BecameError(argv)

    monkeypatch.setattr(job_lookup, "connect", lambda **_: fake)
    monkeypatch.setattr(steps, "become", become)
    monkeypatch.setattr(site_settings, "DEFAULT_ROOT", str(tmp_path / "site"))
    monkeypatch.setenv("PATH", mpirun(tmp_path, "exit 1"), prepend=":")
    monkeypatch.setenv("SLURM_JOB_ID", "7")  # an allocation that lacks n3
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    return fake


def mpirun(directory: Path, script: str) -> str:
    """Write an mpirun, and return its directory. The nonce is the script's $3, as in `HEALTHY`."""
    (directory / "mpirun").write_text(f'#!/bin/bash\ncd {directory}\nset -- "" "" "${{@: -3:1}}"\n{script}\n')
    (directory / "mpirun").chmod(0o755)
    return str(directory)


def inside(directory: Path, script: str, *options: str) -> "subprocess.Popen[str]":
    """Start the command in an allocation of n1 and n2, with this mpirun."""
    path = f"{mpirun(directory, script)}:{os.environ['PATH']}"
    environ = {"PATH": path, "PYTHONPATH": str(ROOT), "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-3]"}
    pipe = subprocess.PIPE
    return subprocess.Popen([*COMMAND, *options], env=environ, stdout=pipe, stderr=pipe, text=True)


def test_outside_an_allocation(slurm: FakeSlurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """salloc takes over, with all options, a time limit and these nodes. The deployed copy runs if there is one."""
    deployed = tmp_path / "site/bin/slurm-plugin"
    given = ["--nodes=n[1,3],n3", "--interpreter=/opt/python3", "--least=100", "--partition=gpu", "--wait=9", "--json"]
    asked = (
        "salloc --job-name=check-fabric --nodes=2 --nodelist=n[1,3] --exclusive --kill-command --partition=gpu --time=3"
    )
    own = "check fabric --nodes=n[1,3] --mpi=openmpi --interpreter=/opt/python3 --least=100.0 --json"
    for command in ([sys.executable, "-P", "-m", "slurm_plugin"], [str(deployed)]):
        with pytest.raises(BecameError) as became:
            main(["check", "fabric", *given])
        assert became.value.args[0] == [*asked.split(), "--immediate=9", *command, *own.split()]
        assert capsys.readouterr().err == "slurm-plugin: n3 is MIXED; it waits up to 9 s\n"
        deployed.parent.mkdir(parents=True, exist_ok=True)
        deployed.touch(mode=0o755)


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ("n[1,4]", "Slurm starts no job on n4 (DRAIN+IDLE: bad cable)\n  leave these nodes out, or see: "),
        ("n[1,9]", "Slurm has no node n9\n"),
        ("n1,n1", "--nodes=n1,n1: found 1; accepted: two nodes or more"),
        ("n[1-", "--nodes=n[1-: "),
    ],
)
def test_nodes_that_it_cannot_get(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str], nodes: str, said: str) -> None:
    """They are named, and no job is started. This differs from a slow node: exit code 2."""
    assert main(["check", "fabric", "--nodes", nodes]) == 2
    assert capsys.readouterr().err.startswith(f"slurm-plugin: {said}")


def test_no_mpi(slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing launcher is found before a job is started: exit code 3."""
    monkeypatch.setenv("PATH", "/nonexistent")
    assert main(["check", "fabric", "--nodes=n[1-3]"]) == 3
    assert capsys.readouterr().err.startswith("slurm-plugin: mpirun was not found on the PATH\n")


def test_in_an_allocation(tmp_path: Path) -> None:
    """The ranks start directly. A link that is too slow is printed with its figures; nothing is asked of Slurm."""
    fine = inside(tmp_path, HEALTHY, "--least=400", "--json")
    out, err = fine.communicate(timeout=HANG_S)
    assert (fine.returncode, err) == (0, "")
    found = json.loads(out)["nodes"]
    assert {name: (row["verdict"], row["value"], row["threshold"]) for name, row in found.items()} == {
        "n1": ("ok", 500, 400),
        "n2": ("ok", 500, 400),
    }
    slow = inside(tmp_path, HEALTHY, "--least=600")
    out, err = slow.communicate(timeout=HANG_S)
    head, first, *_, last = out.splitlines()
    assert (slow.returncode, err, head.split()[0]) == (1, "", "NODE")
    assert first.split()[:2] == ["n2", "failed"]
    assert "the link n1-n2 is bad: 500 MB/s; at least 600 MB/s is wanted; n2 is blamed, but n1 may be" in first
    assert last.startswith("n[1-2]: 1 failed (n2)")


def test_no_mpi4py(tmp_path: Path) -> None:
    """The ranks' message names their Python: exit code 3."""
    lines = "for n in 1 2; do echo slurm_plugin-fabric $3 n$n hello; "
    lines += """echo "slurm_plugin-fabric $3 n$n error what=/opt/python3: No module named 'mpi4py'"; done"""
    run = inside(tmp_path, lines)
    said = run.communicate(timeout=HANG_S)[1]
    assert run.returncode == 3, said
    assert "n1: /opt/python3: No module named 'mpi4py'\n  give a Python that has mpi4py" in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_ranks(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C, and the end of the allocation, end mpirun with all that it has started."""
    run = inside(tmp_path, "echo $$ >pid.new; mv pid.new pid; exec sleep 3000")
    until((tmp_path / "pid").exists)
    run.send_signal(number)
    assert run.wait(HANG_S) == 130
    run.communicate()
    assert gone(int((tmp_path / "pid").read_text()))
