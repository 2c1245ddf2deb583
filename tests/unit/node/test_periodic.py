"""The periodic hook: a passing check sends no request, a failing one drains once, and a good node is resumed."""

import os
from pathlib import Path

import pytest

import prechecks
from prechecks import Context
from slurm_plugin.node import draining, periodic
from slurm_plugin.records import metrics
from slurm_plugin.site import compilation
from slurm_plugin.slurm import Node
from tests.fakes import node
from tests.unit.node.looked_at import BAD, CANNOT_TELL, FINE, NO_DNS, REASON, Machine, drained
from tests.waiting import HANG_S


def test_healthy(machine: Machine) -> None:
    """Slurm is asked once a boot, and not by the check that slurmd waits for while it starts."""
    machine.look(FINE)
    assert machine.connected == 0
    machine.look(FINE)
    assert machine.door.questions == [("nodes", ("n1",))]
    machine.look(*[FINE] * 20)
    assert machine.connected == 1
    assert machine.door.changes == []


def test_bad_then_repaired(machine: Machine) -> None:
    """It is drained immediately, once, and resumed after three passing checks."""
    assert machine.look(BAD) == [("drain", "n1", REASON)]
    assert machine.look(BAD, BAD) == []
    assert machine.look(FINE, FINE, CANNOT_TELL, FINE, FINE, BAD, FINE, FINE) == []
    assert machine.look(FINE) == [("resume", "n1")]
    asked = machine.connected
    assert machine.look(*[FINE] * 5) == []
    assert machine.connected == asked
    assert machine.marker["reason"] == ""


def test_shared_causes(machine: Machine) -> None:
    """They drain at the third failure in a row."""
    assert machine.look(NO_DNS, NO_DNS, FINE, NO_DNS, NO_DNS) == []
    assert machine.look(NO_DNS) == [("drain", "n1", "slurm_plugin: dns: no answer")]


def test_what_cannot_be_told(machine: Machine) -> None:
    """An unknown result never drains, and sends Slurm no request."""
    machine.look(FINE, FINE)
    asked = machine.connected
    assert machine.look(*[CANNOT_TELL] * 9) == []
    assert machine.connected == asked


def test_drained_by_a_prolog(machine: Machine) -> None:
    """The same GPUs are checked until the node is resumed; then none."""
    machine.look(FINE, FINE)
    of_the_job = Context("prolog", "n1", (), (0, 3), infiniband=True)
    assert draining.drain(machine.door, machine.site, of_the_job, f"{REASON} [job 7]")
    assert machine.look(FINE, FINE, FINE) == [("resume", "n1")]
    assert machine.look(FINE) == []
    assert machine.contexts[-2] == Context("periodic", "n1", (), (0, 3), infiniband=True)
    assert machine.contexts[-1] == Context("periodic", "n1")


def test_a_users_word_is_not_looked_at_again(machine: Machine) -> None:
    """A node that a job's GPUs drained is resumed, although that job's user requested InfiniBand."""
    of_the_job = Context("prolog", "n1", (), (0,), infiniband=True, requested=True)
    assert draining.drain(machine.door, machine.site, of_the_job, f"{REASON} [job 7]")
    machine.look(FINE)
    assert machine.contexts[-1] == Context("periodic", "n1", (), (0,), infiniband=False)


@pytest.mark.parametrize("reason", [f"{REASON}; alice: wait", "new disk", f"{REASON} - alice"])
def test_a_reason_that_somebody_changed(machine: Machine, reason: str) -> None:
    """It belongs to the administrator: the node stays out, and Slurm is asked no more."""
    drained(machine, reason=reason)
    assert machine.look(*[FINE] * 9) == []
    assert machine.connected == 2
    assert machine.door.known_nodes["n1"].reason == reason


def test_resumed_by_hand(machine: Machine) -> None:
    """There is nothing to do; a later failure drains it anew."""
    drained(machine, states=frozenset({"IDLE"}), reason="")
    assert machine.look(FINE, FINE, FINE, FINE) == []
    assert machine.look(BAD) == [("drain", "n1", REASON)]


@pytest.mark.parametrize("state", ["REBOOT_REQUESTED", "MAINT", "POWERED_DOWN", "RESERVED", "FAIL", "PLANNED"])
def test_a_state_that_is_left_alone(machine: Machine, state: str) -> None:
    """The node is resumed once that state is over."""
    drained(machine, states=frozenset({"IDLE", "DRAIN", state}))
    assert machine.look(FINE, FINE, FINE, FINE) == []
    machine.door.known_nodes["n1"] = machine.door.known_nodes["n1"]._replace(states=frozenset({"IDLE", "DRAIN"}))
    assert machine.look(FINE) == [("resume", "n1")]


def after_a_boot(machine: Machine, found: Node) -> None:
    """Forget this node's state, but keep Slurm's."""
    machine.door.known_nodes["n1"] = found


def test_a_boot_takes_the_marker_along(machine: Machine) -> None:
    """Slurm's reason still says that the plugin drained it."""
    after_a_boot(machine, node("n1", "IDLE", "DRAIN", reason=f"{REASON} [job 7]"))
    assert machine.look(FINE, FINE) == []
    assert machine.look(FINE, FINE) == []
    assert machine.look(FINE) == [("resume", "n1")]


def test_a_drain_for_infiniband_before_a_boot(machine: Machine) -> None:
    """The reason names the item, so it is checked again, and the node can come back."""
    after_a_boot(machine, node("n1", "IDLE", "DRAIN", reason="slurm_plugin: infiniband: 0 of 1 active [job 7]"))
    machine.look(FINE, FINE, FINE)
    assert machine.contexts[-1] == Context("periodic", "n1", infiniband=True)


def test_a_drain_that_slurm_refused(machine: Machine) -> None:
    """The next check tries again; only then may the plugin resume the node."""
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
    """The next check removes it: Slurm's own next drain would carry it."""
    drained(machine, states=frozenset({"IDLE"}))
    assert machine.look(FINE) == [("update_node", "n1", {"Reason": "Not responding"})]
    assert machine.look(*[FINE] * 5) == []


def test_a_claim_of_a_hook_that_was_killed(machine: Machine) -> None:
    """The first check that asks Slurm removes it once it has expired."""
    machine.look(FINE)
    machine.door.known_nodes["n1"] = node("n1", comment="rack 7 [slurm_plugin: to be drained, 1600000000]")
    machine.look(FINE)
    assert machine.door.known_nodes["n1"].comment == "rack 7"


def test_the_driver_in_the_comment(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second check after a boot writes its version; later checks that pass ask Slurm nothing."""
    monkeypatch.setattr(periodic, "driver", lambda: "550.54.15")
    machine.door.known_nodes["n1"] = node("n1", comment="rack 7")
    machine.look(FINE, FINE)
    assert machine.door.known_nodes["n1"].comment == "rack 7 [slurm_plugin: driver 550.54.15]"
    machine.door.questions.clear()
    assert machine.look(FINE, FINE) == []
    assert machine.door.questions == []


def test_driver(tmp_path: Path) -> None:
    """The version that a loaded driver says, whichever it is; empty without one."""
    assert periodic.driver(f"{tmp_path}/") == ""
    for path, text, version in (
        ("usr/local/Ascend/driver/version.info", "Version=23.0.rc3\nascendhal_version=7\n", "23.0.rc3"),
        ("sys/module/amdgpu/version", "6.7.0\n", "6.7.0"),
        ("sys/module/nvidia/version", "550.54.15\n", "550.54.15"),
    ):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text)
        assert periodic.driver(f"{tmp_path}/") == version


@pytest.mark.parametrize("reason", ["new disk", "Not responding", "slurm_plugin: dns: x; alice: wait"])
def test_somebody_elses_drain_after_a_boot(machine: Machine, reason: str) -> None:
    """Another's drain stays."""
    after_a_boot(machine, node("n1", "IDLE", "DRAIN", reason=reason))
    assert machine.look(*[FINE] * 9) == []
    assert machine.connected == 1


def test_a_controller_that_does_not_answer(machine: Machine) -> None:
    """The next check asks again, for a drain, a resume or the node's reason."""
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
    """Each check logs it: where no job asks for checks, no prolog does."""
    said: list[str] = []
    monkeypatch.setattr(periodic.syslog, "syslog", lambda *words: said.append(words[-1]))
    monkeypatch.setattr(periodic.site_settings, "LOCAL", str(tmp_path))
    path = tmp_path / "site.yaml"
    path.write_text("max_retries: 1")
    machine.site["site_file"] = compilation.site_file(path)._asdict()
    machine.look(FINE)
    assert said == []
    path.write_text("max_retries: 2")
    machine.look(FINE)
    assert said == [f"{path} was changed since it was deployed; run: slurm-plugin site install --apply"]


def test_a_state_directory_that_is_not_roots(machine: Machine, tmp_path: Path) -> None:
    """Nothing can be remembered: failures of the node's own still drain, and nothing is resumed."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run/state").symlink_to(tmp_path / "elsewhere")
    assert machine.look(NO_DNS, NO_DNS, NO_DNS, NO_DNS) == []
    assert machine.look(BAD) == [("drain", "n1", REASON)]
    assert machine.look(*[FINE] * 9) == []
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_what_is_published(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report is readable by all, metrics are written where the site wants them, and both as whole files.

    The drain and the resume are counted.
    """
    monkeypatch.setattr(metrics, "WRITE_S", HANG_S)
    machine.site["metrics_directory"] = str(tmp_path)
    machine.look(FINE, BAD)
    report = prechecks.Report.from_json((tmp_path / "run/report.json").read_text())
    assert (report.node, report.job, report.hook, report.items) == ("n1", None, "periodic", BAD)
    assert (tmp_path / "run/report.json").stat().st_mode & 0o777 == 0o644
    assert 'failed{hook="periodic",item="gpu-check"} 1' in (tmp_path / "slurm_plugin_periodic.prom").read_text()
    assert sorted({path.name for path in tmp_path.iterdir() if path.is_file()}) == [
        "slurm_plugin_node.prom",
        "slurm_plugin_periodic.prom",
    ]
    text = (tmp_path / "slurm_plugin_node.prom").read_text()
    for line in ('drains_total{hook="periodic"} 1', 'drain_items_total{item="gpu-check"} 1', "node_out 1"):
        assert f"slurm_plugin_{line}\n" in text
    machine.look(*[FINE] * 3)
    text = (tmp_path / "slurm_plugin_node.prom").read_text()
    assert "slurm_plugin_resumes_total 1\n" in text
    assert "slurm_plugin_node_out 0\n" in text


def test_what_an_epilog_did_not_remove(machine: Machine, tmp_path: Path) -> None:
    """The next check removes the directory of a run that Slurm has forgotten."""
    machine.look(FINE, FINE)
    old = tmp_path / "run/jobs/7.0.0"
    (old / "user").mkdir(parents=True)
    os.chown(old / "user", 27182, 27182)
    os.utime(old, (0, 0))
    machine.look(FINE)
    assert machine.door.questions[-1] == ("jobs", (7,))
    assert not old.exists()


def test_metrics_that_cannot_be_written(machine: Machine) -> None:
    """The check goes on."""
    machine.site["metrics_directory"] = "/nonexistent"
    assert machine.look(BAD) == [("drain", "n1", REASON)]
