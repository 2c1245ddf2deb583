"""A text that a command was asked for: printed, or written as a whole; one line where there is none."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hostfiles import HostfileError
from slurm_plugin.errors import SlurmPluginError
from slurm_plugin.job import files


def deliver(made: Callable[[], str], output: Path | None, *, announce: bool = False) -> int:
    """Print a text or write it. Exit 0; 2 with one line where it cannot be made or written, 3 without srun.

    `announce`: others may wait for the file, so it says from now on that a rank table comes; without one it goes.
    """
    try:
        if output is None:
            sys.stdout.write(made())
        elif announce:
            from slurm_plugin.job.ranktable import announced  # noqa: PLC0415 - JSON, which no hostfile needs

            with _ended_by_exceptions(), announced(output) as publish:
                publish(made())
        else:
            files.write(output, made())
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
    """SIGTERM, as Slurm sends it to a job that is cancelled, ends this with an exception: what is open is put away."""

    def end(*_: object) -> None:
        sys.exit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
