"""Alice on a Slurm without anything of slurm_plugin: she has installed its wheel in her home."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from slurm_plugin.sandbox import Sandbox
from tests import wheels
from tests.cluster import jobs
from tests.cluster.jobs import Job

PATH = "export PATH=$HOME/venv/bin:$PATH"
VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"


def install(box: Sandbox, directory: Path) -> None:
    """Give alice an environment with the wheel, which is built in `directory`, and with the checkout's PyTorch."""
    venv = box.home("alice") / "venv"
    wheels.install(wheels.built(directory), sys.executable, venv)
    command = venv / "bin/slurm-plugin"
    command.write_text(command.read_text().replace(str(venv), "/home/alice/venv"))
    add_pytorch(venv)


def add_pytorch(venv: Path) -> None:
    """Let an environment see the packages of the checkout's."""
    (venv / f"lib/{VERSION}/site-packages/sandbox.pth").write_text(f"/sandbox/venv/lib/{VERSION}/site-packages\n")


@contextmanager
def own_settings(box: Sandbox, **settings: Any) -> Iterator[None]:
    """Give alice settings of her own, and take them away at the end."""
    file = box.home("alice") / ".config/slurm_plugin.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(yaml.safe_dump(settings))
    os.chown(file, jobs.ALICE_UID, jobs.ALICE_UID)
    try:
        yield
    finally:
        file.unlink()


def ours(box: Sandbox, words: str, where: str = ".") -> str:
    """Return what her slurm-plugin prints in a directory below her home."""
    return box.run(["sh", "-c", f"{PATH}; cd ~/{where} && exec slurm-plugin {words}"]).stdout


def submit(box: Sandbox, name: str, **spec: Any) -> Job:
    """Submit a job of alice's with her own slurm-plugin."""
    directory = jobs.written(box, name, **spec)
    return Job(box, int(ours(box, "submit job.yaml", name)), directory)
