"""Mirrors slurm_plugin/commandline.py: words as a shell reads them, and refusals of what only a shell would do."""

import shlex
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_plugin.commandline import split

ACCEPTED = {
    "python train.py --epochs 90": ("python", "train.py", "--epochs", "90"),
    "  python   train.py\n": ("python", "train.py"),
    "python 'a b' \"c d\" e\\ f": ("python", "a b", "c d", "e f"),
    "bash -c 'echo $HOME && `date`'": ("bash", "-c", "echo $HOME && `date`"),
    'bash -c "a && b"': ("bash", "-c", "a && b"),
    'echo "\\$HOME \\" \\\\ \\n"': ("echo", '$HOME " \\ \\n'),
    "echo '' \"\" a''b": ("echo", "", "", "ab"),
    "python train.py \\\n  --epochs 90": ("python", "train.py", "--epochs", "90"),
    "python a#b 'c\nd' e~f --x=[1,2] {} *.txt": ("python", "a#b", "c\nd", "e~f", "--x=[1,2]", "{}", "*.txt"),
    "/opt/env/bin/python x.py A=1": ("/opt/env/bin/python", "x.py", "A=1"),
}

REFUSED = {
    "a && b": "&& in it: no shell runs this command; quote it for itself, or let bash run it: bash -c 'a && b'",
    "a; b": "; in it: no shell runs this command; quote it for itself, or let bash run it: bash -c 'a; b'",
    "a | b": "| in it: no shell runs this command; quote it for itself, or let bash run it: bash -c 'a | b'",
    "a > b": "> in it: no shell runs this command; quote it for itself, or let bash run it: bash -c 'a > b'",
    "(a)": "(a) in it: no shell runs this command; quote it for itself, or let bash run it: bash -c '(a)'",
    "echo $X": "$X in it: no shell runs this command, so nothing would be put in its place; "
    "quote it with ' for itself, or let bash run it: bash -c 'echo $X'",
    'echo "a `b`"': '`b`" in it: no shell runs this command, so nothing would be put in its place; '
    "quote it with ' for itself, or let bash run it: bash -c 'echo \"a `b`\"'",
    "ls ~/x": "~/x in it: a word that begins with it means something else to a shell; quote it, "
    "or let bash run it: bash -c 'ls ~/x'",
    "ls #x": "#x in it: a word that begins with it means something else to a shell; quote it, "
    "or let bash run it: bash -c 'ls #x'",
    "KEY=VALUE python x.py": "it begins with KEY=, no executable; set KEY under `env:`, "
    "or let bash run it: bash -c 'KEY=VALUE python x.py'",
    "cd /x": "it begins with cd, which only a shell knows; let bash run it: bash -c 'cd /x'",
    "a\nb": "several lines; fold them into one with `command: >`, or let bash run it: bash -c 'a\nb'",
    "a 'b": "a ' that is never closed",
    'a "b': 'a " that is never closed',
    "a \\": "a backslash at the end",
    "a\0": "a NUL or half a surrogate pair; no program can be given one",
    "a \ud800": "a NUL or half a surrogate pair; no program can be given one",
    "'' a": "it begins with an empty word, not with an executable",
    " ": "no words; a command begins with an executable, as in: python train.py",
}


@pytest.mark.parametrize("text", ACCEPTED)
def test_words_reach_the_program_literally(text: str) -> None:
    """Quotes group, a quoted special character is itself, and a folded line is one line."""
    assert split(text) == ACCEPTED[text]


@pytest.mark.parametrize("text", REFUSED)
def test_what_only_a_shell_would_do_is_refused_with_a_way_to_say_it(text: str) -> None:
    """Row C6: an assignment, an operator or a variable is refused, and the hint is a command that is accepted."""
    with pytest.raises(ValueError) as refusal:
        split(text)
    assert str(refusal.value) == REFUSED[text]
    hint = str(refusal.value).partition("let bash run it: ")[2]
    assert not hint or split(hint) == ("bash", "-c", text.strip())


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="ab =/'\"\\$`;&|<>()#~\n\t", max_size=12))
def test_a_real_shell_reads_the_same_words(text: str) -> None:
    """Whatever is accepted, /bin/sh splits into the same words."""
    try:
        words = split(text)
    except ValueError:
        return
    one_line = text.strip("\n")  # YAML's block texts end in a newline
    shell = subprocess.run(
        ["/bin/sh", "-fc", f"printf '%s\\0' {one_line}"], capture_output=True, check=True, timeout=60
    )
    assert tuple(shell.stdout.decode().split("\0")[:-1]) == words


@given(st.lists(st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"])), max_size=4))
def test_quoted_words_come_back(words: list[str]) -> None:
    """Any argument list, quoted for a shell, is read back as it was."""
    assert split(shlex.join(["prog", *words])) == ("prog", *words)
