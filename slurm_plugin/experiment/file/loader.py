"""Read what a user submits as an experiment: an experiment file of Determined, or a job spec with `search:`.

Both become the same two things: the record of the experiment, and an ordinary job spec that each trial runs.
"""

import os
import secrets
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from slurm_plugin.errors import UsageError
from slurm_plugin.experiment.file import keys, reader, search_key
from slurm_plugin.experiment.record import Experiment
from slurm_plugin.records.nearest import nearest
from slurm_plugin.slurm import Node
from slurm_plugin.spec import documents
from slurm_plugin.spec.documents import MAX_BYTES
from slurm_plugin.spec.sbatch_flags import Known
from slurm_plugin.spec.submit_config import SubmitConfig

SEARCHER: Final = "searcher"
_SEEDS: Final = 2**31


class Loaded(NamedTuple):
    """What a file asks for."""

    experiment: Experiment
    job: Mapping[str, Any]  # a job spec without `search`
    directory: str = ""  # of the experiment; empty: chosen by its name
    parent: str = ""  # the directory in which it is chosen; empty: the job's


def load(
    path: Path,
    site: SubmitConfig | None = None,
    *,
    nodes: Callable[[], Iterable[Node]] | None = None,
    known: Known | None = None,
    program: bool = True,
) -> Loaded:
    """Read a file. Raise UsageError with all its problems.

    `nodes` asks Slurm for its nodes; None: whether a trial fits them is not checked. `known`: the flags of sbatch.
    `program`: whether the program must be there. If not, the entrypoint of an experiment file may be missing, a Trial
    class is taken for PyTorch's, and only the search is complete.
    """
    data = _data(path)
    site, source = site or SubmitConfig(), str(path)
    document = keys.plain(documents.read(data, source, keys.TYPED))
    if search_key.KEY in document.fields:
        return Loaded(*search_key.of_spec(data, source, site, known, _seed))
    if SEARCHER not in document.fields and "entrypoint" not in document.fields:
        near = next((f"; did you mean {close}?" for each in document.fields if (close := _near(each))), "")
        raise UsageError(
            f"{path}: found no `searcher:`, as an experiment file has, and no `search:`, as a job spec{near}\n"
            f"  for one job, run: slurm-plugin submit {path}"
        )
    made, problems = reader.read(document, path.absolute(), site, nodes=nodes, known=known, program=program, seed=_seed)
    again = f"slurm-plugin experiment preview {path}"
    documents.fail(problems, document, source, so="nothing was submitted", again=again)
    assert made is not None  # noqa: S101 - there were no problems
    experiment, job, parent = made
    return Loaded(experiment, job, parent=parent)


def _data(path: Path) -> bytes:
    """Return what a regular file has, MAX_BYTES + 1 at most. Raise UsageError for any other path."""
    accepted = "give an experiment file, or a job spec with `search:`"
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # does not wait if the path is a pipe
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise UsageError(f"{path}: found no regular file\n  {accepted}")
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}\n  {accepted}") from error


def _near(key: str) -> str:
    """Return `search` or `searcher` for a key that is nearly one of them."""
    return nearest(key, (search_key.KEY, SEARCHER))


def _seed() -> int:
    """Return a random seed for a search that names none."""
    return secrets.randbelow(_SEEDS)
