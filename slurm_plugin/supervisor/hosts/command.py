"""What all verbs of `slurm-plugin hosts` share: find the nodes, and print the result or write it to a file."""

import os
import re
import signal
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import hostfiles
from hostfiles import HostfileError
from hostfiles.allocation import EQUAL_IN_A_STEP, groups
from prechecks.measure import proc
from slurm_plugin.errors import SlurmPluginError
from slurm_plugin.records import job_directory, site_settings
from slurm_plugin.slurm import connect, inventory
from slurm_plugin.supervisor.guard.processes import parent
from slurm_plugin.supervisor.run import own_variables

SLURM_S = 10.0
_TITLE = re.compile(r"slurmstepd: \[([0-9]+)\.([a-z0-9]+)\]", re.ASCII)  # of slurmstepd: `[7.0]`, `[7.batch]`


def own_environment(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment without the variables of another job's step, which a job inherits from its submitter.

    The title of the slurmstepd above this process has its job and step. If no title can be read, as with hidepid, the
    variables themselves decide (`hostfiles.allocation.step_id`). Raise HostfileError for malformed variables.
    """
    above = step_above(os.getpid()) if environ.get("SLURM_STEP_ID") else None
    if above is None:
        return environ
    places = range(len(groups(environ)))
    parts = {environ.get("SLURM_JOB_ID"), *(environ.get(f"SLURM_JOB_ID_HET_GROUP_{place}") for place in places)}
    if above[0] not in parts or above[1] != environ["SLURM_STEP_ID"]:
        return own_variables(environ)
    return {**environ, **{own: environ[step] for step, own in EQUAL_IN_A_STEP if step in environ}}


def step_above(pid: int) -> tuple[str, str] | None:
    """Return the job and the step of the slurmstepd above a process; None if none can be seen."""
    while pid > 1:
        try:
            found = _TITLE.match(proc.title(pid))
        except OSError:
            found = None
        if found:
            return found[1], found[2]
        pid = parent(pid)
    return None


def described(
    options: Namespace, environ: Mapping[str, str], slots: int | Sequence[int] | None, *, of_all: bool = False
) -> hostfiles.Allocation:
    """Return the nodes of --nodelist, else those of the job or step. Raise HostfileError if there are neither.

    `of_all`: the format has the slots of every node, not only of this one, so Slurm may have to be asked for them.
    """
    if options.nodelist is None:
        if slots is None and of_all:
            door = connect(directory=site_settings.slurm_bin(), deadline_s=SLURM_S, say=warn, in_job=True)
            slots = inventory.gpu_slots(environ, door.devices_of)
        return hostfiles.from_slurm(environ, slots)
    return hostfiles.from_lists(
        options.nodelist,
        slots=1 if slots is None else slots,
        tasks_per_node=options.tasks_per_node,
        job_id=options.job_id or 0,
        distribution=options.distribution or "block",
    )


def warn(line: str) -> None:
    """Print to stderr what the command waits for: programs read its stdout."""
    print(f"slurm-plugin: {line}", file=sys.stderr, flush=True)


def deliver(made: Callable[[], str], output: Path | None, *, announce: bool = False) -> int:
    """Print the text, or write it to `output`. Return 0; 2 if it cannot be made or written, 3 if srun is missing.

    `announce`: the file contains `initializing` until the table is ready, because programs may wait for it. If no table
    is made, the file is removed.
    """
    try:
        if output is None:
            text = made()
        elif output.exists() and not output.is_file():  # /dev/stdout, a pipe: not to be replaced by a file
            output.write_text(made(), encoding="utf-8")
        elif announce:
            from slurm_plugin.supervisor.hosts.ranktable import announced  # noqa: PLC0415 - JSON, for rank tables alone

            with _ended_by_exceptions(), announced(output) as publish:
                publish(made())
        else:
            job_directory.write(output, made())
    except HostfileError as error:
        print(f"slurm-plugin: {error}", file=sys.stderr)
        return 2
    except SlurmPluginError as error:
        print(f"slurm-plugin: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"slurm-plugin: {output}: {error.strerror}; nothing was written", file=sys.stderr)
        return 2
    if output is None:
        sys.stdout.write(text)
    return 0


@contextmanager
def _ended_by_exceptions() -> Iterator[None]:
    """Turn SIGTERM, which Slurm sends to a cancelled job, into an exception, so that clean-up runs."""

    def end(*_: object) -> None:
        sys.exit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
