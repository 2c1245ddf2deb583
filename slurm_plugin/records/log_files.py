"""The log files of a job: of nodes, of ranks, torchrun's error files, and `output.json`, which says where they are.

Beside the job's one log, `logs: {per: ...}` writes `<name>-<job id>-worker-<n>.log` for each node and
`<name>-<job id>-proc-rank-<rank>-device-<device>.txt` for each process. The files of a later attempt have
`-attempt-<attempt>` after the job id.

PyTorch writes the exception of a rank into a file of TORCHELASTIC_ERROR_FILE, if the program uses `@record`. Below
`errors/<attempt>/<node>/` in the job's directory, `first-<the node's first rank>/` is torchrun's `--log-dir`,
`error.json` is torchrun's own file, and `rank-<rank>.error.json` that of a rank that srun starts. `trace_rank_<rank>`
is a dump of PyTorch's flight recorder. Standard library only.
"""

import json
import os
import re
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from slurm_plugin.records import job_directory, job_plan

FILE: Final = "output.json"  # in the job's directory
VERSION: Final = 1
PER: Final = job_plan.LOGS_PER
ERRORS: Final = "errors"  # in the job's directory
DUMP: Final = "trace_rank_"  # and the rank: a dump of PyTorch's flight recorder
# What PyTorch takes the beginning of a dump's path from, the newer name first (FlightRecorder.cpp).
DUMP_FILES: Final = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
ATTEMPTS_KEPT: Final = 4  # of which there are error files
LONGEST_NAME: Final = 100  # bytes of a job's name in a file's name: NAME_MAX is 255
_ODD = re.compile(r"[^\w.+=@,-]|^[.-]")  # what a job's name has and a file's name must not
_ERROR = re.compile(
    rf"/{ERRORS}/(?P<attempt>\d+)/(?P<node>[^/]+)/(?:rank-(?P<rank>\d+)\.error\.json|error\.json"
    r"|first-(?P<first>\d+)/[^/]+/attempt_(?P<again>\d+)/(?P<local>\d+)/error\.json)",
    re.ASCII,
)
_KINDS = r"-(?:worker-(?P<worker>\d+)\.log|proc-rank-(?P<rank>\d+)-device-(?P<device>\d+)\.txt)"


class LogFile(NamedTuple):
    """A log file of one node (`worker`) or of one process (`rank` and `device`)."""

    path: Path
    attempt: int
    worker: int | None
    rank: int | None
    device: int | None


class ErrorFile(NamedTuple):
    """A file with the exception of a rank."""

    path: Path
    node: str
    rank: int | None  # None: of the node's torchrun: its own exception, or a copy of that of its first rank
    again: int = 0  # how often torchrun itself has started the ranks again before


class Output(NamedTuple):
    """Where a run of a job writes its output."""

    name: str = ""  # of the job, as Slurm has it
    stdout: str = ""  # the path of the job's log; empty if it is no regular file
    stderr: str = ""
    directory: str = ""  # of the files of nodes and ranks; empty without such files
    per: str = PER[0]  # a word of PER
    task: str = ""  # the name of an array task, such as 12_3


def stem(name: str, job_id: int | str, attempt: int = 0) -> str:
    """Return the part that the names of an attempt's files begin with. `job_id`: or shell text for it."""
    safe = _ODD.sub("_", name).encode()[:LONGEST_NAME].decode(errors="ignore") or "job"
    return f"{safe}-{job_id}" + (f"-attempt-{attempt}" if attempt else "")


def of_worker(worker: int | str) -> str:
    """Return the end of the name of a node's file. `worker`: the node's place in the attempt, or shell text for it."""
    return f"-worker-{worker}.log"


def of_rank(rank: int | str, device: int | str) -> str:
    """Return the end of the name of a process's file. `device`: its local rank."""
    return f"-proc-rank-{rank}-device-{device}.txt"


def find(directory: Path, job_id: int, owner: int | None = None) -> list[LogFile]:
    """Return the files of a job in `directory`, by attempt, nodes before ranks. Leave out links and other jobs' files.

    `owner`: also leave out the files of other users than this uid.
    """
    ours = re.compile(rf".+?-{job_id}(?:-attempt-(?P<attempt>\d+))?{_KINDS}", re.ASCII | re.DOTALL)
    found = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if (match := ours.fullmatch(entry.name)) and _is_file(entry, owner):
                    attempt, *numbers = (None if each is None else int(each) for each in match.groups())
                    found.append(LogFile(Path(entry.path), attempt or 0, *numbers))
    except OSError:
        return []
    return sorted(found, key=lambda each: (each.attempt, each.rank is not None, each.worker or each.rank or 0))


def error_file(path: Path) -> ErrorFile | None:
    """Return whose error file this is, by its path; None for any other file."""
    found = _ERROR.search(str(path))
    if found is None or found.end() != len(str(path)):
        return None
    if found["rank"]:
        return ErrorFile(path, found["node"], int(found["rank"]))
    if not found["local"]:
        return ErrorFile(path, found["node"], None)
    return ErrorFile(path, found["node"], int(found["first"]) + int(found["local"]), int(found["again"]))


def error_files(directory: Path, attempt: int) -> list[ErrorFile]:
    """Return the last error file of each rank of an attempt, by rank; without any of a rank, those of each torchrun."""
    last: dict[tuple[str, int | None], ErrorFile] = {}
    for folder, _, _ in os.walk(directory / ERRORS / str(attempt)):
        with suppress(OSError), os.scandir(folder) as entries:
            for each in filter(None, (error_file(Path(entry.path)) for entry in entries if _is_file(entry))):
                if (known := last.get(each[1:3])) is None or known.again <= each.again:
                    last[each[1:3]] = each
    ranks = [each for each in last.values() if each.rank is not None]
    return sorted(ranks or last.values(), key=lambda each: (each.rank or 0, each.node))


def dumps(directory: Path, attempt: int) -> list[Path]:
    """Return the dumps of PyTorch's flight recorder of an attempt."""
    found = []
    for node in _directories(directory / ERRORS / str(attempt)):
        with suppress(OSError), os.scandir(node) as entries:
            found += [Path(each.path) for each in entries if each.name.startswith(DUMP) and _is_file(each)]
    return found


def prune_errors(directory: Path, attempt: int) -> None:
    """Remove the error files of all but the newest attempts before `attempt`; errors are ignored."""
    kept = {str(number) for number in range(attempt - ATTEMPTS_KEPT + 1, attempt)}
    with suppress(OSError):
        for each in (directory / ERRORS).iterdir():
            if each.name not in kept:
                shutil.rmtree(each, ignore_errors=True)


def _is_file(entry: os.DirEntry[str], owner: int | None = None) -> bool:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:  # removed meanwhile
        return False
    return stat.S_ISREG(status.st_mode) and owner in (None, status.st_uid)


def write_output(directory: Path, output: Output) -> None:
    """Write `output.json` into the job's directory. Raises OSError."""
    job_directory.write(directory / FILE, json.dumps({"v": VERSION, **output._asdict()}) + "\n")


def output(directory: Path) -> Output | None:
    """Read `output.json` in the job's directory. Return None without a readable one; the user owns the file.

    Values of a wrong type, and those that no path can have, become the defaults.
    """
    found = job_directory.read_object(directory / FILE)
    if found is None:
        return None
    texts = {name: value for name in Output._fields if isinstance(value := found.get(name), str) and _fits(value)}
    return Output(**{**texts, "per": per if (per := texts.get("per", "")) in PER else PER[0]})


def _fits(text: str) -> bool:
    """Return whether a path may have this text: JSON also has surrogates, which no file name has."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def of_task(workdir: Path, name: str) -> int | None:
    """Return the number of the newest job in this working directory that was this array task; None without one."""
    found = [
        int(entry.name)
        for entry in _directories(workdir / job_directory.OURS)
        if job_directory.is_job(entry.name) and (has := output(Path(entry.path))) and has.task == name
    ]
    return max(found, default=None)


def _directories(path: Path) -> list[os.DirEntry[str]]:
    """Return the directories in a directory."""
    try:
        return [each for each in os.scandir(path) if each.is_dir()]
    except OSError:
        return []


def path_of(descriptor: int) -> str:
    """Return the path of an open regular file; empty for a pipe, a terminal or a deleted file."""
    try:
        status = os.fstat(descriptor)
        return (
            str(Path(f"/proc/self/fd/{descriptor}").readlink())
            if stat.S_ISREG(status.st_mode) and status.st_nlink
            else ""
        )
    except OSError:
        return ""
