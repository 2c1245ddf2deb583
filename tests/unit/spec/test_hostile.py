"""Hostile specs: each is refused with a printable message, or its text stays literal.

tests/cluster/test_hostile_specs.py gives them to a real sbatch, and looks at what the program receives.
"""

from collections.abc import Iterator

from slurm_plugin.errors import UsageError
from slurm_plugin.spec import load
from slurm_plugin.submit.render import Site, script
from tests.hostile_specs import FILES, KEYS, TEXTS, spec
from tests.refusals import refusal_of
from tests.unit.shells import assert_bash_reads

HOME = Site("/home/ada", "/bin/true")
HARMLESS = [line.partition("=")[0] for line in script(load(spec({}), "a"), HOME).split("\n\n")[0].splitlines()]
WHOLE = ("an argument", "comment", "command", "env", "a key")
QUOTED = {
    *("an argument", "a script", "checkpoint", "env", "env_file", "env_file in a list", "modules", "stage_in.from"),
    *(
        "hooks.before",
        "hooks.after",
        "hooks.on_hold",
        "logs.directory",
        "workdir",
    ),
}
ALLOWED = {
    "error",
    *("account", "array", "begin", "constraint", "deadline", "dependency", "exclude", "exclusive", "gres", "licenses"),
    *("mail-type", "mail-user", "mem", "nodelist", "partition", "qos", "reservation", "signal", "time", "wckey"),
    "hetjob",
}


def read(line: str) -> Iterator[str]:
    """Return the arguments that sbatch finds in a line after `#SBATCH` (`_get_argument` in its opt.c)."""
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
    """Return the options of a script, one for each line."""
    found = []
    for line in text.split("\n\n", maxsplit=1)[0].splitlines()[1:]:
        assert line.startswith("#SBATCH "), line
        (option,) = read(line.removeprefix("#SBATCH "))
        found.append(option.removeprefix("--"))
    return found


def of(key: str, text: str) -> str | None:
    """Return the script of a spec with this text, None if it is refused. A failure names the key."""
    what = (key, text[:100])
    try:
        loaded = load(spec(KEYS[key](text)), "job.yaml", known=lambda _: None)
    except UsageError as error:
        said = str(error)
        assert all(line.isprintable() for line in said.splitlines()), (what, said)
        assert len(said) < 12_000, what
        return None
    made = script(loaded, HOME)
    found = directives(made)
    more = {each.partition("=")[0] for each in found} - {line.removeprefix("#SBATCH --") for line in HARMLESS}
    assert more <= ALLOWED, (what, found)
    assert not any("uid" in option.partition("=")[0] for option in found), what
    if key in ("comment", "a flag", "account", "error", "output", "workdir"):
        wanted = f"/home/ada/{text.rstrip('/')}" if key == "workdir" else text
        assert any(wanted in option.partition("=")[2] for option in found), (what, found)
    return made


def test_a_text_is_literal_or_refused() -> None:
    """In every key. The script has the expected directives, and bash can parse it.

    Code that takes quadratic time would not end. YAML alone takes 0.3 s for a megabyte, so most keys get less.
    """
    scripts = []
    for key in KEYS:
        for text in TEXTS.values():
            made = of(key, text if key in WHOLE else text[:100_000])
            if made and (key in QUOTED or key.startswith("container.")):
                scripts.append(made)
    assert len(scripts) > 100
    assert_bash_reads(scripts)


def test_a_file_that_is_no_spec_is_refused() -> None:
    """In bounded time and memory, with a message."""
    for what, data in FILES.items():
        assert len(refusal_of(UsageError, load, data, "job.yaml").splitlines()[0]) < 500, what
