"""Node lists: expanded and folded, every name in its place."""

import re

from hypothesis import given
from hypothesis import strategies as st

from hostfiles import HostfileError, nodelist
from hostfiles.nodelist import MAX_NAMES, expand, expand_counts, fold
from tests.refusals import refusal_of
from tests.unit.hostfiles.names import NAMES


def test_expand() -> None:
    """Padding, dimensions, suffixes, order and duplicates are kept."""
    cases = [
        ("n1", "n1"),
        ("n[08-11]", "n08 n09 n10 n11"),
        ("n[008,10]", "n008 n10"),
        ("n[98-101]", "n98 n99 n100 n101"),
        ("n[098-101]", "n098 n099 n100 n101"),
        ("n[8-011]", "n8 n9 n10 n11"),
        ("r[0-1]n[0-2]", "r0n0 r0n1 r0n2 r1n0 r1n1 r1n2"),
        ("n[1-2][3-4]", "n13 n14 n23 n24"),
        ("n[1-2]-ib0", "n1-ib0 n2-ib0"),
        ("a1,b[2-3]-ib", "a1 b2-ib b3-ib"),
        ("tux[2,1-2]", "tux2 tux1 tux2"),
        ("b2,a1,b2", "b2 a1 b2"),
        ("[1-2]", "1 2"),
        ("gpu-1.cluster_a,[0-0]x", "gpu-1.cluster_a 0x"),
    ]
    for text, names in cases:
        assert expand(text) == names.split(), text


def test_expand_refuses() -> None:
    """A malformed list is an error with its place, never a shorter list."""
    cases = [
        ("", "node list '', character 1: an empty name"),
        ("a,,b", "node list 'a,,b', character 3: an empty name"),
        (",a", "node list ',a', character 1: an empty name"),
        ("a,", "node list 'a,', character 3: an empty name"),
        ("n[1-2],", "node list 'n[1-2],', character 8: an empty name"),
        ("n[3-1]", "node list 'n[3-1]', character 3: the range '3-1' runs backwards"),
        ("n[1,5-2]", "node list 'n[1,5-2]', character 5: the range '5-2' runs backwards"),
        ("n[1-2]]", "node list 'n[1-2]]', character 7: a ']' without a '['"),
        ("n[1-2", "node list 'n[1-2', character 2: a '[' that is not closed"),
        ("n[[1]]", "node list 'n[[1]]', character 2: a '[' that is not closed"),
        ("n 1", "node list 'n 1', character 2: the character ' '"),
        ("n1\n", "node list 'n1\\n', character 3: the character '\\n'"),
        (
            "fe80::1",
            "node list 'fe80::1', character 5: a ':', which no host's name has (an IPv6 address has no form in a"
            " hostfile)",
        ),
        ("n\x00", "node list 'n\\x00', character 2: the character '\\x00'"),
        ("n1;id", "node list 'n1;id', character 3: the character ';'"),
        ("-w", "node list '-w', character 1: a name that begins with '-': '-w'"),
        ("a,-[1-2]", "node list 'a,-[1-2]', character 3: a name that begins with '-': '-1'"),
        ("n[1-99999999]", "node list 'n[1-99999999]', character 3: more than 1048576 names"),
        ("n[1-9999]m[1-9999]", "node list 'n[1-9999]m[1-9999]', character 1: more than 1048576 names"),
        ("n[1234567890123456]", "node list 'n[1234567890123456]', character 3: a number of more than 15 digits"),
    ]
    for text, message in cases:
        caught = refusal_of(HostfileError, expand, text)
        assert caught == f"{message}; a node list reads n[08-11],gpu1", text


def test_expand_refuses_what_is_no_range() -> None:
    """Only ASCII digits and ranges of them may be in brackets."""
    for inside in ["", "1,", ",1", "a", "a-b", "1-", "-1", "1--2", "+1-2", "1 -2", "١", "1\n"]:
        assert re.search(
            "in brackets, where a number or a range such as 1-4 is wanted",
            refusal_of(HostfileError, expand, f"n[{inside}]"),
        ), inside


def test_names() -> None:
    """An empty or malformed list has none."""
    assert [nodelist.names(text) for text in ("n[2,1]", "", "n[1-2", "(null)")] == [["n2", "n1"], [], [], []]


def test_a_long_list_is_shortened_in_the_message() -> None:
    """An error about a list of thousands of names stays one readable line."""
    assert len(refusal_of(HostfileError, expand, ",".join(f"n{number}" for number in range(5000)) + ",[")) < 160


def test_fold() -> None:
    """Adjacent names with the same text before their last number share brackets."""
    cases = [
        ("n1", "n1"),
        ("n08 n09 n10 n11", "n[08-11]"),
        ("n008 n10", "n[008,10]"),
        ("n9 n10 n011", "n[9-10,011]"),
        ("tux2 tux1 tux2", "tux[2,1-2]"),
        ("n n1 n2 n", "n,n[1-2],n"),
        ("b2 a1 b2", "b2,a1,b2"),
        ("r0n1 r0n2 r1n1", "r0n[1-2],r1n1"),
        ("n1-ib n2-ib", "n1-ib,n2-ib"),
        ("1 2 3", "[1-3]"),
        ("n1234567890123456 n1234567890123457", "n1[234567890123456-234567890123457]"),
    ]
    for names, text in cases:
        assert fold(names.split()) == text, names


def test_fold_refuses_what_is_no_name() -> None:
    """Names that could not be read back are not written."""
    for names in [[], [""], ["n1", "n,2"], ["n[1]"], ["-n"], ["n1\n"], ["é"]]:
        refusal_of(HostfileError, fold, names)


@given(NAMES)
def test_fold_is_undone_by_expand(names: list[str]) -> None:
    """Whatever the names, their order and duplicates."""
    assert expand(fold(names)) == names


@given(st.text(alphabet="n01-[],. \n", max_size=20))
def test_expand_gives_names_or_an_error(text: str) -> None:
    """No text gives an empty list, an empty name or another exception. The result can be folded."""
    try:
        names = expand(text)
    except HostfileError:
        return
    assert names
    assert expand(fold(names)) == names


def test_a_hundred_thousand_names() -> None:
    """As ranges and one by one. benchmarks/nodelists.py measures the cost."""
    names = expand("n[000001-100000]")
    assert expand(",".join(names)) == names
    assert fold(names) == "n[000001-065536,065537-100000]"  # scontrol refuses longer ranges
    assert len(names) < MAX_NAMES


def test_expand_counts() -> None:
    """Slurm's short form of one count for each node."""
    for text, counts in [("1", [1]), ("4(x2),2", [4, 4, 2]), ("72(x3)", [72, 72, 72]), ("1,2,1(x1)", [1, 2, 1])]:
        assert expand_counts(text) == counts, text


def test_expand_counts_refuses() -> None:
    """Any other form is an error: a wrong count is a wrong rank table."""
    for text in ["", "0", "4(x0)", "4(x2", "4x2", "4(x2)2", "4,,2", "-1", "4 (x2)", "1(x999999999)"]:
        refusal_of(HostfileError, expand_counts, text)
