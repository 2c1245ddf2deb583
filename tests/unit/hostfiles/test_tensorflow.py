"""TF_CONFIG: each task once and of the right type, and no two members at one address."""

import json

from hypothesis import given
from hypothesis import strategies as st

from hostfiles import FORMATS, Allocation, Host, HostfileError, from_lists, tensorflow
from tests.refusals import refusal_of

FOUR = from_lists("n[1-4]")


def test_all_reduce() -> None:
    """Without parameter servers there are only workers, one for each task."""
    assert tensorflow.config(FOUR, 61000, 1) == {
        "cluster": {"worker": ["n1:61000", "n2:61000", "n3:61000", "n4:61000"]},
        "environment": "cloud",
        "task": {"type": "worker", "index": 1},
    }


def test_every_role() -> None:
    """The chief first, then workers, parameter servers, and the evaluator last."""
    configs = [tensorflow.config(FOUR, 61000, task, ps=1, chief=True, evaluator=True) for task in range(4)]
    cluster = {"chief": ["n1:61000"], "worker": ["n2:61000"], "ps": ["n3:61000"], "evaluator": ["n4:61000"]}
    assert [config["cluster"] for config in configs] == [cluster] * 4
    assert [config["task"] for config in configs] == [{"type": kind, "index": 0} for kind in cluster]


def test_members_on_one_host_have_ports_of_their_own() -> None:
    """They count up from the job's port. Near the last port they are the last ports."""
    pair = from_lists("a,b", tasks_per_node="2,1")
    assert tensorflow.config(pair, 61000, 0)["cluster"] == {"worker": ["a:61000", "a:61001", "b:61000"]}
    assert tensorflow.config(pair, 65535, 0)["cluster"] == {"worker": ["a:65534", "a:65535", "b:65534"]}


def test_parameter_servers_beside_the_tasks() -> None:
    """They are spread over the hosts, with the ports after those of the tasks. Every task is a worker or the chief."""
    pair = from_lists("a,b", tasks_per_node="2,1")
    found = tensorflow.cluster(pair, 61000, chief=True, beside=3)
    workers = {"chief": ["a:61000"], "worker": ["a:61001", "b:61000"]}
    assert found == {**workers, "ps": ["a:61002", "b:61001", "a:61003"]}
    assert tensorflow.ports(pair, 3) == 4
    assert tensorflow.cluster(pair, 65535, beside=3)["ps"] == ["a:65534", "b:65533", "a:65535"]


def test_addresses_follow_the_distribution() -> None:
    """Rank 1 of a cyclic job is on the second node."""
    cyclic = from_lists("a,b", tasks_per_node="2,2", distribution="cyclic")
    assert tensorflow.config(cyclic, 1024, 0)["cluster"] == {"worker": ["a:1024", "b:1024", "a:1025", "b:1025"]}


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.integers(0, 4), st.booleans(), st.booleans(), st.data())
def test_every_task_is_one_member(
    counts: list[int], ps: int, chief: bool, evaluator: bool, data: st.DataObject
) -> None:
    """The output is one shell word of JSON, with the task's place. No address occurs twice."""
    allocation = Allocation(tuple(Host(f"n{index}", 1, count) for index, count in enumerate(counts)))
    task = data.draw(st.integers(0, allocation.tasks - 1))
    try:
        text = tensorflow.text(allocation, 65530, task, ps=ps, chief=chief, evaluator=evaluator)
    except HostfileError:
        assert allocation.tasks - ps - chief - evaluator < 1
        return
    value = json.loads(text.removeprefix("export TF_CONFIG='").removesuffix("'\n"))
    addresses = [address for members in value["cluster"].values() for address in members]
    assert len(set(addresses)) == allocation.tasks
    assert addresses[task] == value["cluster"][value["task"]["type"]][value["task"]["index"]]
    assert {len(value["cluster"].get(kind, ())) for kind in ("chief", "evaluator")} <= {0, 1}


def test_refuses() -> None:
    """A cluster that could not train, and a task outside it."""
    cases = [
        (4, {}, "task 4 of 4; tasks count from 0"),
        (-1, {}, "task -1 of 4; tasks count from 0"),
        (
            0,
            {"ps": 4},
            "4 tasks, 4 parameter servers, 0 chief and 0 evaluator; at least one task is left to be a worker",
        ),
        (
            0,
            {"ps": -1},
            "4 tasks, -1 parameter servers, 0 chief and 0 evaluator; at least one task is left to be a worker",
        ),
    ]
    for task, options, message in cases:
        caught = refusal_of(HostfileError, FORMATS["tensorflow"], FOUR, 61000, task, **options)
        assert caught == message, task


def test_refuses_what_is_no_port() -> None:
    """TensorFlow would use any port."""
    for port in [0, 65536]:
        refusal_of(HostfileError, tensorflow.config, FOUR, port, 0)
