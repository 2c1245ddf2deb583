"""The flags under `sbatch:` in a spec: those that are passed to sbatch, and those that are refused, with the reason.

sbatch does not read an #SBATCH line as a shell does. It drops every backslash, ends a value at a blank or an unquoted
`#`, and begins a new directive at a newline (`_get_argument` in sbatch's opt.c).
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from slurm_plugin.errors import UsageError
from slurm_plugin.records import token
from slurm_plugin.records.features import ARBITRARY, DISTRIBUTIONS, NOT_IN_A_DIRECTIVE
from slurm_plugin.records.nearest import suggestion
from slurm_plugin.slurm.parse import FLAG_NAME, NONE, VALUE
from slurm_plugin.spec import documents
from slurm_plugin.spec.documents import Problem
from slurm_plugin.spec.key_types import KINDS

Known = Callable[[Sequence[str]], Mapping[str, str] | None]
"""Takes names of flags; returns the kind of value of each flag that sbatch has, or None if there is no sbatch."""

KEY: Final = "sbatch"  # a key of a spec
LONGEST_VALUE: Final = 4096
BARE: Final = "yes"  # for a flag without a value
COMMENT, GRES = "comment", "gres"
JOINED: Final = (COMMENT, GRES)  # the user's value is joined with slurm_plugin's
# The user's comment must leave room for slurm_plugin's token (slurm_plugin.records.token) with the supervisor's mark.
MOST_COMMENT_BYTES: Final = token.MAX_COMMENT_BYTES - token.MAX_BYTES - 1

# Keys that become the flag of the same name: texts, or lists of texts.
WHERE: Final = ("partition", "account", "qos", "constraint", "nodelist", "exclude", "reservation", "licenses")
WHEN: Final = ("array", "dependency", "begin", "deadline")
_OF_ACCELERATORS: Final = (
    *("gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task", "tasks-per-node"),
    *("ntasks", "ntasks-per-gpu", "ntasks-per-node", "ntasks-per-tres"),
)
# Flags that a key sets -> the key.
KEY_OF: Final[Mapping[str, str]] = {
    **{key: key for key in (*WHERE, *WHEN, "error", "exclusive", "nice", "nodes", "output", "time")},
    "chdir": "workdir",
    "cpus-per-task": "cpus",
    "export": "env",
    "export-file": "env_file",
    "job-name": "name",
    "mail-type": "mail",
    "mail-user": "mail",
    "mem": "memory",
    "no-kill": "spares",
    "no-requeue": "retries",
    "open-mode": "open_mode",
    "requeue": "retries",
    "signal": "grace",
    **dict.fromkeys(_OF_ACCELERATORS, "accelerators"),
}
# Flags without a key that are not passed through -> the reason.
REFUSED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("autocomplete", "help", "usage", "version"), "it asks about sbatch itself"),
    "gid": "a job runs as the one who submits it",
    "parsable": "it is set; submit --json prints JSON",
    "quiet": "submit prints the job id alone",
    "test-only": "try: slurm-plugin render JOB.yaml | sbatch --test-only",
    "uid": "a job runs as the one who submits it",
    "verbose": "try: slurm-plugin render JOB.yaml | sbatch --verbose",
    "wait": "try: slurm-plugin submit --wait JOB.yaml",
    "wrap": "the script is made from this spec; `command` is what it runs",
}
ACCEPTED: Final = "no control characters, backslashes or double quotes"
_PLAIN = re.compile(r"[A-Za-z0-9_.,/:=%+@-]+", re.ASCII)
_NOT_IN_A_VALUE = re.compile(f"[{NOT_IN_A_DIRECTIVE}]")


def problems(flags: Mapping[str, str], known: Known | None) -> Iterator[Problem]:
    """Yield the problems of the flags. Unknown flags are found only if this machine has an sbatch."""
    others = [flag for flag in flags if flag not in KEY_OF and flag not in REFUSED]
    takes = known(others) if known and others else None
    for flag, value in flags.items():
        path = (KEY, flag)
        if not FLAG_NAME.fullmatch(flag):
            near = suggestion(flag.strip("-").partition("=")[0].replace("_", "-"), takes or (*KEY_OF, *JOINED))
            yield Problem(path, f"accepted: the long name of a flag, without `--` before it{near}")
        elif key := KEY_OF.get(flag):
            yield Problem(path, f"the key `{key}` sets it; give that instead")
        elif why := REFUSED.get(flag):
            yield Problem(path, f"not passed through: {why}")
        elif _begins_another(flag) or (takes is not None and flag not in takes):
            near = suggestion(flag, sorted({*(takes or {})} - {*REFUSED}))
            yield Problem(path, f"this machine's sbatch has no --{flag[:60]}{near}; see: sbatch --help")
        elif text := _value_problem(flag, value, (takes or {}).get(flag, "")):
            yield Problem(path, text)


def comment(flags: Mapping[str, str], own: str) -> str:
    """Return the user's comment, followed by `own`."""
    return " ".join(filter(None, (flags.get(COMMENT), own)))


def _value_problem(flag: str, value: str, takes: str) -> str:
    """Return the problem of a flag's value, empty if there is none. `takes`: the kind of value, empty if unknown."""
    found = f"found {documents.found(value)}; accepted: "
    if not value:
        return f"{found}{'yes' if takes == NONE else 'a value; yes for a flag without one'}"
    if takes == NONE and value != BARE:
        return f"{found}yes, as it has no value; or leave it out"
    if takes == VALUE and value == BARE:
        return f"{found}a value, see: sbatch --help"
    if len(value) > LONGEST_VALUE:
        return f"{found}up to {LONGEST_VALUE} characters"
    if unreadable(value):
        return f"{found}{ACCEPTED}, which sbatch cannot read from a script"
    if flag == COMMENT and (token.OPENING in value or len(value.encode()) > MOST_COMMENT_BYTES):
        return f"{found}up to {MOST_COMMENT_BYTES} bytes without `{token.OPENING}`: slurm_plugin's token follows them"
    if flag == "distribution" and value.lower().startswith(ARBITRARY):
        return f"{found}{DISTRIBUTIONS}"
    if flag == GRES and (kind := next((part for part in value.split(",") if part.partition(":")[0] in KINDS), "")):
        return f"found {documents.found(kind)}; the key `accelerators` sets it; other resources are accepted"
    return ""


def _begins_another(flag: str) -> bool:
    """Return whether sbatch would read a flag as an abbreviation of one in KEY_OF or REFUSED."""
    return any(each.startswith(flag) for each in (*KEY_OF, *REFUSED))


def unreadable(text: str) -> str:
    """Return the first character that sbatch cannot read from a script, as its repr(); empty if there is none."""
    found = _NOT_IN_A_VALUE.search(text)
    return repr(found[0]) if found else ""


def directive(option: str, value: str | int) -> str:
    """Return `--option=value` for an #SBATCH line. Raise UsageError for a value that no such line can contain."""
    text = str(value)
    if found := unreadable(text):
        raise UsageError(
            f"--{option}: {text!r} has {found} in it, which sbatch cannot read from a script\n"
            f"  accepted: {ACCEPTED}; use another path"
        )
    return f"--{option}={text}" if _PLAIN.fullmatch(text) else f'--{option}="{text}"'
