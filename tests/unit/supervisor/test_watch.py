"""What ends a running program, and what happens to its nodes and its time to save. And what does not end it."""

from types import SimpleNamespace

import pytest

from slurm_plugin.supervisor.decide import Health
from slurm_plugin.supervisor.launcher import Launcher
from slurm_plugin.supervisor.watch import EARLY_S, Interruption, allowed_grace
from tests.unit.supervisor.watched import WHY, Scene


def test_all_is_well() -> None:
    """No request is sent."""
    scene = Scene()
    assert scene.found() is None
    assert scene.asked == []


def test_a_later_run_has_begun() -> None:
    """Neither the program nor this run may go on. This run decides nothing more."""
    scene = Scene()
    scene.guards.turn_lost = True
    assert scene.found() == Interruption("nodes", "a later run of this job has begun")
    assert scene.launcher.told_to_end


def test_the_guards_have_ended() -> None:
    """All nodes are unknown."""
    scene = Scene()
    scene.guards.alive, scene.guards.quiet = False, ("n1", "n2", "n3")
    assert scene.found() == Interruption("nodes", "the guards' step has ended")
    assert not scene.launcher.told_to_end


@pytest.mark.parametrize(("alive", "isolated"), [(True, False), (True, True), (False, False)])
def test_lost_guards_of_a_job_without_restarts(alive: bool, isolated: bool) -> None:
    """They end no program: Slurm itself finds a lost node. A node that is drained is still told."""
    scene = Scene(restarts=False)
    scene.guards.alive, scene.guards.isolated, scene.guards.quiet = alive, isolated, ("n2",)
    assert scene.found() is None
    assert (scene.watcher.lost, scene.asked) == (False, [])
    scene.guards.drained["n1"] = WHY
    found = scene.found()
    assert found is not None
    assert (found.why, found.save) == ("nodes were drained under it", True)


@pytest.mark.parametrize("alive", [True, False])
def test_guards_that_never_ran_say_nothing_of_the_nodes(alive: bool) -> None:
    """Slurm has refused their step, or not started it. The program goes on, and no node is asked again."""
    scene = Scene()
    scene.guards.alive, scene.guards.answered, scene.guards.quiet = alive, False, ("n1", "n2", "n3")
    assert scene.found() is None
    assert (scene.watcher.lost, scene.asked) == (False, [])


def test_no_other_node_answers() -> None:
    """Our own node is cut off."""
    scene = Scene()
    scene.guards.isolated, scene.guards.quiet = True, ("n2", "n3")
    assert scene.found() == Interruption("nodes", "no other node of the job answers")
    assert scene.asked == []


def test_more_nodes_are_free() -> None:
    """The program may save. A node that is lost at the same time comes first."""
    scene = Scene(grows=lambda: "2 more nodes are free")
    assert scene.found() == Interruption("grow", "2 more nodes are free", save=True)
    scene.guards.alive = False
    assert scene.found() == Interruption("nodes", "the guards' step has ended")


def test_nodes_are_lost() -> None:
    """They do not answer separate guards either. The program ends immediately, without time to save."""
    scene = Scene()
    scene.guards.quiet, scene.there = ("n1", "n2"), ("n1",)
    lost = {"n2": Health("unreachable", "does not answer")}
    assert scene.found() == Interruption("nodes", "nodes were lost", lost)
    assert scene.asked == [("reachable", ("n1", "n2"))]


def test_guards_are_lost() -> None:
    """Their nodes answer: no node is bad, but the leases are lost."""
    scene = Scene()
    scene.guards.quiet = scene.there = ("n2",)
    assert scene.found() == Interruption("nodes", "guards were lost")


def test_a_drained_node() -> None:
    """The program may save before it is ended. Slurm is asked once for each drain."""
    scene = Scene()
    scene.guards.drained["n2"] = f"{WHY} @1795276800"
    health = {"n2": Health("node_problem", WHY)}
    assert scene.found() == Interruption("nodes", "nodes were drained under it", health, save=True)
    assert scene.asked == [("drained", ("n2",))]


def test_a_drain_that_is_over() -> None:
    """An admin has resumed the node: its old report does not count, until there is another reason or another drain."""
    for second, gone in (
        (f"{WHY} @1795276800", True),
        (f"{WHY} @1795276900", False),
        ("slurm_plugin: dns: no @1", False),
    ):
        scene = Scene()
        scene.standing = ()
        scene.guards.drained["n2"] = f"{WHY} @1795276800"
        assert scene.found() is scene.found() is None
        assert scene.asked == [("drained", ("n2",))]
        if gone:  # root's check has noticed the resume
            scene.guards.drained["n2"] = ""
            assert scene.found() is None
        scene.guards.drained["n2"], scene.standing = second, ("n2",)
        assert scene.found() is not None, second


def test_what_becomes_of_a_spare_node() -> None:
    """It does not matter: the program does not run there."""
    scene = Scene()
    scene.guards.quiet = ("n3",)
    scene.guards.drained["n3"] = WHY
    assert scene.found() is None
    assert scene.asked == []


def test_without_grace() -> None:
    """Drains and the time limit are not checked, but lost nodes are."""
    scene = Scene(grace_s=0.0)
    scene.guards.drained["n2"] = WHY
    scene.launcher.told_to_save, scene.left_s = 999.0, 1.0
    assert scene.found() is None
    scene.guards.quiet = ("n2",)
    assert scene.found() is not None
    assert scene.asked == [("reachable", ("n2",))]


def test_the_time_limit() -> None:
    """Slurm's signal has told the program to save. The grace counts from then."""
    scene = Scene()
    scene.launcher.told_to_save, scene.left_s = 990.0, 60.0 + EARLY_S
    assert scene.found() == Interruption("time", "its time limit is near", {}, save=True, saving_since=990.0)


def test_a_program_that_is_run_again_by_hand() -> None:
    """Its user debugs it: only a request to save and a later run end it."""
    scene = Scene(hang_s=5.0, by_hand=True)
    scene.guards.drained["n1"], scene.guards.quiet, scene.guards.alive = WHY, ("n2",), False
    scene.clock.sleep(1000.0)
    assert (scene.found(), scene.watcher.look_at_nodes(), scene.asked) == (None, False, [])
    scene.launcher.told_to_stop, scene.launcher.told_to_save = True, 990.0
    assert scene.found() == Interruption("itself", "the job is stopped", {}, save=True, saving_since=990.0)
    scene.guards.turn_lost = True
    assert scene.found() == Interruption("nodes", "a later run of this job has begun")


def test_a_job_that_is_stopped() -> None:
    """Its program has been told to save. Slurm is not asked for the time left."""
    scene = Scene()
    scene.launcher.told_to_stop, scene.launcher.told_to_save = True, 990.0
    assert scene.found() == Interruption("itself", "the job is stopped", {}, save=True, saving_since=990.0)
    assert scene.asked == []


def test_a_job_that_slurm_ends() -> None:
    """As a job that is stopped, but in the time that Slurm leaves."""
    scene = Scene()
    scene.launcher.ending, scene.launcher.told_to_save = True, 990.0
    assert scene.found() == Interruption("itself", "Slurm ends the job", {}, save=True, saving_since=990.0)
    assert scene.asked == []


def test_the_time_to_save(capsys: pytest.CaptureFixture[str]) -> None:
    """The shortest of the job's, the site's and, after SIGTERM, Slurm's."""
    launcher = Launcher()
    launcher.kill_s = 26.0
    assert allowed_grace(600.0, {}, launcher) == 600.0
    assert allowed_grace(600.0, {"max_grace_s": 300}, launcher) == 300.0
    launcher.ending = True
    assert allowed_grace(20.0, {"max_grace_s": 300}, launcher) == 20.0
    assert allowed_grace(600.0, {"max_grace_s": 300}, launcher) == 26.0
    assert capsys.readouterr().out == (
        "[slurm_plugin] grace asked for 10 min 0 s, the site allows 5 min 0 s (max_grace)\n"
        "[slurm_plugin] grace asked for 10 min 0 s, Slurm leaves 26 s (KillWait)\n"
    )


def test_a_program_that_saves_and_ends_before_the_next_look() -> None:
    """With the signal its end is no failure. Without the signal it is."""
    scene = Scene()
    scene.watcher.ended()
    assert scene.watcher.found is None
    scene.launcher.told_to_save, scene.left_s = 999.5, 60.0
    scene.watcher.ended()
    assert scene.watcher.found == Interruption("time", "its time limit is near", {}, save=True, saving_since=999.5)


def test_somebody_elses_signal() -> None:
    """A user requested a checkpoint, long before the limit. Slurm is asked once for each signal."""
    scene = Scene()
    scene.launcher.told_to_save, scene.left_s = 990.0, 60.0 + EARLY_S + 1
    assert scene.found() is scene.found() is None
    assert scene.asked == [("time", ())]
    scene.launcher.told_to_save, scene.left_s = 1000.0, 100.0
    found = scene.found()
    assert found
    assert (found.cause, found.saving_since) == ("time", 1000.0)


def test_a_signal_before_the_first_look_on_a_lost_node() -> None:
    """The nodes come first: without them nothing can be saved."""
    scene = Scene()
    scene.launcher.told_to_save, scene.left_s, scene.guards.alive = 990.0, 1.0, False
    found = scene.found()
    assert found
    assert found.cause == "nodes"


def test_before_the_program_only_its_nodes_count() -> None:
    """Copying data or setting up nodes writes no checkpoint, and is not told the time."""
    scene = Scene(hang_s=1.0)
    scene.launcher.told_to_save = scene.clock.now()
    assert not scene.watcher.look_at_nodes()
    assert scene.asked == []
    scene.guards.quiet = ("n2",)
    assert scene.watcher.look_at_nodes()
    assert scene.watcher.found == Interruption(
        "nodes", "nodes were lost", {"n2": Health("unreachable", "does not answer")}
    )


def test_a_node_that_does_not_answer_now_is_seen_without_a_question() -> None:
    """A spare node does not matter to the program."""
    scene = Scene()
    assert not scene.watcher.lost
    scene.guards.quiet = ("n3",)
    assert not scene.watcher.lost
    scene.guards.quiet = ("n3", "n1")
    assert scene.watcher.lost
    assert scene.asked == []


@pytest.mark.parametrize("grace_s", [0.0, 60.0])
def test_it_is_slow(grace_s: float) -> None:
    """The program ends, and saves first if it can, when the job is to be moved; a lost node comes first."""
    scene = Scene(grace_s=grace_s, mover=SimpleNamespace(look=lambda: "hardware time is 0.9 of e2e time"))
    assert scene.found() == Interruption("slow", "hardware time is 0.9 of e2e time", save=grace_s > 0)
    scene.guards.alive = False
    assert scene.found() == Interruption("nodes", "the guards' step has ended")
