"""Split a job's `command` into words as a POSIX shell does. No shell runs the command.

The program gets each word unchanged, except that the launch replaces `$NAME` and `${NAME}`. Anything else that a shell
would interpret (operators, `$(...)`, `~`) is an error with a hint, so that it does not fail silently.
"""

import re
import shlex
from typing import Final, NoReturn

from slurm_plugin.launch import variables
from slurm_plugin.launch.command import text_follows

OPERATORS: Final = frozenset(";|&<>()")
# Builtins and reserved words of a shell, which do nothing without a shell.
_SHELL_ONLY: Final = frozenset(
    """. ! [[ { alias bg case cd do done elif else esac eval exec exit export fg fi for function if local read return
    select set shift source then time trap ulimit umask unalias unset until wait while""".split()  # noqa: SIM905
)
_CONTINUED: Final = "\\\n"
_ESCAPED_IN_QUOTES: Final = tuple('$`"\\\n')
NOT_IN_A_WORD: Final = re.compile(r"[\0\ud800-\udfff]")
NO_ARGUMENT: Final = "a NUL or half a surrogate pair; no program can be given one"
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=", re.ASCII)


def split(text: str) -> tuple[str, ...]:
    """Return the words of a command, at least one. Variables have the form of `variables.placeholder`.

    Raise ValueError with the text that was found, and how to write it.
    """
    if NOT_IN_A_WORD.search(text):
        raise ValueError(NO_ARGUMENT)
    words = _Words(text.strip("\n")).read()
    if not words:
        raise ValueError("no words; a command begins with an executable, as in: python train.py")
    if assigned := _ASSIGNMENT.match(text.lstrip()):
        name = assigned[1]
        raise ValueError(f"it begins with {name}=, no executable; set {name} under `env:`, or {in_a_shell(text)}")
    if words[0] in _SHELL_ONLY:
        raise ValueError(f"it begins with {words[0]}, which only a shell knows; {in_a_shell(text)}")
    if not words[0]:
        raise ValueError("it begins with an empty word, not with an executable")
    return words


def in_a_shell(text: str) -> str:
    """Return a hint to let bash run the text."""
    return f"let bash run it: {shlex.join(('bash', '-c', text.strip()))}"


class _Words:
    """The parser of one command (quoting rules: POSIX.1-2024, Shell Command Language, 2.2 and 2.3)."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._bash_reads = False  # the word is the TEXT of `bash -c TEXT`, whose variables bash replaces

    def read(self) -> tuple[str, ...]:
        words: list[str] = []
        while self._at < len(self._text):
            if self._text[self._at] in " \t":
                self._at += 1
            elif self._text.startswith(_CONTINUED, self._at):
                self._at += len(_CONTINUED)
            else:
                self._bash_reads = text_follows(words)
                words.append(self._word())
        return tuple(words)

    def _word(self) -> str:
        """Read one word, up to a blank or the end."""
        if self._text[self._at] in "#~":
            self._refuse("a word that begins with it means something else to a shell; quote it")
        parts: list[str] = []
        while self._at < len(self._text) and (char := self._text[self._at]) not in " \t":
            self._at += 1
            if char == "'":
                parts.append(self._until_single_quote())
            elif char == '"':
                parts.append(self._until_double_quote())
            elif char == "\\":
                parts.append(self._escaped())
            elif char == "$":
                parts.append(self._variable())
            else:
                self._at -= 1
                self._refuse_special(char)
                self._at += 1
                parts.append(char)
        return "".join(parts)

    def _until_single_quote(self) -> str:
        end = self._text.find("'", self._at)
        if end < 0:
            raise ValueError("a ' that is never closed")
        inside, self._at = self._text[self._at : end], end + 1
        return inside

    def _until_double_quote(self) -> str:
        parts: list[str] = []
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == '"':
                self._at += 1
                return "".join(parts)
            if char == "$" and not self._bash_reads:
                self._at += 1
                parts.append(self._variable())
                continue
            if char == "`" and not self._bash_reads:
                self._refuse_special(char)
            if char == "\\" and self._text[self._at + 1 : self._at + 2] in _ESCAPED_IN_QUOTES:
                self._at += 1
                parts.append(self._escaped())
            else:
                parts.append(char)
                self._at += 1
        raise ValueError('a " that is never closed')

    def _escaped(self) -> str:
        if self._at == len(self._text):
            raise ValueError("a backslash at the end")
        self._at += 1
        return self._text[self._at - 1].replace("\n", "")

    def _variable(self) -> str:
        """Read the variable after a `$`. A second `$` means a dollar."""
        if found := variables.AFTER_DOLLAR.match(self._text, self._at):
            self._at = found.end()
            name = found[1] or found[2]
            return variables.placeholder(name) if name else "$"
        self._at -= 1
        return self._refuse(
            "no shell runs this command, and only $NAME and ${NAME} are replaced; quote it with ' to keep it"
        )

    def _refuse_special(self, char: str) -> None:
        if char == "`":
            self._refuse("no shell runs this command, so it would not be replaced; quote it with ' to keep it")
        if char in OPERATORS:
            self._refuse("no shell runs this command; quote it to keep it")
        if char in "\n\r":
            text = "several lines; fold them into one with `command: >`, or end each but the last with a backslash"
            raise ValueError(f"{text}; bash runs several commands: bash -c 'FIRST && SECOND'")

    def _refuse(self, why: str) -> NoReturn:
        found = self._text[self._at : self._at + 12].split()[0]
        raise ValueError(f"{found} in it: {why}, or {in_a_shell(self._text)}")
