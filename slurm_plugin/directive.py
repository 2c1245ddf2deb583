"""A value of an #SBATCH line, as sbatch reads one: which is not a shell's way.

sbatch drops every backslash, ends a value at a blank or an unquoted `#`, and begins a new directive at a newline
(`_get_argument` in sbatch's opt.c).
"""

import re

from slurm_plugin.errors import UsageError

ACCEPTED = "no control characters, backslashes or double quotes"
_PLAIN = re.compile(r"[A-Za-z0-9_.,/:=%+@-]+", re.ASCII)
# Line separators and halves of surrogate pairs besides: no editor shows the one, no file can hold the other.
_NOT_IN_A_VALUE = re.compile(r'[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\\"]')


def unreadable(text: str) -> str:
    """The first character that sbatch cannot read from a script, as Python writes it; empty where there is none."""
    found = _NOT_IN_A_VALUE.search(text)
    return repr(found[0]) if found else ""


def directive(option: str, value: str | int) -> str:
    """`--option=value` of an #SBATCH line. Raises UsageError for a value that cannot be said there."""
    text = str(value)
    if found := unreadable(text):
        raise UsageError(
            f"--{option}: {text!r} has {found} in it, which sbatch cannot read from a script\n"
            f"  accepted: {ACCEPTED}; use another path"
        )
    return f"--{option}={text}" if _PLAIN.fullmatch(text) else f'--{option}="{text}"'
