"""A sandbox's site with checks of a test's own, rendered as an admin would, and put back."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from slurm_plugin.sandbox import Sandbox
from slurm_plugin.site import render_site
from slurm_plugin.siteconfig import load

SetChecks = Callable[[Mapping[str, Any]], None]


@contextmanager
def changing(box: Sandbox, kept: Path) -> Iterator[SetChecks]:
    """What changes the site file's `prechecks`: a mapping replaces those keys of its part, anything else the whole."""
    file, deployed = box.directory / "etc/slurm/slurm_plugin.yaml", box.directory / "etc/slurm/slurm_plugin"
    shutil.copytree(deployed, kept / "whole")

    def change(checks: Mapping[str, Any]) -> None:
        site = yaml.safe_load(file.read_text(encoding="utf-8"))
        for name, value in checks.items():
            before = site["prechecks"].get(name, {})
            site["prechecks"][name] = {**before, **value} if isinstance(value, Mapping) else value
        (kept / "site.yaml").write_text(yaml.safe_dump(site), encoding="utf-8")
        inside = ("chroot", os.environ.get("SLURM_PLUGIN_TEST_ROOT") or "/")  # another root has its own interpreter
        render_site(load(kept / "site.yaml"), kept / "site", inside=inside)
        shutil.copytree(kept / "site", deployed, dirs_exist_ok=True)

    try:
        yield change
    finally:
        shutil.rmtree(deployed)
        shutil.copytree(kept / "whole", deployed)
