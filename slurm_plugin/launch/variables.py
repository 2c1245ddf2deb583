"""Variables in the words of a command, replaced on the program's node. Standard library only.

A word contains the variable NAME as `\\0NAME\\0`: an argument of a program cannot contain a NUL (execve(2)). A batch
script has `${NAME}` for a variable and `$$` for a dollar.
"""

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Final

from slurm_plugin.errors import UsageError

# The text after a `$` in a command or a batch script: the name of a variable, or a second dollar.
AFTER_DOLLAR: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\}|\$", re.ASCII)
# A hyperparameter in the command of a search: `{lr}`, in a nested space `{optimizer.lr}`. `{{lr}}` is the text `{lr}`.
# Any character outside ASCII may be in a name: `\w` has no combining characters, which many languages need.
_HYPERPARAMETER = re.compile(r"(?<!\$)(\{)?\{([A-Za-z_\x80-\U0010ffff][A-Za-z0-9_.\x80-\U0010ffff-]*)\}(?(1)\})")
_HELD = re.compile(r"\0([^\0]+)\0")
_UNSET: Final = "the command names it, and it is not set on this node"


def placeholder(name: str) -> str:
    """Return the form of a variable in a word."""
    return f"\0{name}\0"


def any_in(words: Iterable[str]) -> bool:
    """Return whether one of the words contains a variable."""
    return any("\0" in word for word in words)


def written(word: str) -> str:
    """Return the form of a word in a batch script."""
    return _HELD.sub(r"${\1}", word.replace("$", "$$"))


def read(word: str) -> str:
    """Parse a word of a batch script, also with `$NAME`. Raises ValueError for any other `$`."""
    text, at = "", 0
    while (dollar := word.find("$", at)) >= 0:
        found = AFTER_DOLLAR.match(word, dollar + 1)
        if found is None:
            raise ValueError(f"{word[dollar : dollar + 12]}: this $ begins no variable; accepted: ${{NAME}}, $$")
        name = found[1] or found[2]
        text += word[at:dollar] + (placeholder(name) if name else "$")
        at = found.end()
    return text + word[at:]


def words(command: Iterable[str]) -> tuple[str, ...]:
    """Parse the words of a batch script. Raises UsageError for a `$` that begins no variable and no `$$`."""
    try:
        return tuple(map(read, command))
    except ValueError as error:
        raise UsageError(f"command: {error}") from error


def replaced(words: Iterable[str], environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words with the values of their variables. Raises UsageError if a variable is not set."""

    def value(found: re.Match[str]) -> str:
        if found[1] not in environ:
            raise UsageError(f"command: ${found[1]}: {_UNSET}")
        return environ[found[1]]

    return tuple(_HELD.sub(value, word) for word in words)


def with_values(words: Iterable[str], environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words with the values of the variables that are set; keep the other variables."""
    return tuple(_HELD.sub(lambda found: environ.get(found[1], found[0]), word) for word in words)


def hyperparameters(words: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the hyperparameters in the words, each once."""
    found = (each for word in words for each in _HYPERPARAMETER.finditer(word) if not each[1])
    return tuple(dict.fromkeys(each[2] for each in found))


def with_hyperparameters(word: str, values: Mapping[str, str]) -> str:
    """Return a word with the values of its hyperparameters; a name without a value is kept as it is."""
    return _HYPERPARAMETER.sub(
        lambda found: f"{{{found[2]}}}" if found[1] else values.get(found[2], found[0]),
        word,
    )


def by_bash(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return a bash command that starts the program with the variables' values on its node.

    If a variable is not set, bash exits with 2 and an error message. Otherwise bash executes the program.
    """
    if not any_in(words):
        return words
    names = dict.fromkeys(name for word in words for name in _HELD.findall(word))
    tests = " ".join(f'"${{{name}?{_UNSET}}}"' for name in names)
    return ("bash", "-p", "-c", f"(: {tests}) || exit 2; exec {joined(words)}", "[slurm_plugin] error")


def joined(words: Iterable[str]) -> str:
    """Return the words as one shell command line."""
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    texts = _HELD.split(word)  # texts and names alternate
    if len(texts) == 1:
        return shlex.quote(word)
    parts = [shlex.quote(text) if text else "" for text in texts[::2]]
    variables = [f'"${{{name}}}"' for name in texts[1::2]]
    return "".join(part for pair in zip(parts, [*variables, ""], strict=True) for part in pair)
