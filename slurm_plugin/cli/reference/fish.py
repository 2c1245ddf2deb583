"""The completion script of fish: one `complete` line for each verb, option and argument of the command tree."""

from collections.abc import Iterator
from typing import Final

from slurm_plugin.cli.reference.bash import ASKED, SAFE
from slurm_plugin.cli.reference.tree import Node, Word

KINDS: Final = {
    "job": "(__slurm_plugin_ask job)",
    "node": "(__slurm_plugin_ask node)",
    "partition": "(__slurm_plugin_ask partition)",
    "file": "(__fish_complete_path (commandline -ct))",
    "spec": "(__slurm_plugin_specs)",
    "directory": "(__fish_complete_directories (commandline -ct))",
    "user": "(__fish_complete_users)",
    "command": "(__fish_complete_command)",
}
HEAD: Final = """\
# Completion of slurm-plugin for fish. Written by: slurm-plugin completion fish

function __slurm_plugin_ask
    switch $argv[1]
{asked}
    end | string match -r '^{safe}$' | sort -u
end

function __slurm_plugin_specs
    __fish_complete_path (commandline -ct) | string match -re '(\\.ya?ml|/)(\\t|$)'
end

function __slurm_plugin_at
    set -l found slurm-plugin
    set -l value
    for word in (commandline -opc)[2..]
        if test -n "$value"
            set value
        else if contains -- "$found $word" {valued}
            set value yes
        else if string match -q -- '-*' $word
            continue
        else if contains -- "$found $word" {commands}
            set found "$found $word"
        else if contains -- "$found" {groups}
            return 1
        end
    end
    test "$found" = "$argv[1]"
end

complete -c slurm-plugin -f
"""


def script(tree: Node) -> str:
    """Return the completion script of fish."""
    nodes = list(tree.walk())
    asked = "\n".join(
        f"        case {kind}\n            sh -c {_quoted(how)} 2>/dev/null" for kind, how in ASKED.items()
    )
    groups = [node for node in nodes if node.verbs and not node.arguments]
    lists = {
        "commands": [node.name for node in nodes[1:]],
        "groups": [node.name for node in groups],
        "valued": [
            f"{node.name} {name}" for node in groups for word in node.options if word.metavar for name in word.names
        ],
    }
    shown = {name: " ".join(map(_quoted, words)) for name, words in lists.items()}
    return HEAD.format(asked=asked, safe=SAFE, **shown) + "".join(
        f"{line}\n" for node in nodes for line in _lines(node)
    )


def _lines(node: Node) -> Iterator[str]:
    """Yield the lines of a command."""
    start = f"complete -c slurm-plugin -n {_quoted(f'__slurm_plugin_at {_quoted(node.name)}')}"
    for verb in node.verbs:
        yield f"{start} -a {verb.path[-1]} -d {_quoted(verb.summary)}"
    for word in node.options:
        names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in word.names)
        value = f" -x{_offered(word)}" if word.metavar and not word.optional else ""
        yield f"{start} {names}{value} -d {_quoted(word.help)}"
    for word in node.arguments:
        if offered := _offered(word):
            yield f"{start}{offered}" + (f" -d {_quoted(word.help)}" if word.help else "")


def _offered(word: Word) -> str:
    found = " ".join((*(KINDS[kind] for kind in word.kinds), *word.choices))
    return f" -a {_quoted(found)}" if found else ""


def _quoted(text: str) -> str:
    """Return a word of fish, in which a backslash protects a quote."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
