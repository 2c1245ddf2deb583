"""A job spec that is also a batch script, for `sbatch JOB.yaml`. Its first line runs `slurm-plugin run`.

sbatch reads the #SBATCH lines above the first key; they are comments in YAML. Inside the job, this module compares the
keys with the allocation that Slurm gave the job. Slurm does not report `--signal` and `--no-kill`, so the keys for
these options are compared with the #SBATCH lines. A job may have more than a key requests: whole nodes come with all
their GPUs, and MaxMemPerCPU turns memory into CPUs. A job also goes on if the site or an operator
changed the partition or the time limit that its #SBATCH lines request.
"""

import math
import re
import signal
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from hostfiles import nodelist
from slurm_plugin.errors import UsageError
from slurm_plugin.records import durations, token
from slurm_plugin.records.job_plan import FIRST_LINE_BYTES
from slurm_plugin.slurm import Job, Queueing, Request
from slurm_plugin.slurm.resources import Gres, count
from slurm_plugin.spec import Accelerators, Spec, resources
from slurm_plugin.spec.key_types import joined
from slurm_plugin.submit import render
from slurm_plugin.submit.wrapper import batch_script, recovery_options
from slurm_plugin.submit.wrapper.arguments import parse

# Slurm writes accounts in lower case and ignores the case of a QOS. Without accounting it reports neither of the two.
_ANY_CASE: Final = ("account", "qos")
_THE_SITES: Final = ("partition", *_ANY_CASE)  # keys that job_submit.lua or an operator may change
_SIGNAL: Final = re.compile(r"(R?B?R?):?(?:SIG)?([A-Z]+[0-9]?|[0-9]+)(?:@([0-9]+))?", re.ASCII)
_SIGNAL_S: Final = 60  # sbatch's default for --signal without a time


class SlurmAnswers(NamedTuple):
    """Slurm's reports on the job; None if there is no report."""

    job: Job | None = None
    queueing: Queueing | None = None
    request: Request | None = None
    devices: Mapping[str, Sequence[Gres]] = {}  # of each node; empty: no report


class Given(NamedTuple):
    """The resources and options that Slurm gave this run."""

    nodes: int
    gpus: int  # on each node; the fewest, if that differs
    directory: str
    submitted_in: str  # SLURM_SUBMIT_DIR
    time_limit_s: int | None = None  # None: no limit, or unknown
    comment: str | None = None  # None: unknown
    request: Request | None = None  # None: unknown
    lines: Mapping[str, str] | None = None  # the options of the #SBATCH lines; None: unreadable
    time_min_s: int = 0  # sbatch's --time-min: Slurm may shorten the limit to this time
    restarted: bool = False  # whether the job was requeued
    unlike: str = ""  # how many GPUs which nodes have, if that differs


class Contradiction(NamedTuple):
    """A key that contradicts the job."""

    words: str  # the key, and the value that the job has
    line: str  # the option of sbatch that agrees with the key
    ends: bool = True  # whether this ends the job


def _of_a_submission(spec: Spec) -> str:
    """Return the key of a spec that makes more than one job of one kind; empty without one."""
    return "groups" if spec.groups else "tasks" if spec.tasks else ""


def made(spec: Spec, text: str, command: str, source: str) -> str:
    """Return the spec as a batch script: the lines that sbatch needs, then `text`.

    Replace the lines above the first key that an earlier rendering wrote. Keep all other lines. Raise UsageError if
    sbatch or the kernel would refuse the script.
    """
    if key := _of_a_submission(spec):
        raise UsageError(f"{source}: found {key}, which a batch script cannot have\n  run: slurm-plugin submit")
    first = f"#!{command} run"
    if "\r\n" in text:
        raise UsageError(f"{source}: found DOS line ends, which sbatch refuses\n  run: sed -i 's/\\r$//' {source}")
    if len(first.encode()) > FIRST_LINE_BYTES or len(command.split()) != 1:
        raise UsageError(
            f"{command}: found {len(first.encode())} bytes in the first line, and not every kernel starts that\n"
            f"  accepted: {FIRST_LINE_BYTES} bytes without blanks; call it by a link with a shorter path"
        )
    ours = list(render.directives(spec, spec.workdir or ""))
    names = {option.partition("=")[0].lstrip("-") for option in ours} | {"requeue", "no-requeue"}
    lines = text.removeprefix("\ufeff").split("\n")
    head = len(batch_script.first_block(text.removeprefix("\ufeff").encode()))
    kept = [line for number, line in enumerate(lines) if number >= head or not _rendered(line, number, names)]
    return "\n".join((first, *(f"#SBATCH {option}" for option in ours), *kept))


def _rendered(line: str, number: int, names: set[str]) -> bool:
    """Return whether an earlier rendering wrote this line above the first key."""
    given = parse(batch_script.words([line.encode()]))
    return (number == 0 and line.startswith("#!")) or bool(given and given.options and given.names <= names)


def fit(spec: Spec, keys: Container[str], given: Given, say: Callable[[str], None]) -> Spec:
    """Return the spec, completed with Slurm's nodes and accelerators. Raise UsageError for a contradiction.

    `keys`: the keys in the spec. `say` gets each contradiction that does not end the job.
    """
    if key := _of_a_submission(spec):
        raise UsageError(f"found {key}, and sbatch was given one job of one kind\n  run: slurm-plugin submit")
    if "nodes" not in keys and spec.mode != "single":
        spec = msgspec.structs.replace(spec, nodes=max(given.nodes - spec.spares, 1))
    if "accelerators" not in keys:
        if given.unlike and spec.mode not in ("single", "script"):
            raise UsageError(
                f"`accelerators` is missing, and Slurm gave the nodes unlike numbers of GPUs: {given.unlike}\n"
                "  correct the #SBATCH lines: --gpus-per-node or --gres, not --gpus"
            )
        spec = msgspec.structs.replace(spec, accelerators=Accelerators(gpu=given.gpus))
    found = list(contradictions(spec, given))
    for each in found:
        if not each.ends:
            say(f"{each.words}; the job runs all the same")
    if problems := [f"{each.words}: #SBATCH {each.line}" for each in found if each.ends]:
        count = "1 key contradicts" if len(problems) == 1 else f"{len(problems)} keys contradict"
        raise UsageError(
            "\n  ".join((f"{count} what Slurm gave this job; it ends here", *problems))
            + "\n  correct the #SBATCH lines or the keys; slurm-plugin render --batch JOB.yaml writes the lines"
        )
    return spec


def given(environ: Mapping[str, str], directory: str, answers: SlurmAnswers, script: bytes) -> Given:
    """Return what Slurm gave the run, from variables, script and Slurm's reports. Raise UsageError outside a job."""
    try:
        nodes = int(environ["SLURM_JOB_NUM_NODES"])
    except (KeyError, ValueError):
        raise UsageError("found no job here: submit the spec with: sbatch JOB.yaml") from None
    here, ids = environ.get("SLURM_GPUS_ON_NODE", ""), environ.get("SLURM_JOB_GPUS", "")
    own = int(here) if here.isdigit() else len(nodelist.expand(f"gpu[{ids}]")) if ids else 0
    gpus = {name: count(each, "gpu") for name, each in answers.devices.items()}
    return Given(
        nodes=nodes,
        gpus=min(gpus.values(), default=own),
        directory=directory,
        submitted_in=environ.get("SLURM_SUBMIT_DIR", directory),
        time_limit_s=answers.queueing.time_limit_s if answers.queueing else None,
        comment=answers.job.comment if answers.job else None,
        request=answers.request,
        lines=_lines(script),
        time_min_s=answers.queueing.time_min_s if answers.queueing else 0,
        restarted=environ.get("SLURM_RESTART_COUNT", "0") != "0",
        unlike=_unlike(gpus),
    )


def _unlike(gpus: Mapping[str, int]) -> str:
    """Return `4 on n1, 2 on n[2-3]`; empty if all nodes have the same number."""
    of = {number: [name for name, each in gpus.items() if each == number] for number in gpus.values()}
    return ", ".join(f"{number} on {nodelist.fold(names)}" for number, names in of.items()) if len(of) > 1 else ""


def _lines(script: bytes) -> dict[str, str] | None:
    """Return the options in the #SBATCH lines of a script, as sbatch reads them; None if they cannot be read."""
    found = parse(batch_script.words(batch_script.first_block(script)))
    return None if found is None else {option.name: option.value or "" for option in found.options}


def contradictions(spec: Spec, given: Given) -> Iterator[Contradiction]:
    """Yield each key that contradicts the job.

    In a requeued job only a wrong number of nodes or GPUs ends the job. Its first run passed the other tests, so
    another contradiction means that an operator changed the job.
    """
    yield from _of_the_nodes(spec, given)
    for each in _of_the_job(spec, given):
        yield each._replace(ends=each.ends and not given.restarted)


def _of_the_nodes(spec: Spec, given: Given) -> Iterator[Contradiction]:
    if not spec.least <= given.nodes <= spec.nodes + spec.spares:
        spares = f" and `spares: {spec.spares}`" if spec.spares else ""
        yield _both(f"nodes: {spec.nodes}", given.nodes, f"nodes={recovery_options.node_count(spec)}", spares)
    if spec.accelerators.gpu > given.gpus:
        yield _both(f"accelerators: {{gpu: {spec.accelerators.gpu}}}", given.gpus, f"gres=gpu:{spec.accelerators.gpu}")


def _of_the_job(spec: Spec, given: Given) -> Iterator[Contradiction]:
    if spec.time and given.time_limit_s is not None and not given.time_min_s:
        minutes = _minutes(spec.time)
        if minutes > math.ceil(given.time_limit_s / 60):
            found = durations.slurm_time(f"{given.time_limit_s}s")
            # Without a line the job has the partition's default.
            ends = given.lines is not None and not ("time" in given.lines and _minutes(given.lines["time"]) >= minutes)
            yield _both(f"time: {spec.time}", found, f"time={durations.slurm_time(spec.time)}", ends=ends)
    if spec.workdir and _path(given.submitted_in, spec.workdir) != given.directory:
        words = f"`workdir: {spec.workdir}`, and Slurm started it in {given.directory}"
        yield Contradiction(words, f"--chdir={spec.workdir}")
    if given.comment is not None and (found_token := _other_request(spec, given.comment)) is not None:
        words = f"`retries: {spec.retries}`, and the job's comment asks for {found_token}"
        yield Contradiction(words, f"--comment={recovery_options.token(spec)}")
    if given.request:
        yield from _of_the_request(spec, given.request, given.lines or {})
    if given.lines is not None:
        yield from _of_the_lines(spec, given.lines)


def _of_the_request(spec: Spec, request: Request, lines: Mapping[str, str]) -> Iterator[Contradiction]:
    for key in (*_THE_SITES, "reservation"):
        wanted, found = joined(getattr(spec, key)), getattr(request, key)
        if wanted and (found or key not in _ANY_CASE) and not _names(key, wanted) & _names(key, found):
            # If a line requests the name, the site or an operator overruled it.
            ends = not _names(key, lines[key]) <= _names(key, wanted) if key in lines else key not in _THE_SITES
            yield _both(f"{key}: {wanted}", found or "none", f"{key}={wanted}", ends=ends)
    if spec.constraint and spec.constraint not in request.constraint:
        yield _both(f"constraint: {spec.constraint}", request.constraint or "none", f'constraint="{spec.constraint}"')
    if (wanted := spec.accelerators.gres) and request.gres is not None and _other_gres(spec, request.gres, lines):
        more = f", type: {spec.accelerators.type}" if spec.accelerators.type else ""
        key = f"accelerators: {{{spec.accelerators.kind}: {spec.accelerators.count}{more}}}"
        yield _both(key, ",".join(request.gres) or "none", f"gres={wanted}")
    if spec.cpus and resources.tasks(spec) == spec.slots and spec.cpus > request.cpus:
        yield _both(f"cpus: {spec.cpus}", request.cpus, f"cpus-per-task={spec.cpus}")
    if spec.memory and 0 < request.memory_mb < resources.megabytes(size := resources.slurm_size(spec.memory)):
        yield _both(f"memory: {spec.memory}", f"{request.memory_mb}M", f"mem={size}")
    if spec.retries and not request.requeue:
        yield Contradiction(f"`retries: {spec.retries}`, and Slurm may not requeue this job", "--requeue")


def _of_the_lines(spec: Spec, lines: Mapping[str, str]) -> Iterator[Contradiction]:
    for name, value in recovery_options.flags(spec):
        found = lines.get(name)
        if name == "signal" and not _same_signal(found, value):
            words = f"`grace: {spec.grace}`, and the #SBATCH lines ask for {found or 'no signal'}"
            yield Contradiction(words, f"--signal={value}")
        if name == "no-kill" and found != "":
            key = f"spares: {spec.spares}" if spec.spares else f"min_nodes: {spec.least}"
            which = f"have --no-kill={found}" if found else "do not keep a job that loses a node"
            yield Contradiction(f"`{key}`, and the #SBATCH lines {which}", "--no-kill")


def _both(key: str, found: object, line: str, more: str = "", *, ends: bool = True) -> Contradiction:
    return Contradiction(f"`{key}`{more}, and Slurm gave {found}", f"--{line}", ends)


def _names(key: str, text: str) -> frozenset[str]:
    """Return the names in a list; in lower case if Slurm ignores the case."""
    return frozenset(filter(None, (text.lower() if key in _ANY_CASE else text).split(",")))


def _minutes(text: str) -> float:
    """Return a time limit in minutes, rounded up as in Slurm; infinity for `0`, `UNLIMITED` and other text."""
    try:
        return math.ceil(durations.seconds(text) / 60)
    except ValueError:
        return math.inf


def _other_gres(spec: Spec, gres: tuple[str, ...], lines: Mapping[str, str]) -> bool:
    """Return whether a job's gres have another kind or type, or too few NPUs. GPUs are counted on the node, not here.

    A job with whole nodes may have GPUs that it did not request.
    """
    wanted, found = spec.accelerators, 0
    if not any(each.partition(":")[0] == wanted.kind for each in gres) and (wanted.gpu or lines.get("exclusive") == ""):
        return False
    for each in gres:
        kind, _, rest = each.partition(":")
        named, _, count = rest.rpartition(":")
        if kind == wanted.kind and named == (wanted.type or named):
            found += int(count)
    return found < wanted.npu if wanted.npu else wanted.type is not None and not found


def _same_signal(found: str | None, wanted: str) -> bool:
    """Return whether both values of --signal mean the same signal, time and receiver."""
    return _signal(found or "") == _signal(wanted)


def _signal(text: str) -> tuple[bool, int, int] | None:
    """Read a value of --signal: whether the batch script gets it, the number, and the seconds before the end.

    Return None for another text. sbatch accepts numbers, and names in any letter case.
    """
    found = _SIGNAL.fullmatch(text.upper())
    if found is None:
        return None
    number = int(found[2]) if found[2].isdigit() else getattr(signal, f"SIG{found[2]}", 0)
    return "B" in found[1], number, int(found[3] or _SIGNAL_S)


def _other_request(spec: Spec, comment: str) -> str | None:
    """Return the request in a comment if it differs from the spec's; None if it is the same."""
    found, wanted = token.find(comment), recovery_options.token(spec)
    if found is None:
        return "nothing" if spec.retries else None
    same = ("retries", "infiniband", "queue_timeout_s")
    return None if all(getattr(found, name) == getattr(wanted, name) for name in same) else str(found)


def _path(directory: str, path: str) -> str:
    """Return an absolute path without links."""
    return str(Path(directory, path).resolve())
