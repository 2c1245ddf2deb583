"""The periodic hook: a healthy look asks nothing, a bad one drains once, what we drained comes back after its row."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import prechecks
from prechecks import Context, Verdict
from slurm_plugin import siteconfig
from slurm_plugin.hooks import draining, marker, periodic
from slurm_plugin.siteconfig import SiteConfig
from slurm_plugin.slurm import Node
from tests.fakes import FakeSlurm, node

REASON = "slurm_plugin: gpu-check: 3 of 4 GPUs"
FINE = (Verdict("gpu-check", "ok", "node_problem", "4 of 4 GPUs"), Verdict("dns", "ok", "node_problem", "x"))
BAD = (Verdict("gpu-check", "failed", "node_problem", "3 of 4 GPUs"), FINE[1])
NO_DNS = (FINE[0], Verdict("dns", "failed", "node_problem", "no answer"))
CANNOT_TELL = (Verdict("gpu-check", "timeout", "node_problem", "no answer"), FINE[1])


class Machine:
    """This node: its looks find what is planned."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.site = siteconfig.compiled(SiteConfig())
        self.site["run_directory"] = str(directory / "run")
        self.site["prechecks"]["state"] = str(directory / "run/state")
        self.door = FakeSlurm(nodes=[node("n1", partitions=("main",))])
        self.connected = 0
        self.contexts: list[Context] = []
        self.verdicts = FINE
        monkeypatch.setenv("SLURMD_NODENAME", "n1")
        monkeypatch.setattr(periodic.compiled, "read", lambda _: self.site)
        monkeypatch.setattr(prechecks, "run", self.run)
        monkeypatch.setattr("slurm_plugin.slurm.connect", self.connect)

    def run(self, context: Context, _settings: object) -> tuple[Verdict, ...]:
        self.contexts.append(context)
        return self.verdicts

    def connect(self, slurm_bin: str, *, deadline_s: float) -> FakeSlurm:
        assert slurm_bin == "/usr/bin"
        assert 8 * deadline_s + self.site["prechecks"]["deadline_s"] < 60  # slurmd kills it then
        self.connected += 1
        return self.door

    def look(self, *looks: tuple[Verdict, ...]) -> list[tuple[object, ...]]:
        """What these looks changed in Slurm, but for claims."""
        before = len(self.door.changes)
        for self.verdicts in looks:
            assert periodic.main() == 0
        return [change for change in self.door.changes[before:] if "Comment" not in str(change)]

    def boot(self) -> None:
        """Forget what root remembers on this node."""
        for item in (marker.DRAINED, marker.OWED, marker.REMARK, periodic.ROW):
            Path(self.site["prechecks"]["state"], f"{item}.json").unlink(missing_ok=True)

    @property
    def marker(self) -> dict[str, Any]:
        return marker.load(self.site, marker.DRAINED)


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


def drained(machine: Machine, **changed: Any) -> None:
    """Drain it by a bad look, then change what Slurm has of it."""
    machine.look(BAD)
    machine.door.known_nodes["n1"] = machine.door.known_nodes["n1"]._replace(**changed)


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


def test_an_event(machine: Machine) -> None:
    """An Xid is seen once. The node stays out however good later looks are, until it has booted."""
    seen_once = (Verdict("gpu-xid", "failed", "node_problem", "Xid 48"), *FINE)
    then = (Verdict("gpu-xid", "ok", "node_problem", "no Xid"), *FINE)
    assert machine.look(seen_once) == [("drain", "n1", "slurm_plugin: gpu-xid: Xid 48")]
    assert machine.look(*[then] * 9) == []
    machine.boot()
    assert machine.look(*[then] * 9) == []  # the state was lost, but nothing says that there was a boot
    machine.boot()
    machine.door.known_nodes["n1"] = machine.door.known_nodes["n1"]._replace(
        reason_time=datetime(2020, 1, 1, tzinfo=UTC)
    )
    assert machine.look(*[then] * 4) == []
    assert machine.look(then) == [("resume", "n1")]


def test_an_event_and_a_failure_after_it(machine: Machine) -> None:
    """The event stays in the reason, and so does the node out."""
    seen_once = (Verdict("gpu-xid", "failed", "node_problem", "Xid 48"), *FINE)
    later = (Verdict("gpu-xid", "ok", "node_problem", "no Xid"), *BAD)
    then = (Verdict("gpu-xid", "ok", "node_problem", "no Xid"), *FINE)
    machine.look(seen_once)
    assert machine.look(later) == [("drain", "n1", f"{REASON}; gpu-xid: Xid 48")]
    assert machine.look(*[then] * 9) == []


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


@pytest.mark.parametrize("how", ["away", "full"])
def test_an_event_that_could_not_drain(machine: Machine, how: str) -> None:
    """A later look does not see it again, and drains the node for it all the same, once."""
    event = (Verdict("gpu-xid", "failed", "node_problem", "Xid 79"), *BAD)
    then = (Verdict("gpu-xid", "ok", "node_problem", "no Xid"), *FINE)
    if how == "away":
        machine.door.refusals["nodes", None] = 1
    else:
        machine.door.known_nodes["n2"] = node("n2", "IDLE", "DRAIN", reason=REASON, partitions=("main",))
    assert machine.look(event) == []
    machine.door.known_nodes.pop("n2", None)
    assert machine.look(then) == [("drain", "n1", "slurm_plugin: gpu-xid: Xid 79")]
    assert machine.look(*[then] * 9) == []


def test_an_event_that_is_owed_and_a_failure(machine: Machine) -> None:
    """Both stand in the reason."""
    machine.door.refusals["nodes", None] = 1
    machine.look((Verdict("gpu-xid", "failed", "node_problem", "Xid 79"), *FINE))
    assert machine.look(BAD) == [("drain", "n1", f"{REASON}; gpu-xid: Xid 79")]


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
    assert said == [f"{path} was changed after `slurm-plugin site render`; run it again"]


def test_a_dry_run(machine: Machine) -> None:
    """Nothing is drained, and nothing brought back that was drained before."""
    drained(machine)
    machine.site["dry_run"] = True
    assert machine.look(FINE, FINE, FINE, FINE, BAD, NO_DNS, NO_DNS, NO_DNS) == []
    machine.site["dry_run"] = False
    assert machine.look(FINE, FINE, FINE) == [("resume", "n1")]


SAID = "rack 7 [slurm_plugin: would be drained: gpu-check: 3 of 4 GPUs]"


@pytest.fixture
def dry(machine: Machine) -> Machine:
    """A site's dry run, and a node that an administrator has commented on; Slurm was asked once since its boot."""
    machine.site["dry_run"] = True
    machine.door.known_nodes["n1"] = node("n1", partitions=("main",), comment="rack 7")
    machine.look(FINE, FINE)
    return machine


def comment(machine: Machine) -> str:
    return machine.door.known_nodes["n1"].comment


def test_a_dry_run_comments(dry: Machine) -> None:
    """Until the first healthy look, which takes it away; what cannot be told is none. The next look asks nothing."""
    assert dry.look(BAD, BAD) == []
    assert comment(dry) == SAID
    assert len(dry.door.changes) == 1
    assert dry.look(CANNOT_TELL, NO_DNS) == []
    assert comment(dry) == SAID
    dry.look(FINE)
    assert (comment(dry), len(dry.door.changes)) == ("rack 7", 2)
    asked = dry.connected
    dry.look(*[FINE] * 5)
    assert (dry.connected, len(dry.door.changes)) == (asked, 2)


def test_a_dry_run_and_an_administrators_words(dry: Machine) -> None:
    """What was written meanwhile stays, beside the remark or in its place."""
    dry.look(BAD)
    dry.door.known_nodes["n1"] = node("n1", comment=f"{SAID} ticket 17")
    dry.look(FINE)
    assert comment(dry) == "rack 7 ticket 17"
    dry.look(BAD)
    dry.door.known_nodes["n1"] = node("n1", comment="ticket 18")
    dry.look(BAD, FINE)
    asked = dry.connected
    dry.look(FINE)
    assert (comment(dry), dry.connected) == ("ticket 18", asked)


def test_a_dry_run_that_is_over(dry: Machine) -> None:
    """The next look takes the remark away: of a node that is drained now, and of one that could not be told."""
    dry.look(BAD)
    dry.site["dry_run"] = False
    assert dry.look(CANNOT_TELL) == []
    assert comment(dry) == "rack 7"
    dry.site["dry_run"] = True
    dry.look(BAD)
    assert comment(dry) == SAID
    dry.site["dry_run"] = False
    assert dry.look(BAD) == [("drain", "n1", REASON)]
    assert (comment(dry), marker.remarked(dry.site)) == ("rack 7", "")


def test_a_dry_run_and_a_boot(dry: Machine) -> None:
    """The remark outlives what this node remembers: a look that asks finds it, and a healthy one takes it away."""
    dry.look(BAD)
    dry.boot()
    dry.look(FINE, CANNOT_TELL, CANNOT_TELL)
    assert comment(dry) == "rack 7"
    dry.look(BAD)
    dry.boot()
    dry.look(NO_DNS, NO_DNS)
    assert comment(dry) == SAID
    dry.look(FINE)
    assert comment(dry) == "rack 7"


def test_an_event_on_a_dry_run(dry: Machine) -> None:
    """A later look that does not see it makes nothing good, as after a drain: the remark stays until a boot."""
    then = (Verdict("gpu-xid", "ok", "node_problem", "no Xid"), *FINE)
    dry.look((Verdict("gpu-xid", "failed", "node_problem", "Xid 48"), *FINE), then, then)
    assert comment(dry) == "rack 7 [slurm_plugin: would be drained: gpu-xid: Xid 48]"
    assert len(dry.door.changes) == 1
    dry.boot()
    dry.look(then, then)
    assert comment(dry) == "rack 7"


def test_a_dry_run_without_a_controller(dry: Machine) -> None:
    """The next look that is healthy tries again."""
    dry.look(BAD)
    dry.door.refusals["nodes", None] = 1
    dry.look(FINE)
    assert comment(dry) == SAID
    dry.door.refusals["update_node", "n1"] = 1
    dry.look(FINE)
    assert comment(dry) == SAID
    dry.look(FINE)
    assert comment(dry) == "rack 7"


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
