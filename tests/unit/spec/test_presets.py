"""Mirrors slurm_plugin/spec/expand.py: a spec with the keys of a site's preset."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from slurm_plugin.errors import UsageError
from slurm_plugin.site import configuration
from slurm_plugin.spec import Accelerators, load, load_all
from slurm_plugin.spec.record import ARRAY_OUTPUT
from tests.refusals import refusal_of

SMALL = "name: a\nmode: pytorch\ncommand: ./a.out\n"
PRESETS: dict[str, dict[str, Any]] = {
    "a100": {"partition": "gpu", "accelerators": {"gpu": "8", "type": "a100"}, "env": {"A": "1", "B": "2"}},
    "small": {"nodes": "2-4", "time": "1h"},
}


def refusal(text: str) -> str:
    return refusal_of(UsageError, load, f"{SMALL}{text}".encode(), "job.yaml", presets=PRESETS).splitlines()[1].strip()


def test_a_jobs_own_keys_win() -> None:
    """Mappings are merged, one level deep."""
    text = f"{SMALL}extends: a100\naccelerators: {{gpu: 4}}\nenv: {{B: own, C: 3}}\n"
    spec = load(text.encode(), "job.yaml", presets=PRESETS)
    assert spec.extends == "a100"
    assert spec.partition == ("gpu",)
    assert spec.accelerators == Accelerators(gpu=4, type="a100")
    assert spec.env == {"A": "1", "B": "own", "C": "3"}


def test_a_preset_may_say_what_must_be_given() -> None:
    """Then the job need not give it."""
    spec = load(b"extends: all\nname: a\n", "a", presets={"all": {"mode": "single", "command": "x"}})
    assert (spec.mode, spec.command) == ("single", "x")


def test_null_takes_a_key_away() -> None:
    """It removes a preset's key, so that the cluster's default holds."""
    assert load(f"{SMALL}extends: a100\npartition: null\n".encode(), "a", presets=PRESETS).partition is None


def test_a_range_is_one_key() -> None:
    """A job's own number replaces the whole range."""
    assert load(f"{SMALL}extends: small\n".encode(), "a", presets=PRESETS).min_nodes == 2
    assert load(f"{SMALL}extends: small\nnodes: 3\n".encode(), "a", presets=PRESETS).min_nodes is None


def test_an_unknown_name_is_told_with_the_known_ones() -> None:
    """And with the nearest; the message also says if there are none."""
    assert refusal("extends: a10\n") == "line 4: extends: found 'a10'; accepted: a100, small; did you mean a100?"
    with pytest.raises(UsageError, match="found 'x'; accepted: nothing, as the site has no presets"):
        load(f"{SMALL}extends: x\n".encode(), "a")


def test_a_problem_of_both_is_told_where_the_preset_is_named() -> None:
    """The preset's own line is in another file."""
    assert refusal("extends: small\nmin_nodes: 1\n").startswith("line 5: min_nodes: found it beside `nodes: 2-4`")
    assert refusal("extends: a100\naccelerators: {gpu: 0}\n").startswith("line 5: accelerators.type: found it without")
    assert refusal("\n\nextends: small\nmode: single\n".replace("mode: single", "launch: x")).startswith("line 7")


def site(tmp_path: Path, text: str) -> configuration.SiteConfig:
    """Write a site file with this text."""
    (tmp_path / "site.yaml").write_text(text)
    return configuration.load(tmp_path / "site.yaml")


def test_a_site_file_has_presets(tmp_path: Path) -> None:
    """They are read unchanged."""
    assert site(tmp_path, "presets:\n  a: {partition: gpu, sbatch: {switches: 1}}\n").presets == {
        "a": {"partition": "gpu", "sbatch": {"switches": "1"}}
    }


def test_presets_are_looked_at_with_the_site_file(tmp_path: Path) -> None:
    """As incomplete specs, every problem with its line."""
    with pytest.raises(UsageError) as error:
        site(tmp_path, "presets:\n  a:\n    partitions: gpu\n    retries: 1000\n    extends: b\n    mail: {user: x}\n")
    found = [line.strip() for line in str(error.value).splitlines()[1:-1]]
    assert found[0] == "line 3: presets.a.partitions: unknown key; here it is partition"
    assert found[1:] == [
        "line 4: presets.a.retries: found '1000'; accepted: a whole number from 0 to 128",
        "line 5: presets.a.extends: found it in a preset; accepted: the other keys of a spec",
    ]


def test_null_takes_any_optional_key_away() -> None:
    """Also a key that has no null of its own: it has its default, as without the preset. A required key is a text."""
    preset = {"modules": ["cuda"], "output": "log", "retries": "3", "env": {"A": "1"}, "nodes": "2-4", "env_file": "a"}
    nulls = "".join(f"{key}: null\n" for key in preset)
    bare = load(SMALL.encode(), "a")
    assert load(f"{SMALL}{nulls}".encode(), "a") == bare
    found = load(f"{SMALL}extends: p\n{nulls}any_of: null\n".encode(), "a", presets={"p": preset})
    assert replace(found, extends=None) == bare
    assert load(f"{SMALL}array: 0-3\noutput: null\n".encode(), "a").output == ARRAY_OUTPUT
    for spec in load_all(f"{SMALL}modules: a\nany_of: [{{modules: null}}, {{modules: null}}]\n".encode(), "a"):
        assert spec.modules == ()
    assert load(b"name: null\nmode: single\ncommand: x\n", "a").name == "null"
