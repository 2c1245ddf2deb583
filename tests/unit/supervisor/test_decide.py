"""The decision after an attempt: one case for each row of the module's table, and properties of all of them."""

from dataclasses import replace
from types import MappingProxyType
from typing import Any, get_args

from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.supervisor.decide import (
    BAD,
    IN_A_ROW,
    SAVED,
    Action,
    Attempt,
    Cause,
    Condition,
    Health,
    Phase,
    Wish,
    chosen,
    decide,
)

FINE = Health("ok")
LOST_GPU = Health("node_problem", "gpu-check: 3 of 4 GPUs")
NODES = MappingProxyType({"n1": FINE, "n2": LOST_GPU, "n3": FINE})
ALL_FINE = MappingProxyType({"n1": FINE, "n2": FINE})
NOTHING_KNOWN = MappingProxyType({"n1": Health("unknown"), "n2": FINE})
ALL, SPARE, ANY = Wish(3, 3), Wish(2, 2), Wish(2, 2, unconditional=True)
ELASTIC = Wish(3, 1)
SAID = "the program failed with exit code 1"
GPU = "n2 gpu-check: 3 of 4 GPUs"
FAILED = "the program failed with exit code"
DONE, TOLD = "the program ended with exit code 0", "it was told to end"

TABLE = {
    "slow": (Attempt("program", 143, ALL_FINE, cause="slow", in_a_row=3), 1, SPARE,
        Action("requeue", 143, "the program was slow", moved=True),
    ),
    "slow on a bad node, and a spare is there": (Attempt("program", 143, NODES, cause="slow"), 1, SPARE,
        Action("requeue", 143, f"the program was slow, and {GPU}", ("n2",), moved=True),
    ),
    "slow, and the last restart is gone": (Attempt("program", 143, ALL_FINE, cause="slow"), 0, SPARE,
        Action("fail", 143, "the program was slow; no restart is left"),
    ),
    "told to end": (Attempt("program", 143, NODES, told_to_end=True), 3, ALL, Action("finish", 143, TOLD)),
    "told to end during the checks": (
        Attempt("precheck", 1, NODES, told_to_end=True), 3, ALL, Action("finish", 1, "it was told to end"),
    ),
    "told to end, ended with 0 all the same": (
        Attempt("program", 0, NODES, told_to_end=True), 3, ALL, Action("finish", 0, "it was told to end"),
    ),
    "told to end, and any failure counts": (
        Attempt("program", 143, ALL_FINE, told_to_end=True), 3, ANY, Action("finish", 143, TOLD),
    ),
    "ended with 0": (Attempt("program", 0, ALL_FINE), 3, SPARE, Action("finish", 0, DONE)),
    "ended with 0 on a bad node": (Attempt("program", 0, NODES), 3, ALL, Action("finish", 0, DONE)),
    "failed with 93": (
        Attempt("program", 93, NODES), 3, SPARE,
        Action("fail", 93, "the program asked not to be restarted (exit code 93)"),
    ),
    "a hook failed with 93, and any failure counts": (
        Attempt("hook", 93, ALL_FINE), 3, ANY,
        Action("fail", 93, "a hook beside the program asked not to be restarted (exit code 93)"),
    ),
    "checks failed, no restart left": (
        Attempt("precheck", 1, NODES), 0, ALL, Action("fail", 1, f"{GPU}; no restart is left"),
    ),
    "checks failed, restarts left": (Attempt("precheck", 1, NODES), 1, ALL, Action("requeue", 1, GPU, ("n2",))),
    "failed on a bad node, no restart left": (
        Attempt("program", 5, NODES), 0, SPARE,
        Action("fail", 5, f"the program failed with exit code 5, and {GPU}; no restart is left"),
    ),
    "failed on a bad node, a spare": (
        Attempt("program", 1, NODES), 1, SPARE, Action("again", 1, f"{SAID}, and {GPU}", ("n2",), ("n1", "n3")),
    ),
    "failed on a bad node, elastic": (
        Attempt("program", 1, NODES), 1, ELASTIC, Action("again", 1, f"{SAID}, and {GPU}", ("n2",), ("n1", "n3")),
    ),
    "failed on a bad node, too few left": (
        Attempt("program", 1, NODES), 1, ALL, Action("requeue", 1, f"{SAID}, and {GPU}", ("n2",)),
    ),
    "killed on a bad node, too few left": (
        Attempt("program", 137, NODES), 1, ALL,
        Action("requeue", 137, f"the program failed with signal 9, and {GPU}", ("n2",)),
    ),
    "ended by us because a node was lost, a spare": (
        Attempt("program", 143, {**NODES, "n2": Health("unreachable", "does not answer")}, cause="nodes"), 1, SPARE,
        Action("again", 143, "the program was ended, and n2 does not answer", ("n2",), ("n1", "n3")),
    ),
    "ended by us because its guards were lost": (
        Attempt("program", 143, ALL_FINE, cause="nodes"), 1, SPARE,
        Action("again", 143, "the program was ended", (), ("n1", "n2")),
    ),
    "out of time, with a new checkpoint": (
        Attempt("program", 143, ALL_FINE, cause="time", progress=True), 1, SPARE,
        Action("requeue", 143, "the program ran into its time limit"),
    ),
    "out of time on a bad node, a spare": (
        Attempt("program", 143, NODES, cause="time", progress=True), 1, SPARE,
        Action("requeue", 143, f"the program ran into its time limit, and {GPU}", ("n2",)),
    ),
    "out of time, with a new checkpoint, no restart left": (
        Attempt("program", 143, ALL_FINE, cause="time", progress=True), 0, SPARE,
        Action("fail", 143, "the program ran into its time limit; no restart is left"),
    ),
    "out of time, without a checkpoint": (
        Attempt("program", 1, ALL_FINE, cause="time"), 3, SPARE,
        Action("fail", 1, "the program ran into its time limit, and it left no new checkpoint to go on from"),
    ),
    "out of time, without a checkpoint since the last restart in place": (
        Attempt("program", 1, ALL_FINE, cause="time", earlier=True), 3, SPARE,
        Action("requeue", 1, "the program ran into its time limit"),
    ),
    "out of time, nobody can read its checkpoints": (
        Attempt("program", 1, ALL_FINE, cause="time", progress=None, in_a_row=2), 3, SPARE,
        Action("requeue", 1, "the program ran into its time limit"),
    ),
    "out of time, nobody can read its checkpoints, the 4th in a row": (
        Attempt("program", 1, ALL_FINE, cause="time", progress=None, in_a_row=3), 3, SPARE,
        Action("fail", 1, "the program ran into its time limit, after 3 restarts without a new checkpoint"),
    ),
    "ended to run on more nodes, on a node that has become bad, no restart left": (
        Attempt("program", 143, NODES, cause="grow", progress=True), 0, SPARE,
        Action("requeue", 143, "the program was ended to run on more nodes", grow=True),
    ),
    "out of time, done in time": (
        Attempt("program", 0, ALL_FINE), 3, SPARE, Action("finish", 0, DONE),
    ),
    "a trial that saved, out of time, with a new checkpoint": (
        Attempt("program", 0, ALL_FINE, cause="time", progress=True, saved=True), 1, SPARE,
        Action("requeue", 1, "the program ran into its time limit"),
    ),
    "a trial that saved, out of time, no restart left": (
        Attempt("program", 0, ALL_FINE, cause="time", progress=True, saved=True), 0, SPARE,
        Action("finish", 0, SAVED),
    ),
    "a trial that saved because of a drain": (
        Attempt("program", 0, NODES, cause="nodes", saved=True), 1, ALL,
        Action("requeue", 1, f"the program was ended, and {GPU}", ("n2",)),
    ),
    "a trial that saved because of a drain, no restart left": (
        Attempt("program", 0, NODES, cause="nodes", saved=True), 0, ALL, Action("finish", 0, SAVED),
    ),
    "a trial that saved because of its user": (
        Attempt("program", 0, ALL_FINE, saved=True), 1, SPARE, Action("finish", 0, SAVED),
    ),
    "hung": (
        Attempt("program", 137, NOTHING_KNOWN, cause="hang"), 1, SPARE,
        Action("again", 137, "the program hung", (), ("n1", "n2")),
    ),
    "hung for the 4th time in a row": (
        Attempt("program", 137, ALL_FINE, cause="hang", in_a_row=3), 9, SPARE,
        Action("fail", 137, "the program hung, after 3 restarts without a new checkpoint"),
    ),
    "failed, unconditional": (Attempt("program", 1, ALL_FINE), 1, ANY, Action("again", 1, SAID, (), ("n1", "n2"))),
    "a hook failed, unconditional": (
        Attempt("hook", 1, ALL_FINE), 1, ANY,
        Action("again", 1, "a hook beside the program failed with exit code 1", (), ("n1", "n2")),
    ),
    "failed, unconditional, the 4th in a row": (
        Attempt("program", 1, ALL_FINE, in_a_row=3), 9, ANY,
        Action("fail", 1, f"{SAID}, after 3 restarts without a new checkpoint"),
    ),
    "failed, unconditional, the 4th, with progress": (
        Attempt("program", 1, ALL_FINE, progress=True, in_a_row=3), 9, ANY, Action("again", 1, SAID, (), ("n1", "n2")),
    ),
    "failed, unconditional, the 4th, nobody can read its checkpoints": (
        Attempt("program", 1, ALL_FINE, progress=None, in_a_row=3), 9, ANY,
        Action("fail", 1, f"{SAID}, after 3 restarts without a new checkpoint"),
    ),
    "failed, unconditional, no restart left": (
        Attempt("program", 1, ALL_FINE), 0, ANY, Action("fail", 1, f"{SAID}; no restart is left"),
    ),
    "failed, and no node answers": (
        Attempt("program", 7, dict.fromkeys(ALL_FINE, Health("unknown", "did not answer"))), 3, SPARE,
        Action("fail", 7, "the program failed with exit code 7; none of its nodes answered"),
    ),
    "failed, all fine": (
        Attempt("program", 7, ALL_FINE), 3, SPARE,
        Action("fail", 7, "the program failed with exit code 7; its nodes are fine"),
    ),
    "failed, nothing known": (
        Attempt("program", 139, NOTHING_KNOWN), 3, SPARE,
        Action("fail", 139, "the program failed with signal 11; its nodes are fine"),
    ),
    "failed with a code beyond the signals": (
        Attempt("program", 247, ALL_FINE), 3, SPARE,
        Action("fail", 247, "the program failed with exit code 247; its nodes are fine"),
    ),
    "failed, no checks": (
        Attempt("program", 2, {}), 3, SPARE, Action("fail", 2, f"{FAILED} 2; its nodes are fine"),
    ),
    "its command does not exist": (
        Attempt("program", 127, ALL_FINE), 3, SPARE,
        Action("fail", 127, f"{FAILED} 127: its command was not found; its nodes are fine"),
    ),
    "its command does not exist, and is known": (
        Attempt("program", 127, ALL_FINE, missing="./gone"), 3, SPARE,
        Action("fail", 127, f"{FAILED} 127: ./gone was not found; its nodes are fine"),
    ),
    "its command is no program": (
        Attempt("program", 126, ALL_FINE), 3, SPARE,
        Action("fail", 126, f"{FAILED} 126: its command cannot be executed; its nodes are fine"),
    ),
    "out of memory": (
        Attempt("program", 137, ALL_FINE, cause="memory"), 3, SPARE,
        Action("fail", 137, "the program ran out of memory (signal 9); its nodes are fine"),
    ),
}  # fmt: skip


def test_table() -> None:
    """Each row of the table gives its action, with its message."""
    for what, (attempt, left, wish, action) in TABLE.items():
        assert decide(attempt, left, wish) == action, what


def test_condition() -> None:
    """A node that is bad or does not answer is excluded; an unmeasured one is not."""
    for condition, leaves_out in [
        ("ok", False),
        ("unknown", False),
        ("node_problem", True),
        ("job_problem", True),
        ("unreachable", True),
    ]:
        nodes: dict[str, Any] = {"n1": FINE, "n2": Health(condition, "x")}  # type: ignore[arg-type]
        assert decide(Attempt("program", 1, nodes), 1, SPARE).leave_out == (("n2",) if leaves_out else ()), condition


def test_several_bad_nodes() -> None:
    """All of them are excluded, in the order of the job's nodes, each with its message."""
    nodes = {"n3": Health("unreachable", "did not answer"), "n1": FINE, "n2": Health("job_problem", "dns: n9")}
    assert decide(Attempt("precheck", 1, nodes), 2, SPARE) == Action(
        "requeue", 1, "n3 did not answer; n2 dns: n9", ("n3", "n2")
    )


def test_the_first_healthy_nodes_are_chosen() -> None:
    """In the job's order. Further nodes stay spare. Too few give none."""
    nodes = {"n1": FINE, "n2": LOST_GPU, "n3": Health("unknown"), "n4": FINE}
    assert chosen(nodes, Wish(2, 2)) == ("n1", "n3")
    assert chosen(nodes, Wish(9, 3)) == ("n1", "n3", "n4")
    assert chosen(nodes, Wish(4, 4)) == ()


NAMES = ["n1", "n2", "n3"]
HEALTHS = [Health(condition, "x") for condition in get_args(Condition)]
ATTEMPTS = st.builds(
    Attempt,
    st.sampled_from(get_args(Phase)),
    st.integers(0, 255),
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from(HEALTHS)),
    st.booleans(),
    st.sampled_from(get_args(Cause)),
    st.none() | st.booleans(),
    st.integers(0, 5),
)
WISHES = st.builds(Wish, st.integers(1, 3), st.integers(1, 3), st.booleans())


@given(ATTEMPTS, st.integers(-1, 3), WISHES)
def test_always(attempt: Attempt, left: int, wish: Wish) -> None:
    """No restart if none is left, if the job was told to end, succeeded, or requested none."""
    action = decide(attempt, left, wish)
    bad = {name for name, health in attempt.nodes.items() if health.condition in BAD}
    if action.kind in ("again", "requeue"):
        assert left > 0 or action.grow
        assert not attempt.told_to_end
        assert attempt.phase == "precheck" or attempt.code != 93
        assert set(action.leave_out) == (set() if action.grow else bad)
        assert action.grow == (attempt.cause == "grow")
        assert bad or wish.unconditional or attempt.cause not in ("itself", "memory")
        assert bad or attempt.progress or action.grow or action.moved or attempt.in_a_row < IN_A_ROW
    else:
        assert not action.leave_out
    if action.kind == "again":
        assert not bad & set(action.nodes)
        assert min(wish.least, wish.nodes) <= len(action.nodes) <= wish.nodes
    else:
        assert not action.nodes
    assert action.moved == (action.kind == "requeue" and attempt.cause == "slow")
    if action.kind == "fail":
        assert action.code
    assert action.code == attempt.code or (attempt.code, action.code) == (0, 1)


@given(st.lists(ATTEMPTS, min_size=40, max_size=40), st.integers(0, 8), WISHES)
def test_no_job_runs_more_often_than_its_budget_allows(attempts: list[Attempt], granted: int, wish: Wish) -> None:
    """Whatever the attempts' results: at most 1 + granted, and 4 in a row without a fault or progress.

    A slow program is moved at most once an hour, and only if other nodes are idle.
    """
    runs, in_a_row, longest = 0, 0, 0
    for attempt in attempts:
        runs += 1
        now = replace(attempt, in_a_row=in_a_row)
        action = decide(now, granted - (runs - 1), wish)
        if action.kind not in ("again", "requeue"):
            break
        if action.grow:  # SlurmUser limits these, see slurm_plugin.controller.requeue_policy
            runs -= 1
            continue
        in_a_row = 0 if now.progress or action.leave_out or action.moved else in_a_row + 1
        longest = max(longest, in_a_row)
    assert runs <= 1 + granted
    assert longest <= IN_A_ROW
