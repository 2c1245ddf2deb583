"""What all verbs of `slurm-plugin hosts` share: find the nodes, and print the result or write it to a file."""

import signal
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import hostfiles
from hostfiles import HostfileError
from slurm_plugin.errors import SlurmPluginError
from slurm_plugin.records import job_directory


def described(
    options: Namespace, environ: Mapping[str, str], slots: int | Sequence[int] | None
) -> hostfiles.Allocation:
    """Return the nodes of --nodelist, else those of the job or step. Raise HostfileError if there are neither."""
    if options.nodelist is None:
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
            sys.stdout.write(made())
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
