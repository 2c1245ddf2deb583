"""Signatures: the lines of a log that say why a job failed. They are data, one YAML file a subject.

An entry has `id`, `role`, `class`, `pattern`, `example` (its test) and `source`, and may have `whose` (else the class's
usual one), `sure` (the line alone settles the class), `means`, `fix`, `retry` (another run may succeed as
it is; these two else as its class has them), `summary` (it only says that some rank failed).
A pattern is searched in one line without escape sequences and launchers' prefixes. Its named groups: `node`, `rank`:
who failed, or who speaks; `peer_node`, `peer_rank`: whom the line accuses; `operation`: the collective that the rank
was in; `pid`: the process that ended; `what`: the file or module that the line names.

A site adds its own files. The supervisor has no YAML: `compiled` turns the entries into plain values for a JSON file,
with the texts that a line needs before its pattern is tried. Standard library only.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from re import _parser as sre  # type: ignore[attr-defined]  # the only way to a pattern's structure
from typing import Any, Final, NamedTuple

ROLES: Final[Mapping[str, str]] = {  # what a line says
    "root": "a cause",
    "symptom": "what a cause does to other ranks",
    "pointer": "the cause is elsewhere; its class counts only if no other line has one",
    "teardown": "what the end of a job looks like",
    "noise": "only looks like a fault",
    "progress": "what a program prints while it works",
    "last": "a cause only if nothing but complaints follows it in its log",
}
WHOSE: Final = ("user", "node", "network", "fs", "scheduler", "unknown")
FILE: Final = "signatures.json"  # in the site directory
VERSION: Final = 1
# Words in many lines of a training log, or of a traceback.
COMMON: Final = frozenset({
    "loss", "step", "epoch", "rank", "time", "iteration", "error", "errors", "failed", "process", "python",
    "warning", "exception", "torch", "file", "line", "packages", "directory", "distributed", "device", "info", "lib",
    "run", "running", "https", "cuda", "server", "call", "open", "using", "environment", "return", "signal", "user",
    "the", "this", "such", "with", "not", "can", "was", "been", "has", "have", "will", "already", "and", "for", "are",
})  # fmt: skip
_AROUND: Final = " :;,.'\"[](){}="
GROUPS: Final = ("node", "rank", "peer_node", "peer_rank", "operation", "pid", "what")
_TEXTS: Final = ("id", "role", "class", "pattern", "whose", "means", "example", "source")
_FLAGS: Final = ("sure", "retry", "summary")
LEAST_LITERAL: Final = 3  # letters or digits in a row: a shorter word is in too many lines
_WORD = re.compile(r"[A-Za-z0-9_]+")
_PLACEHOLDER: Final = re.compile(r"\b(?:JOB|NODES?|FILE|MODULE|NAME|ADDRESS)\b")  # in `fix`
_PLAIN: Final = re.compile(r"[\w./+:@=,][\w./+:@=,-]*", re.ASCII)


class FailureClass(NamedTuple):
    """A kind of failure: its meaning, whose it usually is, and the verdict on the node that it names.

    `fix` and `retry` count where a signature does not say them, and where no line shows the cause.
    """

    means: str
    whose: str
    verdict: str = "clear"
    fix: str = ""
    retry: bool | None = False  # whether another run may succeed as it is; None: not known


CLASSES: Final[Mapping[str, FailureClass]] = {
    "gpu_oom": FailureClass(
        "the accelerator's memory was full", "user", fix="use a smaller batch, activation checkpointing or more GPUs"
    ),
    "host_oom": FailureClass(
        "the host's memory was full", "user", fix="ask for more with `memory`, or use fewer data loader workers"
    ),
    "gpu_hw": FailureClass(
        "a fault of an accelerator or its driver", "node", "exclude",
        "run it again without that node; see its kernel log: dmesg | grep -e Xid -e NVRM", retry=True,
    ),
    "gpu_sw": FailureClass(
        "a fault of the program on the accelerator", "user", fix="CUDA_LAUNCH_BLOCKING=1 shows the call"
    ),
    "driver_env": FailureClass(
        "driver, toolkit and program do not fit together", "user",
        fix="compare nvidia-smi with python -m torch.utils.collect_env, in the job",
    ),
    "node_down": FailureClass(
        "a node was lost", "node", "exclude", "see why: sinfo -R; run it again without that node", retry=True
    ),
    "net_fabric": FailureClass(
        "the network between nodes failed", "network", "check",
        "measure it: slurm-plugin check fabric --nodes NODES; leave the slow node out", retry=True,
    ),
    "net_name": FailureClass(
        "a name could not be resolved", "network", "check", "try it on that node: getent hosts NAME", retry=None
    ),
    "rendezvous": FailureClass(
        "not all ranks came together", "user", "check",
        "see the log of the rank that did not come; compare MASTER_ADDR and MASTER_PORT of all ranks", retry=None,
    ),
    "collective_desync": FailureClass(
        "ranks called different collectives", "user",
        fix="compare the calls and shapes of all ranks: TORCH_DISTRIBUTED_DEBUG=DETAIL names the first that differs",
    ),
    "rank_hang": FailureClass(
        "one rank stopped answering", "user", "check",
        "see where that rank waits: py-spy dump --pid PID, or PyTorch's flight recorder (TORCH_FR_BUFFER_SIZE=2000)",
        retry=None,
    ),
    "early_exit": FailureClass(
        "a rank left while the others went on", "user",
        fix="see why that rank ends before the others: it may have fewer batches, or call sys.exit",
    ),
    "segfault": FailureClass(
        "native code crashed", "user", fix="find the place: python -X faulthandler, or its core file"
    ),
    "shm": FailureClass(
        "shared memory (/dev/shm) was too small", "node", "check",
        "see it: df -h /dev/shm on that node; in a container: a larger --shm-size", retry=None,
    ),
    "disk_full": FailureClass("a file system was full", "fs", fix="see which: df -h; make room or write elsewhere"),
    "quota": FailureClass("a quota was used up", "user", fix="see it: quota -s; remove files or write elsewhere"),
    "fs_error": FailureClass(
        "a file system failed", "fs", "check", "see whether it works there: srun -w NODE ls DIRECTORY", retry=None
    ),
    "missing_file": FailureClass(
        "a file was not there", "user", fix="see that its path is there on every node: srun ls FILE"
    ),
    "permission": FailureClass("access was denied", "user", fix="compare owner and mode of the path: namei -l FILE"),
    "limits": FailureClass("a limit of the system was reached", "user", fix="see them in the job: ulimit -a"),
    "import_env": FailureClass(
        "a module or library was not there", "user", fix="load or install it in the environment that the job uses"
    ),
    "user_code": FailureClass("the program failed by itself", "user", fix="see what the program wrote before its end"),
    "numeric": FailureClass(
        "numbers became NaN or infinite", "user", fix="lower the learning rate, or clip gradients"
    ),
    "checkpoint": FailureClass("a checkpoint could not be read", "user", fix="continue from an earlier checkpoint"),
    "data": FailureClass("the data could not be read", "user", fix="compare the data set with its source"),
    "external_service": FailureClass(
        "a service outside the cluster failed", "unknown", fix="fetch what the job needs before it starts", retry=True
    ),
    "time_limit": FailureClass(
        "the job's time was over", "scheduler", fix="ask for more `time`, or continue from a checkpoint"
    ),
    "cancelled": FailureClass(
        "the job was cancelled", "user", fix="see who cancelled it: sacct -j JOB -o State%30", retry=True
    ),
    "preempted": FailureClass(
        "the job was preempted", "scheduler", fix="submit it again, or let Slurm requeue it: sbatch --requeue",
        retry=True,
    ),
    "launcher_config": FailureClass(
        "the launch itself was wrong", "user", fix="compare the request with sinfo and scontrol show partition"
    ),
    "symptom_only": FailureClass(
        "only the consequences are in the log", "unknown", fix="diagnose the logs of all ranks and nodes together",
        retry=None,
    ),
    "unknown": FailureClass(
        "the program ended without a reason in the log", "unknown",
        fix="see its end and its memory: sacct -j JOB -o State,ExitCode,MaxRSS; the kernel's lines: dmesg on that node",
        retry=None,
    ),
    "none": FailureClass("nothing failed", "unknown", retry=None),
}  # fmt: skip


class Pattern:
    """A regular expression that is compiled when it is first used: hundreds of them take 0.5 s."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def search(self) -> Callable[[str], re.Match[str] | None]:
        """`re.Pattern.search`."""
        return re.compile(self.text).search


class Signature(NamedTuple):
    """One kind of line."""

    id: str
    role: str
    failure: str  # a key of CLASSES; empty for noise and progress
    pattern: Pattern
    literals: tuple[str, ...]  # lower case: a line that matches holds one of them
    also: tuple[tuple[str, ...], ...]  # and one of each of these
    whose: str
    sure: bool  # whether the line alone settles the class
    means: str
    fix: tuple[str, ...]
    retry: bool | None  # whether another run may succeed as it is; None: as its class has it
    summary: bool  # whether it only says that some rank failed
    example: str
    source: str


def compiled(entry: Mapping[str, Any], *, trusted: bool = False) -> dict[str, Any]:
    """Return an entry of a YAML file as plain values with its literals. Raises ValueError for what is wrong in it.

    `trusted`: do not try the pattern; that takes half of the time, and tests have tried ours.
    """
    name = entry.get("id", "?")
    if unknown := set(entry) - {*_TEXTS, *_FLAGS, "fix"}:
        raise ValueError(
            f"{name}: unknown key {min(map(str, unknown))}; accepted: {', '.join((*_TEXTS, *_FLAGS, 'fix'))}"
        )
    if missing := {"id", "role", "pattern", "example", "source"} - set(entry):
        raise ValueError(f"{name}: {min(missing)} is missing")
    for keys, kind, accepted in ((_TEXTS, str, "a text; quote it"), (_FLAGS, bool, "true or false")):
        if wrong := next((key for key in keys if not isinstance(entry.get(key, kind()), kind)), ""):
            raise ValueError(f"{name}: {wrong}: found {entry[wrong]!r}; accepted: {accepted}")
    role, failure = entry["role"], entry.get("class", "")
    if role not in ROLES:
        raise ValueError(f"{name}: role: found {role!r}; accepted: {', '.join(ROLES)}")
    if failure not in CLASSES and (failure or role in ("root", "symptom", "pointer", "last")):
        raise ValueError(f"{name}: class: found {failure!r}; accepted: {', '.join(CLASSES)}")
    if not trusted:
        _try(name, entry)
    literals = [[]] if role in ("last", "progress") else literals_of(entry["pattern"])
    if not literals:
        raise ValueError(f"{name}: pattern: it holds no word of {LEAST_LITERAL} letters or digits that every match has")
    whose = entry.get("whose") or (CLASSES[failure].whose if failure else "")
    if whose and whose not in WHOSE:
        raise ValueError(f"{name}: whose: found {whose!r}; accepted: {', '.join(WHOSE)}")
    fix = entry.get("fix", [])
    if not isinstance(fix, str | list) or not all(isinstance(each, str) for each in fix):
        raise ValueError(f"{name}: fix: found something other than text; quote a text that has a colon")
    return {
        **{key: entry[key] for key in ("id", "role", "pattern", "example", "source")},
        "failure": failure,
        "literals": literals[0],
        "also": literals[1:],
        "whose": whose,
        "sure": bool(entry.get("sure", False)),
        "means": entry.get("means", ""),
        "fix": [fix] if isinstance(fix, str) else list(fix),
        "retry": entry.get("retry"),
        "summary": bool(entry.get("summary", False)),
    }


def _try(name: str, entry: Mapping[str, Any]) -> None:
    """Raise ValueError if the pattern of an entry is wrong, or does not match its example."""
    try:
        pattern = re.compile(entry["pattern"])
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{name}: pattern: {error}") from error
    if strange := set(pattern.groupindex) - set(GROUPS):
        raise ValueError(f"{name}: pattern: unknown group {min(strange)}; accepted: {', '.join(GROUPS)}")
    if not pattern.search(entry["example"]):
        raise ValueError(f"{name}: its pattern does not match its example")


def load(path: Path) -> tuple[Signature, ...]:
    """Return the signatures that a site has deployed. Raises OSError and ValueError if the file cannot be read."""
    found = json.loads(path.read_bytes())
    if not isinstance(found, dict) or found.get("v") != VERSION:
        raise ValueError(f"{path}: not a version {VERSION} file; run: slurm-plugin site install --apply")
    return read(found["signatures"])


def read(entries: Iterable[Mapping[str, Any]]) -> tuple[Signature, ...]:
    """Return the signatures of compiled entries."""
    return tuple(
        Signature(
            **{
                **entry,
                "pattern": Pattern(entry["pattern"]),
                "literals": tuple(entry["literals"]),
                "also": tuple(map(tuple, entry.get("also", ()))),
                "fix": tuple(entry["fix"]),
            }
        )
        for entry in entries
    )


def advice(failure: str, own: Signature | None) -> tuple[tuple[str, ...], bool | None]:
    """Return what to do, and whether another run may succeed as it is, by the signature, else by the class."""
    kind = CLASSES.get(failure, CLASSES["none"])
    fix = own.fix if own and own.fix else (kind.fix,) if kind.fix else ()
    return fix, kind.retry if own is None or own.retry is None else own.retry


def filled(fix: Iterable[str], words: Mapping[str, str]) -> list[str]:
    """Return advice with these words in place of JOB, NODE, FILE and so on. What a shell would split stays out."""

    def word(placeholder: re.Match[str]) -> str:
        known = words[placeholder[0]]
        return known if _PLAIN.fullmatch(known) else placeholder[0]  # a program can write what it likes into its log

    return [_PLACEHOLDER.sub(word, each) for each in fix]


def literals_of(pattern: str) -> list[list[str]]:
    """Return sets of texts in lower case, the best one first: every match holds at least one text of each set."""
    return [sorted(each) for each in _sets(sre.parse(pattern))]


def _sets(items: Any) -> list[frozenset[str]]:
    """Return the sets of a sequence. The best one's shortest text is the longest."""
    found: list[frozenset[str]] = []
    run = ""
    for operation, argument in [*items, (None, None)]:
        if operation is sre.LITERAL:
            run += chr(argument)
            continue
        if _longest_word(run) >= LEAST_LITERAL:
            found.append(frozenset({run.lower()}))
        run = ""
        if operation is sre.SUBPATTERN:
            found += _sets(argument[3])
        elif operation is sre.MAX_REPEAT and argument[0] > 0:
            found += _sets(argument[2])
        elif operation is sre.BRANCH:
            branches = [_sets(each)[:1] for each in argument[1]]
            if all(branches):
                found.append(frozenset[str]().union(*(best for (best,) in branches)))
    return sorted(dict.fromkeys(found), key=_worth, reverse=True)


def _worth(texts: frozenset[str]) -> tuple[bool, int, int]:
    """Order sets of texts: longer ones are in fewer lines, and digits are not told apart."""
    common = any(text.strip(_AROUND) in COMMON or text.isdigit() for text in texts)
    return not common, min(map(len, texts)), -len(texts)


def _longest_word(text: str) -> int:
    return max(map(len, _WORD.findall(text)), default=0)
