"""The periodic hook: a healthy look asks nothing, a bad one drains once, what we drained comes back after its row."""

import os
from pathlib import Path

import pytest

import prechecks
from prechecks import Context
from slurm_plugin import siteconfig
from slurm_plugin.hooks import draining, periodic
from slurm_plugin.slurm import Node
from tests.fakes import node
from tests.unit.hooks.looked_at import BAD, CANNOT_TELL, FINE, NO_DNS, REASON, Machine, drained


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A node that is idle, and has not been looked at since its boot."""
    return Machine(tmp_path, monkeypatch)


def test_healthy(machine: Machine) -> None:
    """Slurm is asked once a boot, and not by the look that slurmd waits for while it starts."""
    machine.look(FINE)
    assert machine.connected == 0
    machine.look(FINE)
    assert machine.door.questions == [("nodes", ("n1",))]
    machine.look(*[FINE] * 20)
    assert machine.connected == 1
    assert machine.door.changes == []


def test_bad_then_repaired(machine: Machine) -> None:
    """Drained at once, and once; back after three good looks in a row, with nothing left over."""
    assert machine.look(BAD) == [("drain", "n1", REASON)]
    assert machine.look(BAD, BAD) == []
    assert machine.look(FINE, FINE, CANNOT_TELL, FINE, FINE, BAD, FINE, FINE) == []
    assert machine.look(FINE) == [("resume", "n1")]
    asked = machine.connected
    assert machine.look(*[FINE] * 5) == []
    assert machine.connected == asked
    assert machine.marker["reason"] == ""


def test_shared_causes(machine: Machine) -> None:
    """Only the third time in a row."""
    assert machine.look(NO_DNS, NO_DNS, FINE, NO_DNS, NO_DNS) == []
    assert machine.look(NO_DNS) == [("drain", "n1", "slurm_plugin: dns: no answer")]


def test_what_cannot_be_told(machine: Machine) -> None:
    """Never drains, however long; and Slurm is not asked for it."""
    machine.look(FINE, FINE)
    asked = machine.connected
    assert machine.look(*[CANNOT_TELL] * 9) == []
    assert machine.connected == asked


def test_drained_by_a_prolog(machine: Machine) -> None:
    """The same GPUs are looked at until it is back; then none are."""
    machine.look(FINE, FINE)
    of_the_job = Context("prolog", "n1", (), (0, 3), infiniband=True)
    assert draining.drain(machine.door, machine.site, of_the_job, f"{REASON} [job 7]")
    assert machine.look(FINE, FINE, FINE) == [("resume", "n1")]
    assert machine.look(FINE) == []
    assert machine.contexts[-2] == Context("periodic", "n1", (), (0, 3), infiniband=True)
    assert machine.contexts[-1] == Context("periodic", "n1")


@pytest.mark.parametrize("reason", [f"{REASON}; alice: wait", "new disk", f"{REASON} - alice"])
def test_a_reason_that_somebody_changed(machine: Machine, reason: str) -> None:
    """Is theirs from then on: the node stays out, and Slurm is asked no more."""
    drained(machine, reason=reason)
    assert machine.look(*[FINE] * 9) == []
    assert machine.connected == 2
    assert machine.door.known_nodes["n1"].reason == reason


def test_resumed_by_hand(machine: Machine) -> None:
    """Nothing is to be done; a later failure drains it anew."""
    drained(machine, states=frozenset({"IDLE"}), reason="")
    assert machine.look(FINE, FINE, FINE, FINE) == []
    assert machine.look(BAD) == [("drain", "n1", REASON)]


@pytest.mark.parametrize("state", ["REBOOT_REQUESTED", "MAINT", "POWERED_DOWN", "RESERVED", "FAIL", "PLANNED"])
def test_a_state_that_is_left_alone(machine: Machine, state: str) -> None:
    """It comes back once that is over."""
    drained(machine, states=frozenset({"IDLE", "DRAIN", state}))
    assert machine.look(FINE, FINE, FINE, FINE) == []
    machine.door.known_nodes["n1"] = machine.door.known_nodes["n1"]._replace(states=frozenset({"IDLE", "DRAIN"}))
    assert machine.look(FINE) == [("resume", "n1")]


def after_a_boot(machine: Machine, found: Node) -> None:
    """Nothing is remembered on this node, and Slurm has it so."""
    machine.door.known_nodes["n1"] = found


def test_a_boot_takes_the_marker_along(machine: Machine) -> None:
    """Slurm still knows that it was us."""
    after_a_boot(machine, node("n1", "IDLE", "DRAIN", reason=f"{REASON} [job 7]"))
    assert machine.look(FINE, FINE) == []
    assert machine.look(FINE, FINE) == []
    assert machine.look(FINE) == [("resume", "n1")]


def test_a_drain_that_slurm_refused(machine: Machine) -> None:
    """Is tried again at the next look, and only then is it ours to undo."""
    machine.door.refusals["drain", "n1"] = 1
    assert machine.look(BAD) == []
    assert machine.look(BAD) == [("drain", "n1", REASON)]
    assert machine.look(FINE, FINE, FINE) == [("resume", "n1")]


def test_resumed_by_hand_and_still_bad(machine: Machine) -> None:
    """It is drained again."""
    machine.look(BAD)
    machine.door.resume("n1")
    assert machine.look(BAD) == [("drain", "n1", REASON)]


def test_a_reason_that_a_resume_left(machine: Machine) -> None:
    """Is taken away at the next look: Slurm's next own drain would look as if it were ours."""
    drained(machine, states=frozenset({"IDLE"}))
    assert machine.look(FINE) == [("update_node", "n1", {"Reason": "Not responding"})]
    assert machine.look(*[FINE] * 5) == []


def test_a_claim_of_a_hook_that_was_killed(machine: Machine) -> None:
    """Goes with the first look that asks after it has lost its meaning."""
    machine.look(FINE)
    machine.door.known_nodes["n1"] = node("n1", comment="rack 7 [slurm_plugin: to be drained, 1600000000]")
    machine.look(FINE)
    assert machine.door.known_nodes["n1"].comment == "rack 7"


@pytest.mark.parametrize("reason", ["new disk", "Not responding", "slurm_plugin: dns: x; alice: wait"])
def test_somebody_elses_drain_after_a_boot(machine: Machine, reason: str) -> None:
    """Stays."""
    after_a_boot(machine, node("n1", "IDLE", "DRAIN", reason=reason))
    assert machine.look(*[FINE] * 9) == []
    assert machine.connected == 1


def test_a_controller_that_does_not_answer(machine: Machine) -> None:
    """The next look asks again, be it to drain, to bring back, or to learn what stands."""
    machine.door.refusals["nodes", None] = 1
    assert machine.look(FINE, FINE) == []
    assert machine.marker == {}
    machine.door.refusals["nodes", None] = 1
    assert machine.look(BAD) == []
    assert machine.look(BAD) == [("drain", "n1", REASON)]
    machine.door.refusals["nodes", None] = 3
    assert machine.look(FINE, FINE, FINE) == []
    assert machine.look(FINE) == [("resume", "n1")]


def test_a_stale_compile(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is said at each look: where no job asks for checks, no prolog says it."""
    said: list[str] = []
    monkeypatch.setattr(periodic.syslog, "syslog", lambda *words: said.append(words[-1]))
    monkeypatch.setattr(periodic.compiled, "LOCAL", str(tmp_path))
    path = tmp_path / "site.yaml"
    path.write_text("max_retries: 1")
    machine.site["site_file"] = siteconfig.site_file(path)._asdict()
    machine.look(FINE)
    assert said == []
    path.write_text("max_retries: 2")
    machine.look(FINE)
    assert said == [f"{path} was changed since it was deployed; run: slurm-plugin site install --apply"]


def test_a_state_directory_that_is_not_roots(machine: Machine, tmp_path: Path) -> None:
    """Nothing can be remembered: what fails by itself still drains, and nothing comes back."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run/state").symlink_to(tmp_path / "elsewhere")
    assert machine.look(NO_DNS, NO_DNS, NO_DNS, NO_DNS) == []
    assert machine.look(BAD) == [("drain", "n1", REASON)]
    assert machine.look(*[FINE] * 9) == []
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_what_is_published(machine: Machine, tmp_path: Path) -> None:
    """The report for everybody to read, and metrics where the site wants them; each replaced as a whole."""
    machine.site["metrics_directory"] = str(tmp_path)
    machine.look(FINE, BAD)
    report = prechecks.Report.from_json((tmp_path / "run/report.json").read_text())
    assert (report.node, report.job, report.hook, report.items) == ("n1", None, "periodic", BAD)
    assert (tmp_path / "run/report.json").stat().st_mode & 0o777 == 0o644
    assert 'failed{hook="periodic",item="gpu-check"} 1' in (tmp_path / "slurm_plugin_periodic.prom").read_text()
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["slurm_plugin_periodic.prom"]


def test_what_an_epilog_did_not_remove(machine: Machine, tmp_path: Path) -> None:
    """The directory of a run that Slurm has long forgotten goes with the next look."""
    machine.look(FINE, FINE)
    old = tmp_path / "run/jobs/7.0.0"
    (old / "user").mkdir(parents=True)
    os.chown(old / "user", 27182, 27182)
    os.utime(old, (0, 0))
    machine.look(FINE)
    assert machine.door.questions[-1] == ("jobs", (7,))
    assert not old.exists()


def test_metrics_that_cannot_be_written(machine: Machine) -> None:
    """Harm nothing."""
    machine.site["metrics_directory"] = "/nonexistent"
    assert machine.look(BAD) == [("drain", "n1", REASON)]
