"""Node lists: every name in its place, back and forth, and as `scontrol show hostnames` reads them."""

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostfiles import HostfileError
from hostfiles.nodelist import MAX_NAMES, expand, expand_counts, fold

NAMES = st.lists(
    st.one_of(
        st.from_regex(r"[a-z.]{0,2}[0-9]{1,3}", fullmatch=True),
        st.from_regex(r"[A-Za-z0-9._][A-Za-z0-9._-]{0,20}", fullmatch=True),
        st.integers(0, 30).map(lambda number: f"n{number}"),
    ),
    min_size=1,
    max_size=40,
)
RANGES = st.lists(
    st.tuples(st.integers(0, 120), st.integers(0, 12), st.integers(1, 4)).map(
        lambda part: f"{part[0]:0{part[2]}d}" + (f"-{part[0] + part[1]:0{part[2]}d}" if part[1] else "")
    ),
    min_size=1,
    max_size=4,
).map(lambda parts: f"[{','.join(parts)}]")
LISTS = st.lists(
    st.one_of(
        st.from_regex(r"[a-z][a-z0-9.-]{0,5}", fullmatch=True),
        st.tuples(st.from_regex(r"[a-z][a-z0-9-]{0,4}", fullmatch=True), RANGES).map("".join),
        st.tuples(st.sampled_from(["r", "rack-", "c0"]), RANGES, st.sampled_from(["n", "s", "-n"]), RANGES).map(
            "".join
        ),
    ),
    min_size=1,
    max_size=6,
).map(",".join)


@pytest.mark.parametrize(
    ("text", "names"),
    [
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
    ],
)
def test_expand(text: str, names: str) -> None:
    """Padding, dimensions, suffixes, order and doubles are kept."""
    assert expand(text) == names.split()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "node list '', character 1: an empty name"),
        ("a,,b", "node list 'a,,b', character 3: an empty name"),
        (",a", "node list ',a', character 1: an empty name"),
        ("a,", "node list 'a,', character 3: an empty name"),
        ("n[1-2],", "node list 'n[1-2],', character 8: an empty name"),
        ("n[3-1]", "node list 'n[3-1]', character 3: the range '3-1' runs backwards"),
        ("n[1,5-2]", "node list 'n[1,5-2]', character 5: the range '5-2' runs backwards"),
        ("n[1-2]]", "node list 'n[1-2]]', character 7: a ']' that closes nothing"),
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
    ],
)
def test_expand_refuses(text: str, message: str) -> None:
    """A malformed list is an error that says what was found where, never a shorter list."""
    with pytest.raises(HostfileError) as caught:
        expand(text)
    assert str(caught.value) == f"{message}; a node list reads n[08-11],gpu1"


@pytest.mark.parametrize("inside", ["", "1,", ",1", "a", "a-b", "1-", "-1", "1--2", "+1-2", "1 -2", "١", "1\n"])
def test_expand_refuses_what_is_no_range(inside: str) -> None:
    """Only ASCII digits and ranges of them may stand in brackets."""
    with pytest.raises(HostfileError, match="in brackets, where a number or a range such as 1-4 is wanted"):
        expand(f"n[{inside}]")


def test_a_long_list_is_shortened_in_the_message() -> None:
    """An error about a list of thousands of names stays one readable line."""
    with pytest.raises(HostfileError) as caught:
        expand(",".join(f"n{number}" for number in range(5000)) + ",[")
    assert len(str(caught.value)) < 160


@pytest.mark.parametrize(
    ("names", "text"),
    [
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
    ],
)
def test_fold(names: str, text: str) -> None:
    """Neighbours with one text before their last number share brackets."""
    assert fold(names.split()) == text


@pytest.mark.parametrize("names", [[], [""], ["n1", "n,2"], ["n[1]"], ["-n"], ["n1\n"], ["é"]])
def test_fold_refuses_what_is_no_name(names: list[str]) -> None:
    """What could not be read back is not written."""
    with pytest.raises(HostfileError):
        fold(names)


@given(NAMES)
def test_fold_is_undone_by_expand(names: list[str]) -> None:
    """Whatever the names, their order and doubles."""
    assert expand(fold(names)) == names


@given(st.text(alphabet="n01-[],. \n", max_size=20))
def test_expand_gives_names_or_an_error(text: str) -> None:
    """No text makes an empty list, an empty name or another exception; what comes out folds back."""
    try:
        names = expand(text)
    except HostfileError:
        return
    assert names
    assert expand(fold(names)) == names


def test_a_hundred_thousand_names_are_cheap() -> None:
    """Reading the list of a very large cluster takes tens of milliseconds of CPU (the margin is for slow machines)."""
    start = time.process_time()
    names = expand("n[000001-100000]")
    assert expand(",".join(names)) == names
    assert time.process_time() - start < 1.0
    assert fold(names) == "n[000001-065536,065537-100000]"  # scontrol refuses longer ranges
    assert len(names) < MAX_NAMES


@pytest.mark.parametrize(
    ("text", "counts"), [("1", [1]), ("4(x2),2", [4, 4, 2]), ("72(x3)", [72, 72, 72]), ("1,2,1(x1)", [1, 2, 1])]
)
def test_expand_counts(text: str, counts: list[int]) -> None:
    """Slurm's short form of one count a node."""
    assert expand_counts(text) == counts


@pytest.mark.parametrize("text", ["", "0", "4(x0)", "4(x2", "4x2", "4(x2)2", "4,,2", "-1", "4 (x2)", "1(x999999999)"])
def test_expand_counts_refuses(text: str) -> None:
    """Any other form is an error: a wrong count is a wrong rank table."""
    with pytest.raises(HostfileError):
        expand_counts(text)


@pytest.fixture(scope="module")
def slurm_conf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The least configuration that scontrol starts with; no controller is asked."""
    path = tmp_path_factory.mktemp("slurm") / "slurm.conf"
    path.write_text("ClusterName=unit\nSlurmctldHost=localhost\n")
    return path


def scontrol_names(slurm_conf: Path, lists: Sequence[str]) -> list[list[str]]:
    """What `scontrol show hostnames` makes of each list; many lists a process, with a name of our own between them."""
    answers: list[list[str]] = []
    for at in range(0, len(lists), 50):
        some = lists[at : at + 50]
        done = subprocess.run(
            ["scontrol", "show", "hostnames", "".join(f"{text},=," for text in some)],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env={**os.environ, "SLURM_CONF": str(slurm_conf)},
        )
        answers += [part.split() for part in done.stdout.split("=\n")[: len(some)]]
    return answers


@pytest.mark.skipif(shutil.which("scontrol") is None, reason="needs scontrol")
def test_scontrol_reads_the_same_names(slurm_conf: Path) -> None:
    """Both ways: our reading of Slurm's forms, and Slurm's reading of what we fold."""
    texts = ["n[08-11]", "n[008,10]", "n[8-011]", "n[98-101]", "r[0-1]n[0-2]", "tux[2,1-2]", "b2,a1,b2", "[1-2]", "1,2"]
    assert [expand(text) for text in texts] == scontrol_names(slurm_conf, texts)
    generated: list[list[str]] = []

    @settings(max_examples=300, database=None)
    @given(NAMES)
    def collect(names: list[str]) -> None:
        generated.append(names)

    collect()
    assert scontrol_names(slurm_conf, [fold(names) for names in generated]) == generated


@pytest.mark.skipif(shutil.which("scontrol") is None, reason="needs scontrol")
def test_scontrol_reads_every_form_the_same(slurm_conf: Path) -> None:
    """Thousands of lists in Slurm's own forms: padding, mixed width, several brackets, digits behind them, doubles."""
    generated: list[str] = []

    @settings(max_examples=2000, database=None)
    @given(LISTS)
    def collect(text: str) -> None:
        generated.append(text)

    collect()
    ours = [expand(text) for text in generated]
    differing = [
        (text, one, other)
        for text, one, other in zip(generated, ours, scontrol_names(slurm_conf, generated), strict=True)
        if one != other
    ]
    assert differing == []


@pytest.mark.skipif(shutil.which("scontrol") is None, reason="needs scontrol")
def test_scontrol_reads_a_very_long_list(slurm_conf: Path) -> None:
    """Ranges stay below the length that scontrol refuses."""
    names = [f"n{number}" for number in range(100_000)]
    assert scontrol_names(slurm_conf, [fold(names)]) == [names]
