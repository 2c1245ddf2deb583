"""Mirrors slurm_plugin/launch/variables.py: variables in a command's words, written, read back and replaced."""

import ast
import os
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.errors import UsageError
from slurm_plugin.launch.variables import (
    by_bash,
    hyperparameters,
    joined,
    placeholder,
    read,
    replaced,
    with_hyperparameters,
    with_values,
    written,
)
from tests.refusals import refusal_of

TEXTS = st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6)
WORDS = st.lists(TEXTS | st.sampled_from([placeholder("A"), placeholder("B_1")]), max_size=6).map("".join)


@given(WORDS)
def test_a_batch_script_reads_what_was_written(word: str) -> None:
    """Literal dollars, and variables beside each other or beside letters, are read back."""
    assert read(written(word)) == word


def test_what_no_batch_script_of_ours_has_is_refused() -> None:
    """A script that was changed by hand."""
    assert read("a$X-$$") == f"a{placeholder('X')}-$"
    assert refusal_of(ValueError, read, "a $(date)") == ("$(date): this $ begins no variable; accepted: ${NAME}, $$")


def test_replaced_where_the_environment_is_known() -> None:
    """An unset variable is an error, or stays if its value is not needed yet. An empty value is a value."""
    words = ("x", f"a{placeholder('A')}$A{placeholder('E')}b")
    assert replaced(words, {"A": "$B *", "E": ""}) == ("x", "a$B *$Ab")
    assert refusal_of(UsageError, replaced, words, {"A": ""}) == (
        "command: $E: the command names it, and it is not set on this node"
    )
    assert with_values(words, {"A": "1"}) == ("x", f"a1$A{placeholder('E')}b")


GIVEN = {"lr": "0.1", "opt.name": "adam", "学习率": "0.2", "सीखना": "7"}
WITH_VALUES = {
    "--lr={lr}": "--lr=0.1",
    "{lr}{opt.name}": "0.1adam",
    "{{lr}}": "{lr}",
    "--lr={学习率} {सीखना}{{学}}": "--lr=0.2 7{学}",
    "${lr}": "${lr}",
    '{"lr": {lr}}': '{"lr": 0.1}',
    "{unknown} {} {print $1} {a b}": "{unknown} {} {print $1} {a b}",
    "find . -exec {} +": "find . -exec {} +",
}


def test_hyperparameters_in_a_word() -> None:
    """Names in braces. Variables, doubled braces and other braces are none."""
    assert {word: with_hyperparameters(word, GIVEN) for word in WITH_VALUES} == WITH_VALUES
    assert hyperparameters(WITH_VALUES) == ("lr", "opt.name", "学习率", "सीखना", "unknown")


def test_replaced_by_bash_on_a_node() -> None:
    """Each word stays one word, whatever its value. No bash process is left."""
    both = f"{placeholder('A')}x'{placeholder('B')}"
    words = ("/bin/sh", "-c", "printf '%s|' \"$@\"", "it's", both, "$A", placeholder("E"))
    environ = {"A": "a b*", "B": '"$(id)"', "E": ""}
    made = subprocess.run(by_bash(words), env=environ, capture_output=True, text=True, check=True)
    assert made.stdout == 'a b*x\'"$(id)"|$A||'
    assert by_bash(("echo", "$A")) == ("echo", "$A")
    failed = subprocess.run(by_bash(words), env={"A": "", "B": ""}, capture_output=True, text=True, check=False)
    assert failed.returncode == 2
    assert failed.stderr == ("[slurm_plugin] error: line 1: E: the command names it, and it is not set on this node\n")


def test_shown_as_a_shell_would_be_given_them() -> None:
    """The log shows variables by name."""
    assert joined(("a b", f"--n={placeholder('N')}", "")) == "'a b' --n=\"${N}\" ''"


def test_the_environment_of_a_program_with_variables(tmp_path: Path) -> None:
    """It is the task's: bash runs no file of BASH_ENV, and passes functions on as they are."""
    (tmp_path / "init").write_text("export FROM_INIT=1\n")
    given = {"A": "1", "PATH": os.environ["PATH"], "BASH_ENV": str(tmp_path / "init"), "BASH_FUNC_f%%": "() { :; }"}
    show = "import os; print(sorted(os.environ.items()))"
    found = subprocess.run(
        by_bash((sys.executable, "-c", show, placeholder("A"))), env=given, capture_output=True, text=True, check=True
    )
    environ = dict(ast.literal_eval(found.stdout))
    assert {name: environ.get(name) for name in (*given, "FROM_INIT")} == {**given, "FROM_INIT": None}
