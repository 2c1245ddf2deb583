"""`slurm-plugin site render DIR`: the files an admin deploys, complete: nothing in them needs an installed package."""

import json
import math
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import slurm_plugin
from slurm_plugin import archive, siteconfig, trust
from slurm_plugin.compiled import ARCHIVE, FILE
from slurm_plugin.errors import MissingError, UsageError
from slurm_plugin.policy import language, lua
from slurm_plugin.siteconfig import DEFAULT_ROOT, SiteConfig, SiteFile
from slurm_plugin.templates import render
from slurm_plugin.token import MAX_RETRIES

# hook -> template. The guards run the program of the same name in slurm_plugin/hooks.
HOOKS = {
    "prolog": "site/guard.sh.j2",
    "epilog": "site/guard.sh.j2",
    "epilog_slurmctld": "site/guard.sh.j2",
    "periodic": "site/guard.sh.j2",
    "task_prolog": "site/task_prolog.sh.j2",
}

_PLAIN_PATH = re.compile(r"/[A-Za-z0-9._/+-]*", re.ASCII)


def render_site(
    config: SiteConfig,
    out: Path,
    *,
    root: str = DEFAULT_ROOT,
    site_file: SiteFile | None = None,
    inside: Sequence[str] = (),
) -> None:
    """Write the site directory that will stand at `root` into `out` (made, or brought up to date).

    Raises UsageError for a path that would need quoting in a hook, MissingError for an interpreter that root's hooks
    cannot trust. `site_file` is where `config` came from, for hooks to see when that changes. `inside`: it is for
    another system than this one; the command that runs a program there.
    """
    for name in ("python", "run_directory", "spool_directory", "slurm_bin"):
        plain_path(name, getattr(config, name))
    plain_path("root", root)
    if not inside:
        trusted_interpreter(Path(config.python))
    values: dict[str, Any] = {
        "version": slurm_plugin.__version__,
        "root": root,
        "archive": ARCHIVE,
        "python": config.python,
        "run_directory": config.run_directory,
        "spool_directory": config.spool_directory,
        "checks": config.policy.checks,
    }
    submission = job_submit(config)
    for folder in (out, out / "hooks", out / "bin"):
        _readable(folder)
    _write(out / ARCHIVE, archive.build((*inside, config.python)))  # before whoever runs it
    for hook, template in HOOKS.items():
        always = hook == "prolog" and bool(config.prechecks.mandatory)
        _write(out / "hooks" / hook, render(template, **values, hook=hook, always=always), executable=True)
    _write(out / "bin" / "slurm-plugin", render("site/slurm-plugin.sh.j2", **values), executable=True)
    _write(out / "job_submit.lua", submission)
    _write(out / "slurm.conf.fragment", fragment(config, root))
    _write(out / FILE, json.dumps(siteconfig.compiled(config, site_file), indent=1) + "\n")
    _remove_library(out)


def job_submit(config: SiteConfig) -> str:
    """The text of job_submit.lua. Raises SlurmPluginError where Lua, if it is at hand, does not accept it."""
    policy = lua.table(language.compiled(config.policy)) if language.rules_jobs(config.policy) else ""
    numbers: dict[str, Any] = {"max_retries": config.max_retries, "limit": MAX_RETRIES}
    text = render("site/job_submit.lua.j2", version=slurm_plugin.__version__, policy=policy, **numbers)
    lua.check(text)
    return text


def fragment(config: SiteConfig, root: str) -> str:
    """The lines that slurm.conf needs, with comments."""
    interval_s = math.ceil(siteconfig.seconds(config.periodic.interval))
    return render("site/slurm.conf.j2", version=slurm_plugin.__version__, root=root, interval_s=interval_s)


def trusted_interpreter(python: Path) -> None:
    """Raise MissingError unless root owns the interpreter and only root may replace it."""
    try:
        found = trust.exposed(str(python))
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


def plain_path(name: str, path: str) -> None:
    """Raise UsageError for a path that a hook cannot hold without quotes."""
    if not _PLAIN_PATH.fullmatch(path):
        raise UsageError(f"{name}: {path!r}\n  an absolute path of letters, digits and ._/+- is accepted")


def _remove_library(out: Path) -> None:
    """Earlier versions had the code in a directory, and made a new one beside it."""
    for name in ("lib", "lib.new", "lib.old"):
        shutil.rmtree(out / name, ignore_errors=True)


def _readable(folder: Path) -> None:
    """Make a folder that everybody may enter, whatever the umask is: SlurmUser and users run what stands in it."""
    if not folder.is_dir():
        folder.mkdir(parents=True)
        folder.chmod(0o755)


def _write(path: Path, content: str | bytes, *, executable: bool = False) -> None:
    """Replace a file as a whole; readable by everybody, writable by its owner."""
    fresh = path.with_name(path.name + ".new")
    with fresh.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fchmod(file.fileno(), 0o755 if executable else 0o644)
        os.fsync(file.fileno())
    fresh.replace(path)
