"""Words as a shell reads them. Text that only a shell can interpret is refused."""

import shlex
import subprocess
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_plugin.launch.variables import any_in, placeholder
from slurm_plugin.spec.command_line import split
from tests.refusals import refusal_of

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
    'torchrun --nnodes ${WORLD_SIZE} --rank=$RANK "a ${B}c"': (
        *("torchrun", "--nnodes", placeholder("WORLD_SIZE"), f"--rank={placeholder('RANK')}", f"a {placeholder('B')}c"),
    ),
    "echo $$X '$X' \\$X \"\\$X $$\"": ("echo", "$X", "$X", "$X", "$X $"),
    'bash -c "KEY=$X python a.py && python b.py $(date) `id` $1 $$" $Y': (
        *("bash", "-c", "KEY=$X python a.py && python b.py $(date) `id` $1 $$", placeholder("Y")),
    ),
    'env A=1 bash -lc "echo $X"': ("env", "A=1", "bash", "-lc", "echo $X"),
    'srun bash -c "echo $X"': ("srun", "bash", "-c", f"echo {placeholder('X')}"),
    "bash -c echo$X": ("bash", "-c", f"echo{placeholder('X')}"),
    "$PYTHON train.py": (placeholder("PYTHON"), "train.py"),
    "/opt/env/bin/python x.py A=1": ("/opt/env/bin/python", "x.py", "A=1"),
}

REFUSED = {
    "a && b": "&& in it: no shell runs this command; quote it to keep it, or let bash run it: bash -c 'a && b'",
    "a; b": "; in it: no shell runs this command; quote it to keep it, or let bash run it: bash -c 'a; b'",
    "a | b": "| in it: no shell runs this command; quote it to keep it, or let bash run it: bash -c 'a | b'",
    "a > b": "> in it: no shell runs this command; quote it to keep it, or let bash run it: bash -c 'a > b'",
    "(a)": "(a) in it: no shell runs this command; quote it to keep it, or let bash run it: bash -c '(a)'",
    "echo $(date)": "$(date) in it: no shell runs this command, and only $NAME and ${NAME} are replaced; "
    "quote it with ' to keep it, or let bash run it: bash -c 'echo $(date)'",
    'echo "${X:-1}"': '${X:-1}" in it: no shell runs this command, and only $NAME and ${NAME} are replaced; '
    "quote it with ' to keep it, or let bash run it: bash -c 'echo \"${X:-1}\"'",
    'echo "a `b`"': '`b`" in it: no shell runs this command, so it would not be replaced; '
    "quote it with ' to keep it, or let bash run it: bash -c 'echo \"a `b`\"'",
    "ls ~/x": "~/x in it: a word that begins with it means something else to a shell; quote it, "
    "or let bash run it: bash -c 'ls ~/x'",
    "ls #x": "#x in it: a word that begins with it means something else to a shell; quote it, "
    "or let bash run it: bash -c 'ls #x'",
    "KEY=VALUE python x.py": "it begins with KEY=, no executable; set KEY under `env:`, "
    "or let bash run it: bash -c 'KEY=VALUE python x.py'",
    "cd /x": "it begins with cd, which only a shell knows; let bash run it: bash -c 'cd /x'",
    "a \\\nb\nc": "several lines; fold them into one with `command: >`, or end each but the last with a backslash; "
    "bash runs several commands: bash -c 'FIRST && SECOND'",
    "a 'b": "a ' that is never closed",
    'a "b': 'a " that is never closed',
    "a \\": "a backslash at the end",
    "a\0": "a NUL or half a surrogate pair; no program can be given one",
    "a \ud800": "a NUL or half a surrogate pair; no program can be given one",
    "'' a": "it begins with an empty word, not with an executable",
    " ": "no words; a command begins with an executable, as in: python train.py",
}


def test_words_reach_the_program_literally() -> None:
    """Quotes group words, a quoted special character is literal, and a folded line is one line."""
    for text, wanted in ACCEPTED.items():
        assert split(text) == wanted, text


def test_what_only_a_shell_would_do_is_refused_with_a_way_to_say_it() -> None:
    """An assignment, an operator or a substitution is refused, and the hint is an accepted command."""
    for text, wanted in REFUSED.items():
        refusal = refusal_of(ValueError, split, text)
        assert refusal == wanted, text
        hint = refusal.partition("let bash run it: ")[2]
        assert not hint or split(hint) == ("bash", "-c", text.strip()), text


# Quotes, escapes and plain text. A command of random characters is rarely accepted.
PIECES = st.lists(
    st.from_regex(r"[ab=/]{1,3}|'[ab $`\"\\&|<>()#~ü]{0,4}'|\"[ab $`&|<>()#~']{0,4}\"", fullmatch=True)
    | st.from_regex(r"\\[ab '\"$#~;&]| {1,2}|\t", fullmatch=True)
).map("".join)


def test_a_real_shell_reads_the_same_words() -> None:
    """/bin/sh splits every accepted command into the same words. One shell reads all of them."""
    accepted: dict[str, tuple[str, ...]] = {}

    @settings(max_examples=300, database=None)
    @given(PIECES | st.text(alphabet="ab =/'\"\\$`;&|<>()#~\n\t", max_size=12))
    def collect(text: str) -> None:
        with suppress(ValueError):
            words = split(text)
            if "$$" not in text and not any_in(words):  # a shell would replace these
                accepted[text.strip("\n")] = words  # YAML's block texts end in a newline

    collect()
    assert len(accepted) > 100
    lines = "".join(f"printf '%s\\0' {text}\nprintf '%s\\0\\0' END\n" for text in accepted)
    shell = subprocess.run(["/bin/sh", "-f"], input=lines.encode(), capture_output=True, check=True, cwd="/")
    assert shell.stderr == b""
    said = shell.stdout.decode().removesuffix("END\0\0").split("END\0\0")
    read = [tuple(words.split("\0")[:-1]) for words in said]
    assert dict(zip(accepted, read, strict=True)) == accepted


@given(st.lists(st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"])), max_size=4))
def test_quoted_words_come_back(words: list[str]) -> None:
    """Any argument list, quoted for a shell, is read back unchanged."""
    assert split(shlex.join(["prog", *words])) == ("prog", *words)
