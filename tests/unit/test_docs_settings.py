"""The documentation of settings agrees with the code: keys, defaults, checks, and examples that work."""

import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

import prechecks
from prechecks.check import COMMON
from slurm_plugin.experiment.file import keys as keys_of_file
from slurm_plugin.site import configuration
from slurm_plugin.site.configuration import SiteConfig
from slurm_plugin.site.files import render_site
from slurm_plugin.spec import policy_language
from slurm_plugin.spec.policy_language import Policy, Rule
from slurm_plugin.submit import policy_verdict
from tests.unit.pages import page, rows, words
from tests.waiting import HANG_S


def keys(kind: type[msgspec.Struct], before: str = "") -> Iterator[tuple[str, str]]:
    """Yield the keys of the site file with their defaults, as YAML writes them."""
    for field in msgspec.structs.fields(kind):
        name = before + field.encode_name
        if before == "prechecks." and field.encode_name in prechecks.SECTIONS:
            continue  # a check's own settings have a table of their own
        if field.type is Policy:
            yield name, "{}"  # its own keys are in the page of the policy
        elif isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from keys(field.type, f"{name}.")
        else:
            factory = field.default_factory
            yield name, _yaml(field.default if factory is msgspec.NODEFAULT else factory())


def _yaml(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return "null" if value is None else str(value)


def test_site_file_keys_and_defaults() -> None:
    """The table of the site file has every key, in order, with its default."""
    shown = [(*words(key), *words(default)) for key, default, _ in rows(page("reference/site-file.md"), "key")]
    assert shown == list(keys(SiteConfig))


def _keys(kind: Any) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(kind)}


def test_experiment_file_keys() -> None:
    """The page names every key of an experiment file, of its parts, and every searcher and storage type."""
    text = re.sub(r"```.*?```", "", page("reference/experiment-file.md"), flags=re.DOTALL)
    named = set(re.findall(r"[a-z0-9_]+", " ".join(re.findall(r"`([^`]+)`", text))))
    summed_up = _keys(keys_of_file.S3) | _keys(keys_of_file.Azure) | _keys(keys_of_file.Optimizations)
    for kind in vars(keys_of_file).values():
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__module__ == keys_of_file.__name__:
            assert _keys(kind) - named - summed_up <= {"registrt_auth"}, kind  # a misspelling that is accepted, too
    assert {*keys_of_file.SEARCHERS, *keys_of_file.STORAGES, *keys_of_file.ENDED} <= named


def test_policy_keys_and_defaults() -> None:
    """The page has every key of a policy and of a rule, in order, with its default."""
    text = page("reference/policy.md")
    for kind, header in ((Policy, "below `policy`"), (Rule, "of a rule")):
        shown = {words(row[0])[0]: words(row[1]) for row in rows(text, header)}
        fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
        assert list(shown) == list(fields)
        for name, default in shown.items():
            assert not default or default == (_yaml(fields[name].default),)


def test_the_policy_that_is_shown(tmp_path: Path) -> None:
    """The example is a policy, and refuses the job below it with this message."""
    text = page("reference/policy.md")
    (tmp_path / "site.yaml").write_text(re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)[0])
    policy = policy_language.compiled(configuration.load(tmp_path / "site.yaml").policy)
    command, *said = re.findall(r"```console\n\$ sbatch (.*?)\n```", text, re.DOTALL)[0].splitlines()
    (asked,) = policy_verdict.jobs("", shlex.split(command), {})
    verdict = policy_verdict.submitted(policy, policy_verdict.facts(asked, "ada"))
    assert [line.removeprefix("sbatch: error: ") for line in said[:-1]] == list(verdict.refusals)


def test_checks_with_shared_causes() -> None:
    """The page lists the items that only the periodic check drains for."""
    found = re.search(r"So `([^`]*)` are job problems", page("reference/checks.md"))
    assert found
    assert found[1].split() == [check.item for check in prechecks.CHECKS if check.shared]


def test_settings_of_checks() -> None:
    """Every setting of every check, with its default and the check's own description."""
    table = rows(page("reference/checks.md"), "setting")
    shown = [(name, default.strip(), means.strip()) for names, default, means in table for name in words(names)]
    assert shown == [
        (f"{section}.{name}", f"`{_yaml(each.default)}`", each.means)
        for section, settings in prechecks.SECTIONS.items()
        for name, each in settings.items()
    ]
    common = [tuple(map(str.strip, row)) for row in rows(page("reference/site-file.md"), "setting of every check")]
    assert common == [
        (f"`{name}`", f"`{_yaml(each.default)}`", ": ".join(filter(None, (each.means, ", ".join(each.accepted)))))
        for name, each in COMMON.items()
    ]


def test_the_site_file_that_is_shown_is_accepted(tmp_path: Path) -> None:
    """The examples together are a site file."""
    examples = re.findall(r"```yaml\n(.*?)```", page("reference/site-file.md"), re.DOTALL)
    (tmp_path / "site.yaml").write_text("".join(examples))
    config = configuration.load(tmp_path / "site.yaml")
    assert (config.max_retries, config.prechecks.gpu_check.count) == (10, 8)
    assert config.prechecks.disk_size.required == ("cache",)
    assert config.priorities["urgent"].per_user == 2


def test_slurm_conf_lines(tmp_path: Path) -> None:
    """The table has the lines of the rendered fragment, in order."""
    render_site(SiteConfig(), tmp_path / "site")
    fragment = (tmp_path / "site/slurm.conf.fragment").read_text().splitlines()
    assert [words(row[0])[0] for row in rows(page("reference/slurm-conf.md"), "line")] == [
        line for line in fragment if not line.startswith("#")
    ]


def test_files_on_the_nodes(tmp_path: Path) -> None:
    """The table of the site directory has everything that is rendered, and the kill switch."""
    render_site(SiteConfig(), tmp_path / "site")
    rendered = {path.relative_to(tmp_path / "site") for path in (tmp_path / "site").rglob("*") if path.is_file()}
    expected = {*map(str, rendered), "DISABLED"}
    shown = rows(page("reference/files.md"), "in `/etc/slurm/slurm_plugin/`")
    assert {word for row in shown for word in words(row[0])} == expected


def test_checks() -> None:
    """Items and their descriptions are those of the registry, in its order. The page marks the job_problem."""
    text = page("reference/checks.md")
    shown = [(*words(row[0]), row[1]) for row in rows(text, "item")]
    assert shown == [(check.item, check.looks_at) for check in prechecks.CHECKS]
    (alone,) = (check.item for check in prechecks.CHECKS if check.problem != prechecks.NODE_PROBLEM)
    assert f"All items are node_problems except `{alone}`, which is a job_problem" in text


def test_the_check_that_is_shown_works() -> None:
    """The example is a check that the runner runs."""
    (code,) = re.findall(r"```python\n(.*?)```", page("how-to/write-a-check.md"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(textwrap.dedent(code), names)  # noqa: S102 - our own page
    (verdict,) = prechecks.run(
        prechecks.Context("prolog", "n1"), {"deadline_s": HANG_S, "uptime": {"least": 60.0}}, checks=[names["Uptime"]()]
    )
    assert verdict.verdict in (prechecks.OK, prechecks.FAILED)
    assert names["judge"](60.0, 60).verdict == prechecks.FAILED
