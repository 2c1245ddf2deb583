"""A sandbox's site directory with a test's checks, rendered as an admin would, and restored."""

import os
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import yaml

from slurm_plugin.records.site_settings import ARCHIVE
from slurm_plugin.sandbox import Sandbox
from slurm_plugin.site.configuration import load
from slurm_plugin.site.files import render_site


class SetChecks(Protocol):
    """A function that changes `prechecks` and other keys of the site file."""

    def __call__(self, checks: Mapping[str, Any], **others: Any) -> None:
        """A mapping is merged into its section of `prechecks`. Other values, and `others`, replace the old value."""


@contextmanager
def changing(box: Sandbox, copy: Path) -> Iterator[SetChecks]:
    """Yield a function that changes the site file, and deploys the site directory again."""

    def change(checks: Mapping[str, Any], **others: Any) -> None:
        prechecks = site_file(box)["prechecks"]
        for name, value in checks.items():
            prechecks[name] = {**prechecks.get(name, {}), **value} if isinstance(value, Mapping) else value
        deploy(box, copy, prechecks=prechecks, **others)

    with kept(box, copy):
        yield change


def site_file(box: Sandbox) -> dict[str, Any]:
    """Return what the sandbox's site file says."""
    read = yaml.safe_load((box.directory / "etc/slurm/slurm_plugin.yaml").read_text(encoding="utf-8"))
    assert isinstance(read, dict)
    return read


def deploy(box: Sandbox, copy: Path, **keys: Any) -> Path:
    """Deploy the site with other keys in its site file. Return the rendered directory; job_submit.lua is in it."""
    (copy / "site.yaml").write_text(yaml.safe_dump({**site_file(box), **keys}), encoding="utf-8")
    inside = ("chroot", os.environ.get("SLURM_PLUGIN_TEST_ROOT") or "/")  # another root has its own interpreter
    render_site(load(copy / "site.yaml"), copy / "site", inside=inside)
    shutil.copytree(copy / "site", box.directory / "etc/slurm/slurm_plugin", dirs_exist_ok=True)
    return copy / "site"


@contextmanager
def kept(box: Sandbox, copy: Path) -> Iterator[Path]:
    """Yield the deployed site directory, the same for all machines. Restore it at the end."""
    deployed = box.directory / "etc/slurm/slurm_plugin"
    shutil.copytree(deployed, copy / "whole")
    try:
        yield deployed
    finally:
        shutil.rmtree(deployed)
        shutil.copytree(copy / "whole", deployed)


def edit(site: Path, name: str, change: Callable[[str], str]) -> None:
    """Change a module in the deployed zip, such as `slurm_plugin/node/prolog.py`."""
    path = site / ARCHIVE
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(site / "fresh", "w") as new:
        for entry in old.infolist():
            if entry.filename == name:
                text = old.read(entry).decode()
                assert change(text) != text, name
                new.writestr(entry, change(text))
            elif entry.filename != f"{name}c":
                new.writestr(entry, old.read(entry))
    (site / "fresh").chmod(0o644)
    (site / "fresh").replace(path)
