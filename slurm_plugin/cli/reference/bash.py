"""The completion script of bash: the command tree as tables, and one function that reads them.

A Tab starts no Python: job ids, nodes and partitions come from squeue and sinfo, for at most TIMEOUT_S.
"""

from collections.abc import Iterable
from typing import Final

from slurm_plugin.cli.reference.tree import Node, Word

TIMEOUT_S: Final = 2
# The command that lists the words of a kind (tree.KINDS). Leave out words with other letters: bash would expand them.
# Of an array that waits, squeue prints `17_[1-9]`, so the number of the array is offered too.
ASKED: Final = {
    "job": f"timeout {TIMEOUT_S} squeue --me --noheader --format='%i %F' | tr ' ' '\\n';"
    f" timeout {TIMEOUT_S} ls .slurm_plugin | grep -x '[0-9]*'",
    "node": f"timeout {TIMEOUT_S} sinfo --noheader --Node --format=%N",
    "partition": f"timeout {TIMEOUT_S} sinfo --noheader --format=%R",
}
SAFE: Final = "[A-Za-z0-9_.+-]*"

SCRIPT: Final = r"""# Completion of slurm-plugin for bash. Written by: slurm-plugin completion bash

declare -gA _slurm_plugin_verbs=(
{verbs}
)
declare -gA _slurm_plugin_options=(
{options}
)
# Of each option with a value, and of the arguments of each command: what completes it.
declare -gA _slurm_plugin_values=(
{values}
)
declare -gA _slurm_plugin_arguments=(
{arguments}
)

_slurm_plugin_offer() {{
    local kind word
    for kind in $1; do
        case $kind in
{asked}
        spec) compopt -o filenames; mapfile -t -O "${{#COMPREPLY[@]}}" COMPREPLY < <(
            compgen -f -X '!*.yaml' -- "$2"; compgen -f -X '!*.yml' -- "$2"; compgen -d -- "$2") ;;
        file) compopt -o filenames; mapfile -t -O "${{#COMPREPLY[@]}}" COMPREPLY < <(compgen -f -- "$2") ;;
        directory) compopt -o filenames; mapfile -t -O "${{#COMPREPLY[@]}}" COMPREPLY < <(compgen -d -- "$2") ;;
        user) mapfile -t -O "${{#COMPREPLY[@]}}" COMPREPLY < <(compgen -u -- "$2") ;;
        command) mapfile -t -O "${{#COMPREPLY[@]}}" COMPREPLY < <(compgen -c -- "$2") ;;
        =*) word=${{kind#=}}; [[ $word == "$2"* ]] && COMPREPLY+=("$word") ;;
        esac
    done
}}

_slurm_plugin_filter() {{
    local word
    while read -r word; do
        [[ $word == "$1"* ]] && COMPREPLY+=("$word")
    done < <(grep -x '{safe}' | sort -u)
}}

_slurm_plugin() {{
    local command=slurm-plugin word current=${{COMP_WORDS[COMP_CWORD]}} place=0 i=1 kinds
    COMPREPLY=()
    [[ $current == = ]] && current=
    while ((i < COMP_CWORD)); do
        word=${{COMP_WORDS[i++]}}
        if [[ -n ${{_slurm_plugin_values[$command $word]}} ]]; then
            kinds=${{_slurm_plugin_values[$command $word]}}
            if [[ ${{COMP_WORDS[i]}} == = ]]; then
                ((i < COMP_CWORD && i++))
            elif [[ $kinds == '?'* ]]; then
                continue
            fi
            if ((i >= COMP_CWORD)); then
                _slurm_plugin_offer "${{kinds#\?}}" "$current"
                return
            fi
            ((i++))
        elif [[ $word == -* ]]; then
            continue
        elif ((place == 0)) && [[ " ${{_slurm_plugin_verbs[$command]}} " == *" $word "* ]]; then
            command+=" $word"
        else
            ((place++))
        fi
    done
    if [[ $current == -* ]]; then
        for word in ${{_slurm_plugin_options[$command]}}; do
            [[ $word == "$current"* ]] && COMPREPLY+=("$word")
        done
        return
    fi
    if ((place == 0)); then
        for word in ${{_slurm_plugin_verbs[$command]}}; do
            [[ $word == "$current"* ]] && COMPREPLY+=("$word")
        done
    fi
    local -a arguments
    IFS=';' read -ra arguments <<<"${{_slurm_plugin_arguments[$command]}}"
    ((place >= ${{#arguments[@]}} && ${{#arguments[@]}} > 0)) && [[ ${{arguments[-1]}} == *... ]] && place=-1
    kinds=${{arguments[place]-}}
    _slurm_plugin_offer "${{kinds%...}}" "$current"
}}

complete -F _slurm_plugin slurm-plugin
"""


def script(tree: Node) -> str:
    """Return the completion script of bash."""
    nodes = list(tree.walk())
    values = (
        _row(f"{node.name} {name}", _kinds(word, optional=word.optional))
        for node in nodes
        for word in node.options
        if word.metavar
        for name in word.names
    )
    return SCRIPT.format(
        verbs="\n".join(
            _row(node.name, " ".join(verb.path[-1] for verb in node.verbs)) for node in nodes if node.verbs
        ),
        options="\n".join(_row(node.name, " ".join(_names(node.options))) for node in nodes),
        values="\n".join(values),
        arguments="\n".join(
            _row(node.name, ";".join(_kinds(word) + ("..." if word.many else "") for word in node.arguments))
            for node in nodes
            if node.arguments
        ),
        asked="\n".join(f"        {kind}) _slurm_plugin_filter \"$2\" < <({{ {asked}; }} 2>/dev/null) ;;"
                        for kind, asked in ASKED.items()),
        safe=SAFE,
    )  # fmt: skip


def _names(words: Iterable[Word]) -> list[str]:
    return [name for word in words for name in word.names]


def _kinds(word: Word, *, optional: bool = False) -> str:
    """Return what completes a value, `none` if nothing does. `?` before it: a value only after `=`."""
    found = " ".join((*word.kinds, *(f"={choice}" for choice in word.choices))) or "none"
    return f"?{found}" if optional else found


def _row(key: str, value: str) -> str:
    return f"    ['{key}']='{value}'"
