"""Hypothesis strategies for lists of node names, and for node lists in all of Slurm's forms."""

from hypothesis import strategies as st

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
