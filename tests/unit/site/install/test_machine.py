"""Inspect a machine, with and without answers from Slurm."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from slurm_plugin.errors import MissingError, UsageError
from slurm_plugin.site.configuration import SiteConfig
from slurm_plugin.site.install import machine as this_machine
from slurm_plugin.site.install.machine import MachineState
from slurm_plugin.slurm import Slurm, SlurmError
from slurm_plugin.slurm.releases import RELEASES


@dataclass
class Door:
    """A Slurm with these settings and jobs."""

    settings: dict[str, str] | None = None
    comments: dict[int, tuple[str, str]] = field(default_factory=dict)  # job -> comment, state

    def config(self) -> dict[str, str]:
        """Return the settings. Raises SlurmError if there are none."""
        if self.settings is None:
            raise SlurmError("away")
        return self.settings

    def nodes(self, names: Sequence[str]) -> dict[str, Any]:
        """None are known."""
        if self.settings is None:
            raise SlurmError("away")
        return {}

    def jobs(self) -> dict[int, Any]:
        """All of them."""
        return {
            number: SimpleNamespace(id=number, comment=comment, state=state)
            for number, (comment, state) in self.comments.items()
        }


@dataclass
class Machine:
    """Directories of a machine, below a temporary one."""

    at: Path

    def look(self, text: str = "", door: Door | None = None, role: str | None = None) -> MachineState:
        """What stands there with this slurm.conf."""
        conf = self.at / "slurm.conf"
        conf.write_text(text)
        config = SiteConfig(spool_directory=str(self.at / "spool"))
        return this_machine.inspect(str(self.at / "root"), str(conf), role, config, cast("Slurm", door or Door()))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """An empty one."""
    return Machine(tmp_path)


def test_files_and_their_owners(machine: Machine) -> None:
    """The files of the site directory, of the previous version and beside slurm.conf are read, and no others."""
    for name in ("root/hooks/prolog", "root.previous/a", "job_submit.lua", "other", "spool/lock"):
        (machine.at / name).parent.mkdir(parents=True, exist_ok=True)
        (machine.at / name).write_text(name)
    os.chown(machine.at / "job_submit.lua", 20001, 20002)
    (machine.at / "job_submit.lua").chmod(0o640)
    found = machine.look("a=1\n")
    assert sorted(path.removeprefix(f"{machine.at}/") for path in found.entries) == [
        "job_submit.lua", "root", "root.previous", "root.previous/a", "root/hooks", "root/hooks/prolog", "slurm.conf",
        "spool", "spool/lock",
    ]  # fmt: skip
    script = found.entries[found.lua]
    assert (script.content, script.mode, script.uid, script.gid) == (b"job_submit.lua", 0o640, 20001, 20002)


def test_a_file_of_the_spool_that_is_removed_meanwhile(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker serves the spool while the machine is inspected."""
    (machine.at / "spool").mkdir()
    entry = machine.at / "spool/7.0.json"
    entry.touch()
    status = os.lstat

    def lstat(path: str) -> os.stat_result:
        found = status(path)
        if path == str(entry):
            entry.unlink()
        return found

    monkeypatch.setattr(os, "lstat", lstat)
    assert str(entry) not in machine.look(role="controller").entries


def test_which_machine_it_is(machine: Machine) -> None:
    """A host in SlurmctldHost is a controller, unless an option says otherwise."""
    host = os.uname().nodename
    assert machine.look(f"SlurmctldHost={host}(10.0.0.1)\nSlurmctldHost=other\n").controllers == (host, "other")
    assert machine.look(f"SlurmctldHost={host}\n").controller
    assert not machine.look("SlurmctldHost=other\n").controller
    assert machine.look("SlurmctldHost=other\n", role="controller").controller


def test_slurms_user(machine: Machine) -> None:
    """SlurmUser is found by name or number and is root by default; an unknown one is None."""
    assert machine.look("SlurmUser=daemon\n").spool_owner == (1, 1)
    assert machine.look("SlurmUser=1\n").spool_owner == (1, 1)
    assert machine.look().spool_owner == (0, 0)
    assert machine.look("SlurmUser=nobody-knows\n").spool_owner is None


def test_files_that_slurm_conf_includes(machine: Machine) -> None:
    """They are read as in Slurm, at any depth, with the cluster's name; a missing one is None. Their settings count."""
    (machine.at / "more.conf").write_text("include a/%c.conf\n")
    (machine.at / "a").mkdir()
    (machine.at / "a/big.conf").write_text("SlurmUser=daemon\nSlurmctldHost=ctl\nInclude\t/none/x\n")
    found = machine.look('ClusterName="Big" SlurmdPort=1\ninclude more.conf\n')
    assert found.included == {
        f"{machine.at}/more.conf": "include a/%c.conf\n",
        f"{machine.at}/a/big.conf": "SlurmUser=daemon\nSlurmctldHost=ctl\nInclude\t/none/x\n",
        "/none/x": None,
    }
    assert (found.spool_owner, found.controllers) == ((1, 1), ("ctl",))
    machine.look("include slurm.conf\n")  # a plan reports it


def test_a_hook_that_runs_ours(machine: Machine) -> None:
    """The site's script names it."""
    (machine.at / "own").write_text(f"#!/bin/sh\nexec {machine.at}/root/hooks/prolog\n")
    (machine.at / "other").write_text("#!/bin/sh\n")
    assert machine.look(f"Prolog={machine.at}/own\nEpilog={machine.at}/other\n").leading == {"Prolog"}


def test_the_release(machine: Machine) -> None:
    """The release comes from slurmctld; it is None without an answer."""
    assert machine.look(door=Door({"SLURM_VERSION": "24.11.5"})).release == RELEASES[1]
    assert machine.look(door=Door()).release is None


def test_what_uses_the_directory(machine: Machine) -> None:
    """The directory is in use by slurmctld's settings or by jobs, or its use is unknown."""
    assert machine.look().in_use == machine.look(door=Door()).in_use == (
        "slurmctld does not answer, so it may still be in use"
    )  # fmt: skip
    hook = f"{machine.at}/root/hooks/prolog"
    assert machine.look(door=Door({"Prolog[0]": hook})).in_use.startswith(f"slurmctld uses Prolog[0]={hook} until")
    jobs = {
        9: ("[sp1;retries=1]", "RUNNING"),
        8: ("x [sp1;]", "PENDING"),
        1: ("[sp1;]", "COMPLETED"),
        2: ("", "RUNNING"),
    }
    assert machine.look(door=Door({"a": ""}, jobs)).in_use == "not ended yet: job 8 and 1 more of slurm_plugin"
    assert machine.look(door=Door({"a": ""}, {1: ("[sp1;]", "COMPLETED")})).in_use == ""


def test_without_slurm_conf(machine: Machine) -> None:
    """The error names the searched paths and the option."""
    with pytest.raises(MissingError, match=r"slurm\.conf is not there: /none\n  try --slurm-conf PATH"):
        this_machine.inspect("/root/x", "/none", None, SiteConfig(), cast("Slurm", Door()))


def test_a_link_to_slurm_conf(machine: Machine) -> None:
    """The linked file is changed, and other files go beside the link; a linked site directory is refused."""
    (machine.at / "real").mkdir()
    (machine.at / "real/slurm.conf").write_text("")
    (machine.at / "slurm.conf").symlink_to("real/slurm.conf")
    found = machine.look()
    assert (found.conf, found.lua) == (f"{machine.at}/real/slurm.conf", f"{machine.at}/job_submit.lua")
    (machine.at / "root").symlink_to("real")
    with pytest.raises(UsageError, match="/root is neither a file nor a directory"):
        machine.look()
