"""A user's own settings, `~/.config/slurm_plugin.yaml`: the keys of the site file that concern only his own jobs.

The directory is that of the XDG Base Directory Specification: `$XDG_CONFIG_HOME`, else `~/.config`. What the site file
sets, wins. Root's processes never read this file.
"""

import os
import pwd
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from slurm_plugin.errors import UsageError
from slurm_plugin.records.nearest import suggestion
from slurm_plugin.spec import documents
from slurm_plugin.spec.documents import Document, Problem

NAME: Final = "slurm_plugin.yaml"
AT_SUBMISSION: Final = ("container", "presets", "stage_in")  # keys that a submission reads
KEYS: Final = (*AT_SUBMISSION, "logs", "notify", "prechecks")
AGAIN: Final = "slurm-plugin doctor"


def path(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return where this user's file is, or would be; None for root, and for a user without a home."""
    if os.geteuid() == 0:
        return None
    base = environ.get("XDG_CONFIG_HOME", "")
    if base.startswith("/"):
        return Path(base, NAME)
    try:
        home = environ.get("HOME") or pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return None
    return Path(home, ".config", NAME)


def read() -> tuple[Document, str]:
    """Return the user's file and its path; without a file, an empty document.

    Raise UsageError if the file cannot be read, belongs to another user, or has a key that is not in KEYS.
    """
    where = path()
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
        Problem((key,), f"not a key of a user; accepted: {', '.join(KEYS)}{suggestion(key, KEYS)}")
        for key in document.fields
        if key not in KEYS
    ]
    documents.fail(wrong, document, str(where), so="nothing was done", again=AGAIN)
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
