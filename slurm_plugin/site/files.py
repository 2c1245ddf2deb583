"""Render and write the files of the site directory, which an admin deploys. They need no installed package."""

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import slurm_plugin
from prechecks.files import exposed, replace
from slurm_plugin.errors import MissingError, SlurmPluginError, UsageError
from slurm_plugin.logs import library, signature
from slurm_plugin.records import site_settings
from slurm_plugin.records.node_directory import task_prolog
from slurm_plugin.records.site_settings import ARCHIVE, DEFAULT_ROOT, FILE
from slurm_plugin.site import archive, compile_archive, lua
from slurm_plugin.site.compilation import CANARY, SiteFile, compile_site, on_trial
from slurm_plugin.site.configuration import SiteConfig, seconds
from slurm_plugin.site.slurmconf import HOOKS
from slurm_plugin.slurm.process import run
from slurm_plugin.templates import render

OLDEST_PYTHON: Final = (3, 11)
# The advice for distributions whose python3 is older.
PACKAGES: Final = (
    "on every node, install python3.11 (RHEL 8 and 9: dnf install python3.11 or python3.12;"
    " Ubuntu 22.04: apt-get install python3.11), and set `python: /usr/bin/python3.11` in the site file"
)
DEADLINE_S: Final = 10.0
_PATH: Final = "/usr/sbin:/usr/bin:/sbin:/bin"
_VERSION: Final = "import sys; print(*sys.version_info[:2])"
# The number of bytes of a script's first line that Linux reads: since 5.1, and before (execve(2), Interpreter scripts).
_FIRST_LINE_BYTES, _OLDER = 255, 127
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9._/+-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or a directory. The content of a directory is None."""

    content: bytes | None
    mode: int
    uid: int = 0
    gid: int = 0


DIRECTORY: Final = Entry(None, 0o755)


def rendered(
    config: SiteConfig,
    root: str,
    site_file: SiteFile | None = None,
    canaries: str = "",
    inside: Sequence[str] = (),
) -> dict[str, Entry]:
    """Return the files of the site directory, to be deployed at `root`, by their names below `root`.

    `site_file`: the source of `config`; hooks report if it changes. `canaries`: a node list, for a canary installation.
    `inside`: the command that runs a program on the target system, if that is another system. Raise UsageError for a
    root that a hook would have to quote, for an interpreter that does not run, is too old or that others than root can
    change, and if `canaries` is not a node list. Raise MissingError if there is no interpreter.
    """
    plain_path("root", root)
    if canaries:
        config = on_trial(config, canaries)
    if not inside:
        trusted_interpreter(Path(config.python))
    fit_interpreter(config.python, inside)
    values: dict[str, Any] = {
        "version": slurm_plugin.__version__,
        "root": root,
        "archive": ARCHIVE,
        "index_place": compile_archive.INDEX_PLACE,
        "index_size": compile_archive.INDEX_SIZE,
        "python": config.python,
        "run_directory": config.run_directory,
        "task_prolog": task_prolog(config.run_directory),
        "spool_directory": config.spool_directory,
        "checks": config.policy.checks,
        "gpu_jobs": bool(config.gpu_job_map),
        "oldest_python": OLDEST_PYTHON,
        "slurm_bin": config.slurm_bin,
        "reserve": config.recovery.nice > 0,  # else a restarted job does not get ahead in the queue
        "reservation": site_settings.RESERVATION_PREFIX,
        "reserved": site_settings.RESERVATION_MADE,
        "reserved_s": site_settings.RESERVATION_S,
        "reserved_word_s": site_settings.RESERVATION_BY_WORD_S,
    }
    settings = compile_site(config, site_file) | ({CANARY: canaries} if canaries else {})
    programs = {"bin/slurm-plugin": _launcher(values)}
    for hook in HOOKS.values():
        template = "site/task_prolog.sh.j2" if hook == "task_prolog" else "site/guard.sh.j2"
        always = hook == "prolog" and bool(config.prechecks.mandatory)
        programs[f"hooks/{hook}"] = render(template, **values, hook=hook, always=always)
    texts = {
        "job_submit.lua": lua.job_submit(config, root),
        "slurm.conf.fragment": fragment(config, root),
        FILE: json.dumps(settings, indent=1) + "\n",
        signature.FILE: library.compile_all(),
    }
    found = {
        "bin": DIRECTORY,
        "hooks": DIRECTORY,
        ARCHIVE: Entry(archive.build((*inside, config.python)), 0o644),
        **{name: Entry(text.encode(), 0o755) for name, text in programs.items()},
        **{name: Entry(text.encode(), 0o644) for name, text in texts.items()},
    }
    return dict(sorted(found.items()))


def in_order(names: Mapping[str, Entry]) -> list[str]:
    """Return the names in the order to write them: directories, then the code, then the hooks that call it."""
    rank = {ARCHIVE: 0, FILE: 1}
    return sorted(names, key=lambda name: (names[name].content is not None, rank.get(name, 2), name))


def render_site(
    config: SiteConfig,
    out: Path,
    *,
    root: str = DEFAULT_ROOT,
    site_file: SiteFile | None = None,
    inside: Sequence[str] = (),
) -> None:
    """Write or update the site directory in `out`. Raise as `rendered` does, before any write.

    Raise SlurmPluginError if a file cannot be written.
    """
    files = {".": DIRECTORY, **rendered(config, root, site_file, inside=inside)}
    for name in in_order(files):
        path, entry = out / name, files[name]
        try:
            if entry.content is not None:
                replace(path, entry.content, mode=entry.mode, durable=True)
            elif not path.is_dir():  # SlurmUser and users run files in it, so ignore the umask
                path.mkdir(parents=True)
                path.chmod(entry.mode)
        except OSError as error:
            raise SlurmPluginError(
                f"{path} cannot be written: {error.strerror}\n  see: df {out.parent}; then render it again"
            ) from error


def _launcher(values: Mapping[str, Any]) -> str:
    """Return bin/slurm-plugin. Raise UsageError if the interpreter's path is too long for the script's first line."""
    text = render("site/slurm-plugin.py.j2", **values)
    kernel = tuple(map(int, re.findall("[0-9]+", os.uname().release)[:2]))
    read = _FIRST_LINE_BYTES if kernel >= (5, 1) else _OLDER
    if (over := len(text.partition("\n")[0].encode()) - read) > 0:
        raise UsageError(
            f"python: {values['python']}: the path is {over} bytes too long for the first line of bin/slurm-plugin\n"
            "  give the interpreter a shorter path, such as a link to it"
        )
    return text


def fragment(config: SiteConfig, root: str) -> str:
    """Return the lines that slurm.conf needs, with comments."""
    interval_s = math.ceil(seconds(config.periodic.interval))
    return render("site/slurm.conf.j2", version=slurm_plugin.__version__, root=root, interval_s=interval_s)


def trusted_interpreter(python: Path) -> None:
    """Raise MissingError if there is no interpreter, UsageError if others than root can replace it."""
    try:
        found = exposed(str(python))
    except OSError as error:
        raise MissingError(
            f"the hooks' interpreter {python} is not there ({error.strerror})\n"
            "  set `python:` in the site file to a Python >= 3.11 that every node has"
        ) from error
    if found:
        raise UsageError(
            f"the hooks' interpreter {python}: {found} can be written by others than root\n"
            "  hooks run as root; set `python:` in the site file to the system's own, such as /usr/bin/python3"
        )


def fit_interpreter(python: str, inside: Sequence[str] = ()) -> tuple[int, int]:
    """Run the interpreter as hooks run it and return its version. `inside` is as for `rendered`.

    Raise UsageError if it does not run or is too old: every hook and batch script would fail.
    """
    try:
        said = run([*inside, python, "-I", "-S", "-c", _VERSION], deadline_s=DEADLINE_S, environ={"PATH": _PATH})
    except OSError as error:
        raise UsageError(f"the hooks' interpreter {python} does not run ({error.strerror})\n  {PACKAGES}") from error
    found = re.fullmatch(r"(\d+) (\d+)\n", said.out)
    if not found or said.code != 0:
        raise UsageError(f"the hooks' interpreter {python} -I -S does not run\n  {PACKAGES}")
    version = int(found[1]), int(found[2])
    if version < OLDEST_PYTHON:
        shown, oldest = (".".join(map(str, each)) for each in (version, OLDEST_PYTHON))
        raise UsageError(
            f"the hooks' interpreter {python} is Python {shown}; {oldest} or later is needed\n  {PACKAGES}"
        )
    return version


def plain_path(name: str, path: str) -> None:
    """Raise UsageError for a path that a hook would have to quote."""
    if not _PLAIN_PATH.fullmatch(path):
        raise UsageError(f"{name}: {path!r}\n  an absolute path of letters, digits and ._/+- is accepted")
