"""What ends a program that runs: what becomes of its nodes and its time, and what is no reason."""

from slurm_plugin.decide import Health
from slurm_plugin.job.watch import EARLY_S, Interruption
from tests.unit.job.watched import WHY, Scene


def test_all_is_well() -> None:
    """And nobody is asked."""
    scene = Scene()
    assert scene.found() is None
    assert scene.asked == []


def test_a_later_run_has_begun() -> None:
    """The program may not go on, and this run not either: nothing of it is decided here any more."""
    scene = Scene()
    scene.guards.turn_lost = True
    assert scene.found() == Interruption("nodes", "a later run of this job has begun")
    assert scene.launcher.told_to_end


def test_the_guards_have_ended() -> None:
    """Nothing is known of any node."""
    scene = Scene()
    scene.guards.alive, scene.guards.quiet = False, ("n1", "n2", "n3")
    assert scene.found() == Interruption("nodes", "the guards' step has ended")
    assert not scene.launcher.told_to_end


def test_no_other_node_answers() -> None:
    """It is ours that is cut off."""
    scene = Scene()
    scene.guards.isolated, scene.guards.quiet = True, ("n2", "n3")
    assert scene.found() == Interruption("nodes", "no other node of the job answers")
    assert scene.asked == []


def test_nodes_are_lost() -> None:
    """Those that do not answer guards of their own either; at once, with no time to save."""
    scene = Scene()
    scene.guards.quiet, scene.there = ("n1", "n2"), ("n1",)
    lost = {"n2": Health("unreachable", "does not answer")}
    assert scene.found() == Interruption("nodes", "nodes were lost", lost)
    assert scene.asked == [("reachable", ("n1", "n2"))]


def test_guards_are_lost() -> None:
    """Their nodes are there: no node is to blame, but nobody holds their leases."""
    scene = Scene()
    scene.guards.quiet = scene.there = ("n2",)
    assert scene.found() == Interruption("nodes", "guards were lost")


def test_a_drained_node() -> None:
    """The program may save before it is ended; each reason is asked of Slurm once."""
    scene = Scene()
    scene.guards.drained["n2"] = WHY
    health = {"n2": Health("node_problem", WHY)}
    assert scene.found() == Interruption("nodes", "nodes were drained under it", health, save=True)
    assert scene.asked == [("drained", ("n2",))]


def test_a_drain_that_is_over() -> None:
    """An admin has resumed the node: what it wrote down counts for nothing, until there is another reason."""
    scene = Scene()
    scene.standing = ()
    scene.guards.drained["n2"] = WHY
    assert scene.found() is scene.found() is None
    assert scene.asked == [("drained", ("n2",))]
    scene.guards.drained["n2"], scene.standing = "slurm_plugin: dns: no", ("n2",)
    assert scene.found() is not None


def test_what_becomes_of_a_spare_node() -> None:
    """Is none of the program's business: it does not run there."""
    scene = Scene()
    scene.guards.quiet = ("n3",)
    scene.guards.drained["n3"] = WHY
    assert scene.found() is None
    assert scene.asked == []


def test_without_grace() -> None:
    """Neither drains nor the time limit are looked for; a node that is lost is."""
    scene = Scene(grace_s=0.0)
    scene.guards.drained["n2"] = WHY
    scene.launcher.told_to_save, scene.left_s = 999.0, 1.0
    assert scene.found() is None
    scene.guards.quiet = ("n2",)
    assert scene.found() is not None
    assert scene.asked == [("reachable", ("n2",))]


def test_the_time_limit() -> None:
    """Slurm's signal has told the program to save, and when; from then on it has its grace."""
    scene = Scene()
    scene.launcher.told_to_save, scene.left_s = 990.0, 60.0 + EARLY_S
    assert scene.found() == Interruption("time", "its time limit is near", {}, save=True, saving_since=990.0)


def test_a_program_that_saves_and_ends_before_the_next_look() -> None:
    """It was told to, and did: its end is not its own fault. Without the signal it is."""
    scene = Scene()
    scene.watcher.ended()
    assert scene.watcher.found is None
    scene.launcher.told_to_save, scene.left_s = 999.5, 60.0
    scene.watcher.ended()
    assert scene.watcher.found == Interruption("time", "its time limit is near", {}, save=True, saving_since=999.5)


def test_somebody_elses_signal() -> None:
    """A user asked for a checkpoint, long before the limit; each signal is asked about once."""
    scene = Scene()
    scene.launcher.told_to_save, scene.left_s = 990.0, 60.0 + EARLY_S + 1
    assert scene.found() is scene.found() is None
    assert scene.asked == [("time", ())]
    scene.launcher.told_to_save, scene.left_s = 1000.0, 100.0
    found = scene.found()
    assert found
    assert (found.cause, found.saving_since) == ("time", 1000.0)


def test_a_signal_before_the_first_look_on_a_lost_node() -> None:
    """The nodes come first: nothing can be saved without them."""
    scene = Scene()
    scene.launcher.told_to_save, scene.left_s, scene.guards.alive = 990.0, 1.0, False
    found = scene.found()
    assert found
    assert found.cause == "nodes"


def test_before_the_program_only_its_nodes_count() -> None:
    """What copies data or sets up nodes writes no checkpoint, and is told no time."""
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
    """A spare one is none of the program's."""
    scene = Scene()
    assert not scene.watcher.lost
    scene.guards.quiet = ("n3",)
    assert not scene.watcher.lost
    scene.guards.quiet = ("n3", "n1")
    assert scene.watcher.lost
    assert scene.asked == []
