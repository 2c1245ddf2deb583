"""The batch script that supervises a user's script with features, and sbatch's options for it. Pure."""

from binascii import crc32
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from slurm_plugin.errors import UsageError
from slurm_plugin.records import durations, job_plan, token
from slurm_plugin.records.features import ARBITRARY, DISTRIBUTIONS, Features
from slurm_plugin.submit.wrapper import batch_script, recovery_options
from slurm_plugin.submit.wrapper.arguments import VARIABLES, Given, Option, parse

# Not sbatch's variables, but the job inherits them.
_INHERITED = ("SLURM_DISTRIBUTION", "SLURM_HOSTFILE")

MARK = "#slurm_plugin-script-"  # begins the line above the user's script; the script does not contain this line

NO_MODE = "single"  # the mode that prepares nothing for the script


class RefusedError(UsageError):
    """A flag of the user contradicts a feature."""


class Sources(NamedTuple):
    """The options of one job by source: the script, the environment, the command line. Later sources win."""

    script: Given
    environ: Given
    line: Given

    def last(self, *names: str) -> Option | None:
        """Return the option that sbatch uses, of all options with these names."""
        found = [source.last(*names) for source in self]
        return next((option for option in reversed(found) if option), None)

    @property
    def nodes(self) -> str | None:
        """sbatch's --nodes as the user wrote it."""
        option = self.last("nodes")
        return option.value if option else None

    @property
    def distribution(self) -> str:
        """The job's distribution; empty if sbatch chooses it."""
        if self.last("SLURM_HOSTFILE") and not self.last("nodelist"):
            return ARBITRARY
        option = self.last("distribution") or self.last("SLURM_DISTRIBUTION")
        return (option.value or "").lower() if option else ""


class Submission(NamedTuple):
    """The arguments and the script for the real sbatch.

    `place`: the file of the user's script; empty: it came on stdin or by --wrap.
    """

    arguments: list[str]
    script: bytes
    place: str = ""
    features: Features = Features()


def sources(line: Given, environ: Mapping[str, str], block: list[bytes]) -> Sources:
    """Return the sources of this job's options. Ignore lines of the script that sbatch will refuse."""
    named = (*VARIABLES.items(), *((each, each) for each in _INHERITED))
    variables = tuple(Option(name, environ[each], ()) for each, name in named if each in environ)
    return Sources(parse(batch_script.words(block)) or Given((), ()), Given(variables, ()), line)


def build(
    found: Sources, features: Features, script: bytes, name: str, command: str, *, python: str = ""
) -> Submission:
    """Return the submission of a script with features.

    `name`: the default job name; empty: sbatch's default. `command`: the `slurm-plugin` that batch scripts call,
    `python`: its Python; empty for the deployed one.
    Raise RefusedError if a flag of the user contradicts a feature.
    """
    kept = [word for option in found.line.options if option.name != "wrap" for word in option.words]
    own = [*([f"--job-name={name}"] if name and not found.last("job-name") else []), *_added_options(found, features)]
    whole = _script(features, script, found.line.rest[1:], (command, python), _outlives(found, features))
    return Submission([*kept, *own], whole, features=features)


def _added_options(found: Sources, features: Features) -> list[str]:
    """Return the options that the features add, without options that the user already gave."""
    if found.distribution.startswith(ARBITRARY):
        raise RefusedError(f"--distribution={ARBITRARY}, or SLURM_HOSTFILE: accepted with features: {DISTRIBUTIONS}")
    own = []
    for name, value in recovery_options.flags(features):
        if name in ("no-requeue", "open-mode") and (not features.retries or found.last(name)):
            continue  # a script without retries keeps its behaviour
        if name == "requeue" and (told := found.last("requeue", "no-requeue")) and told.name == "no-requeue":
            raise RefusedError("--no-requeue: found it with retries; a restart is a requeue: leave one of the two out")
        if name == "no-kill" and (told := found.last("no-kill")) and told.value is not None:
            raise RefusedError(f"--no-kill={told.value}: found it with spares or min_nodes; leave one of the two out")
        if name == "signal" and (told := found.last("signal")):
            raise RefusedError(
                f"--signal={told.value}: found it with grace, which is a signal; leave one of the two out"
            )
        if name == "signal" and (told := found.last("time")) and durations.unlimited(told.value or ""):
            raise RefusedError(
                f"--time={told.value}: found it with grace, whose signal comes before it; leave one of the two out"
            )
        if name == "requeue" and told and told.value:  # 26.05: --requeue=expedite
            continue
        own.append(f"--{name}={value}" if value else f"--{name}")
    if features.spares or features.least < features.nodes:
        own.append(f"--nodes={recovery_options.node_count(features)}")
    return [*own, f"--comment={_comment(found, features)}"]


def _comment(found: Sources, features: Features) -> str:
    """Return the user's comment, then slurm_plugin's request.

    Raise RefusedError if the result is too long, or if the user's comment already has a request.
    """
    option = found.last("comment")
    theirs = (option.value or "") if option else ""
    whole = f"{theirs} {recovery_options.token(features)}" if theirs else f"{recovery_options.token(features)}"
    if token.OPENING in theirs:
        raise RefusedError("--comment: found slurm_plugin's token in it; take that out, the #PLUGIN lines make one")
    most = token.MAX_COMMENT_BYTES - token.MAX_BYTES - 1  # the supervisor adds to the token: else it cannot requeue
    if (size := len(theirs.encode("utf-8", "surrogateescape"))) > most:
        raise RefusedError(f"--comment: {size} bytes; accepted: {most}, because slurm_plugin's token follows them")
    return whole


def _outlives(found: Sources, features: Features) -> bool:
    """Return whether only the user's --no-kill, and no feature, keeps a job with retries that loses a node."""
    told = found.last("no-kill")
    return told is not None and told.value is None and features.retries > 0 and not features.outlives_nodes


def _script(
    features: Features, script: bytes, arguments: Sequence[str], command: tuple[str, str], outlives: bool
) -> bytes:
    """Return the lines for sbatch, slurm_plugin's command, and the user's script unchanged below a mark."""
    mark = f"{MARK}{crc32(script):08x}"
    while mark.encode() in script:
        mark += "x"
    block = [line for line in batch_script.first_block(script)[1:] if not batch_script.is_ours(line)]
    recovery = recovery_options.plan_fields(features)
    plan = job_plan.JobPlan(
        mode=features.mode or NO_MODE,
        command=tuple(arguments),
        plain=not features.mode,
        of_site=features.of_site,
        checkpoint=features.checkpoint,
        mark=mark,
        **{**recovery, "no_kill": recovery["no_kill"] or outlives},
    )
    return job_plan.batch_script(command[0], block, plan, command[1]) + script
