"""`slurm-plugin site render DIR`: the files an admin deploys, complete: nothing in them needs an installed package."""

import json
import math
import os
import re
import shutil
import stat
from pathlib import Path

import hostfiles
import prechecks
import slurm_plugin
from slurm_plugin import siteconfig
from slurm_plugin.compiled import FILE
from slurm_plugin.errors import MissingError, UsageError
from slurm_plugin.siteconfig import DEFAULT_ROOT, SiteConfig
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

# What runs on nodes: packages and modules that need the standard library only (tests/unit/test_layering.py).
NODE_SIDE = (
    "byhand",
    "hooks",
    "job",
    "modes",
    "slurm",
    "__init__.py",
    "__main__.py",
    "after_run.py",
    "cap.py",
    "compiled.py",
    "decide.py",
    "errors.py",
    "grant.py",
    "health.py",
    "reasons.py",
    "token.py",
    "why.py",
)
_ENTRY = """# Runs the node side from this directory: python3 -I -S DIR VERB ...
from slurm_plugin.__main__ import main

raise SystemExit(main())
"""
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9._/+-]*", re.ASCII)


def render_site(config: SiteConfig, out: Path, *, root: str = DEFAULT_ROOT, elsewhere: bool = False) -> None:
    """Write the site directory that will stand at `root` into `out` (made, or brought up to date).

    Raises UsageError for a path that would need quoting in a hook, MissingError for an interpreter that root's hooks
    cannot trust. `elsewhere`: it is for another system than this one, whose interpreter is not looked for here.
    """
    for name in ("python", "run_directory", "spool_directory", "slurm_bin"):
        _plain(name, getattr(config, name))
    _plain("root", root)
    if not elsewhere:
        trusted_interpreter(Path(config.python))
    values = {
        "version": slurm_plugin.__version__,
        "root": root,
        "python": config.python,
        "run_directory": config.run_directory,
        "max_retries": config.max_retries,
        "limit": MAX_RETRIES,
    }
    for folder in (out, out / "hooks", out / "bin"):
        _readable(folder)
    for hook, template in HOOKS.items():
        always = hook == "prolog" and bool(config.prechecks.mandatory)
        _write(out / "hooks" / hook, render(template, **values, hook=hook, always=always), executable=True)
    _write(out / "bin" / "slurm-plugin", render("site/slurm-plugin.sh.j2", **values), executable=True)
    _write(out / "job_submit.lua", render("site/job_submit.lua.j2", **values))
    _write(out / "slurm.conf.fragment", fragment(config, root))
    _write(out / FILE, json.dumps(siteconfig.compiled(config), indent=1) + "\n")
    _library(out / "lib")


def fragment(config: SiteConfig, root: str) -> str:
    """The lines that slurm.conf needs, with comments."""
    interval_s = math.ceil(siteconfig.seconds(config.periodic.interval))
    return render("site/slurm.conf.j2", version=slurm_plugin.__version__, root=root, interval_s=interval_s)


def trusted_interpreter(python: Path) -> None:
    """Raise MissingError unless root owns the interpreter and only root may replace it."""
    real = python.resolve()
    for path in (python, *python.parents, real, *real.parents):
        try:
            found = path.stat()
        except OSError as error:
            raise MissingError(
                f"the hooks' interpreter {python} is not there ({error.strerror})\n"
                "  set `python:` in the site file to a Python >= 3.11 that every node has"
            ) from error
        if found.st_uid != 0 or (found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX):
            raise UsageError(
                f"the hooks' interpreter {python}: {path} can be written by others than root\n"
                "  hooks run as root; set `python:` in the site file to the system's own, such as /usr/bin/python3"
            )


def _library(lib: Path) -> None:
    """Copy the node side beside the old one and put it in its place."""
    fresh = lib.with_name("lib.new")
    shutil.rmtree(fresh, ignore_errors=True)
    only_code = shutil.ignore_patterns("__pycache__", "*.pyc", "py.typed")
    for package in (hostfiles, prechecks):
        shutil.copytree(Path(str(package.__file__)).parent, fresh / package.__name__, ignore=only_code)
    source = Path(str(slurm_plugin.__file__)).parent
    for name in NODE_SIDE:
        target = fresh / "slurm_plugin" / name
        if (source / name).is_dir():
            shutil.copytree(source / name, target, ignore=only_code)
        else:
            shutil.copyfile(source / name, target)
    _write(fresh / "__main__.py", _ENTRY)
    for path in (fresh, *fresh.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    old = lib.with_name("lib.old")
    shutil.rmtree(old, ignore_errors=True)
    if lib.exists():
        lib.rename(old)
    fresh.rename(lib)
    shutil.rmtree(old, ignore_errors=True)


def _readable(folder: Path) -> None:
    """Make a folder that everybody may enter, whatever the umask is: SlurmUser and users run what stands in it."""
    if not folder.is_dir():
        folder.mkdir(parents=True)
        folder.chmod(0o755)


def _write(path: Path, text: str, *, executable: bool = False) -> None:
    """Replace a file as a whole; readable by everybody, writable by its owner."""
    fresh = path.with_name(path.name + ".new")
    with fresh.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fchmod(file.fileno(), 0o755 if executable else 0o644)
        os.fsync(file.fileno())
    fresh.replace(path)


def _plain(name: str, path: str) -> None:
    if not _PLAIN_PATH.fullmatch(path):
        raise UsageError(f"{name}: {path!r}\n  an absolute path of letters, digits and ._/+- is accepted")
