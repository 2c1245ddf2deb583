"""Which changes of the environment count, and that they arrive byte for byte."""

import os
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_plugin.supervisor.prestart import (
    NONE,
    Changes,
    apply,
    changes,
    from_json,
    parse,
    summary,
    task_lines,
    to_json,
)
from slurm_plugin.supervisor.prestart import refused_summary as refused

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: not name.startswith("SLURM") and name not in {"_", "PWD", "OLDPWD", "SHLVL"}
)
# Any bytes but NUL and newline; often those that are special to a shell.
VALUES = st.one_of(
    st.binary(max_size=30),
    st.text(alphabet=" \t'\"$`\\%*!#~;&|<>(){}[]=-nx0é\r\u2028\x81\x88", max_size=30).map(str.encode),
).map(lambda value: os.fsdecode(value.replace(b"\0", b"").replace(b"\n", b"")))


def test_changes() -> None:
    """New, changed and unset variables, by name."""
    before = {"KEPT": "1", "CHANGED": "1", "GONE": "1", "EMPTIED": "x"}
    after = {"KEPT": "1", "CHANGED": "2", "NEW": "3", "EMPTIED": "", "ANOTHER": ""}
    assert changes(before, after) == Changes({"ANOTHER": "", "CHANGED": "2", "EMPTIED": "", "NEW": "3"}, ("GONE",), {})


def test_what_a_shell_does_by_itself_is_no_change() -> None:
    """Nor an exported function: no line of TaskProlog can contain it."""
    before = {"SHLVL": "1", "BASH_FUNC_gone%%": "() { :\n}"}
    after = {"SHLVL": "2", "_": "/usr/bin/env", "PWD": "/x", "OLDPWD": "/", "BASH_FUNC_module%%": "() { :\n}"}
    assert changes(before, after) == NONE


REFUSED = {
    "several lines": ("NOTE", "one\ntwo", "NOTE (its value has several lines)"),
    "Slurm's": ("SLURM_JOB_ID", "8", "SLURM_JOB_ID (Slurm's and ours to set)"),
    "slurmd's": ("SLURMD_NODENAME", "n9", "SLURMD_NODENAME (Slurm's and ours to set)"),
    "ours": ("SLURM_PLUGIN_LAUNCH", "../..", "SLURM_PLUGIN_LAUNCH (Slurm's and ours to set)"),
    "no name": ("a b\n\x1b", "x", "'a b\\n\\x1b' (no name for a variable)"),
    "longer than execve takes": ("LONG", "x" * 131067, "LONG (longer than 131072 bytes)"),
}


def test_what_is_not_handed_on() -> None:
    """The log has the reason, in printable characters. The old value stays."""
    for name, value, line in REFUSED.values():
        found = changes({name: "old"}, {name: value, "OTHER": "x"})
        assert (found.set, found.unset, refused(found)) == ({"OTHER": "x"}, (), line), name
        assert apply({name: "old"}, found) == {name: "old", "OTHER": "x"}, name


def test_the_longest_value() -> None:
    """One byte less than execve refuses is passed on, and execve accepts it."""
    found = changes({}, {"LONG": "x" * 131066})
    assert found.refused == {}
    assert subprocess.run(["/bin/true"], env=dict(found.set), check=False).returncode == 0


def test_slurms_own_variables_are_not_unset() -> None:
    """A hook that clears its environment unsets only other variables."""
    found = changes({"SLURM_JOB_ID": "7", "MINE": "x"}, {})
    assert (found.set, found.unset, list(found.refused)) == ({}, ("MINE",), ["SLURM_JOB_ID"])


@given(st.dictionaries(NAMES, VALUES, max_size=6), st.dictionaries(NAMES, VALUES, max_size=6))
def test_changes_lead_from_before_to_after(before: dict[str, str], after: dict[str, str]) -> None:
    """Applied to the first environment they give the second, also after a conversion to JSON."""
    found = changes(before, after)
    assert apply(before, found) == after
    assert from_json(to_json(found)) == found
    assert to_json(found).isascii()
    assert to_json(found).count("\n") == 1


@settings(max_examples=30)
@given(st.dictionaries(NAMES, VALUES, max_size=20), st.lists(NAMES, max_size=2))
def test_task_lines_print_every_byte(values: dict[str, str], gone: list[str]) -> None:
    """A shell without a PATH prints `export NAME=` and exactly the value's bytes, one line each."""
    found = Changes(values, tuple(gone), {})
    script = os.fsencode(task_lines(found))
    lines = [f"export {name}={value}" for name, value in values.items()] + [f"unset {name}" for name in gone]
    for shell in (("/bin/sh",), ("/bin/bash", "--posix")):
        done = subprocess.run([*shell, "/dev/stdin"], input=script, env={"PATH": ""}, capture_output=True, check=True)
        assert (done.stdout, done.stderr) == (b"".join(os.fsencode(line) + b"\n" for line in lines), b""), shell


def test_task_lines_are_one_builtin() -> None:
    """The whole text is one printf, however many variables there are."""
    found = Changes({"A": "it's $HOME", "B": ""}, ("C",), {})
    assert task_lines(found) == "printf '%s\\n' 'export A=it'\"'\"'s $HOME' 'export B=' 'unset C'\n"
    assert task_lines(NONE) == ""


@given(st.dictionaries(NAMES, st.binary().map(lambda value: os.fsdecode(value.replace(b"\0", b""))), max_size=5))
def test_parse(environ: dict[str, str]) -> None:
    """NUL-separated pairs, values with newlines and equals signs included."""
    dump = b"".join(os.fsencode(f"{name}={value}\0") for name, value in environ.items())
    assert parse(dump) == environ


def test_from_json_of_something_else() -> None:
    """A truncated or edited file is a ValueError."""
    for text in ["", "[]", "{}", '{"set": 1, "unset": []}', '{"set": {}, "unset": 1}', "null"]:
        with pytest.raises(ValueError, match=r"."):
            from_json(text)


def test_told() -> None:
    """Their number and names. A long list ends in a number, so that srun keeps the line whole."""
    assert summary(NONE) == "no variable changed"
    assert summary(Changes({"PATH": "x"}, (), {})) == "1 variable changed: PATH"
    assert summary(Changes({"PATH": "x"}, ("FOO",), {})) == "2 variables changed: PATH, FOO"
    many = Changes({f"{'N' * 60}{number}": "" for number in range(300)}, (), {})
    assert summary(many).endswith(" and 289 more")
    assert len(summary(many)) < 800
