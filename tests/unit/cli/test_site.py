"""`slurm-plugin site`: its output for the admin, and its changes."""

import json
import os
from pathlib import Path

import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.site import archive


def test_it_says_how_gpus_are_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through NVML, with the version of NVIDIA's binding; without the binding, with the command that installs it."""
    (tmp_path / "site.yaml").write_text("max_retries: 3\n")
    argv = ["site", "render", str(tmp_path / "site"), "--config", str(tmp_path / "site.yaml")]
    assert main(argv) == 0
    assert f"through NVML (nvidia-ml-py {archive.binding()}), else nvidia-smi\n" in capsys.readouterr().out
    monkeypatch.setattr(archive, "binding", lambda: "")
    assert main(argv) == 0
    assert "nvidia-smi; for NVML: pip install nvidia-ml-py, and render again\n" in capsys.readouterr().out


class Machine:
    """A controller's files below a temporary directory, and `slurm-plugin site` on them."""

    def __init__(self, at: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.at, self.capsys = at, capsys
        self.conf, self.root = at / "slurm.conf", at / "slurm_plugin"
        self.conf.write_text(f"SlurmctldHost={os.uname().nodename}\nSlurmUser=root\nProlog=/own/prolog\n")
        (at / "site.yaml").write_text(f"spool_directory: {at}/spool\n")

    def call(self, verb: str, *words: str) -> tuple[int, str]:
        """Return the exit code and the output."""
        where = ["--config", str(self.at / "site.yaml"), "--root", str(self.root), "--slurm-conf", str(self.conf)]
        code = main(["site", verb, *where, *words])
        return code, self.capsys.readouterr().out

    def files(self) -> dict[str, bytes]:
        """Return the content of all files."""
        paths = [path for path in self.at.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.at)): path.read_bytes() for path in paths}


@pytest.fixture
def machine(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Return one where slurmctld does not answer and Slurm's commands are missing."""
    monkeypatch.setenv("PATH", "/nonexistent")
    return Machine(tmp_path, capsys)


def test_install_changes_nothing_unasked(machine: Machine) -> None:
    """Without --apply it shows a diff. After --apply nothing is left to do."""
    before = machine.files()
    code, said = machine.call("install")
    assert (code, machine.files()) == (0, before)
    assert "  -Prolog=/own/prolog\n  +#slurm_plugin# Prolog=/own/prolog\n  +# BEGIN slurm_plugin" in said
    assert said.endswith("nothing was changed: --apply does it\n")
    assert machine.call("install", "--apply")[0] == 0
    assert "/own/prolog" in (machine.root / "chain/prolog").read_text()
    assert machine.call("install") == (0, "nothing to change\n")


def test_install_on_trial_and_back(machine: Machine) -> None:
    """The next installation without --canary is for all nodes. `rollback` goes back to the trial."""
    machine.call("install", "--apply", "--canary", "n1")
    trial = machine.files()["slurm_plugin/compiled.json"]
    machine.call("install", "--apply")
    assert b"canary" not in machine.files()["slurm_plugin/compiled.json"]
    assert machine.call("rollback", "--apply")[0] == 0
    assert machine.files()["slurm_plugin/compiled.json"] == trial


def test_uninstall_leaves_files_that_may_be_needed(machine: Machine) -> None:
    """While slurmctld does not answer, they may be in use."""
    before = machine.files()
    machine.call("install", "--apply")
    assert machine.call("uninstall", "--apply")[0] == 0
    code, said = machine.call("uninstall", "--apply")
    assert code == 0
    assert f"{machine.root} stays: slurmctld does not answer, so it may still be in use" in said
    assert before.items() <= machine.files().items()
    assert not (machine.at / "job_submit.lua").exists()


def test_what_must_be_edited_by_hand(machine: Machine) -> None:
    """Exit 1, and nothing is changed, even with --apply; also as JSON."""
    machine.conf.write_text("Prolog=/a Epilog=/b\n")
    before = machine.files()
    code, said = machine.call("install", "--apply", "--role", "controller")
    assert code == 1
    assert "by hand   slurm.conf, line 1: Prolog has a line with others" in said
    assert "nothing was changed: edit by hand what is named above" in said
    code, said = machine.call("install", "--apply", "--role", "controller", "--json")
    assert (code, json.loads(said)["applied"], machine.files()) == (1, False, before)


def test_a_node(machine: Machine) -> None:
    """A node gets only the site directory."""
    machine.call("install", "--apply", "--role", "node")
    assert {name.partition("/")[0] for name in machine.files()} == {"slurm.conf", "site.yaml", "slurm_plugin"}


def test_check_needs_slurms_commands(machine: Machine) -> None:
    """Exit 3, as for `slurm-plugin doctor`."""
    assert machine.call("check")[0] == 3
