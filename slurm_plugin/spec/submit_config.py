"""The part of the site file, `/etc/slurm/slurm_plugin.yaml`, that a submission reads: policy, presets, command, the
directory for copies of data, the runtime of containers.

The rest of the file is for nodes and hooks (slurm_plugin.site.configuration). Reading it would take 12 ms of each
`render`, and its mistakes concern the admin who deploys it, not users who submit.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from slurm_plugin.errors import UsageError
from slurm_plugin.records.site_settings import DEFAULT_ROOT
from slurm_plugin.spec import documents, expand, policy_language, user_settings
from slurm_plugin.spec.documents import Document, Problem
from slurm_plugin.spec.key_types import Access, Runtime, Word
from slurm_plugin.spec.policy_language import Policy, Priority

DEFAULT_PATH: Final = Path("/etc/slurm/slurm_plugin.yaml")
AGAIN: Final = "slurm-plugin site install"
# Root's hooks use these paths without quotes.
PlainPath = Annotated[
    str, Meta(pattern=r"^/[A-Za-z0-9._/+-]*\Z", description="an absolute path of letters, digits and ._/+-")
]


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the site file."""


class StageIn(Record, frozen=True):
    """Copies of the jobs' data on each node's own disk."""

    directory: PlainPath | None = None  # like /tmp: owned by root, open to all, sticky; None: no copies
    keep: str = "7d"  # time to keep a copy after its last use


class Containers(Record, frozen=True):
    """Containers of jobs."""

    runtime: Runtime | None = None  # for images that both runtimes accept


class Experiments(Record, frozen=True):
    """Experiment files of other systems."""

    pools: Mapping[str, Word] = {}  # resource_pool of an experiment file -> partition; others are partitions themselves


class SubmitConfig(Record, frozen=True):
    """The keys of the site file that a submission reads."""

    policy: Policy = Policy()
    presets: Mapping[str, Mapping[str, Any]] = {}  # name -> keys of a spec, for `extends`
    command: PlainPath = f"{DEFAULT_ROOT}/bin/slurm-plugin"
    stage_in: StageIn = StageIn()
    container: Containers = Containers()
    experiment: Experiments = Experiments()
    share: Access = "read-write"  # the most that `share` of a job may give to a group
    priorities: Mapping[str, Priority] = {}  # normal, urgent, very-urgent -> what they are in Slurm


def load(path: Path | None = None) -> SubmitConfig:
    """Read this part of the site file, and below it the user's own; without files, return the defaults.

    Raise UsageError with all problems of a file.
    """
    site, (own, where) = read(path), user_settings.read()
    config = _part(site, str(path or DEFAULT_PATH))
    if not own.fields:
        return config
    _part(own, where, again=user_settings.AGAIN)
    mine = {key: own.fields[key] for key in user_settings.AT_SUBMISSION if key in own.fields}
    if os.path.exists(config.command):  # noqa: PTH110 - jobs run the site's installation, with its settings
        mine.pop("stage_in", None)
    return _part(Document(user_settings.below(site.fields, mine)), where)


def load_site() -> SubmitConfig:
    """Read this part of the site file alone. Raise UsageError with all problems."""
    return _part(read(None), str(DEFAULT_PATH))


def _part(document: Document, source: str, *, again: str = AGAIN) -> SubmitConfig:
    """Return this part of a file. Raise UsageError with all problems in it."""
    keys = msgspec.structs.fields(SubmitConfig)
    own = {key.encode_name: document.fields[key.encode_name] for key in keys if key.encode_name in document.fields}
    config, found = documents.record(Document(own, document.lines), SubmitConfig)
    found = (*found, *(problems(config) if config else ()))
    documents.fail(found, document, source, so="nothing was done", again=again)
    return config or SubmitConfig()


def read(path: Path | None) -> Document:
    """Read the site file; for None, an empty document if there is no file. Raise UsageError if it cannot be read."""
    if path is None and not DEFAULT_PATH.exists():
        return Document({})
    source = path or DEFAULT_PATH
    try:
        data = source.read_bytes()
    except OSError as error:
        raise UsageError(f"{source}: {error.strerror}\n  give the site file with: --config") from error
    return documents.read(data, str(source)) if data.strip() else Document({})


def problems(config: SubmitConfig) -> Iterator[Problem]:
    """Yield the problems that the types of the fields do not catch."""
    yield from expand.problems(config.presets)
    yield from policy_language.problems(config.policy)
    yield from policy_language.priority_problems(config.priorities)
