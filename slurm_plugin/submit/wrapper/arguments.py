"""Read sbatch's command line: the script, and the options that may contradict slurm_plugin's.

The rules are those of getopt_long (glibc): unique abbreviations of long names, `--name=value`, `--name value`, `-N4`,
`-N 4`, `-HQ`, `--`. The first word that is not an option is the script. The tables contain all options of 22.05, 24.11
and 26.05 (tests/captured/sbatch). These releases agree on the options that take the next word.
"""

from collections import namedtuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

WITH_ARGUMENT = frozenset(
    """account acctg-freq array autocomplete batch bb bbf begin chdir cluster cluster-constraint clusters comment
    constraint container container-id container-type context core-spec cores-per-socket cpu-freq cpus-per-gpu
    cpus-per-task deadline delay-boot dependency distribution error exclude export export-file extra extra-node-info
    gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint input job-name
    kill-on-invalid-dep licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mem-update
    mincpus network nodefile nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket
    ntasks-per-tres open-mode output partition power prefer priority profile qos reservation resources segment signal
    sockets-per-node switches tasks-per-node thread-spec threads-per-core time time-min tmp tres-bind tres-per-task
    uid wait-all-nodes wckey wrap""".split()  # noqa: SIM905 - a column of words to compare
)
# Options without an argument, or with an optional argument after `=`.
WITHOUT = frozenset(
    """consolidate-segments contiguous exclusive external get-user-env help hold ignore-pbs nice no-kill no-requeue
    oom-kill-step overcommit oversubscribe parsable propagate quiet reboot requeue resv-ports spread-job
    spread-segments stepmgr test-only usage use-min-nodes verbose version wait""".split()  # noqa: SIM905
)
SHORT = {
    "A": "account", "a": "array", "B": "extra-node-info", "b": "begin", "C": "constraint", "c": "cpus-per-task",
    "D": "chdir", "d": "dependency", "e": "error", "F": "nodefile", "G": "gpus", "H": "hold", "h": "help",
    "i": "input", "J": "job-name", "k": "no-kill", "L": "licenses", "M": "clusters", "m": "distribution",
    "N": "nodes", "n": "ntasks", "O": "overcommit", "o": "output", "p": "partition", "Q": "quiet", "q": "qos",
    "S": "core-spec", "s": "oversubscribe", "t": "time", "V": "version", "v": "verbose", "W": "wait", "w": "nodelist",
    "x": "exclude",
}  # fmt: skip
# sbatch's input variables for the options that matter here. If two contradict, the later one in this table wins.
VARIABLES = {
    "SBATCH_ACCOUNT": "account",
    "SBATCH_CLUSTERS": "clusters",
    "SLURM_CLUSTERS": "clusters",
    "SBATCH_DISTRIBUTION": "distribution",
    "SBATCH_JOB_NAME": "job-name",
    "SBATCH_NO_KILL": "no-kill",
    "SBATCH_NO_REQUEUE": "no-requeue",
    "SBATCH_OPEN_MODE": "open-mode",
    "SBATCH_PARTITION": "partition",
    "SBATCH_QOS": "qos",
    "SBATCH_REQUEUE": "requeue",
    "SBATCH_RESERVATION": "reservation",
    "SBATCH_SIGNAL": "signal",
    "SBATCH_TIMELIMIT": "time",
}
OPTIONAL_SHORT = "k"  # `-k`, `-koff`
ENDING = frozenset(("help", "usage", "version", "autocomplete"))  # sbatch prints something and submits nothing
HETEROGENEOUS = ":"  # separates the components of a heterogeneous job


class Option(namedtuple("Option", "name value words")):
    """One option: its long name (empty if ambiguous), its value (None without one), and its words as written."""

    __slots__ = ()
    name: str
    value: "str | None"
    words: "tuple[str, ...]"


class Given(namedtuple("Given", "options rest heterogeneous", defaults=(False,))):
    """A command line: its options in order, then the script and its arguments."""

    __slots__ = ()
    options: "tuple[Option, ...]"
    rest: "tuple[str, ...]"
    heterogeneous: bool

    @property
    def names(self) -> "frozenset[str]":
        """Return the names of the options."""
        return frozenset(option.name for option in self.options)

    def last(self, *names: str) -> "Option | None":
        """Return the last option with one of these names: sbatch uses the last one."""
        return next((option for option in reversed(self.options) if option.name in names), None)


def parse(args: "Sequence[str]") -> "Given | None":
    """Parse a command line. Return None if no known sbatch accepts it."""
    options: list[Option] = []
    at, heterogeneous = 0, False
    while at < len(args):
        word = args[at]
        if word == HETEROGENEOUS:
            at, heterogeneous = at + 1, True
        elif word == "--":
            at += 1
            break
        elif not word.startswith("-") or word == "-":
            break
        else:
            following = args[at + 1] if at + 1 < len(args) else None
            found = _long(word, following) if word.startswith("--") else _short(word, following)
            if found is None:
                return None
            options += found
            at += len(found[-1].words)
    return Given(tuple(options), tuple(args[at:]), heterogeneous)


def _long(word: str, following: "str | None") -> "list[Option] | None":
    name, equals, value = word[2:].partition("=")
    known = {name} & (WITH_ARGUMENT | WITHOUT) or {each for each in (*WITH_ARGUMENT, *WITHOUT) if each.startswith(name)}
    takes = {each in WITH_ARGUMENT for each in known}
    if len(takes) != 1:
        return None
    full = known.pop() if len(known) == 1 else ""
    if equals or takes == {False}:
        return [Option(full, value if equals else None, (word,))]
    return None if following is None else [Option(full, following, (word, following))]


def _short(word: str, following: "str | None") -> "list[Option] | None":
    """Return the options in one word such as `-HQ`. Only the last of them has the word in `words`."""
    found: list[Option] = []
    for at, letter in enumerate(word[1:], 2):
        name, rest = SHORT.get(letter, ""), word[at:]
        if not name:
            return None
        if name in WITH_ARGUMENT:
            if not rest and following is None:
                return None
            return [*found, Option(name, rest or following, (word,) if rest else (word, str(following)))]
        if letter in OPTIONAL_SHORT:
            return [*found, Option(name, rest or None, (word,))]
        found.append(Option(name, None, (word,) if not rest else ()))
    return found
