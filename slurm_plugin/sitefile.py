"""What a submission reads of the site's own file, `/etc/slurm/slurm_plugin.yaml`: the rules, the presets, the command,
where data is copied to, what containers are run by.

The rest of it is for nodes and hooks (slurm_plugin.siteconfig): it takes a `render` 12 ms, and a mistake in it stops
who deploys it, not who submits.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from slurm_plugin import validate, yamltext
from slurm_plugin.compiled import DEFAULT_ROOT
from slurm_plugin.errors import UsageError
from slurm_plugin.policy import language
from slurm_plugin.policy.language import Policy
from slurm_plugin.spec import presets
from slurm_plugin.spec.kinds import Runtime
from slurm_plugin.validate import Problem
from slurm_plugin.yamltext import Document

DEFAULT_PATH: Final = Path("/etc/slurm/slurm_plugin.yaml")
AGAIN: Final = "slurm-plugin site install"
# Root's hooks hold these without quotes.
PlainPath = Annotated[
    str, Meta(pattern=r"^/[A-Za-z0-9._/+-]*\Z", description="an absolute path of letters, digits and ._/+-")
]


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the site file."""


class StageIn(Record, frozen=True):
    """Copies of the data that jobs read, on each node's own disk."""

    directory: PlainPath | None = None  # like /tmp: root's, open to all, sticky; without one no job can have copies
    keep: str = "7d"  # since a job used a copy last


class Containers(Record, frozen=True):
    """Containers of jobs."""

    runtime: Runtime | None = None  # for an image whose form does not say


class SubmitConfig(Record, frozen=True):
    """What of the site file a submission depends on."""

    policy: Policy = Policy()
    presets: Mapping[str, Mapping[str, Any]] = {}  # what a spec may extend: name -> keys of a spec
    command: PlainPath = f"{DEFAULT_ROOT}/bin/slurm-plugin"
    stage_in: StageIn = StageIn()
    container: Containers = Containers()


def load(path: Path | None = None) -> SubmitConfig:
    """Read that part; without a file, every default holds. Raises UsageError with everything that is wrong in it."""
    source = path or DEFAULT_PATH
    document = read(path)
    keys = msgspec.structs.fields(SubmitConfig)
    own = {key.encode_name: document.fields[key.encode_name] for key in keys if key.encode_name in document.fields}
    config, found = validate.record(Document(own, document.lines), SubmitConfig)
    found = (*found, *(problems(config) if config else ()))
    validate.fail(found, document, str(source), so="nothing was done", again=AGAIN)
    return config or SubmitConfig()


def read(path: Path | None) -> Document:
    """The text of the site file; an empty one where none was named and none is there. Raises UsageError."""
    if path is None and not DEFAULT_PATH.exists():
        return Document({})
    source = path or DEFAULT_PATH
    try:
        data = source.read_bytes()
    except OSError as error:
        raise UsageError(f"{source}: {error.strerror}\n  give the site file with: --config") from error
    return yamltext.read(data, str(source)) if data.strip() else Document({})


def problems(config: SubmitConfig) -> Iterator[Problem]:
    """What is wrong beyond the type of each field."""
    yield from presets.problems(config.presets)
    yield from language.problems(config.policy)
