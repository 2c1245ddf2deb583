"""Records of any content have a view: users own the journal and the trials' files."""

import json
import math
import re

from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.records.experiments import STATES, Algorithm, Experiment, Metric, Report, Search, State, Trial
from slurm_plugin.views.experiment import figures, page, summary, text
from tests.experiments import HOSTILE

NOW = 1e9
numbers = st.sampled_from([0.0, 1.0, -1.0, 9.5, 5e-324, 1e308, -1e308, math.inf, -math.inf])
ends = st.sampled_from([0, 1, -5, 1e-300, -1e308, 1e308, 400, True, None, "x"])
values = st.recursive(
    numbers | st.none() | st.booleans() | st.just(10**400) | st.just(HOSTILE),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "b.c"]), inner, max_size=2),
    max_leaves=4,
)
parameter = st.one_of(
    values,
    st.fixed_dictionaries({"type": st.sampled_from(["int", "double", "log"]), "minval": ends, "maxval": ends}),
    st.fixed_dictionaries({"type": st.just("categorical"), "vals": st.lists(values, max_size=30)}),
)
names = st.sampled_from(["a", "b.c", "", HOSTILE])
spaces = st.dictionaries(names, parameter | st.dictionaries(names, parameter, max_size=2), max_size=4)
trials = st.builds(
    Trial,
    number=st.just(1),
    values=st.dictionaries(names, values, max_size=4),
    state=st.sampled_from(STATES),
    algorithm=st.integers(0, 3),
    began=numbers,
    ended=numbers,
    reports=st.lists(st.builds(Report, time=numbers, value=numbers, at=numbers), max_size=5).map(tuple),
    checkpoints=st.lists(st.tuples(st.just(HOSTILE), numbers), max_size=2).map(tuple),
    why=st.just(HOSTILE),
)
states = st.builds(
    State,
    trials=st.lists(trials, max_size=6).map(
        lambda those: tuple(each._replace(number=place) for place, each in enumerate(those, 1))
    ),
    budget=st.integers(0, 9),
    concurrent=st.integers(0, 3),
    paused=st.booleans(),
    stopped=st.booleans(),
    exhausted=st.booleans(),
)


@given(spaces, states, st.booleans(), st.integers(0, 10))
def test_views(space: dict[str, object], state: State, smaller: bool, length: int) -> None:
    """Each view shows them: lines are printable, JSON is JSON, coordinates are within their chart."""
    search = Search(Metric("loss", smaller), space, (Algorithm("random"),) * 2, 3, max_length=length)
    one = Experiment(HOSTILE, search)
    shown = [*text.status(one, state, NOW, on=False), *text.table(one, state.trials, NOW, on=False)]
    shown += text.best(one, text.chosen(one, state, NOW, sort="value"), NOW, lambda _: {})
    assert all(line.isprintable() for line in shown)
    json.dumps(summary.form(one, state, NOW))
    assert len({len(row) for row in summary.rows(one, state.trials, NOW)}) == 1
    found = page.page(one, state, NOW, page.Beside())
    assert found.count("<script") == 1
    for path in re.findall(r'class="m [^>]* d="([^"]*)"', found):
        assert all(0 <= int(each) <= figures.WIDE for each in re.findall(r"\d+", path)), path
