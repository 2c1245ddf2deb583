"""Mirrors slurm_plugin/spec/search_key.py: the key `search` is read with types, and one job has none."""

import msgspec

from slurm_plugin.errors import UsageError
from slurm_plugin.spec import documents, keyed, search_key
from slurm_plugin.spec.search_key import Search
from tests.refusals import refusal_of
from tests.unit.spec.small import SMALL, problems, refusal

SEARCH = "search:\n  algorithm: random\n  metric: {name: m}\n  space: {a: 1e-4, b: '1', c: 1_0}\n  kappa: 1.5\n"


def test_types() -> None:
    """Values of the space and of options have types; all else is checked by its type."""
    ((spec, keys),) = keyed((SMALL + SEARCH).encode(), "job.yaml", search=lambda _: ())
    assert spec.search is not None
    assert spec.search.space == {"a": 1e-4, "b": "1", "c": 10}
    assert spec.search.options == {"kappa": 1.5}
    assert "search" in keys


def test_one_job_has_no_search() -> None:
    """Where a command takes one job, the message names the one for many."""
    assert problems(SEARCH) == ["line 4: search: found a search, which is many jobs; this takes one: try slurm-plugin"
                                " experiment"]  # fmt: skip


def test_an_experiment_file_is_no_job_spec() -> None:
    """A list of unknown keys would not help."""
    assert refusal("name: a\nentrypoint: m:C\nsearcher: {name: single}\n") == (
        "job.yaml: this is an experiment file\n  run: slurm-plugin experiment submit job.yaml"
    )


def test_every_option_is_a_key() -> None:
    """And no other key is an option."""
    fields = [field.encode_name for field in msgspec.structs.fields(Search)]
    options = list(dict.fromkeys(option for options in search_key.OPTIONS.values() for option in options))
    assert fields[fields.index("mode") :] == options


SCALARS = {
    "1": 1,
    "-1_000": -1000,
    "0x1F": 31,
    "0o17": 15,
    "010": 10,
    "1.": 1.0,
    ".5": 0.5,
    "1e-4": 1e-4,
    "-2.5E+3": -2500.0,
    "1_0.5": 10.5,
    "true": True,
    "False": False,
    "yes": "yes",
    "on": "on",
    "~": None,
    "null": None,
    "": None,
    "'1'": "1",
    "1:30": "1:30",
    "2024-01-01": "2024-01-01",
    "1e": "1e",
    "_1": "_1",
    "v1.0": "v1.0",
}


def test_scalars_of_yaml_1_2() -> None:
    """Below a path with types; elsewhere each scalar keeps its text."""
    lines = "".join(f"  k{number}: {text}\n" for number, text in enumerate(SCALARS))
    found = documents.read(f"typed:\n{lines}plain:\n{lines}".encode(), "x.yaml", [("typed",)]).fields
    shown = [repr(value) for value in found["typed"].values()]
    assert shown == [repr(value) for value in SCALARS.values()]
    assert list(found["plain"].values()) == [text.strip("'") for text in SCALARS]


def test_numbers_that_no_json_has() -> None:
    """Infinite numbers are refused with their line."""
    for text in (".inf", "-.INF", ".nan", "1e999"):
        said = refusal_of(UsageError, documents.read, f"a:\n  b: {text}".encode(), "x.yaml", [("a",)])
        assert said.startswith(f"x.yaml: line 2: {text}: a finite number is accepted"), text
