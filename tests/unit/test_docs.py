"""The documentation agrees with the code: tables, names, defaults, links and commands."""

import ast
import re
import shlex
from pathlib import Path
from types import ModuleType
from typing import get_args

import click
import msgspec
import pytest

import prechecks
from hostfiles import FORMATS
from hostfiles.allocation import job_port
from slurm_plugin.__main__ import COMMANDS
from slurm_plugin.cli.group import LazyGroup
from slurm_plugin.cli.nodeside import hosts as hosts_command
from slurm_plugin.controller import requeue_policy
from slurm_plugin.node.hook import HOOKS, NODE_IS_BAD
from slurm_plugin.records.grant import Grant
from slurm_plugin.spec import Spec
from slurm_plugin.spec.key_types import Container
from slurm_plugin.supervisor import decide
from slurm_plugin.supervisor.decide import DO_NOT_RESTART
from tests.releases import OBSERVED, Observed
from tests.unit.pages import DOCS, PAGES, ROOT, page, rows, words

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"slurm-plugin((?: [a-z_-]+)+)")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
JOB_VERBS = ("supervise", "guard", "record", "prestart", "stage-in", "enter", "open", "carry", "relay")


def table(module: ModuleType) -> str:
    """Return the table in a module's docstring."""
    return "".join(f"{line}\n" for line in str(module.__doc__).splitlines() if line.startswith("|"))


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_decision_table_is_that_of_the_code() -> None:
    """The page on recovery has the table of the docstring, word for word."""
    assert table(decide) in page("explanation/recovery.md")


def test_relative_links_resolve() -> None:
    """Each link names a file of this repository, and a heading that exists."""
    for path in PAGES:
        for link in LINK.findall(path.read_text(encoding="utf-8")):
            if "://" in link:
                continue
            name, _, anchor = link.partition("#")
            target = (path.parent / name).resolve() if name else path
            assert target.exists(), link
            assert target.is_relative_to(ROOT), link
            assert not anchor or anchor in anchors(target), link


def test_every_page_is_in_the_index() -> None:
    """The index and the navigation of mkdocs.yml name every page once."""
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    linked = {link.partition("#")[0] for link in LINK.findall(page("README.md"))}
    assert linked | {"README.md"} == pages
    shown = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(shown) == sorted(pages)


def test_installed_code_names_no_page() -> None:
    """A message that names a file of docs/ misleads: a wheel has none. Docstrings and comments may name one."""
    for package in ("slurm_plugin", "prechecks", "hostfiles"):
        for path in (ROOT / package).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            docstrings = {
                ast.get_docstring(node, clean=False) for node in ast.walk(tree) if isinstance(node, DOCUMENTED)
            }
            texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
            found = [text for text in texts if isinstance(text, str) and "docs/" in text and text not in docstrings]
            assert not found, path


def test_files_that_contributors_are_sent_to_exist() -> None:
    """CONTRIBUTING.md and the architecture page name existing files and packages."""
    for path in (ROOT / "CONTRIBUTING.md", DOCS / "explanation/architecture.md"):
        text = path.read_text(encoding="utf-8")
        files = re.findall(r"`((?:slurm_plugin|prechecks|hostfiles|templates|tests)/[\w/.]*)`", text)
        packages = re.findall(r"`(slurm_plugin\.[a-z.]+)`", text)
        assert files or packages
        for name in (*files, *(each.replace(".", "/") for each in packages)):
            assert (ROOT / name).exists() or "NAME" in name, name


def test_pages_that_code_names_exist() -> None:
    """Comments and docstrings that point to a page point to one that exists."""
    folders = ("slurm_plugin", "prechecks", "hostfiles", "templates", "tests", "examples", "benchmarks", ".ci")
    for path in (each for folder in folders for each in (ROOT / folder).rglob("*") if each.is_file()):
        if path.suffix in (".pyc", ".txt") or "captured" in path.parts:
            continue
        for name in re.findall(r"docs/([\w/-]+\.md)", path.read_text(encoding="utf-8", errors="replace")):
            assert (DOCS / name).exists(), f"{path}: {name}"


def test_commands_exist() -> None:
    """Every `slurm-plugin VERB` on a page is a command, and so is its second word if the first takes one."""
    for path in PAGES:
        shown = [
            found[1].split()
            for code in CODE.findall(path.read_text(encoding="utf-8"))
            for found in COMMAND.finditer(code)
        ]
        for verb, *rest in shown:
            assert verb in COMMANDS, verb
            for second in rest[:1]:
                assert second in _seconds(verb, second), f"{verb} {second}"


def _seconds(verb: str, given: str) -> tuple[str, ...]:
    """Return the words that may follow a verb; the given word if the verb takes anything."""
    if verb == "job":
        return JOB_VERBS
    if verb == "hook":
        return HOOKS
    group = LazyGroup(COMMANDS)
    command = group.get_command(click.Context(group), verb)
    return tuple(command.list_commands(click.Context(command))) if isinstance(command, click.Group) else (given,)


def test_hostfiles_that_are_shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands in docs/reference/hosts.md print the output below them, with Linux's usual ephemeral ports."""
    monkeypatch.setattr(hosts_command, "master_port", job_port)
    blocks = re.findall(r"```console\n(.*?)```", page("reference/hosts.md"), re.DOTALL)
    shown = [part.split("\n", 1) for block in blocks for part in block.split("$ slurm-plugin hosts ")[1:]]
    assert len(shown) == 5
    for command, output in shown:
        assert hosts_command.main(shlex.split(command)) == 0
        assert capsys.readouterr().out == output


def test_every_format_is_in_the_table() -> None:
    """The table has every format, in the order of FORMATS."""
    assert tuple(words(row[0])[0] for row in rows(page("reference/hosts.md"), "format")) == tuple(FORMATS)


def test_spec_keys() -> None:
    """The contract and the page of the spec name every key."""
    built = [field.encode_name for field in msgspec.structs.fields(Spec)]
    (listed,) = re.findall(r"\*\*Spec keys\*\*.*?`([a-z_ ]+)`", page("reference/contract.md"), re.DOTALL)
    assert sorted(listed.split()) == sorted(built)
    assert sorted(words(row[0])[0] for row in rows(page("reference/spec.md"), "key")) == sorted(built)


def test_container_keys() -> None:
    """The page has a row for each key, in order."""
    found = rows(page("reference/containers.md"), "key of `container`")
    assert [words(row[0])[0] for row in found] == [field.encode_name for field in msgspec.structs.fields(Container)]


def test_verbs() -> None:
    """The contract names every command. Reserved names do not exist."""
    listed, reserved = re.findall(
        r"\*\*Verbs\*\*.*?: `([a-z -]+)`.*?Reserved: `([a-z ]+)`", page("reference/contract.md"), re.DOTALL
    )[0]
    assert sorted(listed.split()) == sorted(name for name, (_, line) in COMMANDS.items() if line)
    assert not set(reserved.split()) & set(COMMANDS)


def test_fields() -> None:
    """The grant's and the report's fields, the verdicts and the two exit codes."""
    text = page("reference/contract.md")
    assert [words(row[0])[0] for row in rows(text.split("**Grant**")[1], "field")] == list(Grant.__dataclass_fields__)
    report = text.split("**Report**")[1].split("**")[0]
    for name in (*prechecks.Report._fields, *prechecks.Verdict._fields):
        assert f"`{name}`" in report, name
    assert f"Verdicts: `{prechecks.OK} failed timeout skipped error`" in report
    codes = page("reference/commands.md")
    assert f"| | {DO_NOT_RESTART} |" in codes
    assert f"| the program behind a hook | {NODE_IS_BAD} |" in codes


def test_fields_of_an_attempt() -> None:
    """The page on files has the fields that the supervisor writes."""
    source = (ROOT / "slurm_plugin/supervisor/attempt_record.py").read_text()
    written = ["cluster", *re.findall(r'^ {8}"([a-z]+)": ', source.split("def line")[1].split("def ")[0], re.MULTILINE)]
    rows_of = rows(page("reference/files.md").split("## attempts.jsonl")[1], "field")
    assert [word for row in rows_of for word in words(row[0])] == written
    kinds = get_args(decide.Action.__dataclass_fields__["kind"].type)
    *most, last = (f"`{kind}`" for kind in kinds)
    assert rows_of[-1][1].startswith(f"{', '.join(most)} or {last}")


def test_settle_times() -> None:
    """Both times are the code's."""
    text = page("explanation/fencing.md")
    shown = ", ".join(f"{release.settling} on {release.name}" for release in OBSERVED)
    assert f"what the release needs ([releases](../reference/releases.md)): {shown}" in text
    assert f"`SETTLE_AFTER_DEATH_S`, {requeue_policy.SETTLE_AFTER_DEATH_S} s" in text


def test_releases() -> None:
    """The table of releases agrees with the records, one column each."""

    def cells(release: Observed) -> list[str]:
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
            yes[not release.lost_node_bars_changes],
            yes[release.expedited_requeue],
            yes[release.includes_beside_slurm_conf],
        ]

    text = page("reference/releases.md")
    assert "| what | 22.05 | 24.11 | 26.05 |" in text
    assert [list(column) for column in zip(*rows(text, "what"), strict=True)][1:] == [*map(cells, OBSERVED)]


def test_nothing_of_a_private_place() -> None:
    """No page names a path of the machine on which it was written."""
    for path in PAGES:
        assert "/work" not in path.read_text(encoding="utf-8").replace("/workdir", ""), path.name
