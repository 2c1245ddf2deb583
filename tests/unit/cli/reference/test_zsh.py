"""The completion of zsh, on a terminal of its own, as zsh knows no other way."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from slurm_plugin.cli.reference import zsh
from slurm_plugin.cli.reference.tree import Node
from tests.unit.cli.reference.cases import each_case

# An interactive zsh in a pseudo-terminal, in which compadd notes its matches. `-A` asks the real one for them.
ASK = r"""
zmodload zsh/zpty
zpty -b box zsh -f -i
ask() { zpty -w box "$1"; }
ask 'PROMPT= RPROMPT= PS2='
ask "fpath=($1 \$fpath); autoload -Uz compinit; compinit -u -d $3"
ask 'compadd() {
    local -a noted_here
    if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then builtin compadd "$@"; return; fi
    builtin compadd -A noted_here "$@"
    print -rl -- $noted_here >>'"$4"'
    builtin compadd "$@"
}'
ask 'done-now() { zle -U ""; print done >>'"$4"' }; zle -N done-now; bindkey "^X" done-now; bindkey "^I" complete-word'
ask 'setopt no_always_to_end; zstyle ":completion:*" list-prompt ""; LISTMAX=9999'
ask "cd $5"
zpty -n -w box "$2"$'\t\x18'
for i in {1..600}; do
    [[ -e $4 ]] && grep -qx done $4 && break
    zpty -r -t box line; sleep 0.1
done
zpty -d box
"""


@pytest.fixture(scope="session")
def functions(whole: Node, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory for fpath with the script."""
    path = tmp_path_factory.mktemp("zsh")
    (path / "_slurm-plugin").write_text(zsh.script(whole))
    return path


@pytest.mark.full  # 27 s: a zsh with a terminal for each line
@each_case
def test_offers(
    functions: Path, surroundings: Mapping[str, str], tmp_path: Path, line: str, offered: list[str]
) -> None:
    """The same as bash."""
    noted = tmp_path / "noted"
    words = [str(functions), line, str(tmp_path / "dump"), str(noted), surroundings["PWD"]]
    subprocess.run(["zsh", "-f", "-c", ASK, "zsh", *words], env=surroundings, check=True, timeout=120)
    found = {word.replace("\\ ", " ").removesuffix("/") for word in noted.read_text().splitlines()} - {"done", ""}
    assert sorted(found) == sorted(offered)


def test_a_shell_may_evaluate_it(functions: Path, surroundings: Mapping[str, str], tmp_path: Path) -> None:
    """`eval "$(slurm-plugin completion zsh)"` behind compinit defines the completion, too."""
    code = 'autoload -Uz compinit; compinit -u -d $2; eval "$(<$1/_slurm-plugin)"; print $_comps[slurm-plugin]'
    argv = ["zsh", "-f", "-c", code, "zsh", str(functions), str(tmp_path / "dump")]
    done = subprocess.run(argv, env=surroundings, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("_slurm_plugin\n", "")
