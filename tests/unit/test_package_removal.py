"""The script that runs before the package of the nodes is removed."""

import subprocess
from pathlib import Path

import pytest

from tests.wheels import CHECKOUT

SCRIPT = CHECKOUT / "packaging/slurm-plugin-node.prerm"


@pytest.mark.parametrize(
    ("name", "line", "removed"),
    [
        ("etc/slurm/slurm.conf", "Prolog={at}/hooks/prolog", False),
        ("run/slurm/conf/slurm.conf", "Prolog={at}/chain/prolog", False),
        ("etc/slurm/hooks.conf", "Prolog={at}/hooks/prolog", False),
        ("etc/slurm/conf.d/hooks.conf", "Epilog={at}/hooks/epilog", False),
        ("etc/slurm/slurm.conf", "#slurm_plugin# Prolog={at}/hooks/prolog", True),
        ("etc/slurm/slurm.conf.before-slurm_plugin", "Prolog={at}/hooks/prolog", True),
        ("etc/slurm/slurm.conf", "Prolog=/opt/prolog", True),
    ],
)
def test_while_slurm_names_the_hooks(tmp_path: Path, name: str, line: str, removed: bool) -> None:
    """Also in a file that slurm.conf includes: Slurm would drain every node."""
    at, conf = tmp_path / "etc/slurm/slurm_plugin", tmp_path / name
    at.mkdir(parents=True)
    (at / "slurm_plugin.pyz").touch()
    conf.parent.mkdir(parents=True, exist_ok=True)
    conf.write_text(f"ClusterName=a\n{line.format(at=at)}\n")
    text = SCRIPT.read_text(encoding="utf-8")
    script = text.replace("/etc/slurm", f"{tmp_path}/etc/slurm").replace("/run/slurm", f"{tmp_path}/run/slurm")
    done = subprocess.run(["/bin/sh", "-s", "remove"], input=script, text=True, capture_output=True, check=False)
    assert (done.returncode == 0, (at / "slurm_plugin.pyz").exists()) == (removed, not removed), done.stderr
    assert removed or f"{conf} names {at}" in done.stderr
