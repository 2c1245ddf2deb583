"""Read a job spec that a person gives a command: a file, or stdin.

Nodes lack the packages for it. Of their commands only `nodes --free` reads a spec, where these packages are.
"""

import os
import sys
from pathlib import Path

from slurm_plugin.errors import UsageError
from slurm_plugin.spec import Spec, documents, load_all, submit_config
from slurm_plugin.spec.documents import MAX_BYTES
from slurm_plugin.spec.sbatch_flags import Known
from slurm_plugin.submit.wrapper import batch_script


def read_specs(spec_file: str, site: submit_config.SubmitConfig, known: Known) -> tuple[Spec, ...]:
    """Return the specs of a file, or of stdin: one for each alternative."""
    return load_specs(read_file(spec_file), spec_file, site, known)


def is_search(data: bytes, spec_file: str) -> bool:
    """Return whether `data` is a spec with `search`."""
    if b"search" not in data or batch_script.is_script(data):
        return False
    return "search" in documents.read(data, spec_file).fields


def refuse_script(data: bytes, spec_file: str) -> None:
    """Raise UsageError for a batch script. Its message names the right command."""
    if batch_script.is_script(data):
        raise UsageError(f"{spec_file}: this is a batch script\n  run: slurm-plugin sbatch {spec_file}")


def load_specs(data: bytes, spec_file: str, site: submit_config.SubmitConfig, known: Known) -> tuple[Spec, ...]:
    """Return the specs in `data`. Raise UsageError for a batch script, and for a user's own file with a mistake."""
    refuse_script(data, spec_file)
    own, where = submit_config.read_own()
    if own.fields and not os.path.exists(site.command):  # noqa: PTH110 - jobs read the whole file
        from slurm_plugin.site import configuration  # noqa: PLC0415 - 12 ms, for what only the job reads

        configuration.check_own(own, where)
    name, runtime = "<stdin>" if spec_file == "-" else spec_file, site.container.runtime or ""
    return load_all(data, name, presets=site.presets, known=known, runtime=runtime)


def read_file(spec_file: str) -> bytes:
    """Return up to MAX_BYTES + 1 bytes of a file, or of stdin. Raise UsageError if it is unreadable."""
    try:
        if spec_file == "-":
            return sys.stdin.buffer.read(MAX_BYTES + 1)
        with Path(spec_file).open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{spec_file}: {error.strerror}\n  begin with: slurm-plugin example") from error


def spec_name(spec_file: str) -> str:
    """Return the name of a spec file for messages."""
    return "JOB.yaml" if spec_file == "-" else Path(spec_file).name
