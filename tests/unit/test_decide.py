"""What happens after an attempt: the module's table, one case a row, and what holds for all of them."""

from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.decide import BAD, Action, Attempt, Health, decide

FINE = Health("ok")
NODES = MappingProxyType({"n1": FINE, "n2": Health("node_problem", "gpu-check: 3 of 4 GPUs"), "n3": FINE})
ALL_FINE = MappingProxyType({"n1": FINE, "n2": FINE})
NOTHING_KNOWN = MappingProxyType({"n1": Health("unknown"), "n2": FINE})

TABLE = {
    "told to end": (
        Attempt("program", 143, NODES, told_to_end=True),
        3,
        Action("finish", 143, "it was told to end"),
    ),
    "told to end during the checks": (
        Attempt("precheck", 1, NODES, told_to_end=True),
        3,
        Action("finish", 1, "it was told to end"),
    ),
    "told to end, ended with 0 all the same": (
        Attempt("program", 0, NODES, told_to_end=True),
        3,
        Action("finish", 0, "it was told to end"),
    ),
    "ended with 0": (
        Attempt("program", 0, ALL_FINE),
        3,
        Action("finish", 0, "the program ended with exit code 0"),
    ),
    "ended with 0 on a bad node": (
        Attempt("program", 0, NODES),
        3,
        Action("finish", 0, "the program ended with exit code 0"),
    ),
    "checks failed, restarts left": (
        Attempt("precheck", 1, NODES),
        1,
        Action("requeue", 1, "n2 gpu-check: 3 of 4 GPUs", ("n2",)),
    ),
    "checks failed, no restart left": (
        Attempt("precheck", 1, NODES),
        0,
        Action("fail", 1, "n2 gpu-check: 3 of 4 GPUs; no restart is left"),
    ),
    "failed with 93": (
        Attempt("program", 93, NODES),
        3,
        Action("fail", 93, "the program asked not to be restarted (exit code 93)"),
    ),
    "failed on a bad node, restarts left": (
        Attempt("program", 1, NODES),
        1,
        Action("requeue", 1, "the program failed with exit code 1, and n2 gpu-check: 3 of 4 GPUs", ("n2",)),
    ),
    "killed on a bad node, restarts left": (
        Attempt("program", 137, NODES),
        1,
        Action("requeue", 137, "the program failed with signal 9, and n2 gpu-check: 3 of 4 GPUs", ("n2",)),
    ),
    "failed on a bad node, no restart left": (
        Attempt("program", 5, NODES),
        0,
        Action("fail", 5, "the program failed with exit code 5, and n2 gpu-check: 3 of 4 GPUs; no restart is left"),
    ),
    "failed, all fine": (
        Attempt("program", 7, ALL_FINE),
        3,
        Action("fail", 7, "the program failed with exit code 7; its nodes are fine"),
    ),
    "failed, nothing known": (
        Attempt("program", 139, NOTHING_KNOWN),
        3,
        Action("fail", 139, "the program failed with signal 11; its nodes are fine"),
    ),
    "failed with a code beyond the signals": (
        Attempt("program", 247, ALL_FINE),
        3,
        Action("fail", 247, "the program failed with exit code 247; its nodes are fine"),
    ),
    "failed, no checks": (
        Attempt("program", 2, {}),
        3,
        Action("fail", 2, "the program failed with exit code 2; its nodes are fine"),
    ),
}


@pytest.mark.parametrize(("attempt", "left", "action"), TABLE.values(), ids=TABLE.keys())
def test_table(attempt: Attempt, left: int, action: Action) -> None:
    """Each row of the table gives its one action, with its words."""
    assert decide(attempt, left) == action


@pytest.mark.parametrize(
    ("condition", "leaves_out"),
    [("ok", False), ("unknown", False), ("node_problem", True), ("job_problem", True), ("unreachable", True)],
)
def test_condition(condition: str, leaves_out: bool) -> None:
    """What was found bad, or did not answer, keeps the job away from a node; what could not be measured does not."""
    action = decide(Attempt("program", 1, {"n1": FINE, "n2": Health(condition, "x")}), 1)  # type: ignore[arg-type]
    assert action.leave_out == (("n2",) if leaves_out else ())


def test_several_bad_nodes() -> None:
    """All of them are left out, in the order of the job's nodes, each with its own words."""
    nodes = {"n3": Health("unreachable", "did not answer"), "n1": FINE, "n2": Health("job_problem", "dns: n9")}
    assert decide(Attempt("precheck", 1, nodes), 2) == Action(
        "requeue", 1, "n3 did not answer; n2 dns: n9", ("n3", "n2")
    )


@given(
    st.sampled_from(["precheck", "program"]),
    st.integers(0, 255),
    st.dictionaries(
        st.sampled_from(["n1", "n2", "n3"]),
        st.sampled_from([Health(each, "x") for each in ("ok", "unknown", *sorted(BAD))]),  # type: ignore[arg-type]
    ),
    st.booleans(),
    st.integers(-1, 3),
)
def test_always(phase: str, code: int, nodes: dict[str, Health], told: bool, left: int) -> None:
    """A requeue needs a bad node, a restart that is left, and nobody who ended the job; the exit code is kept."""
    action = decide(Attempt(phase, code, nodes, told), left)  # type: ignore[arg-type]
    bad = {name for name, health in nodes.items() if health.condition in BAD}
    assert action.code == code
    if action.kind == "requeue":
        assert left > 0
        assert bad
        assert set(action.leave_out) == bad
        assert not told
        assert phase == "precheck" or code not in (0, 93)
    else:
        assert not action.leave_out
