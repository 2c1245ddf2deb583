"""Command lines of sbatch, generated from a seed, and their runner inside a machine: `sbatch_lines.py WAY... < lines`.

Lines that sbatch refuses are wanted, too. Standard library only: a machine runs this file alone.
"""

import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

NUMBERS = ("1", "2", "4", "0", "-1", "9999", "x", "")
COUNTS = ("1", "2", "3", "1-2", "2-1", "1,2", "x", "")
SIZES = ("10", "100M", "1G", "0", "1T", "-1", "10X", "")
TIMES = ("5", "1:00:00", "1-2", "0", "UNLIMITED", "5:61", "-4", "")
NODES = ("n1", "n[1-2]", "n1,n3", "n9", "n[", "")
TEXTS = ("a", "a b", " led by a blank", 'it\'s "$HOME" `id` \\', "ä", "\udcff", "two\nlines", "-x", "--wrap", "#", "")
FILES = ("o-%j.log", "/dev/null", "%x", "%A_%a", "none/x", "-", "")
# Long name -> its letter, and its values. None: it has no value. "?" before other values: the value is optional.
OPTIONS: dict[str, tuple[str, Sequence[str | None]]] = {
    "account": ("A", ("none", "a b", "")),
    "acctg-freq": ("", ("30", "task=1", "x")),
    "array": ("a", ("1-4%2", "0", "1,3-5:2", "5-1", "x", "0-9999999", "")),
    "begin": ("b", ("2035-01-01T00:00:00", "now+1hour", "tomorrow", "16:00", "never", "")),
    "chdir": ("D", ("/tmp", "other", ".", "/none", "", "with blank")),
    "comment": ("", TEXTS),
    "constraint": ("C", ("none", "a&b", "[a|b]", "")),
    "contiguous": ("", (None,)),
    "core-spec": ("S", NUMBERS),
    "cores-per-socket": ("", NUMBERS),
    "cpu-freq": ("", ("low", "high", "1000", "x:y")),
    "cpus-per-gpu": ("", NUMBERS),
    "cpus-per-task": ("c", NUMBERS),
    "deadline": ("", ("2036-01-01T00:00:00", "2001-01-01T00:00:00", "x")),
    "delay-boot": ("", NUMBERS),
    "dependency": ("d", ("singleton", "afterok:1", "after:x", "afterany:99999", "?", "")),
    "distribution": ("m", ("block", "cyclic:block", "arbitrary", "plane=2", "x")),
    "error": ("e", FILES),
    "exclude": ("x", NODES),
    "exclusive": ("", (None, "user", "mcs", "x")),
    "export": ("", ("ALL", "NONE", "NIL", "A=1", "ALL,A=b c", "A,PATH", "HOME", "")),
    "export-file": ("", ("variables", "9", "none", "99", "")),
    "extra-node-info": ("B", ("1", "1:2:1", "*", "x")),
    "gpus": ("G", ("1", "gpu:2", "9", "x", "")),
    "gpus-per-node": ("", ("2", "x:1", "0")),
    "gpus-per-task": ("", ("1", "x")),
    "gres": ("", ("gpu:1", "gpu", "gpu:none:1", "none", "x:y:z", "")),
    "hint": ("", ("nomultithread", "compute_bound", "help", "x")),
    "hold": ("H", (None,)),
    "ignore-pbs": ("", (None,)),
    "input": ("i", FILES),
    "job-name": ("J", TEXTS),
    "kill-on-invalid-dep": ("", ("yes", "no", "x")),
    "licenses": ("L", ("none", "a:2", "")),
    "mail-type": ("", ("END", "ALL,FAIL", "NONE", "x", "")),
    "mail-user": ("", ("bob", "", "a b")),
    "mcs-label": ("", ("x",)),
    "mem": ("", SIZES),
    "mem-bind": ("", ("local", "none", "x")),
    "mem-per-cpu": ("", SIZES),
    "mincpus": ("", NUMBERS),
    "network": ("", ("x",)),
    "nice": ("", (None, "5", "-5", "x")),
    "no-kill": ("k", (None, "off", "set", "x")),
    "no-requeue": ("", (None,)),
    "nodefile": ("F", ("nodes", "none")),
    "nodelist": ("w", NODES),
    "nodes": ("N", COUNTS),
    "ntasks": ("n", COUNTS),
    "ntasks-per-core": ("", NUMBERS),
    "ntasks-per-gpu": ("", NUMBERS),
    "ntasks-per-node": ("", NUMBERS),
    "ntasks-per-socket": ("", NUMBERS),
    "open-mode": ("", ("append", "truncate", "a", "x")),
    "output": ("o", FILES),
    "overcommit": ("O", (None,)),
    "oversubscribe": ("s", (None,)),
    "parsable": ("", (None,)),
    "partition": ("p", ("main", "none", "main,none", "")),
    "priority": ("", ("5", "TOP", "x")),
    "profile": ("", ("none", "task", "x")),
    "propagate": ("", (None, "ALL", "NOFILE,CORE", "NONE", "x")),
    "qos": ("q", ("none", "normal", "")),
    "quiet": ("Q", (None,)),
    "reboot": ("", (None,)),
    "requeue": ("", (None,)),
    "reservation": ("", ("none", "")),
    "signal": ("", ("USR1", "B:10@60", "R:USR2", "x", "B:", "")),
    "sockets-per-node": ("", NUMBERS),
    "spread-job": ("", (None,)),
    "switches": ("", ("1", "1@1:00", "x")),
    "test-only": ("", (None,)),
    "thread-spec": ("", NUMBERS),
    "threads-per-core": ("", NUMBERS),
    "time": ("t", TIMES),
    "time-min": ("", TIMES),
    "tmp": ("", SIZES),
    "uid": ("", ("0", "bob", "none")),
    "usage": ("", (None,)),
    "use-min-nodes": ("", (None,)),
    "verbose": ("v", (None,)),
    "version": ("V", (None,)),
    "wait-all-nodes": ("", ("0", "1", "x")),
    "wckey": ("", ("x", "*x")),
}
LIKELY = ("nodes", "ntasks", "time", "job-name", "comment", "output", "export", "export-file", "gres", "array", "chdir")
ENDS = ("usage", "version")
HETEROGENEOUS = ("nodes", "ntasks", "time", "mem", "cpus-per-task", "gres", "comment", "job-name", "partition")
VARIABLES: dict[str, Sequence[str]] = {
    "SBATCH_ACCOUNT": ("none",), "SBATCH_ARRAY_INX": ("1-3", "x"), "SBATCH_CONSTRAINT": ("none",),
    "SBATCH_DEBUG": ("1", "2", "x"), "SBATCH_DISTRIBUTION": ("cyclic", "x"), "SBATCH_EXCLUSIVE": ("", "user", "x"),
    "SBATCH_EXPORT": ("NONE", "ALL", "A=1"), "SBATCH_GRES": ("gpu:1", "x"), "SBATCH_HINT": ("nomultithread", "x"),
    "SBATCH_IGNORE_PBS": ("",), "SBATCH_JOB_NAME": ("v", ""), "SBATCH_MEM_PER_CPU": ("10", "x"),
    "SBATCH_NO_KILL": ("", "off"), "SBATCH_NO_REQUEUE": ("",), "SBATCH_OPEN_MODE": ("a", "x"),
    "SBATCH_OVERCOMMIT": ("",), "SBATCH_PARTITION": ("main", "none"), "SBATCH_QOS": ("none",),
    "SBATCH_REQUEUE": ("",), "SBATCH_REQ_SWITCH": ("1", "x"), "SBATCH_RESERVATION": ("none",),
    "SBATCH_SIGNAL": ("USR1", "x"), "SBATCH_THREAD_SPEC": ("1",), "SBATCH_TIMELIMIT": ("5", "x"),
    "SBATCH_USE_MIN_NODES": ("",), "SBATCH_WAIT_ALL_NODES": ("1",), "SLURM_EXIT_ERROR": ("7",),
    "LC_ALL": ("C", "de_DE.UTF-8"), "LD_LIBRARY_PATH": ("/none", ""), "PYTHONHOME": ("/none",),
    "BASH_FUNC_module%%": ("() { echo; }",), "a.b": ("1", "two\nlines"), "POSIXLY_CORRECT": ("1",),
}  # fmt: skip
SCRIPTS = ("job.sh", "./job.sh", "other/job.sh", "options.sh", "python.py", "bare.sh", "dos.sh", "none.sh", "other",
           "on-path.sh", "linked.sh", "locked.sh", "empty.sh", "/dev/null", "hetjob.sh")  # fmt: skip
ARGUMENTS = ("a", "b c", "--nodes=7", "-N8", "--", "", ":", "\udcff")
FDS = tuple(range(3, 13))
HOWS = ("", "|", "+")  # a file, a pipe, a file of which a line was read


class Line(NamedTuple):
    """One submission: the words after `sbatch`, added variables, stdin, and a file at a descriptor."""

    words: tuple[str, ...]
    variables: tuple[tuple[str, str], ...] = ()
    stdin: str = "/dev/null"  # one of HOWS and a file's name; empty: closed
    descriptor: tuple[int, str] | None = None  # its number, and a value as for stdin

    def __str__(self) -> str:
        words = [*(f"{name}={value!r}" for name, value in self.variables), "sbatch", *map(repr, self.words)]
        more = f" {self.descriptor[0]}<{self.descriptor[1]}" if self.descriptor else ""
        return f"{' '.join(words)} <{self.stdin or '&-'}{more}"


def lines(seed: int, count: int) -> list[Line]:
    """Return this number of lines. The same seed gives the same lines."""
    chance = random.Random(seed)  # noqa: S311 - lines to try
    return [_line(chance) for _ in range(count)]


def _line(chance: random.Random) -> Line:
    words: list[str] = []
    if heterogeneous := chance.random() < 0.06:
        for _ in range(chance.choice((1, 2))):
            words += [*_options(chance, HETEROGENEOUS, 2), ":"]
    words += _options(chance, HETEROGENEOUS if heterogeneous else (), chance.choice((0, 1, 1, 2, 2, 3, 5)))
    variables = {name: chance.choice(VARIABLES[name]) for name in chance.sample([*VARIABLES], _few(chance))}
    stdin, descriptor, kind = "/dev/null", None, chance.random()
    if kind < 0.12:
        words += chance.choice((["--wrap", "echo $HOME"], ["--wrap=a b\nc"], ["--wrap="], ["--wra", "x"], ["--wrap"]))
        words += chance.choice(([], [], [], ["job.sh"], ["--"]))
    elif kind < 0.26:
        stdin = chance.choice(("job.sh", "|job.sh", "+job.sh", "options.sh", "|options.sh", "dos.sh", "|empty.sh", ""))
        words += chance.choice(([], [], ["/dev/stdin"], ["/dev/stdin", "a"], ["/dev/fd/0"], ["-"], ["--"]))
    elif kind < 0.36:
        number = chance.choice(FDS)
        descriptor = (
            number,
            chance.choice(("job.sh", "|job.sh", "+job.sh", "options.sh", "|options.sh", "variables", "other")),
        )
        where = f"/dev/fd/{number if chance.random() < 0.9 else chance.choice(FDS)}"
        words += [chance.choice((where, where.replace("/dev", "/proc/self"))), *chance.sample(ARGUMENTS, 1)]
    else:
        words += [*(["--"] if chance.random() < 0.05 else []), chance.choice(("job.sh", "options.sh", *SCRIPTS))]
        words += chance.sample(ARGUMENTS, _few(chance))
    if not descriptor and chance.random() < 0.05:
        descriptor = 9, "variables"
        words[:0] = ["--export-file=9"]
    return Line(tuple(words), tuple(variables.items()), stdin, descriptor)


def _few(chance: random.Random) -> int:
    return chance.choice((0, 0, 0, 1, 1, 2))


def _options(chance: random.Random, names: Sequence[str], count: int) -> list[str]:
    """Return options, sometimes one of them twice, each as a letter, a long name or an abbreviation."""
    found: list[str] = []
    for _ in range(count):
        likely = names or (LIKELY if chance.random() < 0.4 else [*OPTIONS])
        name = chance.choice(likely)
        if name in ENDS and chance.random() < 0.8:
            continue
        for _ in range(chance.choice((1, 1, 1, 1, 2))):
            found += _option(chance, name)
    if chance.random() < 0.02:
        found.insert(
            chance.randrange(len(found) + 1), chance.choice(("--nonsense", "-y", "--", "-", "", "--no", "---"))
        )
    return found


def _option(chance: random.Random, name: str) -> list[str]:
    letter, values = OPTIONS[name]
    good = values[: (len(values) + 1) // 2]  # most sites accept those in the first half
    value = chance.choice(good if chance.random() < 0.75 else values)
    if letter and chance.random() < 0.4:
        if value is None:
            return [f"-{letter}"]
        return [f"-{letter}{value}"] if name == "no-kill" or chance.random() < 0.5 else [f"-{letter}", value]
    if chance.random() < 0.25:
        name = name[: chance.randint(2, len(name))]
    if value is None:
        return [f"--{name}"]
    optional = None in values
    return [f"--{name}={value}"] if optional or chance.random() < 0.6 else [f"--{name}", value]


def run(way: str, line: Line) -> tuple[int, str, str]:
    """Return the exit code, stdout and stderr of a line. `way`: the path of sbatch."""
    environ = {**os.environ, **dict(line.variables)}
    shell = "exec <&-; " if line.stdin == "" else ""
    for number, source in ((0, line.stdin), line.descriptor or (0, "")):
        name = source.lstrip("|+")
        if source.startswith("|"):
            shell += f"exec {number}< <(cat {name}); "
        elif source:
            shell += f"exec {number}<{name}; " + (f"read -r <&{number}; " if source.startswith("+") else "")
    words = ["bash", "-pc", f'{shell}exec -a sbatch {way} "$@"', "bash", *line.words]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, env=environ, capture_output=True, check=False)
    out, err = (text.decode("utf-8", "surrogateescape") for text in (done.stdout, done.stderr))
    return done.returncode, out, err


def main() -> None:
    """Run every line with each sbatch, one after the other. Print the results as JSON."""
    told: list[Any] = json.load(sys.stdin)
    every = [Line(tuple(words), tuple(map(tuple, variables)), *rest) for words, variables, *rest in told]
    json.dump([[run(way, line) for way in sys.argv[1:]] for line in every], sys.stdout)


if __name__ == "__main__":
    main()
