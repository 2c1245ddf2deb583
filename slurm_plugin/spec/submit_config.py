"""The parts of the site file, `/etc/slurm/slurm_plugin.yaml`, and of a user's own settings that a submission reads.

The rest of the site file is for nodes and hooks (slurm_plugin.site.configuration). Reading it would take 12 ms of each
`render`, and its mistakes concern the admin who deploys it, not users who submit.

A user's own settings, `~/.config/slurm_plugin.yaml`, are the keys of the site file that concern only his own jobs. The
directory is that of the XDG Base Directory Specification: `$XDG_CONFIG_HOME`, else `~/.config`. What the site file
sets, wins. Root's processes never read this file.
"""

import os
import pwd
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from slurm_plugin.errors import UsageError
from slurm_plugin.records.nearest import suggestion
from slurm_plugin.records.site_settings import DEFAULT_ROOT
from slurm_plugin.spec import documents, expand, policy_language
from slurm_plugin.spec.documents import Document, Problem
from slurm_plugin.spec.key_types import Access, Runtime, Word
from slurm_plugin.spec.policy_language import Part, Policy, Priority

OWN_NAME: Final = "slurm_plugin.yaml"
AT_SUBMISSION: Final = ("container", "presets", "stage_in")  # keys that a submission reads
OWN_KEYS: Final = (*AT_SUBMISSION, "logs", "notify", "prechecks")
OWN_AGAIN: Final = "slurm-plugin doctor"


def own_path() -> Path | None:
    """Return where this user's file is, or would be; None for root, and for a user without a home."""
    if os.geteuid() == 0:
        return None
    base = os.environ.get("XDG_CONFIG_HOME", "")
    if base.startswith("/"):
        return Path(base, OWN_NAME)
    try:
        home = os.environ.get("HOME") or pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return None
    return Path(home, ".config", OWN_NAME)


def read_own() -> tuple[Document, str]:
    """Return the user's file and its path; without a file, an empty document.

    Raise UsageError if the file cannot be read, belongs to another user, or has a key that is not in OWN_KEYS.
    """
    where = own_path()
    try:
        fd = os.open(where, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC) if where else -1
    except (FileNotFoundError, NotADirectoryError):
        fd = -1
    except OSError as error:
        raise UsageError(f"{where}: {error.strerror}\n  correct it, or move it away") from error
    if fd < 0:
        return Document({}), str(where or "")
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise UsageError(f"{where}: found no file of yours\n  move it away, or unset XDG_CONFIG_HOME and HOME")
        data = file.read(documents.MAX_BYTES + 1)
    document = documents.read(data, str(where)) if data.strip() else Document({})
    wrong = [
        Problem((key,), f"not a key of a user; accepted: {', '.join(OWN_KEYS)}{suggestion(key, OWN_KEYS)}")
        for key in document.fields
        if key not in OWN_KEYS
    ]
    documents.fail(wrong, document, str(where), so="nothing was done", again=OWN_AGAIN)
    return document, str(where)


def below(site: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the fields of the user's file and of the site's, which win. Lists of mandatory checks are joined.

    A preset of the site's replaces the user's of the same name as a whole. The user changes no check that the site
    names.
    """
    if isinstance(checks := site.get("prechecks"), dict) and isinstance(own.get("prechecks"), dict):
        named = {*checks, *(checks.get("mandatory") or ())} - {"mandatory"}
        own = {**own, "prechecks": {key: part for key, part in own["prechecks"].items() if key not in named}}
    merged = {**own, **site}
    for key in own.keys() & site.keys():
        if isinstance(own[key], dict) and isinstance(site[key], dict):
            merged[key] = {**own[key], **site[key]} if key == "presets" else below(site[key], own[key])
        elif key == "mandatory" and isinstance(own[key], list) and isinstance(site[key], list):
            merged[key] = list(dict.fromkeys((*site[key], *own[key])))
    return merged


DEFAULT_PATH: Final = Path("/etc/slurm/slurm_plugin.yaml")
AGAIN: Final = "slurm-plugin site install"
# Root's hooks use these paths without quotes.
PlainPath = Annotated[
    str, Meta(pattern=r"^/[A-Za-z0-9._/+-]*\Z", description="an absolute path of letters, digits and ._/+-")
]


class StageIn(Part, frozen=True):
    """Copies of the jobs' data on each node's own disk."""

    directory: PlainPath | None = None  # like /tmp: owned by root, open to all, sticky; None: no copies
    keep: str = "7d"  # time to keep a copy after its last use


class Containers(Part, frozen=True):
    """Containers of jobs."""

    runtime: Runtime | None = None  # for images that both runtimes accept


class Experiments(Part, frozen=True):
    """Experiment files of other systems."""

    pools: Mapping[str, Word] = {}  # resource_pool of an experiment file -> partition; others are partitions themselves


class SubmitConfig(Part, frozen=True):
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
    site, (own, where) = read(path), read_own()
    config = _part(site, str(path or DEFAULT_PATH))
    if not own.fields:
        return config
    _part(own, where, again=OWN_AGAIN)
    mine = {key: own.fields[key] for key in AT_SUBMISSION if key in own.fields}
    if os.path.exists(config.command):  # noqa: PTH110 - jobs run the site's installation, with its settings
        mine.pop("stage_in", None)
    return _part(Document(below(site.fields, mine)), where)


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
