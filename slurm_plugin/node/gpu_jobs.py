"""Write which job uses which GPU, for exporters that label a GPU's metrics with its job (site key `gpu_job_map`).

| format | file | content |
|---|---|---|
| `dcgm`: dcgm-exporter | `<run directory>/dcgm/N`, or `N.I` for MIG instance I of GPU N | one job id a line |
| `jobstats` | `/run/gpustat/N`, or the UUID of a MIG instance | `JOBID UID`, one job a line; jobstats reads the first |

The prolog adds a job, the epilog removes it. A record of root on this node has all jobs; the files are written from it
under a lock, so the next hook mends what a killed one left. The periodic check removes a job without an epilog. The
prolog of another job on the GPU cannot: jobs of gres/shard get the same variables as a job that has the whole GPU
(measured on 22.05.8: SLURM_JOB_GPUS and CUDA_VISIBLE_DEVICES, nothing about shards).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence

from prechecks import boot_state, files
from prechecks.measure import nvidia
from slurm_plugin.node import child_work, cleanup
from slurm_plugin.records import syslog

TYPE_CHECKING = False  # as in prechecks: `typing` costs a hook 3 ms
if TYPE_CHECKING:
    from typing import Any

    from slurm_plugin.slurm import Slurm

    Jobs = dict[str, list[Any]]

DCGM, JOBSTATS = "dcgm", "jobstats"
JOBSTATS_DIRECTORY = "/run/gpustat"  # fixed in jobstats' exporter
ROW, LOCK = "gpu_jobs", "gpu_jobs.lock"  # in the state directory
LOCK_WAIT_S, MIG_S = 3.0, 2.0
_LETTERS = frozenset("0123456789abcdefABCDEF-")
_LONGEST = 64


def devices(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the GPUs that Slurm gives a job on this node: numbers, and UUIDs of MIG instances.

    Slurm names MIG instances only in CUDA_VISIBLE_DEVICES; SLURM_JOB_GPUS then has numbers that are no GPU's.
    """
    visible, own = environ.get("CUDA_VISIBLE_DEVICES", ""), environ.get("SLURM_JOB_GPUS", "")
    names = (visible if nvidia.has_mig(environ) else own or visible).split(",")
    return tuple(dict.fromkeys(name for name in names if _is_number(name) or _is_instance(name)))


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit() and len(name) <= 4


def _is_instance(name: str) -> bool:
    return name.startswith(nvidia.MIG) and len(name) <= _LONGEST and _LETTERS.issuperset(name.removeprefix(nvidia.MIG))


def add(site: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Add a job that starts. Only log an error."""
    found = devices(environ)
    if not found or not site["gpu_job_map"]:
        return
    job_id, uid = int(environ["SLURM_JOB_ID"]), int(environ["SLURM_JOB_UID"])
    instances = [name for name in found if not _is_number(name)]
    places = _mig_places(site, instances) if instances and DCGM in site["gpu_job_map"] else {}

    def change(jobs: Jobs) -> None:
        jobs.pop(str(job_id), None)  # of an earlier run: the newest job comes last
        jobs[str(job_id)] = [uid, time.time(), list(found), places]

    _update(site, change)


def remove(site: Mapping[str, Any], job_id: int) -> None:
    """Remove a job that has ended. Only log an error."""
    if site["gpu_job_map"]:
        _update(site, lambda jobs: jobs.pop(str(job_id), None))


def sweep(site: Mapping[str, Any], node: str, door: Callable[[], Slurm]) -> None:
    """Remove jobs that have ended on this node without an epilog, and mend the files.

    Keep a job that is young, or whose user has a process here. Query Slurm once about the others.
    """
    if not site["gpu_job_map"]:
        return
    now, over = time.time(), set[str]()
    try:
        known = _load(site)
    except OSError:  # `_update` logs it
        known = {}
    users = cleanup.users_of_processes() if known else set()
    old = [job for job, (uid, since, *_) in known.items() if now - since > cleanup.OLD_S and uid not in users]
    if old:
        from slurm_plugin.errors import SlurmPluginError  # noqa: PLC0415 - most checks ask nothing

        try:
            jobs = door().jobs([int(job) for job in old])
            over = {job for job in old if cleanup.is_over(jobs.get(int(job)), node)}
        except SlurmPluginError as error:
            syslog.syslog(syslog.LOG_WARNING, f"kept the GPUs of old jobs: {error.one_line}")

    def change(record: Jobs) -> None:
        for job in (job for job in old if job in record and record[job][1] == known[job][1]):  # not started again
            if job in over:
                del record[job]
            else:
                record[job][1] = now  # query Slurm again after OLD_S

    _update(site, change)


def _load(site: Mapping[str, Any]) -> Jobs:
    """Return the record: job -> uid, time, devices, where MIG instances are. Drop what is malformed. Raises OSError."""
    found = boot_state.load(site["prechecks"]["state"], ROW)
    return {job: fields for job, fields in found.items() if job.isdigit() and _is_whole(fields)}


def _is_whole(fields: Any) -> bool:
    if not isinstance(fields, list) or len(fields) != 4:
        return False
    uid, since, names, places = fields
    numbers = isinstance(uid, int) and isinstance(since, int | float)
    return numbers and isinstance(names, list) and isinstance(places, dict)


def _update(site: Mapping[str, Any], change: Callable[[Jobs], object]) -> None:
    """Change the record under the lock, save it, and write the files. Only log an error."""
    state = site["prechecks"]["state"]
    try:
        with files.Locked(boot_state.open_directory(state, make=True), LOCK, LOCK_WAIT_S):
            jobs = _load(site)
            change(jobs)
            if jobs != boot_state.load(state, ROW):
                boot_state.save(state, ROW, jobs)
            for kind in site["gpu_job_map"]:
                _write(_directory(site, kind), _lines(jobs, kind))
    except OSError as error:
        syslog.syslog(syslog.LOG_ERR, f"the jobs of the GPUs cannot be written: {error}")


def _directory(site: Mapping[str, Any], kind: str) -> str:
    return JOBSTATS_DIRECTORY if kind == JOBSTATS else f"{site['run_directory']}/{DCGM}"


def _lines(jobs: Mapping[str, Sequence[Any]], kind: str) -> dict[str, str]:
    """Return the content of each file."""
    found: dict[str, str] = {}
    for job, (uid, _, names, places) in jobs.items():
        for name in names:
            file = places.get(name) if kind == DCGM and not _is_number(name) else name
            if file:
                found[file] = found.get(file, "") + (f"{job} {uid}\n" if kind == JOBSTATS else f"{job}\n")
    return found


def _write(path: str, contents: Mapping[str, str]) -> None:
    """Write these files, and remove other files with a GPU's name. Readers see whole files only. Raises OSError."""
    with files.Opened(files.open_directory(path, make=True)) as directory:
        for name in os.listdir(directory):  # noqa: PTH208 - a descriptor
            numbers = name.split(".")
            if name not in contents and (_is_instance(name) or (len(numbers) <= 2 and all(map(_is_number, numbers)))):
                os.unlink(name, dir_fd=directory)
        for name, text in contents.items():
            if _content(directory, name) != text:
                files.replace(name, text, directory=directory)


def _content(directory: int, name: str) -> str:
    """Return the content of a file; empty if it cannot be read."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
        with open(fd, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - a descriptor
            return file.read()
    except OSError:
        return ""


def _mig_places(site: Mapping[str, Any], instances: Sequence[str]) -> dict[str, str]:
    """Return the GPU and the instance of each MIG UUID, `0.1`, in a child process: the driver may hang."""
    state = site["prechecks"]["state"]
    try:
        found, why = child_work.run(state, "the GPUs of MIG instances", lambda: mig_places(instances), MIG_S)
    except OSError as error:  # no process can be made
        found, why = None, str(error)
    if found is None:
        syslog.syslog(syslog.LOG_WARNING, f"dcgm-exporter does not get the job of {', '.join(instances)}: {why}")
    return dict(found or {})


def mig_places(instances: Sequence[str], library: str = "libnvidia-ml.so.1") -> dict[str, str]:
    """Return the NVML number of the GPU and the id of the GPU instance of each MIG UUID, as `0.1`.

    docs.nvidia.com/deploy/nvml-api describes the calls. Raise OSError if there is no NVML or it refuses.
    """
    import ctypes  # noqa: PLC0415 - only nodes with MIG

    nvml = ctypes.CDLL(library)

    def call(name: str, *arguments: Any) -> None:
        if code := getattr(nvml, name)(*arguments):
            raise OSError(f"{name} answers {code}")

    call("nvmlInit_v2")
    places = {}
    for uuid in instances:
        instance, gpu, number, index = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_uint()
        call("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(instance))
        call("nvmlDeviceGetGpuInstanceId", instance, ctypes.byref(number))
        call("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", instance, ctypes.byref(gpu))
        call("nvmlDeviceGetIndex", gpu, ctypes.byref(index))
        places[uuid] = f"{index.value}.{number.value}"
    return places
