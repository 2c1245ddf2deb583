"""Specs that ask for trouble: each is refused in words that a terminal can show, or says the text and nothing else.

tests/cluster/test_hostile_specs.py gives them to a real sbatch, and looks at what the program receives.
"""

import subprocess
import time
from collections.abc import Iterator

import pytest

from slurm_plugin.errors import UsageError
from slurm_plugin.render import Site, script
from slurm_plugin.spec import load
from tests.hostile_specs import FILES, KEYS, TEXTS, spec

HOME = Site("/home/ada", "/bin/true")
HARMLESS = [line.partition("=")[0] for line in script(load(spec({}), "a"), HOME).split("\n\n")[0].splitlines()]
SOON_S = 10.0
QUOTED = {
    *("an argument", "a script", "checkpoint", "env", "env_file", "env_file in a list", "modules", "stage_in.from"),
    *("hooks.before", "hooks.after", "logs.directory", "workdir"),
}
ALLOWED = {
    "error",
    *("account", "array", "begin", "constraint", "deadline", "dependency", "exclude", "exclusive", "gres", "licenses"),
    *("mail-type", "mail-user", "mem", "nodelist", "partition", "qos", "reservation", "signal", "time", "wckey"),
    "hetjob",
}


def read(line: str) -> Iterator[str]:
    """The arguments that sbatch finds in a line behind `#SBATCH` (`_get_argument` in its opt.c)."""
    found, quote, any_of_it = "", "", False
    for char in line:
        assert char != "\\"
        if quote:
            found, quote = (found, "") if char == quote else (found + char, quote)
        elif char in "\"'":
            quote, any_of_it = char, True
        elif char.isspace() or char == "#":
            if any_of_it:
                yield found
            found, any_of_it = "", False
            if char == "#":
                return
        else:
            found, any_of_it = found + char, True
    assert not quote
    if any_of_it:
        yield found


def directives(text: str) -> list[str]:
    """The options of a script, each line's one."""
    found = []
    for line in text.split("\n\n", maxsplit=1)[0].splitlines()[1:]:
        assert line.startswith("#SBATCH "), line
        (option,) = read(line.removeprefix("#SBATCH "))
        found.append(option.removeprefix("--"))
    return found


@pytest.mark.parametrize("key", KEYS)
def test_a_text_is_literal_or_refused(key: str) -> None:
    """In every key, in bounded time; the script has the directives it would have, and is bash."""
    scripts = []
    for what, text in TEXTS.items():
        start = time.monotonic()
        try:
            loaded = load(spec(KEYS[key](text)), "job.yaml", known=lambda _: None)
        except UsageError as error:
            said = str(error)
            assert all(line.isprintable() for line in said.splitlines()), (what, said)
            assert len(said) < 12_000, what
        else:
            made = script(loaded, HOME)
            found = directives(made)
            more = {each.partition("=")[0] for each in found} - {line.removeprefix("#SBATCH --") for line in HARMLESS}
            assert more <= ALLOWED, (what, found)
            assert not any("uid" in option.partition("=")[0] for option in found), what
            if key in ("comment", "a flag", "account", "error", "output", "workdir"):
                wanted = f"/home/ada/{text.rstrip('/')}" if key == "workdir" else text
                assert any(wanted in option.partition("=")[2] for option in found), (what, found)
            scripts += [made] if key in QUOTED or key.startswith("container.") else []
        assert time.monotonic() - start < SOON_S, what
    for made in scripts:
        subprocess.run(["bash", "-n"], input=made, text=True, check=True, timeout=30)


@pytest.mark.parametrize("what", FILES)
def test_a_file_that_is_no_spec_is_refused(what: str) -> None:
    """In bounded time and memory, in words."""
    start = time.monotonic()
    with pytest.raises(UsageError) as error:
        load(FILES[what], "job.yaml")
    assert time.monotonic() - start < SOON_S
    assert len(str(error.value).splitlines()[0]) < 500
