"""`sbatch:` of a spec: flags that are passed through, and those that are not because a key or we ourselves say them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from slurm_plugin import directive, token, yamltext
from slurm_plugin.nearest import suggestion
from slurm_plugin.slurm.flags import NAME, NONE, VALUE
from slurm_plugin.spec.parts import KINDS
from slurm_plugin.validate import Problem

Known = Callable[[Sequence[str]], Mapping[str, str] | None]
"""Names of flags -> what sbatch takes for each that it has; None where there is no sbatch to ask."""

KEY: Final = "sbatch"  # of a spec
LONGEST_VALUE: Final = 4096
BARE: Final = "yes"  # for a flag without a value
COMMENT, GRES = "comment", "gres"
JOINED: Final = (COMMENT, GRES)  # what is there joins what we write there ourselves
# A token and the mark that the supervisor adds to it always have room behind a user's own comment.
MOST_COMMENT_BYTES: Final = token.MAX_COMMENT_BYTES - token.MAX_BYTES - 1

# Flags that a key says -> the key.
KEY_OF: Final[Mapping[str, str]] = {
    **{key: key for key in ("account", "array", "begin", "constraint", "deadline", "dependency", "error", "exclude")},
    **{key: key for key in ("exclusive", "licenses", "nice", "nodelist", "nodes", "output", "partition", "qos")},
    **{key: key for key in ("reservation", "time")},
    "chdir": "workdir",
    "cpus-per-task": "cpus",
    "export": "env",
    "export-file": "env_file",
    "gpus": "accelerators",
    "gpus-per-node": "accelerators",
    "gpus-per-socket": "accelerators",
    "gpus-per-task": "accelerators",
    "job-name": "name",
    "mail-type": "mail",
    "mail-user": "mail",
    "mem": "memory",
    "no-kill": "spares",
    "no-requeue": "retries",
    "open-mode": "open_mode",
    "ntasks": "accelerators",
    "ntasks-per-gpu": "accelerators",
    "ntasks-per-node": "accelerators",
    "ntasks-per-tres": "accelerators",
    "requeue": "retries",
    "signal": "grace",
    "tasks-per-node": "accelerators",
}
# Flags that no key says, and why they are not passed through.
REFUSED: Final[Mapping[str, str]] = {
    "autocomplete": "it asks about sbatch itself",
    "gid": "a job runs as the one who submits it",
    "help": "it asks about sbatch itself",
    "parsable": "it is set; submit --json prints JSON",
    "quiet": "submit prints the job id alone",
    "test-only": "try: slurm-plugin render JOB.yaml | sbatch --test-only",
    "uid": "a job runs as the one who submits it",
    "usage": "it asks about sbatch itself",
    "verbose": "try: slurm-plugin render JOB.yaml | sbatch --verbose",
    "version": "it asks about sbatch itself",
    "wait": "try: slurm-plugin submit --wait JOB.yaml",
    "wrap": "the script is made from this spec; `command` is what it runs",
}


def problems(flags: Mapping[str, str], known: Known | None) -> Iterator[Problem]:
    """What is wrong with the flags; whether this sbatch has them only where it can be asked."""
    others = [flag for flag in flags if flag not in KEY_OF and flag not in REFUSED]
    takes = known(others) if known and others else None
    for flag, value in flags.items():
        path = (KEY, flag)
        if not NAME.fullmatch(flag):
            near = suggestion(flag.strip("-").partition("=")[0].replace("_", "-"), takes or (*KEY_OF, *JOINED))
            yield Problem(path, f"accepted: the long name of a flag, without `--` before it{near}")
        elif key := KEY_OF.get(flag):
            yield Problem(path, f"the key `{key}` says it; give that instead")
        elif why := REFUSED.get(flag):
            yield Problem(path, f"not passed through: {why}")
        elif _begins_another(flag) or (takes is not None and flag not in takes):
            near = suggestion(flag, sorted({*(takes or {})} - {*REFUSED}))
            yield Problem(path, f"this machine's sbatch has no --{flag[:60]}{near}; see: sbatch --help")
        elif text := _value_problem(flag, value, (takes or {}).get(flag, "")):
            yield Problem(path, text)


def comment(flags: Mapping[str, str], own: str) -> str:
    """The user's comment with our own words behind it."""
    return " ".join(filter(None, (flags.get(COMMENT), own)))


def _value_problem(flag: str, value: str, takes: str) -> str:
    """What is wrong with a flag's value, given what sbatch takes for it (empty: not known); empty where nothing is."""
    found = f"found {yamltext.found(value)}; accepted: "
    if not value:
        return f"{found}{'yes' if takes == NONE else 'a value; yes for a flag without one'}"
    if takes == NONE and value != BARE:
        return f"{found}yes, as it has no value; or leave it out"
    if takes == VALUE and value == BARE:
        return f"{found}a value, see: sbatch --help"
    if len(value) > LONGEST_VALUE:
        return f"{found}up to {LONGEST_VALUE} characters"
    if directive.unreadable(value):
        return f"{found}{directive.ACCEPTED}, which sbatch cannot read from a script"
    if flag == COMMENT and (token.FORM in value or len(value.encode()) > MOST_COMMENT_BYTES):
        return f"{found}up to {MOST_COMMENT_BYTES} bytes without `{token.FORM}`: our own words go behind them"
    if flag == GRES and (kind := next((part for part in value.split(",") if part.partition(":")[0] in KINDS), "")):
        return f"found {yamltext.found(kind)}; the key `accelerators` says it; other resources are accepted"
    return ""


def _begins_another(flag: str) -> bool:
    """Whether sbatch would take it for a flag of a key's or ours: a flag may be given by its beginning."""
    return any(each.startswith(flag) for each in (*KEY_OF, *REFUSED))
