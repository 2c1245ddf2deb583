"""Mirrors slurm_plugin/spec/json_schema.py: the schema and `load` agree on the examples and on wrong specs."""

import copy
import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from slurm_plugin.__main__ import main
from slurm_plugin.launch import MODES
from slurm_plugin.spec import Spec, keyed, load, load_all
from slurm_plugin.spec.json_schema import schema
from slurm_plugin.spec.record import WORDS
from tests.refusals import refusal_of

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))
SMALL = {"name": "a", "mode": "openmpi", "command": "./a.out"}
VALIDATED = pytest.mark.skipif(importlib.util.find_spec("jsonschema") is None, reason="jsonschema is not installed")
BOOL = "tag:yaml.org,2002:bool"


class Editor(yaml.SafeLoader):
    """YAML 1.2, as in editors: `yes` is a word."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as in its base class
        first: [(tag, pattern) for tag, pattern in each if tag != BOOL]
        for first, each in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


Editor.add_implicit_resolver(BOOL, re.compile("^(?:true|false)$"), list("tf"))


def valid(document: Any) -> bool:
    """Return whether the schema accepts what an editor reads."""
    import jsonschema  # type: ignore[import-untyped,unused-ignore]

    return bool(jsonschema.Draft202012Validator(schema()).is_valid(document))


def test_it_is_printed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """With the draft that it names."""
    assert main(["schema"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(json.dumps(schema()))
    assert printed["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_every_key_says_what_it_is_for() -> None:
    """With its own description and that of its type. No other key is accepted."""
    made = schema()
    assert list(made["properties"]) == list(WORDS) == list(Spec.__struct_fields__)
    assert made["additionalProperties"] is False
    assert all(each["description"].startswith(WORDS[key].means) for key, each in made["properties"].items())
    assert set(made["properties"]["mode"]["enum"]) == set(MODES)
    assert made["properties"]["cpus"]["description"] == "CPUs for each process: a whole number from 1 to 65536"


def test_each_reference_and_pattern_can_be_read() -> None:
    """No Python-specific pattern is left."""
    text = json.dumps(schema())
    assert {found.split("/")[-1] for found in re.findall(r"#/\$defs/\w+", text)} == set(schema()["$defs"])
    assert "\\Z" not in text
    for pattern in re.findall(r'"pattern": ("(?:[^"\\]|\\.)*")', text):
        re.compile(json.loads(pattern))


def test_it_can_be_asked_for_again() -> None:
    """A second call gives the same schema."""
    assert schema() == copy.deepcopy(schema())


def test_each_mode_has_an_example_of_its_name() -> None:
    """With a comment at its head."""
    names = {path.stem: path for path in EXAMPLES}
    assert {mode: load(names[mode].read_bytes(), mode).mode for mode in MODES} == {mode: mode for mode in MODES}
    assert all(path.read_text().startswith("# ") for path in EXAMPLES)


@VALIDATED
def test_it_is_a_schema() -> None:
    """It is valid by its own draft."""
    import jsonschema

    jsonschema.Draft202012Validator.check_schema(schema())


@VALIDATED
def test_each_example_is_valid() -> None:
    """As an editor reads it, with numbers and truth values."""
    for path in EXAMPLES:
        assert valid(yaml.load(path.read_text(), Editor)), path  # noqa: S506 - a SafeLoader


ACCEPTED: list[dict[str, Any]] = [
    {},
    {"nodes": "4-8"},
    {"nodes": "4"},
    {"time": 30},
    {"env": {"A": 1, "B": None, "C": True, "D": 0.1}},
    {"partition": "a,b", "exclude": ["n1", "n[2-3]"], "dependency": "singleton"},
    {"accelerators": {"gpu": 8, "type": "a100"}},
    {"mail": {"type": ["END", "FAIL"]}},
    {"sbatch": {"switches": 1, "contiguous": "yes"}},
    {"memory": 0},
    {"any_of": [{"partition": "a"}, {"partition": "b", "nodes": "2-4"}]},
    {"array": "0-31%4"},
    {"env_file": "a.env"},
    {"modules": "gcc/12,cuda"},
    {"launch": "task", "logs": {"per": "node", "directory": "l", "label": "yes"}},
    {"error": "a.err", "open_mode": "truncate"},
    {"hooks": {"before": "a.sh", "after": ["b.py"], "found": "no"}},
    {"hooks": {"on_restart": "a.sh", "on_failure": ["b.py"], "on_hold": []}},
    {"share": {"group": "team"}},
    {"performance": {"threshold": 0.8, "pattern": "(a)(b)"}},
    {"share": {"access": "none"}},
    {"stage_in": [{"from": "/a/b"}, {"from": "c", "to": "d"}]},
    {"modules": ["gcc/12", "cuda@11+x=1"]},
    {"env_file": ["a.env", "/b.env"]},
    {"partition": None},
    {
        "search": {
            "algorithm": ["tpe_search", "random"],
            "metric": {"name": "loss", "goal": "maximize"},
            "space": {"lr": {"type": "log", "minval": -4}, "n": [1, None]},
            "trials": 20,
            "gamma": 0.5,
        }
    },
    {"search": {"algorithm": "grid", "metric": {"name": 1}, "space": {}, "bracket_rungs": [3], "pass": "arguments"}},
    {"metadata": {"annotations": {"fault-tolerance/job-retry-num": "3"}}},
    {"retries": 1, "metadata": {"annotations": {"fault-tolerance/job-unconditional-retry": True}}},
]
REFUSED: list[dict[str, Any]] = [
    {"node": 1},
    {"nodes": 0},
    {"nodes": "8-"},
    {"mode": "mpi"},
    {"name": "a b"},
    {"accelerators": {"gpus": 8}},
    {"memory": "lots"},
    {"array": "all"},
    {"partition": ["a b"]},
    {"mail": {"user": "x"}},
    {"sbatch": ["--contiguous"]},
    {"retries": 1000},
    {"any_of": [{"partition": "a"}, {"retries": 1}]},
    {"output": "a\nb"},
    {"command": []},
    {"env_file": ["~/x"]},
    {"modules": ["a b"]},
    {"logs": "rank"},
    {"open_mode": "w"},
    {"hooks": ["a.sh"]},
    {"stage_in": [{"to": "x"}]},
    {"stage_in": "/a"},
    {"search": {"algorithm": ["best"], "metric": {"name": "m"}, "space": {}}},
    {"search": {"algorithm": "grid", "metric": {"name": "m"}, "space": {}, "trial": 3}},
]


@VALIDATED
def test_it_accepts_what_load_accepts() -> None:
    """And refuses what load refuses."""
    for keys in [*ACCEPTED, *REFUSED]:
        document = {**SMALL, **keys}
        assert valid(document) == (keys in ACCEPTED), keys
        text = yaml.safe_dump(document).encode()
        if keys in ACCEPTED:
            keyed(text, "job.yaml", search=lambda _: ())
        else:
            assert re.search("nothing was submitted", refusal_of(Exception, load_all, text, "job.yaml")), keys


@VALIDATED
def test_what_must_be_given_may_come_from_a_preset() -> None:
    """The editor does not have the site's file."""
    assert valid({"extends": "a100"})
    assert not valid({"name": "a", "mode": "single"})
