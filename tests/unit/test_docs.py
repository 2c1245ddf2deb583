"""The documentation says what the code says: tables, names, defaults, links and commands."""

import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import click
import msgspec
import pytest

import prechecks
from hostfiles import FORMATS, ports
from prechecks import setting
from slurm_plugin import after_run, decide, siteconfig
from slurm_plugin.__main__ import NODE_SIDE
from slurm_plugin.cli import COMMANDS, cli
from slurm_plugin.decide import DO_NOT_RESTART
from slurm_plugin.grant import Grant
from slurm_plugin.hooks import HOOKS, NODE_IS_BAD
from slurm_plugin.job import hosts
from slurm_plugin.policy import facts, judge, language
from slurm_plugin.policy.language import Policy, Rule
from slurm_plugin.site import render_site
from slurm_plugin.siteconfig import SiteConfig
from slurm_plugin.slurm.releases import RELEASES, Release
from slurm_plugin.spec import Spec
from slurm_plugin.spec.parts import Container

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md")))
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"slurm-plugin((?: [a-z_-]+)+)")
JOB_VERBS = ("supervise", "guard", "prestart", "stage-in", "enter")


def page(name: str) -> str:
    """One page of docs/."""
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def table(module: ModuleType) -> str:
    """The table in a module's docstring."""
    return "".join(f"{line}\n" for line in str(module.__doc__).splitlines() if line.startswith("|"))


def rows(text: str, header: str) -> list[list[str]]:
    """The cells of the table under this first cell of a header."""
    after = text.split(f"\n| {header} |", 1)[1].splitlines()[2:]
    lines = after[: next((number for number, line in enumerate(after) if not line.startswith("|")), None)]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def words(cell: str) -> tuple[str, ...]:
    """The code spans of a cell."""
    return tuple(re.findall(r"`([^`]+)`", cell))


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("module", [decide, after_run], ids=lambda module: module.__name__)
def test_decision_tables_are_those_of_the_code(module: ModuleType) -> None:
    """docs/recovery.md holds the tables that stand above the functions they describe, word for word."""
    assert table(module) in page("recovery.md")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_relative_links_resolve(path: Path) -> None:
    """Each names a file of this repository, and a heading that is there."""
    for link in LINK.findall(path.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_is_in_the_index() -> None:
    """A page that nobody can find is not there."""
    linked = set(LINK.findall(page("README.md")))
    assert linked == {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_commands_exist(path: Path) -> None:
    """Every `slurm-plugin VERB` that a page shows is a command, its second word too where the first takes one."""
    shown = [
        found[1].split() for code in CODE.findall(path.read_text(encoding="utf-8")) for found in COMMAND.finditer(code)
    ]
    for verb, *rest in shown:
        assert verb in COMMANDS or verb in NODE_SIDE, verb
        for second in rest[:1]:
            assert second in _seconds(verb, second), f"{verb} {second}"


def _seconds(verb: str, given: str) -> tuple[str, ...]:
    """What may follow a verb; itself where the verb takes anything."""
    if verb == "job":
        return JOB_VERBS
    if verb == "hook":
        return HOOKS
    command = cli.get_command(click.Context(cli), verb)
    return tuple(command.commands) if isinstance(command, click.Group) else (given,)


def test_hostfiles_that_are_shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of docs/hosts.md print what stands below them, with Linux's usual ephemeral ports."""
    monkeypatch.setattr(hosts, "master_port", ports.master_port)
    blocks = re.findall(r"```console\n(.*?)```", page("hosts.md"), re.DOTALL)
    shown = [part.split("\n", 1) for block in blocks for part in block.split("$ slurm-plugin hosts ")[1:]]
    assert len(shown) == 5
    for command, output in shown:
        assert hosts.main(shlex.split(command)) == 0
        assert capsys.readouterr().out == output


def test_every_format_is_in_the_table() -> None:
    """And in its order."""
    assert tuple(words(row[0])[0] for row in rows(page("hosts.md"), "format")) == tuple(FORMATS)


def keys(kind: type[msgspec.Struct], before: str = "") -> Iterator[tuple[str, str]]:
    """The keys of the site file with their defaults, as YAML has them."""
    for field in msgspec.structs.fields(kind):
        name = before + field.encode_name
        if name.partition(".")[2] in prechecks.SECTIONS:
            continue  # a check's own part: docs/checks.md
        if field.type is Policy:
            yield name, "{}"  # its own keys: docs/policy.md
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
    shown = [(*words(key), *words(default)) for key, default, _ in rows(page("install.md"), "key")]
    assert shown == list(keys(SiteConfig))


def test_policy_keys_and_defaults() -> None:
    """docs/policy.md has every key of a policy and of a rule, in order; its tables name no default that is not one."""
    text = page("policy.md")
    for kind, header in ((Policy, "below `policy`"), (Rule, "of a rule")):
        shown = {words(row[0])[0]: words(row[1]) for row in rows(text, header)}
        fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
        assert list(shown) == list(fields)
        for name, default in shown.items():
            assert not default or default == (_yaml(fields[name].default),)


def test_the_policy_that_is_shown(tmp_path: Path) -> None:
    """The example in docs/policy.md is one, and refuses the job below it in these words."""
    text = page("policy.md")
    (tmp_path / "site.yaml").write_text(re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)[0])
    policy = language.compiled(siteconfig.load(tmp_path / "site.yaml").policy)
    command, *said = re.findall(r"```console\n\$ sbatch (.*?)\n```", text, re.DOTALL)[0].splitlines()
    (asked,) = facts.asked("", shlex.split(command), {})
    verdict = judge.submitted(policy, facts.facts(asked, "ada"))
    assert [line.removeprefix("sbatch: error: ") for line in said[:-1]] == [each.text for each in verdict.refusals]


def test_how_many_checks() -> None:
    """The README counts them right."""
    assert f"[{len(prechecks.CHECKS)} items](docs/checks.md)" in (ROOT / "README.md").read_text()


def test_checks_with_shared_causes() -> None:
    """Those that only the periodic check drains for."""
    found = re.search(r"So `([^`]*)` are job problems", page("checks.md"))
    assert found
    assert found[1].split() == [check.item for check in prechecks.CHECKS if check.shared]


def test_settings_of_checks() -> None:
    """Every setting of every check, with its default and in the words that the check itself has for it."""
    shown = [tuple(map(str.strip, row)) for row in rows(page("checks.md"), "setting")]
    assert shown == [
        (f"`{section}.{name}`", f"`{_yaml(each.default)}`", each.means)
        for section, settings in prechecks.SECTIONS.items()
        for name, each in settings.items()
    ]
    common = [tuple(map(str.strip, row)) for row in rows(page("install.md"), "setting of every check")]
    assert common == [
        (f"`{name}`", f"`{_yaml(each.default)}`", ": ".join(filter(None, (each.means, ", ".join(each.accepted)))))
        for name, each in setting.COMMON.items()
    ]


def test_the_site_file_that_is_shown_is_accepted(tmp_path: Path) -> None:
    """The example in docs/install.md is one."""
    example = re.findall(r"```yaml\n(.*?)```", page("install.md"), re.DOTALL)
    assert len(example) == 1
    (tmp_path / "site.yaml").write_text(example[0])
    config = siteconfig.load(tmp_path / "site.yaml")
    assert (config.max_retries, config.prechecks.disk_size.cache, config.prechecks.gpu_check.count) == (10, None, 8)


def test_slurm_conf_lines(tmp_path: Path) -> None:
    """The table has the lines of the rendered fragment, in order."""
    render_site(SiteConfig(), tmp_path / "site")
    fragment = (tmp_path / "site/slurm.conf.fragment").read_text().splitlines()
    assert [words(row[0])[0] for row in rows(page("install.md"), "line")] == [
        line for line in fragment if not line.startswith("#")
    ]


def test_files_on_the_nodes(tmp_path: Path) -> None:
    """The table of the site directory has everything that is rendered, and the kill switch."""
    render_site(SiteConfig(), tmp_path / "site")
    rendered = {path.relative_to(tmp_path / "site") for path in (tmp_path / "site").rglob("*") if path.is_file()}
    expected = {*map(str, rendered), "DISABLED"}
    shown = rows(page("contract.md"), "in `/etc/slurm/slurm_plugin/`")
    assert {word for row in shown for word in words(row[0])} == expected


def test_checks() -> None:
    """Items, keywords, what each looks at, and problems are those of the registry, in its order."""
    shown = [(*words(row[0]), *words(row[1]), row[2].strip(), row[-1]) for row in rows(page("checks.md"), "item")]
    assert shown == [
        (check.item, check.item.replace(".", " "), check.looks_at, check.problem) for check in prechecks.CHECKS
    ]


def test_the_check_that_is_shown_works() -> None:
    """The example in docs/checks.md is a check that the runner runs."""
    (code,) = re.findall(r"```python\n(.*?)```", page("checks.md"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(textwrap.dedent(code), names)  # noqa: S102 - our own page
    (verdict,) = prechecks.run(prechecks.Context("prolog", "n1"), {"deadline_s": 10.0}, checks=[names["Uptime"]()])
    assert verdict.verdict in (prechecks.OK, prechecks.FAILED)
    assert names["judge"](60.0, 60).verdict == prechecks.FAILED


def test_spec_keys() -> None:
    """docs/contract.md and docs/spec.md name every key of a spec."""
    built = [field.encode_name for field in msgspec.structs.fields(Spec)]
    (listed,) = re.findall(r"\*\*Spec keys\*\*.*?`([a-z_ ]+)`", page("contract.md"), re.DOTALL)
    assert sorted(listed.split()) == sorted(built)
    assert sorted(words(row[0])[0] for row in rows(page("spec.md"), "key")) == sorted(built)


def test_container_keys() -> None:
    """docs/containers.md has a row for each."""
    found = rows(page("containers.md"), "key of `container`")
    assert [words(row[0])[0] for row in found] == [field.encode_name for field in msgspec.structs.fields(Container)]


def test_verbs() -> None:
    """docs/contract.md names every command, and what it reserves is not there."""
    listed, reserved = re.findall(
        r"\*\*Verbs\*\*.*?: `([a-z ]+)`.*?Reserved: `([a-z ]+)`", page("contract.md"), re.DOTALL
    )[0]
    assert sorted(listed.split()) == sorted(COMMANDS)
    assert not set(reserved.split()) & {*COMMANDS, *NODE_SIDE}


def test_fields() -> None:
    """The grant's and the report's fields, the verdicts and the two exit codes."""
    text = page("contract.md")
    assert [words(row[0])[0] for row in rows(text.split("**Grant**")[1], "field")] == list(Grant.__dataclass_fields__)
    report = text.split("**Report**")[1].split("**")[0]
    for name in (*prechecks.Report._fields, *prechecks.Verdict._fields):
        assert f"`{name}`" in report, name
    assert f"Verdicts: `{prechecks.OK} failed timeout skipped error`" in report
    assert f"| | {DO_NOT_RESTART} |" in text
    assert f"| the program behind a hook | {NODE_IS_BAD} |" in text


def test_fields_of_an_attempt() -> None:
    """What docs/contract.md says of attempts.jsonl is what the supervisor writes."""
    source = (ROOT / "slurm_plugin/job/supervise.py").read_text()
    written = re.findall(r'^ {12}"([a-z]+)": ', source.split("def _record")[1].split("def ")[0], re.MULTILINE)
    rows_of = rows(page("contract.md").split("`attempts.jsonl`, one JSON")[1], "field")
    assert [word for row in rows_of for word in words(row[0])] == written
    kinds = get_args(decide.Action.__dataclass_fields__["kind"].type)
    *most, last = (f"`{kind}`" for kind in kinds)
    assert rows_of[-1][1].startswith(f"{', '.join(most)} or {last}")


def test_settle_times() -> None:
    """Both times are the code's."""
    text = page("contract.md")
    shown = ", ".join(f"{release.settling} on {release.name}" for release in RELEASES)
    assert f"what the release needs ([slurm.md](slurm.md)): {shown}" in text
    assert f"`SETTLE_AFTER_DEATH_S`, {after_run.SETTLE_AFTER_DEATH_S} s" in text


def test_releases() -> None:
    """The table of docs/slurm.md is that of the records, a column for each."""

    def cells(release: Release) -> list[str]:
        yes = ("no", "yes")
        return [
            ", ".join(f"`{name}`" for name in release.prolog_node_lists),
            "`1792`" if release.squeue_prints_wait_status else "`7:0`",
            yes[release.resume_clears_reason],
            yes[release.defer_batch_implies_alloc],
            str(release.launch_failure_limit or "no limit"),
            yes[release.lua_error_refuses_job],
            yes[release.reconfigure_starts_epilog_slurmctld],
            yes[release.hooks_repeat],
            release.settling,
            yes[release.expedited_requeue],
        ]

    text = page("slurm.md")
    assert "| what | 22.05 | 24.11 | 26.05 |" in text
    assert [list(column) for column in zip(*rows(text, "what"), strict=True)][1:] == [*map(cells, RELEASES)]


def test_nothing_of_a_private_place() -> None:
    """No page names a path of the machine it was written on."""
    for path in PAGES:
        assert "/work" not in path.read_text(encoding="utf-8").replace("/workdir", ""), path.name
