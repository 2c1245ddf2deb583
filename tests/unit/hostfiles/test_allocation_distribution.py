"""Which rank runs on which node: captured answers of Slurm, and properties of every allocation."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from hostfiles import FORMATS, Allocation, Host, HostfileError, pytorch
from hostfiles.allocation import normal_distribution
from tests.refusals import refusal_of

COUNTS = st.lists(st.integers(1, 9), min_size=1, max_size=8)
DISTRIBUTIONS = st.one_of(st.sampled_from(["block", "cyclic"]), st.integers(1, 12).map("plane={}".format))


def allocated(counts: Sequence[int], distribution: str) -> Allocation:
    """Return hosts with these numbers of tasks."""
    return Allocation(
        tuple(Host(f"n{index}", 1, count) for index, count in enumerate(counts)), distribution=distribution
    )


# `srun -m DISTRIBUTION --label` of 10 tasks on 8,1(x2) and of 9 on 7,1(x2): the nodes of the ranks (22.05.8)
def test_as_srun() -> None:
    """The nodes in Slurm's order, with local ranks that count up on each."""
    cases = [
        ("block", (8, 1, 1), "0000000012"),
        ("cyclic", (8, 1, 1), "0120000000"),
        ("plane=2", (8, 1, 1), "0012000000"),
        ("plane=3", (8, 1, 1), "0001200000"),
        ("plane=2", (7, 1, 1), "001200000"),
    ]
    for distribution, counts, nodes in cases:
        found = allocated(counts, distribution).places
        assert "".join(str(node) for node, _ in found) == nodes, distribution
        assert [local for node, local in found if node == 0] == list(range(counts[0])), distribution


@given(COUNTS, DISTRIBUTIONS)
def test_places_are_a_partition(counts: list[int], distribution: str) -> None:
    """Each place once. On each node local ranks from 0 without a gap, in the order of the ranks."""
    found = allocated(counts, distribution).places
    assert sorted(found) == [(node, local) for node, count in enumerate(counts) for local in range(count)]
    assert all([local for at, local in found if at == node] == list(range(count)) for node, count in enumerate(counts))


@given(COUNTS, DISTRIBUTIONS)
def test_ranks_are_contiguous(counts: list[int], distribution: str) -> None:
    """RANK runs from 0 to WORLD_SIZE - 1, and each host has its own LOCAL_WORLD_SIZE."""
    allocation = allocated(counts, distribution)
    ranks = [pytorch.rank_variables(allocation, task, 61000) for task in range(allocation.tasks)]
    assert [rank["RANK"] for rank in ranks] == [str(task) for task in range(sum(counts))]
    assert {(rank["GROUP_RANK"], rank["LOCAL_WORLD_SIZE"]) for rank in ranks} == {
        (str(index), str(count)) for index, count in enumerate(counts)
    }


@given(COUNTS)
def test_every_host_has_its_slots(slots: list[int]) -> None:
    """In every hostfile, in the order of the allocation."""
    allocation = Allocation(tuple(Host(f"n{index}", count) for index, count in enumerate(slots)))
    for form, between in (("openmpi", " slots="), ("deepspeed", " slots="), ("horovod", " slots="), ("mpich", ":")):
        lines = FORMATS[form](allocation, 61000, None).splitlines()
        assert lines == [f"n{index}{between}{count}" for index, count in enumerate(slots)]


def test_normal() -> None:
    """Options that place tasks inside a node change no rank."""
    cases = [
        ("", "block"),
        ("*", "block"),
        ("*:cyclic", "block"),
        ("block:cyclic,nopack", "block"),
        ("Block,Pack", "block"),
        ("nopack", "block"),
        ("cyclic:block", "cyclic"),
        ("plane=4", "plane=4"),
    ]
    for text, meant in cases:
        assert normal_distribution(text) == meant, text
        assert Allocation((Host("a"),), distribution=text).distribution == meant, text


def test_normal_refuses() -> None:
    """An unknown distribution is an error, not a guess."""
    for text in ["arbitrary", "plane", "plane=", "plane=0", "plane=-1", "plane=x", "random", "blocks"]:
        caught = refusal_of(HostfileError, normal_distribution, text)
        assert caught == f"the distribution {text!r}; block, cyclic and plane=N are known", text
