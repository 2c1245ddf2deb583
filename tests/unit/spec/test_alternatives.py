"""`any_of`: the same job on other nodes, each alternative as a separate spec."""

import pytest

from slurm_plugin.errors import UsageError
from slurm_plugin.spec import load, load_all
from slurm_plugin.spec.expand import MAY_DIFFER, MOST
from slurm_plugin.spec.record import Spec
from tests.refusals import refusal_of

BASE = (
    "name: a\nmode: pytorch\nnodes: 4\nmin_nodes: 2\naccelerators: {gpu: 8}\ncommand: python x.py\nenv: {A: a, B: b}\n"
)


def all_of(text: str) -> tuple[Spec, ...]:
    """Return each alternative."""
    return load_all(text.encode(), "job.yaml")


def refused(text: str) -> list[str]:
    """Return the problems."""
    return [line.strip() for line in refusal_of(UsageError, all_of, text).splitlines()[1:-1]]


def test_each_differs_where_it_says() -> None:
    """Other keys are the spec's; mappings are merged. `min_nodes` belongs to its `nodes`."""
    wide = "{partition: [a, b], nodes: 8, accelerators: {gpu: 4}, env: {B: c}}"
    text = f"any_of:\n- {{partition: h100}}\n- {wide}\n- {{nodes: 2-6}}\n"
    one, two, three = all_of(BASE + text)
    assert (one.partition, one.nodes, one.min_nodes, one.accelerators.gpu) == (("h100",), 4, 2, 8)
    assert (two.partition, two.nodes, two.min_nodes, two.accelerators.gpu) == (("a", "b"), 8, None, 4)
    assert (one.env, two.env) == ({"A": "a", "B": "b"}, {"A": "a", "B": "c"})
    assert (three.nodes, three.min_nodes) == (6, 2)
    assert {each.name for each in (one, two, three)} == {"a"}


def test_without_any() -> None:
    """One job."""
    assert all_of(BASE) == (load(BASE.encode(), "a"),)


def test_where_one_job_is_wanted() -> None:
    """Alternatives are refused."""
    with pytest.raises(UsageError, match="any_of: found 2 alternatives; this takes one job"):
        load(f"{BASE}any_of: [{{nodes: 2}}, {{nodes: 3}}]\n".encode(), "a")


def test_no_list_of_alternatives() -> None:
    """The message has the accepted form."""
    for value in ["3", "{nodes: 4}", "[]", "[{nodes: 4}]", "[3, {nodes: 4}]", str([{}] * (MOST + 1))]:
        (problem,) = refused(f"{BASE}any_of: {value}\n")
        assert problem.startswith("line 8: any_of: found "), value
        assert problem.endswith(f"accepted: a list of 2 to {MOST} mappings, each with the keys in which it differs"), (
            value
        )


def test_problems_stand_where_they_are() -> None:
    """Problems of an alternative have its lines. Problems of the spec are reported once."""
    text = (
        BASE.replace("gpu: 8", "gpu: x") + "retries: 999\nany_of:\n- nodes: 0\n- noodles: 3\n  name: b\n- time: soon\n"
    )
    told = refused(text)
    assert [line.split(":")[0] for line in told] == ["line 5", "line 8", "line 10", "line 11", "line 12"]
    assert told[2].startswith("line 10: any_of.0.nodes: found '0'; accepted: ")
    accepted = f"accepted: {', '.join(MAY_DIFFER)}; did you mean nodes?"
    assert told[3] == f"line 11: any_of.1.noodles: no alternative can change it; {accepted}"
    assert told[4].startswith("line 12: any_of.1.name: no alternative can change it")
    (problem,) = refused(f"{BASE}any_of:\n- {{nodes: 4}}\n- {{time: soon}}\n")
    assert problem.startswith("line 10: any_of.1.time: found 'soon'; accepted: ")


def test_an_array() -> None:
    """It is refused: every task of it runs."""
    (problem,) = refused(f"{BASE}array: 0-3\nany_of: [{{nodes: 2}}, {{nodes: 3}}]\n")
    assert problem.startswith("line 9: any_of: found it with `array`")
