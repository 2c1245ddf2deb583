"""`slurm-plugin check --hook periodic`: a preview of the periodic check, and --apply."""

import os
from pathlib import Path

import pytest

import prechecks
from prechecks import Verdict
from slurm_plugin.__main__ import main
from slurm_plugin.cli.nodeside import check, check_context
from slurm_plugin.errors import UsageError
from slurm_plugin.node import periodic as hook
from slurm_plugin.records import site_settings
from tests.unit.node.looked_at import BAD, FINE, NO_DNS, REASON, Machine

FULL = Verdict("disk-size.shm", "failed", "node_problem", "1 MB < 1 GB")
AS_ROOT = "  to have it look now: slurm-plugin check --hook periodic --apply, as root"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def would(machine: Machine, *verdicts: Verdict) -> list[str]:
    """Return the lines after such a report, without the last one."""
    report = prechecks.Report("n1", None, "periodic", 0.0, verdicts)
    *lines, last = check.preview(check_context.Site(machine.site, "compiled.json"), report)
    assert last == AS_ROOT
    return [line.strip() for line in lines]


def test_what_it_would_do(machine: Machine) -> None:
    """The preview names a drain, a counted failure or no change, and leaves the memory as it is."""
    for _ in range(2):
        assert would(machine, *FINE) == ["the periodic check would change nothing"]
        assert would(machine, *BAD) == [f"the periodic check would drain n1: {REASON}"]
        assert would(machine, *NO_DNS) == ["dns: this look would be number 1, 3 in a row drain"]
    assert not Path(machine.site["prechecks"]["state"]).exists()


def test_after_other_looks(machine: Machine) -> None:
    """The preview uses the counted failures and the reason of the drain."""
    machine.look(NO_DNS, NO_DNS)
    assert would(machine, *NO_DNS) == ["the periodic check would drain n1: slurm_plugin: dns: no answer"]
    machine.look(BAD)
    assert would(machine, *FINE) == [f"it is out for: {REASON}; good looks in a row: 1 of 3"]


def test_space(machine: Machine) -> None:
    """Space counts only on an idle node, which the preview says."""
    assert would(machine, FULL)[1:] == [
        "space and inodes count only while nobody uses the node, and room is made before"
    ]


def test_it_looks_at_what_the_periodic_check_looks_at(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The preview has the context of the periodic check, without all GPUs."""
    monkeypatch.setattr(prechecks, "run", lambda context, *_, **__: machine.contexts.append(context) or FINE)
    site = check_context.Site(machine.site, "compiled.json")
    check.examine("periodic", {"SLURMD_NODENAME": "n1"}, site, None)
    assert hook.main() == 0
    assert machine.contexts[0] == machine.contexts[1]


def test_without_slurmd_s_word(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The hook without SLURMD_NODENAME names the command for a check by hand."""
    monkeypatch.delenv("SLURMD_NODENAME")
    assert hook.main() == 0
    assert machine.contexts == []
    assert "by hand: slurm-plugin check --hook periodic --apply" in capsys.readouterr().err


def test_who_may_apply(tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """--apply needs root, a deployed check and no kill switch; each refusal has its message."""
    site = check_context.Site(machine.site, str(tmp_path / site_settings.FILE))
    monkeypatch.setattr(os, "geteuid", lambda: 20001)
    with pytest.raises(UsageError, match="run it as root"):
        check.run_periodic(site)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(UsageError, match="hooks/periodic is not there: --apply runs the deployed check"):
        check.run_periodic(site)
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks/periodic").write_text("#!/bin/sh\necho broken >&2\n")
    (tmp_path / "hooks/periodic").chmod(0o755)
    with pytest.raises(UsageError, match="left no report, see the system log: broken"):
        check.run_periodic(site)
    (tmp_path / site_settings.KILL_SWITCH).touch()
    with pytest.raises(UsageError, match="nothing of ours acts on this node"):
        check.run_periodic(site)


def test_what_it_goes_with(capsys: pytest.CaptureFixture[str]) -> None:
    """--apply takes no other options than --hook periodic and --json."""
    for words in ([], ["--hook", "prolog"], ["--hook", "periodic", "dns"], ["--hook", "periodic", "--watch"]):
        assert main(["check", *words, "--apply"]) == 2, words
        assert "--apply goes with --hook periodic" in capsys.readouterr().err, words
