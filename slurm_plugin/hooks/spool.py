"""The controller's spool: one small file for every ended run that may go on, until the worker has dealt with it.

SlurmUser owns the directory. A file is named `<job id>.<restart count told>.json`; writing is a rename, so a
reader never sees half of one, and a slurmctld restart loses none.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from slurm_plugin.after_run import Ended


def _file(ended: Ended) -> str:
    return f"{ended.job_id}.{ended.told}.json"


def put(spool: Path, ended: Ended) -> None:
    """Write one run that ended; it survives a crash of this machine."""
    fresh = spool / f".{_file(ended)}.{os.getpid()}"
    with fresh.open("w", encoding="ascii") as file:
        json.dump(asdict(ended), file)
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(spool / _file(ended))
    folder = os.open(spool, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def entries(spool: Path) -> Iterator[Ended]:
    """Everything that waits, oldest job first. A file that cannot be read is set aside as `.bad`, never retried."""
    found = []
    for path in spool.glob("[0-9]*.json"):
        try:
            fields = json.loads(path.read_text(encoding="ascii"))
            ended = Ended(int(fields["job_id"]), int(fields["told"]), tuple(map(str, fields["nodes"])))
            if path.name != _file(ended):
                raise ValueError(f"{path} holds the run of {_file(ended)}")
        except FileNotFoundError:
            continue
        except (OSError, ValueError, TypeError, KeyError):
            path.rename(path.with_suffix(".bad"))
            continue
        found.append(ended)
    yield from sorted(found, key=lambda ended: (ended.job_id, ended.told))


def remove(spool: Path, ended: Ended) -> None:
    """Take an entry out."""
    (spool / _file(ended)).unlink(missing_ok=True)
