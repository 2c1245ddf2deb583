"""The completion script of zsh: one function of `_arguments` for each command of the tree."""

import re
from collections.abc import Sequence
from typing import Final

from slurm_plugin.cli.reference.bash import ASKED, SAFE
from slurm_plugin.cli.reference.tree import Node, Word

KINDS: Final = {
    **{kind: f"_slurm_plugin_ask_{kind}" for kind in ASKED},
    "file": "_files",
    "spec": "_files -g '*.(yaml|yml)'",
    "directory": "_files -/",
    "user": "_users",
    "command": "_command_names -e",
}
ASK: Final = """\
_slurm_plugin_ask_{kind}() {{
    local -a found
    found=(${{(f)"$({{ {how}; }} 2>/dev/null | grep -x '{safe}' | sort -u)"}})
    compadd -a found
}}
"""
GROUP: Final = """\
{function}() {{
    local curcontext=$curcontext state line
    typeset -A opt_args
    _arguments -C -S{options} \\
        '1: :->verb' '*:: :->rest'
    case $state in
    verb)
        local -a verbs
        verbs=(
{verbs}
        )
        _describe -t commands command verbs{more}
        ;;
    rest)
        case $line[1] in
{cases}
        esac
        ;;
    esac
}}
"""


def script(tree: Node) -> str:
    """Return the completion script of zsh."""
    asks = (ASK.format(kind=kind, how=how, safe=SAFE) for kind, how in ASKED.items())
    functions = (_group(node) if node.verbs else _command(node) for node in tree.walk())
    head = "#compdef slurm-plugin\n# Completion of slurm-plugin for zsh. Written by: slurm-plugin completion zsh\n"
    # zsh loads the file as the function _slurm-plugin; a shell may also evaluate it.
    whole = _function(tree)
    call = f'if [[ $funcstack[1] == _slurm-plugin ]]; then {whole} "$@"; else compdef {whole} slurm-plugin; fi\n'
    return "\n".join((head, *asks, *functions, call))


def _function(node: Node) -> str:
    return "_" + re.sub(r"[^a-z0-9]", "_", node.name)


def _group(node: Node) -> str:
    verbs = "\n".join(f"            {_quoted(_colons(verb.path[-1]) + ':' + verb.summary)}" for verb in node.verbs)
    cases = "\n".join(f"        {verb.path[-1]}) {_function(verb)} ;;" for verb in node.verbs)
    # A command with verbs may take an argument in place of a verb.
    more = "".join(f"\n        {action}" for word in node.arguments[:1] if (action := _action(word, alone=True)))
    if more:
        cases += f"\n        *) {_function(node)}_default ;;"
    own = GROUP.format(function=_function(node), options=_options(node), verbs=verbs, cases=cases, more=more)
    further = _arguments([word for word in node.arguments[:1] if word.many])
    return own + (f"{_function(node)}_default() {{\n    _arguments -S{_options(node)}{further}\n}}\n" if more else "")


def _command(node: Node) -> str:
    return f"{_function(node)}() {{\n    _arguments -S{_options(node)}{_arguments(node.arguments)}\n}}\n"


def _arguments(words: Sequence[Word]) -> str:
    """Return the arguments of a command as arguments of `_arguments`."""
    found = [
        f"'{'*' if word.many else number}:{':' if word.optional and not word.many else ''}"
        f"{_escaped(word.metavar)}:{_action(word)}'"
        for number, word in enumerate(words, 1)
    ]
    return "".join(f" \\\n        {each}" for each in found)


def _options(node: Node) -> str:
    """Return the options of a command as arguments of `_arguments`."""
    found = []
    for word in node.options:
        for name in word.names:
            sign = "" if not word.metavar else "=-" if word.optional else "=" if name.startswith("--") else "+"
            value = f":{_escaped(word.metavar)}:{_action(word)}" if word.metavar else ""
            found.append(f"'{name}{sign}[{_escaped(word.help)}]{value}'")
    return "".join(f" \\\n        {each}" for each in found)


def _action(word: Word, *, alone: bool = False) -> str:
    """Return what completes a value. `alone`: as a command of its own, else as a part of a quoted word."""
    actions = [KINDS[kind] for kind in word.kinds]
    if word.choices:
        actions.append(f"compadd {' '.join(word.choices)}" if alone else f"({' '.join(word.choices)})")
    if alone:
        return "\n        ".join(actions)
    joined = actions[0] if len(actions) == 1 else f"{{ {'; '.join(actions)} }}" if actions else " "
    return joined.replace("'", "'\\''")


def _colons(text: str) -> str:
    return text.replace("\\", "\\\\").replace(":", "\\:")


def _escaped(text: str) -> str:
    """Return a text for the inside of a quoted argument of `_arguments`."""
    return re.sub(r"([\\\[\]:])", r"\\\1", text).replace("'", "'\\''")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
