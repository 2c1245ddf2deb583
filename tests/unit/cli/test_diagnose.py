"""`slurm-plugin diagnose`: what it reads, and what it says of signatures."""

import gzip
import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from slurm_plugin.__main__ import main
from slurm_plugin.logs import library
from slurm_plugin.logs.signature import ROLES
from slurm_plugin.views import diagnosis as view
from tests.unit.pages import page

RAISED = "step 3\n[rank1]: Traceback (most recent call last):\n[rank1]: KeyError: 'tokens'\n"
GOOD = """\
- id: license
  role: root
  class: external_service
  pattern: no license left
  example: no license left
  source: x
"""


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    """What the command prints, with its exit code."""
    assert main(["diagnose", *words]) == code
    out = capsys.readouterr()
    return out.out or out.err


@pytest.mark.parametrize("form", ["plain", "gz", "cut gz", "utf-16", "pipe"])
def test_forms_of_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str) -> None:
    """Compressed, in UTF-16, or from a pipe: it has its own name and its line."""
    path = tmp_path / "a.log"
    text = RAISED + "CUDA out of memory\n" * 9999 if form == "cut gz" else RAISED
    data = {"plain": text.encode(), "utf-16": text.encode("utf-16")}.get(form, gzip.compress(text.encode()))
    if form == "pipe":
        os.mkfifo(path)
        if not os.fork():
            path.write_text(text)
            os._exit(0)
    elif "gz" in form:
        (tmp_path / "a.log.gz").write_bytes(data[: len(data) // 2] if "cut" in form else data)
    else:
        path.write_bytes(data)
    where = path if form == "pipe" else tmp_path
    line = 4 if form == "cut gz" else 3
    assert f"evidence: {path}, line {line}\n" in said(capsys, str(where))


def test_a_directory_with_odd_entries(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Pipes, links without a target, directories named as logs: they are left out. What cannot be read is said."""
    os.mkfifo(tmp_path / "a.log")
    (tmp_path / "b.log").symlink_to("gone")
    (tmp_path / "c.log").mkdir()
    (tmp_path / "node1").mkdir()
    (tmp_path / "node1/rank1.out").write_text("step 3\nKeyError: 'tokens'\n")
    (tmp_path / "node1/rank1.err").write_text("")
    text = said(capsys, str(tmp_path))
    assert "  began with: rank 1 on node1\n  its last step: step 3\n" in text
    (tmp_path / "node1/rank1.out").unlink()
    (tmp_path / "node1/rank1.err").unlink()
    assert "found no log in it" in said(capsys, str(tmp_path), code=2)


def test_names_are_short(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative to the current directory."""
    (tmp_path / "a.log").write_text(RAISED)
    monkeypatch.chdir(tmp_path)
    assert "evidence: a.log, line 3\n" in said(capsys, str(tmp_path / "a.log"))


def test_progress(tmp_path: Path) -> None:
    """A large log shows how far the reading is, on a terminal alone."""
    with (tmp_path / "a.log").open("wb") as file:
        file.truncate(70_000_000)
    argv = [sys.executable, "-m", "slurm_plugin", "diagnose", str(tmp_path / "a.log")]
    leader, terminal = pty.openpty()
    subprocess.run(argv, stderr=terminal, stdout=subprocess.DEVNULL, check=False)
    assert "reading: 100 % of 70 MB" in os.read(leader, 1 << 16).decode()
    assert subprocess.run(argv, capture_output=True, check=False).stderr == b""


def test_json_as_documented(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The page on diagnoses has the schema."""
    (tmp_path / "a.log").write_text(RAISED)
    schema = json.loads(page("reference/diagnosis.md").partition("```json\n")[2].partition("```")[0])
    found = json.loads(said(capsys, "--json", str(tmp_path / "a.log")))
    jsonschema.validate(found, schema)
    assert set(found) == set(schema["properties"])
    (tmp_path / "a.log").write_text("fine\n")
    jsonschema.validate(json.loads(said(capsys, "--json", str(tmp_path / "a.log"), code=1)), schema)


@pytest.mark.parametrize("words", [[], ["--list", "x.log"], ["--class", "user_code", "x.log"]])
def test_wrong_usage(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    """One thing at a time."""
    assert said(capsys, *words, code=2).startswith("slurm-plugin: ")


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    """All about a signature; a similar id for a mistyped one."""
    text = said(capsys, "--explain", "python-exception")
    assert "  class       user_code: the program failed by itself\n" in text
    assert str(library.OURS / "python.yaml") in text
    assert json.loads(said(capsys, "--explain", "python-exception", "--json"))["class"] == "user_code"
    assert "similar: python-exception" in said(capsys, "--explain", "python-exeption", code=2)


def test_each_role_is_explained() -> None:
    """By one table: a role that is added is explained as well."""
    one_of_each = {each.role: each for each in library.load()}
    assert set(one_of_each) == set(ROLES)
    for role, each in one_of_each.items():
        assert f"{role}: {ROLES[role]}" in "\n".join(view.explained(each, "a.yaml", on=False))


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    """All, or those of a class."""
    every = json.loads(said(capsys, "--list", "--json"))["signatures"]
    assert len(every) == len(library.load())
    some = said(capsys, "--list", "--class", "gpu_hw").splitlines()
    assert len(some) == 1 + len([each for each in every if each["class"] == "gpu_hw"])


@pytest.mark.parametrize(
    ("text", "wanted", "code"),
    [
        (GOOD, ["a.yaml: 1 signature, each matches its example"], 0),
        (GOOD + GOOD, ["a.yaml:7: license: an entry above has this id"], 1),
        (GOOD.replace("example: no", "example: on"), ["a.yaml:1: license: its pattern does not match its example"], 1),
        (GOOD + "- text\n", ["a.yaml:7: found no signature; an entry begins with `- id: NAME`"], 1),
        (GOOD.replace("role: root", "role: [root]"), ["a.yaml:1: license: role: found ['root']; accepted: a text"], 1),
        (GOOD.replace("no license left", "(?P<host>no license) left", 1), ["unknown group host; accepted: node"], 1),
        ("- {id: a\n x: [}", ["a.yaml:2: no YAML: "], 1),
        ("id: a\n", ["a.yaml:1: found no list of signatures"], 1),
        ("", ["a.yaml:1: found no list of signatures"], 1),
        (GOOD.replace("id: license", "id: python-exception"), ["note: python-exception: replaces the signature"], 0),
        (GOOD.replace("no license left", "CUDA out of memory"), ["its example is also one of cuda-oom"], 0),
    ],
)
def test_a_file_of_signatures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, wanted: list[str], code: int
) -> None:
    """Each mistake with its line; notes on what else knows the id or the example."""
    (tmp_path / "a.yaml").write_text(text)
    found = said(capsys, "--test", str(tmp_path / "a.yaml"), code=code)
    assert [each for each in wanted if each not in found] == []
    record = json.loads(said(capsys, "--test", str(tmp_path / "a.yaml"), "--json", code=code))
    assert any(each["wrong"] for each in record["findings"]) == bool(code)


def test_signatures_of_the_site(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are added to ours, or take the place of one; a mistake names the file."""
    monkeypatch.setattr(library, "THE_SITES", tmp_path)
    (tmp_path / "a.yaml").write_text(
        "- {id: license, role: root, class: external_service, pattern: no license left, example: no license left,"
        " source: x}\n"
    )
    (tmp_path / "log").write_text("no license left\n")
    assert main(["diagnose", str(tmp_path / "log")]) == 0
    assert "external_service" in capsys.readouterr().out
    (tmp_path / "b.yaml").write_text("- {id: license, role: oops, pattern: x, example: x, source: x}\n")
    assert main(["diagnose", str(tmp_path / "log")]) == 2
    assert f"{tmp_path}/b.yaml: license: role: found 'oops'" in capsys.readouterr().err
    shutil.rmtree(tmp_path)
